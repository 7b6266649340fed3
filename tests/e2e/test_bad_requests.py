"""What a user of a package can get wrong ends in one catalogued error, exit code 1 (3 for the machine)."""
from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from support.package import call_package, checkpoint, package, run_package, write_ids

LONG = 513


def expect(done: object, code: str, *words: str, status: int = 1) -> None:
    text, out = str(done.stderr), str(done.stdout)  # type: ignore[attr-defined]
    assert done.returncode == status, text  # type: ignore[attr-defined]
    assert text.startswith(f"{code}: "), text
    assert "\n  mend " in text and "Traceback" not in text and out == ""
    for word in words:
        assert word in text, text


def generate(*options: str, root: Path | None = None) -> object:
    return call_package(root or package(), "generate", "--weights", str(checkpoint()), *options)


@pytest.mark.parametrize(("texts", "code", "word"), [
    ([[]], "E-RUN-001", "no tokens"),
    ([[1], []], "E-RUN-001", "#1"),
    ([[1] * LONG], "E-RUN-002", "512"),
    ([[1] * 500], "E-RUN-002", "32 more"),
    ([[1, 512]], "E-RUN-003", "512 at position 1"),
    ([[-1]], "E-RUN-003", "-1 at position 0"),
])
def test_prompts_that_cannot_run(tmp_path: Path, texts: list[list[int]], code: str, word: str) -> None:
    expect(generate("--ids", str(write_ids(tmp_path / "ids.json", texts))), code, word)


@pytest.mark.parametrize("content", [
    b"", b"{}", b"[]", b"[1, 2]", b'[["a"]]', b"[[1.5]]", b"[[true]]", b"[[1", b"\xff", b"[" * 200_000,
], ids=lambda content: repr(content[:8]))
def test_a_malformed_ids_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ids.json").write_bytes(content)
    expect(generate("--ids", str(tmp_path / "ids.json")), "E-RUN-006", "ids.json")


def test_a_missing_ids_file(tmp_path: Path) -> None:
    expect(generate("--ids", str(tmp_path / "none.json")), "E-RUN-008", "none.json")


@pytest.mark.parametrize(("options", "code", "word"), [
    ([], "E-RUN-011", "--prompt"),
    (["--prompt", "a", "--ids", "x"], "E-RUN-010", "--ids"),
    (["--prompt", "a"], "E-RUN-004", "tokenizer.json"),
    (["--ids", "IDS", "--temperature", "nan"], "E-RUN-009", "--temperature"),
    (["--ids", "IDS", "--temperature", "-1"], "E-RUN-009", "--temperature"),
    (["--ids", "IDS", "--max-tokens", "0"], "E-RUN-009", "--max-tokens"),
    (["--ids", "IDS", "--seed", "-1"], "E-RUN-009", "--seed"),
    (["--ids", "IDS", "--seed", str(2**64)], "E-RUN-009", "--seed"),
    (["--ids", "IDS", "--temperature", "inf"], "E-RUN-009", "--temperature"),
    (["--ids", "IDS", "--threads", "-2"], "E-RUN-009", "--threads"),
    (["--ids", "IDS", "--threads", "100000"], "E-RUN-009", "from 1 to 1024"),  # OpenMP would die
    (["--prompt", "a", "--prompt-file", "x"], "E-RUN-010", "--prompt-file"),
    (["--ids", "IDS", "--bucket", "7"], "E-RUN-009", "1, 8, 64"),
    (["--ids", "IDS", "--checked"], "E-RUN-018", "--checked"),
    (["--ids", "IDS", "--colour"], "E-RUN-017", "--colour"),
    (["--ids", "IDS", "--max-tokens", "many"], "E-RUN-017", "many"),
])
def test_options(tmp_path: Path, options: list[str], code: str, word: str) -> None:
    ids = write_ids(tmp_path / "ids.json", [[1, 2]])
    expect(generate(*[str(ids) if o == "IDS" else o for o in options]), code, word)


@pytest.mark.parametrize(("options", "code"), [
    (["--chunks", "3,x"], "E-RUN-009"), (["--chunks", "0"], "E-RUN-009"), (["--chunks", ""], "E-RUN-009"),
    (["--chunks", "²"], "E-RUN-009"), (["--chunks", "3,"], "E-RUN-009"),
    (["--mix", "-1"], "E-RUN-009"), (["--mix", "1", "--chunks", "2"], "E-RUN-010"),
])
def test_score_options_leave_no_file(tmp_path: Path, options: list[str], code: str) -> None:
    ids = write_ids(tmp_path / "ids.json", [[1, 2]])
    out = tmp_path / "out.safetensors"
    done = call_package(package(), "score", "--weights", str(checkpoint()), "--ids", str(ids), "--logits", str(out),
                       *options)
    expect(done, code)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ids.json"]


