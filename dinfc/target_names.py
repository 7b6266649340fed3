"""Which targets there are: the folders of `targets/`. Found without importing any of them."""

from __future__ import annotations

import ast
import pkgutil
from pathlib import Path

import dinfc.targets


def known_targets() -> tuple[str, ...]:
    """Names of the targets, in alphabetical order."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(dinfc.targets.__path__) if module.ispkg))


def target_summary(name: str) -> str:
    """First line of the docstring of the target's folder, or nothing. Raises KeyError for an unknown target."""
    for root in dinfc.targets.__path__:
        source = Path(root, name, "__init__.py")
        if source.is_file():
            text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
            return text.split("\n")[0]
    raise KeyError(name)
