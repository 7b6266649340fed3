"""Places that cannot be written and libraries that cannot be loaded: one catalogued error, nothing half-written."""
from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dinfc.codegen.emit.cpu_build import build_library
from dinfc.codegen.package import BuildOptions
from support.package import checkpoint, compile_to, deployment, package, run_package, write_ids


def expect(done: subprocess.CompletedProcess[str], code: str, *words: str) -> None:
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith(f"{code}: ") and "\n  mend " in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == ""
    for word in words:
        assert word in done.stderr, done.stderr


def under_file(tmp_path: Path) -> Path:
    return tmp_path / "ids.json" / "x"


@pytest.mark.parametrize("place", [under_file, lambda t: t / "ids.json"], ids=["under a file", "a file"])
def test_packed_weights_that_have_no_place(tmp_path: Path, place: Callable[[Path], Path]) -> None:
    ids = write_ids(tmp_path / "ids.json", [[1, 2]])
    done = run_package(package(), "generate", "--weights", str(checkpoint()), "--ids", str(ids), "--pack-cache",
                       str(place(tmp_path)))
    expect(done, "E-RUN-016", "--pack-cache")
    assert list(tmp_path.iterdir()) == [ids] and json.loads(ids.read_text()) == [[1, 2]]


@pytest.mark.parametrize("place", [under_file, lambda t: t / "none" / "x"], ids=["under a file", "no folder"])
def test_logits_that_have_no_place(tmp_path: Path, place: Callable[[Path], Path]) -> None:
    ids = write_ids(tmp_path / "ids.json", [[1, 2]])
    done = run_package(package(), "score", "--weights", str(checkpoint()), "--ids", str(ids), "--logits",
                       str(place(tmp_path)))
    expect(done, "E-RUN-016", "--logits")
    assert list(tmp_path.iterdir()) == [ids]


@pytest.mark.parametrize(("option", "code"), [
    ("--logits", "E-RUN-016"), ("--pack-cache", "E-RUN-016"), ("--weights", "E-CKPT-001"), ("--ids", "E-RUN-006"),
])
def test_a_name_that_the_system_does_not_take(tmp_path: Path, option: str, code: str) -> None:
    ids = write_ids(tmp_path / "ids.json", [[1, 2]])
    given = {"--weights": checkpoint(), "--ids": ids, "--logits": tmp_path / "out", option: tmp_path / ("a" * 300)}
    expect(run_package(package(), "score", *[str(x) for pair in given.items() for x in pair]), code, "a" * 300)
    assert list(tmp_path.iterdir()) == [ids]


@pytest.mark.parametrize(("command", "option"), [("score", "--logits"), ("generate", "--pack-cache")])
def test_a_disk_that_is_too_small_is_told_before_the_work(tmp_path: Path, command: str, option: str) -> None:
    """The largest file that the process may write stands for the disk: the system refuses in the same way."""
    ids = write_ids(tmp_path / "ids.json", [[1] * 100])
    place = tmp_path / "place"
    arguments = ["--weights", str(checkpoint()), "--ids", str(ids), option, str(place)]
    done = subprocess.run(
        [sys.executable, str(package()), command, *arguments], capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)))
    expect(done, "E-RUN-016", option, "too large")
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [ids]


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A package whose library is left to build.sh, so that plan.json records no hash of it."""
    return compile_to(tmp_path / "bare", deployment(), BuildOptions(build=False))


def run(root: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    ids = write_ids(tmp_path / "ids.json", [[1, 2]])
    return run_package(root, "generate", "--weights", str(checkpoint()), "--ids", str(ids))


def test_a_library_that_is_none(bare: Path, tmp_path: Path) -> None:
    (bare / "libkernels.so").write_bytes(b"\x7fELF" + bytes(100))
    expect(run(bare, tmp_path), "E-RUN-013", "libkernels.so", "build.sh")


def test_a_library_of_something_else(bare: Path, tmp_path: Path) -> None:
    build_library({"a.cc": "int nothing;\n"}, bare / "libkernels.so")
    expect(run(bare, tmp_path), "E-RUN-013", "dinfc_run")


def test_a_library_of_another_launcher(bare: Path, tmp_path: Path) -> None:
    visible = '__attribute__((visibility("default")))'
    source = "".join(f'extern "C" {visible} int {n}() {{ return 7; }}\n' for n in (
        "dinfc_run", "dinfc_kernel", "dinfc_abi", "dinfc_last_error", "dinfc_clear_error"))
    build_library({"a.cc": source}, bare / "libkernels.so")
    expect(run(bare, tmp_path), "E-PLAN-001", "launcher 7", "launcher 1")


def test_a_package_moved_elsewhere_runs(tmp_path: Path) -> None:
    """Also under a name with blanks, and from another working directory."""
    moved = tmp_path / "another place" / "päckage"
    shutil.copytree(package(), moved, ignore=shutil.ignore_patterns("packed", "__pycache__"))
    ids = write_ids(tmp_path / "ids.json", [[1, 2]])
    done = subprocess.run([sys.executable, moved.name, "generate", "--weights", str(checkpoint()), "--ids", str(ids),
                           "--max-tokens", "2"], capture_output=True, text=True, check=False, cwd=moved.parent,
                          env={**os.environ, "LC_ALL": "C"})
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == 2
    assert any((moved / "packed").iterdir()), "packed weights lie beside it"
