"""`verify`: the verifier of tensor IR as a pass, to be put anywhere into a pipeline."""
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dinfc.ir.graph import Module
from dinfc.ir.verify import verify_module

from .base import Context, Pass


@dataclass(frozen=True)
class Verify(Pass):
    """Checks types and structure of every function; changes nothing."""

    name: ClassVar[str] = "verify"

    def run(self, module: Module, context: Context) -> Module:
        verify_module(module)
        return module
