"""A package whose disk gets full, and one whose kernels were left to build.sh: what the user is told."""
from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dinfc.codegen.package import BuildOptions
from dinfc.compiled import Compiled, compile_deployment, write
from dinfc.diagnostics import DinfcError
from dinfc.runtime.errors import RuntimeFault
from dinfc.runtime.package import open_package
from support.package import Quiet, deployment


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return compile_deployment(deployment(), Quiet())


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The system refuses to let a file grow beyond `size` bytes, as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [1, 20_000, 100_000])
def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path, compiled: Compiled, size: int) -> None:
    with files_of_at_most(size), pytest.raises(DinfcError) as caught:
        write(compiled, tmp_path / "out", BuildOptions(build=False), Quiet())
    assert caught.value.code == "E-BUILD-004" and str(tmp_path / "out") in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_defect_is_not_taken_for_a_full_disk(tmp_path: Path, compiled: Compiled,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise FileNotFoundError(2, "a file that dinfc should have brought")

    monkeypatch.setattr("dinfc.codegen.package.write_runtime", broken)
    with pytest.raises(FileNotFoundError):
        write(compiled, tmp_path / "out", BuildOptions(build=False), Quiet())
    assert not list(tmp_path.iterdir())


def test_the_folder_of_build_sh_is_named_where_kernels_are_not_built(tmp_path: Path, compiled: Compiled) -> None:
    root = tmp_path / "out"
    write(compiled, root, BuildOptions(build=False), Quiet())
    with pytest.raises(RuntimeFault) as caught:
        open_package(root).library()
    assert caught.value.code == "E-PLAN-004"
    assert (Path(str(caught.value.fields["path"])) / "build.sh").is_file()
