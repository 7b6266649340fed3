"""The Engram table token id -> compressed id (spec §4.1), from the checkpoint folder.

`engram_token_map.json` wins over tokenizer.json and must agree with it. Ids that the tokenizer does not have are -1.
"""
from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .errors import RuntimeFault
from .plan import ModelFacts

MAP_FILE = "engram_token_map.json"
TOKENIZER_FILE = "tokenizer.json"
NO_CLASS = -1

_REPLACEMENT = "\ufffd"
_BLANKS = re.compile("[ \t\r\n]+")

TokenMap = NDArray[np.int32]


def load_token_map(folder: Path, model: ModelFacts) -> TokenMap | None:
    """i32 [V] in [-1, V_c); None for a model without Engram.

    Raises RuntimeFault: E-CKPT-013 (neither file), E-CKPT-014 (malformed, of another size, or they disagree),
    E-CKPT-015 (tokenizer unreadable).
    """
    if not model.compressed_vocab:
        return None
    map_path, tokenizer_path = folder / MAP_FILE, folder / TOKENIZER_FILE
    derived = map_of_tokenizer(tokenizer_path, model.vocab_size) if tokenizer_path.is_file() else None
    if map_path.is_file():
        result, path = read_map(map_path, model.vocab_size), map_path
        if derived is not None:
            wrong = np.flatnonzero((derived != result) & (derived != NO_CLASS))
            if wrong.size:
                at = int(wrong[0])
                raise RuntimeFault("E-CKPT-014", path=map_path, reason=f"id {at} has the compressed id {result[at]}, "
                                   f"tokenizer.json gives {derived[at]}")
    elif derived is not None:
        result, path = derived, tokenizer_path
    else:
        raise RuntimeFault("E-CKPT-013", path=folder)
    count = int(result.max()) + 1
    if count != model.compressed_vocab:
        raise RuntimeFault("E-CKPT-014", path=path, reason=f"it gives {count} compressed ids, the package was compiled "
                           f"for {model.compressed_vocab}")
    if result[model.engram_pad_token_id] == NO_CLASS:
        reason = f"the pad id {model.engram_pad_token_id} has no compressed id"
        raise RuntimeFault("E-CKPT-014", path=path, reason=reason)
    return result


def read_map(path: Path, vocab_size: int) -> TokenMap:
    """`engram_token_map.json`: a list of V integers >= 0. Raises RuntimeFault E-CKPT-014."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RuntimeFault("E-CKPT-014", path=path, reason=f"it is not JSON: {error}") from None
    if not isinstance(entries, list) or len(entries) != vocab_size:
        found = f"{len(entries)} entries" if isinstance(entries, list) else "no list"
        raise RuntimeFault("E-CKPT-014", path=path, reason=f"it holds {found} instead of {vocab_size} integers")
    for at, entry in enumerate(entries):
        if type(entry) is not int or not 0 <= entry < 2**31:
            raise RuntimeFault("E-CKPT-014", path=path, reason=f"entry {at} is {json.dumps(entry)}")
    return np.array(entries, np.int32)


def map_of_tokenizer(path: Path, vocab_size: int) -> TokenMap:
    """Classes of ids by their normalised text, numbered in order of first appearance.

    Raises RuntimeFault E-CKPT-015 if the file is no tokenizer, or has ids >= vocab_size.
    """
    from .tokenizer import load_tokenizer

    tokenizer = load_tokenizer(path)
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if largest >= vocab_size:
        reason = f"it has the id {largest}; the vocabulary ends at {vocab_size}"
        raise RuntimeFault("E-CKPT-015", path=path, reason=reason)
    fold = text_normalizer()
    numbers: dict[str, int] = {}
    result = np.full(vocab_size, NO_CLASS, np.int32)
    for token in range(vocab_size):
        spelling = tokenizer.id_to_token(token)
        if spelling is None:
            continue
        text = tokenizer.decode([token], skip_special_tokens=False)
        key = spelling if _REPLACEMENT in text else fold(text) or text
        result[token] = numbers.setdefault(key, len(numbers))
    return result


def text_normalizer() -> Callable[[str], str]:
    """normalise of §4.1. The Unicode tables are those of the `tokenizers` library: Python's own are of another Unicode
    version, and its lower() and strip() know other characters."""
    from tokenizers import normalizers

    letters = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
    edges = normalizers.Strip()

    def normalize(text: str) -> str:
        folded = _BLANKS.sub(" ", letters.normalize_str(text))
        return folded if folded == " " else str(edges.normalize_str(folded))

    return normalize
