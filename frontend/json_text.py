"""JSON files of users: parsed strictly, with the line of a key found again when something is wrong with it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]')


def parse_object(text: str) -> dict[str, object]:
    """The JSON object in `text`.

    Raises ValueError, with the line where it is known, for anything else: bad syntax, a key given twice, NaN or
    Infinity, a value that is no object.
    """

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        seen: dict[str, object] = {}
        for key, value in pairs:
            if key in seen:
                raise ValueError(f"key {key} is given twice")
            seen[key] = value
        return seen

    def refuse(constant: str) -> object:
        raise ValueError(f"{constant} is no JSON number")

    value = json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    if not isinstance(value, dict):
        raise ValueError("the file must hold one JSON object")
    return value


def line_of(text: str, path: Sequence[str]) -> int | None:
    """1-based line of the key `path` (`("text_config", "vocab_size")`) in valid JSON `text`, or None."""
    stack: list[str | None] = []  # key under which each open bracket sits
    key: str | None = None
    tokens = list(_TOKEN.finditer(text))
    for index, token in enumerate(tokens):
        mark = token[0]
        if mark[0] == '"' and index + 1 < len(tokens) and tokens[index + 1][0] == ":":
            key = json.loads(mark)
            if [*stack[1:], key] == list(path):
                return text.count("\n", 0, token.start()) + 1
        elif mark in "{[":
            stack.append(key)
            key = None
        elif mark in "}]":
            stack.pop()
    return None
