"""Spec §4.1 and the convention of §12.2: the table token id -> compressed id."""

import json
from pathlib import Path

from tokenizers import Regex, Tokenizer, normalizers

MAP_NAME = "engram_token_map.json"
LONE_SPACE = "\ue000"  # private-use stand-in for the text " " while it is stripped
REPLACEMENT = "\ufffd"


def _normalizer() -> normalizers.Sequence:
    return normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.NFD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex("[ \\t\\r\\n]+"), " "),
        ]
    )


_FOLD = _normalizer()
_STRIP = normalizers.Strip()


def normalise(text: str) -> str:
    """normalise(text) of §4.1, made of the ``tokenizers`` normalizers (their Unicode tables, no final-sigma rule)."""
    folded: str = _FOLD.normalize_str(text)
    if folded == " ":
        folded = LONE_SPACE
    stripped: str = _STRIP.normalize_str(folded)
    return stripped.replace(LONE_SPACE, " ")


def token_key(text: str, raw: str) -> str:
    """The key of a token from its decoded text and its raw vocabulary string."""
    if REPLACEMENT in text:
        return raw
    return normalise(text) or text


def map_from_tokenizer(path: str | Path, vocab: int) -> list[int]:
    """§4.1 over all ids of a tokenizer.json, in id order; ids without a token (up to V - 1) get the sentinel -1."""
    tokenizer = Tokenizer.from_file(str(path))
    first: dict[str, int] = {}
    result: list[int] = []
    for token in range(vocab):
        raw = tokenizer.id_to_token(token)
        if raw is None:
            result.append(-1)
            continue
        key = token_key(tokenizer.decode([token], skip_special_tokens=False), raw)
        result.append(first.setdefault(key, len(first)))
    return result


def read_token_map(directory: str | Path, vocab: int) -> list[int] | None:
    """``engram_token_map.json`` wins over tokenizer.json; None when there is neither."""
    root = Path(directory)
    if (root / MAP_NAME).exists():
        entries: list[int] = json.loads((root / MAP_NAME).read_text(encoding="utf-8"))
        if len(entries) != vocab:
            raise ValueError(f"{MAP_NAME} has {len(entries)} entries, expected {vocab}")
        return entries
    if (root / "tokenizer.json").exists():
        return map_from_tokenizer(root / "tokenizer.json", vocab)
    return None