@pytest.mark.parametrize(("options", "word"), [
    (["bench", "--seed", "-1"], "--seed"), (["bench", "--batch", "0"], "--batch"),
    (["bench", "--repeat", "0"], "--repeat"), (["check", "--seed", "-1"], "--seed"),
    (["check", "--bucket", "3"], "--bucket"),
])
def test_options_of_bench_and_check(options: list[str], word: str) -> None:
    expect(call_package(package(), *options), "E-RUN-009", word)


def test_score_never_overwrites(tmp_path: Path) -> None:
    ids = write_ids(tmp_path / "ids.json", [[1, 2]])
    out = tmp_path / "out.safetensors"
    out.write_text("precious")
    done = call_package(package(), "score", "--weights", str(checkpoint()), "--ids", str(ids), "--logits", str(out))
    expect(done, "E-RUN-007", str(out))
    assert out.read_text() == "precious"


def test_a_failing_score_leaves_nothing_half_written(tmp_path: Path) -> None:
    ids = write_ids(tmp_path / "ids.json", [[1, 2]])
    done = call_package(package(), "score", "--weights", str(tmp_path / "none"), "--ids", str(ids), "--logits",
                       str(tmp_path / "out.safetensors"))
    expect(done, "E-CKPT-001")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ids.json"]


@pytest.mark.parametrize("form", [["--diagnostics", "json"], ["--diagnostics=json"]])
def test_errors_as_json(tmp_path: Path, form: list[str]) -> None:
    ids = write_ids(tmp_path / "ids.json", [[1, 9999]])
    done = generate("--ids", str(ids), *form)
    found = json.loads(done.stderr)  # type: ignore[attr-defined]
    assert found["code"] == "E-RUN-003" and found["fields"]["id"] == "9999" and found["exit_code"] == 1
    found = json.loads(generate("--colour", *form).stderr)  # type: ignore[attr-defined]
    assert found["code"] == "E-RUN-017" and "--colour" in found["message"]


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A package that a test may damage."""
    ignore = shutil.ignore_patterns("packed", "__pycache__")
    return Path(shutil.copytree(package(), tmp_path / "package", ignore=ignore))


def edit_plan(root: Path, **changes: object) -> None:
    plan = json.loads((root / "plan.json").read_text())
    (root / "plan.json").write_text(json.dumps({**plan, **changes}))


def test_a_package_of_another_plan_version(broken: Path, tmp_path: Path) -> None:
    edit_plan(broken, format=99)
    ids = write_ids(tmp_path / "ids.json", [[1, 2]])
    expect(generate("--ids", str(ids), root=broken), "E-PLAN-001", "99")


def test_a_machine_without_the_features_of_the_plan(broken: Path, tmp_path: Path) -> None:
    edit_plan(broken, cpu_features=["avx2", "avx1024_imaginary"])
    ids = write_ids(tmp_path / "ids.json", [[1, 2]])
    expect(generate("--ids", str(ids), root=broken), "E-RUN-005", "avx1024_imaginary", "--cpu-isa", status=3)


@pytest.mark.parametrize("name", ["libkernels.so", "constants.bin", "weights.json", "config.json"])
def test_a_corrupted_file_of_the_package(broken: Path, tmp_path: Path, name: str) -> None:
    data = bytearray((broken / name).read_bytes())
    data[len(data) // 2] ^= 1
    (broken / name).write_bytes(bytes(data))
    ids = write_ids(tmp_path / "ids.json", [[1, 2]])
    expect(generate("--ids", str(ids), root=broken), "E-PLAN-002", name)


@pytest.mark.parametrize("name", ["libkernels.so", "constants.bin", "weights.json", "config.json"])
def test_a_missing_file_of_the_package(broken: Path, tmp_path: Path, name: str) -> None:
    (broken / name).unlink()
    ids = write_ids(tmp_path / "ids.json", [[1, 2]])
    expect(generate("--ids", str(ids), root=broken), "E-PLAN-002", name)


def test_a_plan_that_is_no_json(broken: Path) -> None:
    (broken / "plan.json").write_text("{")
    expect(call_package(broken, "info"), "E-PLAN-003", "plan.json")


def test_no_command_and_help() -> None:
    expect(run_package(package()), "E-RUN-017")
    done = run_package(package(), "--help")
    assert done.returncode == 0 and all(c in done.stdout for c in ("generate", "score", "bench", "check", "info"))
