"""Imports point one way (design section 2), and the folders at the root are only ever imported as dinfc.X."""
from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("frontend", "ir", "passes", "codegen", "targets", "runtime")
LEAVES = {"diagnostics", "catalogue", "ir_errors", "output"}  # parts of dinfc/ that every folder may use
ALLOWED = {
    "ir": set(),
    "frontend": {"ir", *LEAVES},
    "passes": {"ir", *LEAVES},
    "codegen": {"ir", *LEAVES},
    "targets": {"ir", "passes", "codegen", *LEAVES},
    "runtime": set(),
}


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def imported(path: Path, folder: str) -> Iterator[tuple[str, int]]:
    """Absolute names of imported modules, relative imports resolved."""
    package = ["dinfc", *([] if folder == "dinfc" else [folder]), *path.relative_to(ROOT / folder).parts[:-1]]
    yield from names_in(path.read_text(encoding="utf-8"), package)


def names_in(text: str, package: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Names that a module of `package` imports. What is imported from a package may be a module of it: both count."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield name.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module, node.lineno
            for name in node.names:
                yield f"{module}.{name.name}", node.lineno


@pytest.mark.parametrize("text", [
    "import dinfc.passes.fuse", "from dinfc import passes", "from dinfc.passes import base", "from .. import passes",
    "from ..passes.base import Pass", "def f():\n    from ...passes import base",
])
def test_the_scan_sees_every_way_to_import(text: str) -> None:
    depth = ["dinfc", "ir", "ops"] if "..." in text else ["dinfc", "ir"]
    assert any(name.startswith("dinfc.passes") for name, _ in names_in(text, depth))


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_point_one_way(folder: str) -> None:
    wrong = []
    for path in sources(folder):
        for name, line in imported(path, folder):
            parts = name.split(".")
            if parts[0] == "dinfc" and len(parts) > 1 and parts[1] != folder and parts[1] not in ALLOWED[folder]:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    assert wrong == []


@pytest.mark.parametrize("folder", (*FOLDERS, "dinfc", "tests"))
def test_no_folder_is_imported_by_its_bare_name(folder: str) -> None:
    """`import ir` and `import dinfc.ir` would be two modules with two registries."""
    wrong = [f"{path.relative_to(ROOT)}:{line} imports {name}" for path in sources(folder)
             for name, line in imported(path, folder) if name.split(".")[0] in FOLDERS]
    assert wrong == []


def test_the_cpu_target_never_imports_tilelang() -> None:
    for folder in ("ir", "passes", "frontend", "runtime"):
        for path in sources(folder):
            assert not any(name.split(".")[0] == "tilelang" for name, _ in imported(path, folder)), path


def test_files_stay_small() -> None:
    """A file answers one question: mean 6 to 10 KB at most, none over about 500 lines."""
    paths = [p for folder in (*FOLDERS, "dinfc") for p in sources(folder)]
    lines = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in paths}
    assert [str(p) for p, n in lines.items() if n > 500] == []
    assert sum(p.stat().st_size for p in paths) / len(paths) < 10_000
