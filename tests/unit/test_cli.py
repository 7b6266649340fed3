"""The command line: exit codes, one error for one mistake, no traceback for the user, a folder for our own defects."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

import dinfc.cli
from dinfc import host, repro
from dinfc.cli import run
from dinfc.commands import COMMANDS, doctor
from dinfc.target_names import known_targets, target_summary
from frontend_support import EXAMPLES

TINY = str(EXAMPLES / "tiny-test" / "config.json")


def _stderr(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err + captured.out
    return captured.err


def test_help_is_fast_and_imports_nothing_heavy() -> None:
    script = (
        "import sys; from dinfc.cli import run; code = run(['--help']);"
        "heavy = {'torch', 'numpy', 'pydantic', 'tilelang', 'sympy'} & set(sys.modules); sys.exit(code or len(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    for name, (_, summary) in COMMANDS.items():
        assert name in done.stdout and summary in done.stdout


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help_and_the_global_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert "--diagnostics" in out and "--quiet" in out and "--verbose" in out


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert "Commands:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["snyth"], "E-CLI-001", "did you mean synth?"),
        (["xyzzy"], "E-CLI-001", "no command xyzzy"),
        (["--bogus"], "E-CLI-001", "--bogus"),
        (["synth"], "E-CLI-001", "CONFIG"),
        (["synth", TINY], "E-CLI-001", "--output"),
        (["synth", TINY, "-o", "out", "--seed", "x"], "E-CLI-001", "integer"),
        (["synth", TINY, "-o", "out", "--shard-size", "3MB"], "E-CLI-003", "2GiB"),
        (["synth", TINY, "-o", "out", "--shard-size", "0"], "E-CLI-003", "2GiB"),
        (["synth", "none.json", "-o", "out"], "E-CONFIG-004", "none.json"),
        (["synth", TINY, "-o", "."], "E-BUILD-002", "not empty"),
        (["synth", TINY, "-o", "out", "--tokenizer", "none"], "E-CLI-005", "none"),
        (["explain", "E-YAML-999"], "E-CLI-002", "E-YAML-999"),
        (["doctor", "--diagnostics", "xml"], "E-CLI-001", "xml"),
    ],
)
def test_a_mistake_is_one_error_with_exit_code_1_and_writes_nothing(
    arguments: list[str],
    code: str,
    word: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "occupied").touch()
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 1
    error = _stderr(capsys)
    assert error.startswith(code + ": ") and word in error and "mend" in error
    assert [p.name for p in tmp_path.iterdir()] == ["occupied"]


@pytest.mark.parametrize("where", ["before", "after", "equals"])
def test_errors_as_json_wherever_the_option_stands(where: str, capsys: pytest.CaptureFixture[str]) -> None:
    option = ["--diagnostics=json"] if where == "equals" else ["--diagnostics", "json"]
    command = ["explain", "E-NO-001"]
    assert run([*command, *option] if where == "after" else [*option, *command]) == 1
    record = json.loads(_stderr(capsys))
    assert record["code"] == "E-CLI-002" and record["exit_code"] == 1


def test_even_a_line_that_does_not_parse_gives_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["synth", "--diagnostics", "json"]) == 1
    assert json.loads(_stderr(capsys))["code"] == "E-CLI-001"


def test_synth_writes_and_is_quiet_without_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["synth", TINY, "-o", str(tmp_path / "a"), "--no-vision"]) == 0
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
    assert (tmp_path / "a" / "model.safetensors.index.json").exists()
    assert run(["synth", TINY, "-o", str(tmp_path / "b"), "--no-vision", "-v", "--shard-size", "1MiB"]) == 0
    assert "model-00001-of-" in capsys.readouterr().err


def test_explain_lists_and_explains(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain"]) == 0
    assert "E-RUN-001" in capsys.readouterr().out
    assert run(["explain", "e-config-015"]) == 0
    assert "KV source" in capsys.readouterr().out


def test_targets_are_the_folders(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["targets"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(known_targets())
    assert {"cpu", "sm90", "sm100", "ascend950"} <= set(known_targets())
    with pytest.raises(KeyError):
        target_summary("nothing")


def test_doctor_names_what_is_lacking(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor.host, "find_cxx", lambda: None)
    monkeypatch.setattr(doctor.host, "find_nvcc", lambda: None)
    monkeypatch.setattr(doctor.host, "cpu_flags", lambda: frozenset())
    assert run(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "--no-build" in out and "AVX2" in out and "torch" in out


def test_the_instruction_set_follows_from_cpu_flags(tmp_path: Path) -> None:
    avx512 = "avx2 fma avx512f avx512bw avx512dq avx512vl"
    info = tmp_path / "cpuinfo"
    info.write_text(f"processor : 0\nflags\t\t: sse {avx512}\nvmx flags : x\n", encoding="utf-8")
    assert host.host_isa(host.cpu_flags(info)) == "avx512"
    assert host.host_isa(frozenset(avx512.split()) - {"avx512vl"}) == "avx2"
    assert host.host_isa(frozenset({"avx2"})) is None
    assert host.cpu_flags(tmp_path / "none") == frozenset()


@click.command("broken")
@click.argument("file")
def _broken(file: str) -> None:
    raise RuntimeError(f"cannot {file}")


@pytest.fixture
def broken_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A command that fails with an exception that nobody foresaw."""
    monkeypatch.setattr(dinfc.cli, "COMMANDS", {"broken": ("broken_module", "fails")})
    monkeypatch.setitem(sys.modules, "broken_module", type("Module", (), {"command": _broken}))  # type: ignore[arg-type]
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("broken_command")
def test_a_defect_of_dinfc_leaves_a_folder_with_all_that_is_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.yaml").write_text("model: x\nconfig: sub/config.json  # here\n", encoding="utf-8")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "config.json").write_text("{}", encoding="utf-8")
    assert run(["broken", "model.yaml"]) == 2
    error = _stderr(capsys)
    assert error.startswith("E-INTERNAL-001") and "RuntimeError: cannot model.yaml" in error
    (folder,) = tmp_path.glob("dinfc-error-*")
    assert str(folder) in error
    assert "dinfc broken model.yaml" in (folder / "command.sh").read_text(encoding="utf-8")
    assert "RuntimeError" in (folder / "traceback.txt").read_text(encoding="utf-8")
    assert "torch" in (folder / "about.txt").read_text(encoding="utf-8")
    assert sorted(p.name for p in folder.glob("input-*")) == ["input-0-model.yaml", "input-1-config.json"]


@pytest.mark.usefixtures("broken_command")
def test_the_folder_goes_to_the_temporary_files_where_the_working_directory_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repro.tempfile, "mkdtemp", lambda prefix: str(_made(tmp_path / "elsewhere")))
    (tmp_path / "file").touch()
    folder = repro.write_repro(["broken"], RuntimeError("x"), parent=tmp_path / "file")
    assert folder == tmp_path / "elsewhere" and (folder / "traceback.txt").exists()


def _made(path: Path) -> Path:
    path.mkdir()
    return path


def test_an_interrupt_is_no_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dinfc.frontend.synth.synthesize", interrupt)
    assert run(["synth", TINY, "-o", "never"]) == 130
    assert "E-" not in _stderr(capsys)


def test_a_reader_that_goes_away_is_told_nothing() -> None:
    line = f"{sys.executable} -c 'from dinfc.cli import main; main()' explain | head -1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {line}"], capture_output=True, text=True, check=False)
    assert done.stderr == "" and done.stdout.count("\n") == 1
