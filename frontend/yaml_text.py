"""YAML files of users: plain Python values together with the line of every key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.tokens import CommentToken

from dinfc.diagnostics import DinfcError, Place

KeyPath = tuple[str, ...]


@dataclass(frozen=True)
class Document:
    """A parsed file: `values` is plain data, `lines` gives the 1-based line of every key and list item."""

    path: Path
    values: Mapping[str, object]
    lines: Mapping[KeyPath, int]

    def place(self, key: Sequence[str]) -> Place:
        """Place of `key`, or of the nearest enclosing key that the file has."""
        path = tuple(key)
        while path and path not in self.lines:
            path = path[:-1]
        return Place(str(self.path), self.lines.get(path))


def read_yaml(path: Path) -> Document:
    """The mapping in the YAML file `path`.

    Raises DinfcError: E-YAML-001 (no file), E-YAML-002 (not YAML, or no mapping), E-YAML-005 (a key twice).
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise DinfcError("E-YAML-001", path=path) from None
    except UnicodeDecodeError as error:
        raise DinfcError("E-YAML-002", place=path, path=path, reason=f"not UTF-8: {error.reason}") from None
    try:
        root = YAML(typ="rt", pure=True).load(text)
    except DuplicateKeyError as error:
        key = str(error.problem).split('"')[1] if '"' in str(error.problem) else str(error.problem)
        raise DinfcError("E-YAML-005", place=_mark(path, error), key=key) from None
    except MarkedYAMLError as error:
        reason = " ".join(str(part) for part in (error.context, error.problem) if part)
        raise DinfcError("E-YAML-002", place=_mark(path, error), path=path, reason=reason) from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise DinfcError("E-YAML-002", place=path, path=path, reason=str(error).split("\n")[0]) from None
    if not isinstance(root, CommentedMap):
        reason = "the file is empty" if root is None else "the file must be a mapping of keys to values"
        raise DinfcError("E-YAML-002", place=Place(str(path), 1), path=path, reason=reason)
    lines: dict[KeyPath, int] = {}
    values = _plain(root, (), lines)
    assert isinstance(values, dict)
    return Document(path, values, lines)


def _mark(path: Path, error: MarkedYAMLError) -> Place:
    mark = error.problem_mark or error.context_mark
    return Place(str(path), None if mark is None else int(mark.line) + 1)


def _plain(node: object, path: KeyPath, lines: dict[KeyPath, int]) -> object:
    """`node` without ruamel's classes; fills `lines`."""
    if isinstance(node, CommentedMap):
        result: dict[str, object] = {}
        for key, value in node.items():
            here = (*path, str(key))
            if key in node.lc.data:
                lines[here] = int(node.lc.key(key)[0]) + 1
            result[str(key)] = _plain(value, here, lines)
        return result
    if isinstance(node, CommentedSeq):
        items = []
        for index, value in enumerate(node):
            here = (*path, str(index))
            lines[here] = int(node.lc.item(index)[0]) + 1
            items.append(_plain(value, here, lines))
        return items
    for kind in (bool, int, float, str):  # bool first: it is an int
        if isinstance(node, kind):
            return kind(node)
    return None if node is None or isinstance(node, CommentToken) else str(node)
