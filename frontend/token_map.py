"""The Engram table token id -> compressed id (spec §4.1, and the file convention of §12.2).

Ids of the tokenizer get classes 0..V_c-1 in order of first appearance. Ids below V that the tokenizer does not have
get the sentinel -1, as ids from V on do (§4.1): they form no class of their own, since V_c, which the hash multipliers
depend on, counts tokens. A file `engram_token_map.json` has no sentinels: all of its V entries are classes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from dinfc.diagnostics import DinfcError
from dinfc.frontend.config import ModelConfig

MAP_FILE = "engram_token_map.json"
TOKENIZER_FILE = "tokenizer.json"
SENTINEL = -1

_REPLACEMENT = "\ufffd"  # what decoding puts where bytes are no UTF-8
_LONE_SPACE = "\ue000"  # a private-use character that stands for " " while the text is stripped

TokenMap = tuple[int, ...]


def load_token_map(folder: Path, config: ModelConfig) -> TokenMap:
    """V entries in [-1, V_c) for the checkpoint in `folder`; empty without Engram layers.

    `engram_token_map.json` wins over `tokenizer.json` and must agree with it for every id that the tokenizer has.
    Raises DinfcError: E-CONFIG-034 (neither file), 035 (malformed), 036 (count is not
    `engram_compressed_vocab_size`), 037 (they disagree), 038 and 039 (tokenizer unreadable or too large).
    """
    if not config.engram_layer_ids:
        return ()
    map_path, tokenizer_path = folder / MAP_FILE, folder / TOKENIZER_FILE
    from_tokenizer = map_of_tokenizer(tokenizer_path, config.vocab_size) if tokenizer_path.exists() else None
    if map_path.exists():
        mapping = _read_map(map_path, config)
        for token, (mine, theirs) in enumerate(zip(mapping, from_tokenizer or (), strict=False)):
            if theirs not in (SENTINEL, mine):
                raise DinfcError("E-CONFIG-037", place=map_path, id=token, map_value=mine, tokenizer_value=theirs)
        path = map_path
    elif from_tokenizer is not None:
        mapping, path = from_tokenizer, tokenizer_path
    else:
        raise DinfcError("E-CONFIG-034", folder=folder)
    check_token_map(mapping, path, config)
    return mapping


def check_token_map(mapping: TokenMap, path: Path, config: ModelConfig) -> None:
    """Raises DinfcError E-CONFIG-036 unless the map, read from `path`, has V_c classes; 031 if the pad has none."""
    count, expected = 1 + max(mapping), config.engram_compressed_vocab_size
    if count != expected:
        raise DinfcError("E-CONFIG-036", place=path, path=path.name, count=count, expected=expected)
    pad = config.engram_pad_token_id
    assert pad is not None  # rules.feature_fields_present
    if mapping[pad] == SENTINEL:
        raise DinfcError("E-CONFIG-031", place=path, field="engram_pad_token_id", value=pad, vocab=config.vocab_size)


def compressed_id(mapping: TokenMap, token: int) -> int:
    """a_k of one token; -1 for every id outside the vocabulary, negative ones included (they never wrap)."""
    return mapping[token] if 0 <= token < len(mapping) else SENTINEL


def map_of_tokenizer(path: Path, vocab_size: int) -> TokenMap:
    """The table of a tokenizer.json, `vocab_size` entries.

    Raises DinfcError E-CONFIG-038 (unreadable), E-CONFIG-039 (it has ids >= vocab_size).
    """
    from tokenizers import Tokenizer  # a slow import that most commands do not need

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more precise
        raise DinfcError("E-CONFIG-038", place=path, path=path, reason=str(error)) from None
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if largest >= vocab_size:
        raise DinfcError("E-CONFIG-039", place=path, path=path, count=largest + 1, vocab=vocab_size)
    normalize = _normalizer()
    classes: dict[str, int] = {}
    mapping = []
    for token in range(vocab_size):
        raw = tokenizer.id_to_token(token)
        if raw is None:
            mapping.append(SENTINEL)
            continue
        text = tokenizer.decode([token], skip_special_tokens=False)
        key = raw if _REPLACEMENT in text else normalize(text) or text
        mapping.append(classes.setdefault(key, len(classes)))
    return tuple(mapping)


def halving_map(vocab_size: int, compressed: int) -> TokenMap:
    """The map of synthetic checkpoints without a tokenizer: floor(id * V_c / V), every class in use.

    It is floor(id / 2) for the sizes of §12.2. Raises ValueError if `compressed` exceeds `vocab_size`.
    """
    if compressed > vocab_size:
        raise ValueError(f"{compressed} classes for {vocab_size} ids")
    return tuple(token * compressed // vocab_size for token in range(vocab_size))


def _read_map(path: Path, config: ModelConfig) -> TokenMap:
    vocab, compressed = config.vocab_size, config.engram_compressed_vocab_size
    assert compressed is not None  # rules.feature_fields_present

    def malformed(reason: str) -> DinfcError:
        return DinfcError("E-CONFIG-035", place=path, path=path.name, reason=reason, vocab=vocab, compressed=compressed)

    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise malformed(f"not JSON: {error}") from None
    if not isinstance(entries, list) or len(entries) != vocab:
        raise malformed(f"it has {len(entries)} entries" if isinstance(entries, list) else "it is no list")
    for token, entry in enumerate(entries):
        if type(entry) is not int or entry < 0:
            raise malformed(f"entry {token} is {json.dumps(entry)}")
    return tuple(entries)


def _normalizer() -> Callable[[str], str]:
    """normalise of §4.1, from the normalisers of the `tokenizers` library (one set of Unicode tables)."""
    from tokenizers import Regex, normalizers

    chain = normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.NFD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"[ \t\r\n]+"), " "),
            normalizers.Replace(Regex(r"\A \z"), _LONE_SPACE),
            normalizers.Strip(),
            normalizers.Replace(_LONE_SPACE, " "),
        ]
    )

    def normalize(text: str) -> str:
        return str(chain.normalize_str(text))

    return normalize
