"""Two compiles of one input give the same bytes, wherever and however they run; and a warm one compiles nothing."""
from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dinfc.codegen.package import BuildOptions
from support.compiled_model import CACHE, ROOT
from support.package import compile_to, deployment, package, random_texts, run_package, same_bits, scores


def contents(root: Path) -> dict[str, str]:
    """sha256 of every file but packed weights and byte code."""
    return {str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(root.rglob("*"))
            if p.is_file() and "packed" not in p.parts and "__pycache__" not in p.parts}


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package compiled by a process of its own, without any cached object, with one job."""
    place = tmp_path_factory.mktemp("somewhere") / "else" / "cold"
    done = subprocess.run(
        [sys.executable, "-m", "dinfc.cli", "-q", "compile", str(ROOT / "examples" / "tiny-test.yaml"), "--target",
         "cpu", "--cpu-isa", "avx2", "--jobs", "1", "--no-cache", "-o", str(place)],
        capture_output=True, text=True, check=False, cwd=place.parents[1], env={**os.environ, "PYTHONHASHSEED": "123"})
    assert done.returncode == 0, done.stderr
    return place


def test_another_process_folder_hash_seed_and_number_of_jobs_give_the_same_bytes(cold: Path) -> None:
    assert contents(cold) == contents(package())


def test_no_path_of_the_build_is_in_a_package(cold: Path) -> None:
    with_checks = package(checked=True)
    for path in (*cold.rglob("*"), *with_checks.rglob("*")):
        if path.is_file() and not {"__pycache__", "packed"} & set(path.parts):
            data = path.read_bytes()
            for word in (str(ROOT), str(cold.parent), str(with_checks.parent), "dinfc-build", str(Path.home()) + "/"):
                assert word.encode() not in data, path


def counting_compiler(folder: Path) -> tuple[Path, Path]:
    """A g++ that counts its calls with -c; (folder for PATH, log)."""
    log, fake = folder / "log", folder / "bin" / "g++"
    fake.parent.mkdir()
    real = shutil.which("g++")
    fake.write_text(f'#!/bin/sh\nfor a in "$@"; do [ "$a" = -c ] && echo c >> {log}; done\nexec {real} "$@"\n')
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    log.write_text("")
    return fake.parent, log


def test_a_second_compile_takes_every_object_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package()  # fills the cache
    folder, log = counting_compiler(tmp_path)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    warm = compile_to(tmp_path / "warm", deployment(), BuildOptions(cache=CACHE))
    assert log.read_text() == ""
    assert contents(warm) == contents(package())


def test_sources_alone_build_into_the_same_library(tmp_path: Path) -> None:
    bare = compile_to(tmp_path / "bare", deployment(), BuildOptions(build=False))
    assert not (bare / "libkernels.so").exists()
    refused = run_package(bare, "check")
    assert refused.returncode == 1 and "E-PLAN-004" in refused.stderr and "build.sh" in refused.stderr
    subprocess.run(["sh", str(bare / "kernels" / "src" / "build.sh")], check=True, cwd=tmp_path)
    assert not list((bare / "kernels" / "src").glob("*.o"))
    texts = random_texts([9, 33])
    got, want = scores(texts, root=bare), scores(texts)
    assert all(same_bits(got[i], want[i]) for i in want)


def test_other_limits_give_another_plan_and_the_same_programs(tmp_path: Path) -> None:
    other = compile_to(tmp_path / "other", deployment(max_seqs=4, max_tokens=32, buckets=(8, 32)))
    a, b = contents(package()), contents(other)
    assert a["plan.json"] != b["plan.json"]
    kernels = {n for n in a if n.endswith(".tir")}
    assert kernels == {n for n in b if n.endswith(".tir")}


def test_plan_and_metadata_name_files_that_exist() -> None:
    root = package()
    plan = json.loads((root / "plan.json").read_text())
    for name in plan["files"]:
        assert (root / name).is_file()
    for kernel in plan["kernels"]:
        assert (root / "kernels" / f"{kernel['name']}.tir").is_file()
    project = (root / "pyproject.toml").read_text()
    assert 'packages = ["deepseek_v4_1_flash_cpu", "deepseek_v4_1_flash_cpu.runtime"]' in project
    assert (root / "__init__.py").is_file() and (root / "runtime" / "cli.py").is_file()


def test_the_package_verifies_itself() -> None:
    done = run_package(package(), "check")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the same bits") == 8
