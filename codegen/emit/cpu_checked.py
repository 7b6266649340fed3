"""placeholder"""
from .cpu_scope import Scope


class CheckedEmitter:
    def __init__(self, scope: Scope) -> None:
        raise NotImplementedError
