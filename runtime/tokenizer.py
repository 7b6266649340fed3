"""Text and token ids, through the checkpoint's tokenizer.json; the `tokenizers` library is imported only here."""
from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

from .errors import RuntimeFault

TOKENIZER_FILE = "tokenizer.json"


class Encoding(Protocol):
    """What encoding a text gives."""

    ids: list[int]


class Tokenizer(Protocol):
    """The part of `tokenizers.Tokenizer` that is used."""

    def encode(self, sequence: str, /) -> Encoding: ...
    def decode(self, ids: Sequence[int], /, skip_special_tokens: bool = True) -> str: ...
    def id_to_token(self, id: int, /) -> str | None: ...
    def get_vocab(self, with_added_tokens: bool = True) -> dict[str, int]: ...


def load_tokenizer(path: Path) -> Tokenizer:
    """Raises RuntimeFault E-CKPT-015 if the file is no tokenizer or the library is not installed."""
    try:
        from tokenizers import Tokenizer as Library
    except ImportError:
        raise RuntimeFault("E-CKPT-015", path=path, reason="the Python package tokenizers is not installed") from None
    try:
        loaded = Library.from_file(str(path))
    except Exception as error:  # the library raises nothing more precise
        raise RuntimeFault("E-CKPT-015", path=path, reason=str(error)) from None
    loaded.encode_special_tokens = True  # a prompt that spells a special token is text, not that token
    return cast(Tokenizer, loaded)


def require_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a checkpoint. Raises RuntimeFault: E-RUN-004 (there is none), E-CKPT-015."""
    path = folder / TOKENIZER_FILE
    if not os.path.isfile(path):  # unlike Path.is_file, no name makes it raise
        raise RuntimeFault("E-RUN-004", path=folder)
    return load_tokenizer(path)
