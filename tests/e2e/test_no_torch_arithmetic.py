"""At run time torch computes nothing: a guard that raises on any aten op is active during prepare, forward and head."""
from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dinfc.codegen.emit.cpu_build import BuildError, build_library, check_symbols, undefined_symbols
from dinfc.runtime.plan import LIBRARY
from support.package import checkpoint, executor, package, random_texts, scores, write_ids


class NoTorch(TorchDispatchMode):
    """Raises on every aten op."""

    def __torch_dispatch__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"torch computes {func}")


def test_the_guard_bites() -> None:
    with NoTorch(), pytest.raises(AssertionError, match="torch computes"):
        torch.zeros(2) + 1


def test_prepare_forward_and_head_use_no_torch() -> None:
    texts = random_texts([9, 70])
    executor(package())  # weights are packed before
    with NoTorch():
        got = scores(texts)
    assert len(got[1]) == 70


def test_a_running_package_does_not_even_import_torch(tmp_path: Path) -> None:
    ids = write_ids(tmp_path / "ids.json", [[1, 2, 3]])
    code = (
        "import sys, runpy\n"
        f"sys.argv = ['p', 'generate', '--weights', {str(checkpoint())!r}, '--ids', {str(ids)!r}]\n"
        "try:\n"
        f"    runpy.run_path({str(package())!r}, run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    assert end.code == 0\n"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ('torch', 'dinfc', 'tilelang')))\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "[]"


def test_kernels_call_no_mathematical_library() -> None:
    library = package() / LIBRARY
    names = undefined_symbols(library)
    check_symbols(library)
    assert not {n for n in names if n in ("expf", "exp", "logf", "log", "sinf", "fmaf", "sqrtf", "powf", "log1pf")}
    assert not any(n.startswith("_ZGV") for n in names)  # libmvec


def test_a_library_that_calls_libm_is_refused(tmp_path: Path) -> None:
    source = 'extern "C" float expf(float);\nextern "C" __attribute__((visibility("default"))) float f(float x) {'
    library = build_library({"a.cc": source + " return expf(x); }\n"}, tmp_path / "a.so")
    assert "expf" in undefined_symbols(library)
    with pytest.raises(BuildError, match="expf"):
        check_symbols(library)
