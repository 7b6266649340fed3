"""`dinfc compile` and `dinfc interpret` on bad input: one catalogued error, nothing half-written."""
from __future__ import annotations

import io
import os
import shutil
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from dinfc.cli import run
from support.compiled_model import CACHE, ROOT
from support.package import checkpoint, package, write_ids

TINY = ROOT / "examples" / "tiny-test.yaml"


@dataclass(frozen=True)
class Result:
    exit_code: int
    stdout: str
    stderr: str


def dinfc(*arguments: object, env: dict[str, str] | None = None) -> Result:
    """The command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        for key, value in (env or {}).items():
            patch.setenv(key, value)
        code = run([str(a) for a in arguments])
    return Result(code, out.getvalue(), err.getvalue())


def expect(result: Result, code: str, *words: str, status: int = 1) -> None:
    text = result.stderr
    assert result.exit_code == status, text
    assert text.startswith(f"{code}: ") and "mend" in text and "Traceback" not in text, text
    for word in words:
        assert word in text, text


def test_output_folder_not_empty(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("x")
    expect(dinfc("compile", TINY, "-o", tmp_path / "out"), "E-BUILD-002", "out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["precious"]


def test_output_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("x")
    expect(dinfc("compile", TINY, "-o", tmp_path / "out"), "E-BUILD-003")


def test_no_compiler(tmp_path: Path) -> None:
    """Without g++ the compile is refused with the way out, and leaves nothing."""
    empty = tmp_path / "bin"
    empty.mkdir()
    expect(dinfc("compile", TINY, "-o", tmp_path / "out", env={"PATH": str(empty)}), "E-BUILD-001", "--no-build")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bin"]


@pytest.mark.parametrize(("call", "what"), [("-c", "compile"), ("-shared", "link")])
def test_a_compiler_that_fails_half_way_leaves_nothing(tmp_path: Path, call: str, what: str) -> None:
    package()  # fills the cache: in the second case only the link is left to do
    fake = tmp_path / "bin" / "g++"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\nfor a in "$@"; do [ "$a" = {call} ] && echo boom >&2 && exit 4; done\n'
                    f'exec {shutil.which("g++")} "$@"\n')
    fake.chmod(0o755)
    (tmp_path / "dinfc").mkdir()
    (tmp_path / "dinfc" / "objects").symlink_to(CACHE)
    done = dinfc("compile", TINY, "-o", tmp_path / "deep" / "out", "--cpu-isa", "avx2",
                 *(["--no-cache"] if call == "-c" else []),
                 env={"PATH": f"{fake.parent}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path)})
    expect(done, "E-BUILD-005", what, "boom", status=2)
    assert not (tmp_path / "deep").exists() or not list((tmp_path / "deep").iterdir())


def test_no_build_needs_no_compiler(tmp_path: Path) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    done = dinfc("compile", TINY, "-o", tmp_path / "out", "--no-build", env={"PATH": str(empty)})
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "out" / "kernels" / "src" / "build.sh").is_file()
    assert "build.sh" in done.stdout


@pytest.mark.parametrize(("change", "code"), [
    (("max_seqs: 8", "max_seqz: 8"), "E-YAML-003"), (("max_seqs: 8", "max_seqs: many"), "E-YAML-004"),
    (("target: cpu", "target: gpu"), "E-TARGET-001"), (("config.json", "absent.json"), "E-CONFIG-004"),
])
def test_model_yaml(tmp_path: Path, change: tuple[str, str], code: str) -> None:
    text = TINY.read_text().replace("tiny-test/config.json", str(ROOT / "examples" / "tiny-test" / "config.json"))
    assert change[0] in text
    (tmp_path / "model.yaml").write_text(text.replace(*change))
    expect(dinfc("compile", tmp_path / "model.yaml", "-o", tmp_path / "out"), code)
    assert not (tmp_path / "out").exists()


def test_options(tmp_path: Path) -> None:
    expect(dinfc("compile", TINY), "E-CLI-001", "-o OUT")
    expect(dinfc("compile", TINY, "-o", tmp_path / "out", "--stop-after", "fuse"), "E-CLI-001")
    expect(dinfc("compile", TINY, "--stop-after", "fusee"), "E-CLI-021", "fuse")
    expect(dinfc("compile", TINY, "-o", tmp_path / "out", "--cpu-isa", "sse2"), "E-TARGET-002", "sse2")
    expect(dinfc("compile", tmp_path / "none.yaml", "-o", tmp_path / "out"), "E-YAML-001")
    assert not (tmp_path / "out").exists()


def test_a_target_without_whole_model_schedules(tmp_path: Path) -> None:
    expect(dinfc("compile", TINY, "--target", "sm100", "-o", tmp_path / "out"), "E-TARGET-009", status=3)


def test_stop_after_prints_the_summary_and_writes_nothing(tmp_path: Path) -> None:
    done = dinfc("compile", TINY, "--stop-after", "plan_launches")
    assert done.exit_code == 0, done.stderr
    for word in ("checkpoint", "payload", "rings", "scratch", "kernels", "launches"):
        assert word in done.stdout


def test_full_size_summary() -> None:
    done = dinfc("compile", ROOT / "examples" / "v41-flash.yaml", "--target", "cpu", "--stop-after", "plan_launches")
    assert done.exit_code == 0, done.stderr
    for word in ("96,085 tensors, 475.24 GiB with vision", "payload 890 B a token", "114,048 B a page",
                 "= 891 B a token", "3,128,352 B a slot"):
        assert word in done.stdout


def test_interpret_on_bad_input(tmp_path: Path) -> None:
    good = write_ids(tmp_path / "ids.json", [[1, 2]])
    out = tmp_path / "out.safetensors"

    def score(ids: Path = good, weights: Path | None = None, *more: str) -> Result:
        return dinfc("interpret", TINY, "--weights", weights or checkpoint(), "--ids", ids, "--logits", out, *more)

    expect(score(weights=tmp_path), "E-CKPT-001")
    expect(score(write_ids(tmp_path / "long.json", [[1] * 600])), "E-RUN-002")
    expect(score(write_ids(tmp_path / "big.json", [[600]])), "E-RUN-003")
    expect(score(write_ids(tmp_path / "empty.json", [[]])), "E-RUN-001")
    expect(score(tmp_path / "none.json"), "E-RUN-008")
    expect(score(good, None, "--chunks", "2,x"), "E-CLI-001")
    assert not out.exists()
    out.write_text("precious")
    expect(score(), "E-CLI-004")
    assert out.read_text() == "precious"


def test_interpret_gives_what_the_package_format_has(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    ids = write_ids(tmp_path / "ids.json", [[1, 2, 3, 4, 5], [7]])
    whole, cut = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    for out, more in ((whole, ()), (cut, ("--chunks", "2,1"))):
        done = dinfc("interpret", TINY, "--weights", checkpoint(), "--ids", ids, "--logits", out, *more)
        assert done.exit_code == 0, done.stderr
    a, b = load_file(whole), load_file(cut)
    assert {k: tuple(v.shape) for k, v in a.items()} == {"logits.0": (5, 512), "logits.1": (1, 512)}
    assert all(bool((a[k] == b[k]).all()) for k in a)
