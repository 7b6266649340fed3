"""The cache of compiled objects saves time and changes nothing: not when it is damaged, full, shared or forbidden."""
from __future__ import annotations

import shutil
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dinfc.codegen.emit.cpu_build import build_library, default_cache

SOURCES = {f"unit_{i}.cc": f'extern "C" __attribute__((visibility("default"))) int f{i}() {{ return {i}; }}\n'
           for i in range(2)}


def built(place: Path, cache: Path | None) -> bytes:
    return build_library(SOURCES, place / "library.so", cache=cache).read_bytes()


@pytest.fixture
def compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Puts a g++ in front that counts its calls with -c; the result tells how many there were since it was asked."""
    log, fake = tmp_path / "log", tmp_path / "bin" / "g++"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\nfor a in "$@"; do [ "$a" = -c ] && echo c >> {log}; done\n'
                    f'exec {shutil.which("g++")} "$@"\n')
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(fake.parent), prepend=":")

    def count() -> int:
        lines = log.read_text().split() if log.exists() else []
        log.write_text("")
        return len(lines)

    return count


def test_an_object_is_compiled_once(tmp_path: Path, compiles: Callable[[], int]) -> None:
    cache = tmp_path / "cache"
    first = built(tmp_path / "a", cache)
    assert compiles() == len(SOURCES)
    assert built(tmp_path / "b", cache) == first
    assert compiles() == 0


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def make_empty(path: Path) -> None:
    path.write_bytes(b"")


def make_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [flip_a_bit, cut_in_half, make_empty])
def test_a_damaged_object_is_compiled_again_and_replaced(tmp_path: Path, compiles: Callable[[], int],
                                                         damage: Callable[[Path], None]) -> None:
    cache = tmp_path / "cache"
    first = built(tmp_path / "a", cache)
    for path in cache.iterdir():
        damage(path)
    compiles()
    assert built(tmp_path / "b", cache) == first
    assert compiles() == len(SOURCES)
    assert built(tmp_path / "c", cache) == first
    assert compiles() == 0, "the damaged objects were not replaced"


def test_objects_that_can_be_neither_read_nor_replaced_do_no_harm(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = built(tmp_path / "a", cache)
    for path in list(cache.iterdir()):
        make_a_folder(path)
    assert built(tmp_path / "b", cache) == first
    assert all(p.is_dir() for p in cache.iterdir()), "a partial file was left behind"


def test_a_cache_that_cannot_be_written_only_costs_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert built(tmp_path / "a", tmp_path / "file" / "objects") == built(tmp_path / "b", None)


def test_builds_at_the_same_time_share_a_cache(tmp_path: Path) -> None:
    want = built(tmp_path / "alone", None)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda i: built(tmp_path / str(i), tmp_path / "cache"), range(4)))
    assert made == [want] * 4
    names = [p.name for p in (tmp_path / "cache").iterdir()]
    assert len(names) == len(SOURCES) and not any(n.startswith(".") for n in names)


def test_the_library_can_be_read_by_others(tmp_path: Path) -> None:
    """A package is often compiled by one user and run by another."""
    built(tmp_path, None)
    plain = tmp_path / "plain"
    plain.write_text("")
    assert (tmp_path / "library.so").stat().st_mode & 0o666 == plain.stat().st_mode & 0o666


def test_the_place_of_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_cache() == Path("/somewhere/dinfc")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/elsewhere")
    assert default_cache() == Path("/elsewhere/.cache/dinfc")


def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", staticmethod(no_home))
    assert default_cache() is None
