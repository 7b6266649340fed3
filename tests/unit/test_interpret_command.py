"""`dinfc interpret`: logits of texts by the reference interpreter, from a checkpoint; a mistake is one error."""
from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from dinfc.cli import run
from frontend_support import EXAMPLES
from oracle import Oracle, read_checkpoint, read_token_map

MODEL = EXAMPLES / "tiny-test.yaml"
CONFIG = EXAMPLES / "tiny-test" / "config.json"
TEXTS = [[5, 7, 300, 0, 511, 12, 90, 91, 92, 93, 94, 95], [3], [5, 7, 300, 0, 1]]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("interpret") / "checkpoint"
    assert run(["synth", str(CONFIG), "-o", str(folder), "--seed", "3", "--no-vision", "-q"]) == 0
    return folder


def ids_file(folder: Path, texts: object = TEXTS) -> Path:
    path = folder / "ids.json"
    path.write_text(json.dumps(texts), encoding="utf-8")
    return path


def interpret(checkpoint: Path, ids: Path, out: Path, *more: str) -> int:
    return run(["interpret", str(MODEL), "--weights", str(checkpoint), "--ids", str(ids), "--logits", str(out), *more])


@pytest.mark.parametrize("chunks", ["", "1", "3,1,2"])
def test_logits_of_every_position_are_those_of_the_oracle(chunks: str, checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "logits.safetensors"
    more = ["--chunks", chunks] if chunks else []
    assert interpret(checkpoint, ids_file(tmp_path), out, *more) == 0
    found = load_file(out)
    assert sorted(found) == ["logits.0", "logits.1", "logits.2"]
    config, tensors = read_checkpoint(checkpoint)
    oracle = Oracle(config, tensors, read_token_map(checkpoint, 512))
    for number, ids in enumerate(TEXTS):
        logits = found[f"logits.{number}"]
        assert logits.dtype == torch.float32
        assert torch.equal(logits, oracle.forward(oracle.new_state(), ids))
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def damaged(checkpoint: Path, tmp_path: Path, change: Callable[[Path], None]) -> Path:
    copy = tmp_path / "checkpoint"
    shutil.copytree(checkpoint, copy)
    change(copy)
    return copy


def truncate_shard(folder: Path) -> None:
    shard = sorted(folder.glob("*.safetensors"))[0]
    shard.write_bytes(shard.read_bytes()[:-100])


def remove_shard(folder: Path) -> None:
    sorted(folder.glob("*.safetensors"))[0].unlink()


def other_config(folder: Path) -> None:
    raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    raw["text_config"]["swiglu_limit"] = 7.0
    (folder / "config.json").write_text(json.dumps(raw), encoding="utf-8")


def remove_map(folder: Path) -> None:
    (folder / "engram_token_map.json").unlink()


@pytest.mark.parametrize(("change", "code"), [
    (truncate_shard, "E-CKPT-006"), (remove_shard, "E-CKPT-008"), (other_config, "E-CKPT-012"),
    (remove_map, "E-CKPT-013"),
])
def test_a_damaged_checkpoint_is_one_error_and_nothing_is_written(
    change: Callable[[Path], None], code: str, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out.safetensors"
    assert interpret(damaged(checkpoint, tmp_path, change), ids_file(tmp_path), out) == 1
    told(capsys, code)
    assert not out.exists()


def told(capsys: pytest.CaptureFixture[str], code: str) -> str:
    """The one error on stderr."""
    captured = capsys.readouterr()
    assert captured.err.startswith(f"{code}: ")
    assert captured.err.count("E-") == 1
    assert "mend" in captured.err
    assert "Traceback" not in captured.err
    return captured.err


@pytest.mark.parametrize(("texts", "code", "word"), [
    ([[]], "E-RUN-001", "no tokens"), ([[1], []], "E-RUN-001", "#1"), ([[5] * 5000], "E-RUN-002", "5000"),
    ([[1, 512]], "E-RUN-003", "512"), ([[1], [-1]], "E-RUN-003", "-1"), ([], "E-RUN-006", "list"),
    ([[1, "a"]], "E-RUN-006", "entry 0"), ([[True]], "E-RUN-006", "entry 0"), ({"a": 1}, "E-RUN-006", "list"),
])
def test_bad_texts_are_one_error(texts: object, code: str, word: str, checkpoint: Path, tmp_path: Path,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.safetensors"
    assert interpret(checkpoint, ids_file(tmp_path, texts), out) == 1
    assert word in told(capsys, code)
    assert not out.exists()


@pytest.mark.parametrize("chunks", ["0", "3,,1", "x", "1,-2", "1.5", "3,0"])
def test_bad_chunks_are_one_error(chunks: str, checkpoint: Path, tmp_path: Path,
                                  capsys: pytest.CaptureFixture[str]) -> None:
    assert interpret(checkpoint, ids_file(tmp_path), tmp_path / "out.safetensors", "--chunks", chunks) == 1
    assert "--chunks" in told(capsys, "E-CLI-001")


def test_other_mistakes_are_one_error(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.safetensors"
    assert interpret(checkpoint, tmp_path / "none.json", out) == 1
    told(capsys, "E-RUN-008")
    assert interpret(tmp_path / "nowhere", ids_file(tmp_path), out) == 1
    told(capsys, "E-CKPT-001")
    assert interpret(checkpoint, ids_file(tmp_path), tmp_path / "no" / "folder" / "out.safetensors") == 1
    told(capsys, "E-BUILD-004")
    out.write_text("kept", encoding="utf-8")
    assert interpret(checkpoint, ids_file(tmp_path), out) == 1
    told(capsys, "E-CLI-004")
    assert out.read_text(encoding="utf-8") == "kept"
