"""Synthetic checkpoints: complete, loadable, deterministic, independent of the files they are spread over."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from dinfc.frontend import synth
from dinfc.frontend.checkpoint import ITEM_BYTES, expected_tensors
from dinfc.frontend.shards import INDEX_FILE, ShardWriter, plan_shards
from dinfc.frontend.synth import pieces, synthesize
from dinfc.frontend.token_map import MAP_FILE, TOKENIZER_FILE, load_token_map
from frontend_support import EXAMPLES, error_of, example_config

CONFIG = EXAMPLES / "tiny-test" / "config.json"
DTYPES = {
    "BF16": torch.bfloat16, "F32": torch.float32, "F8_E4M3": torch.float8_e4m3fn, "F8_E8M0": torch.float8_e8m0fnu,
    "I8": torch.int8,
}  # fmt: skip


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synth") / "tiny"
    synthesize(CONFIG, folder, 0)
    return folder


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 - not a dict
                assert name not in found
                found[name] = file.get_tensor(name)
    return found


def _digests(folder: Path) -> dict[str, str]:
    return {
        n: hashlib.sha256(t.contiguous().view(torch.uint8).numpy()).hexdigest() for n, t in _tensors(folder).items()
    }


def test_the_library_reads_exactly_the_expected_tensors(checkpoint: Path) -> None:
    found = _tensors(checkpoint)
    expected = {t.name: (DTYPES[t.dtype], t.shape) for t in expected_tensors(example_config())}
    assert {name: (t.dtype, tuple(t.shape)) for name, t in found.items()} == expected


def test_several_files_and_a_true_index_even_for_a_tiny_model(checkpoint: Path) -> None:
    index = json.loads((checkpoint / INDEX_FILE).read_text(encoding="utf-8"))
    files = {p.name for p in checkpoint.glob("*.safetensors")}
    assert len(files) >= 2 and set(index["weight_map"].values()) == files
    assert index["metadata"]["total_size"] == 4_178_340
    for name, file in index["weight_map"].items():
        if name.endswith(".scale"):
            assert index["weight_map"][name.removesuffix("scale") + "weight"] == file  # §10.1
        with safe_open(checkpoint / file, "pt") as opened:
            assert name in opened.keys()  # noqa: SIM118


def test_config_and_token_map_lie_beside(checkpoint: Path) -> None:
    assert (checkpoint / "config.json").read_bytes() == CONFIG.read_bytes()
    assert load_token_map(checkpoint, example_config()) == tuple(i // 2 for i in range(512))
    assert not (checkpoint / TOKENIZER_FILE).exists()


def test_bytes_depend_on_seed_and_name_alone(checkpoint: Path, tmp_path: Path) -> None:
    first = _digests(checkpoint)
    synthesize(CONFIG, tmp_path / "small", 0, shard_bytes=300_000)
    assert len(list((tmp_path / "small").glob("*.safetensors"))) > 8
    assert _digests(tmp_path / "small") == first
    synthesize(CONFIG, tmp_path / "blind", 0, vision=False)
    blind = _digests(tmp_path / "blind")
    assert len(blind) == 861 and blind.items() <= first.items()
    synthesize(CONFIG, tmp_path / "other", 1)
    other = _digests(tmp_path / "other")
    assert other["embed.weight"] != first["embed.weight"]
    synthesize(CONFIG, tmp_path / "again", 0)
    assert [p.read_bytes() for p in sorted((tmp_path / "again").iterdir())] == [
        p.read_bytes() for p in sorted(checkpoint.iterdir())
    ]


def test_the_bytes_of_seed_0_do_not_change_between_releases(checkpoint: Path) -> None:
    """Other tests and users compare logits of `--seed 0`."""
    total = hashlib.sha256(json.dumps(sorted(_digests(checkpoint).items())).encode()).hexdigest()
    assert total == "9237428356dce8df51cea51b7028e20c64704a2ed3742b0234fd3f31771e9fca"


def test_pieces_of_any_size_join_to_the_same_tensor() -> None:
    config = example_config()
    for tensor in expected_tensors(config):
        if tensor.name in ("embed.weight", "layers.1.engram.embed.weight", "layers.0.attn.wq_b.weight"):
            whole = [b"".join(parts) for parts in zip(*pieces(tensor, config, 5), strict=True)]
            small = list(pieces(tensor, config, 5, piece_elements=64 * 128))
            assert len(small) > 1
            assert [b"".join(parts) for parts in zip(*small, strict=True)] == whole
            assert len(whole[0]) == tensor.nbytes


def test_distributions(checkpoint: Path) -> None:
    t = _tensors(checkpoint)
    assert t["embed.weight"].float().std().item() == pytest.approx(1, rel=0.02)
    assert t["head.weight"].float().std().item() == pytest.approx(128**-0.5, rel=0.02)
    assert t["layers.0.hc_attn_fn"].std().item() == pytest.approx(512**-0.5, rel=0.03)
    assert t["layers.3.hc_ffn_scale"].tolist() == [1, 1, 1]
    assert t["layers.5.hc_ffn_base"][:8].tolist() == [-3, 3, -3, -3, 0, 0, 0, 0]
    assert t["mtp.1.hc_attn_base"][:4].tolist() == [-3, -3, 3, -3]  # layer id 9 + 1
    assert t["layers.5.hc_ffn_base"][8:].reshape(4, 4).diagonal().tolist() == [3] * 4
    norms = torch.cat([v.float().flatten() for n, v in t.items() if n.endswith("norm.weight")])
    assert norms.mean().item() == pytest.approx(1, abs=0.01) and norms.std().item() == pytest.approx(0.1, rel=0.05)
    biases = torch.cat([v for n, v in t.items() if n.endswith((".bias_vl", "attn_sink")) and v.dtype == torch.float32])
    assert biases.std().item() == pytest.approx(0.1, rel=0.15)
    wide = torch.arange(256, dtype=torch.uint8)
    scale = torch.exp2(wide.float() - 127)
    name = "layers.2.attn.wo_b"
    exponent = scale[t[name + ".scale"].view(torch.uint8).long()].repeat_interleave(32, 0).repeat_interleave(32, 1)
    weight = t[name + ".weight"].float() * exponent
    assert weight.std().item() == pytest.approx(64**-0.5, rel=0.03)


def test_tensors_are_aligned_to_their_elements_in_the_file(checkpoint: Path) -> None:
    for path in checkpoint.glob("*.safetensors"):
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        assert length % 8 == 0
        for name, entry in header.items():
            if name != "__metadata__":
                assert entry["data_offsets"][0] % ITEM_BYTES[entry["dtype"]] == 0


def test_a_tokenizer_is_copied_and_then_there_is_no_map_file(tmp_path: Path) -> None:
    tokenizer = EXAMPLES / "tiny" / TOKENIZER_FILE
    synthesize(EXAMPLES / "tiny" / "config.json", tmp_path / "t", 0, tokenizer=tokenizer, vision=False)
    assert (tmp_path / "t" / TOKENIZER_FILE).read_bytes() == tokenizer.read_bytes()
    assert not (tmp_path / "t" / MAP_FILE).exists()
    assert max(load_token_map(tmp_path / "t", example_config("tiny"))) == 229


def test_a_tokenizer_with_another_number_of_classes_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    tokenizer = EXAMPLES / "tiny" / TOKENIZER_FILE
    assert error_of(lambda: synthesize(CONFIG, tmp_path / "t", 0, tokenizer=tokenizer)).code == "E-CONFIG-036"
    assert error_of(lambda: synthesize(CONFIG, tmp_path / "t", 0, tokenizer=tmp_path / "no")).code == "E-CLI-005"
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise RuntimeError(name)

    with pytest.raises(RuntimeError):
        synthesize(CONFIG, tmp_path / "deep" / "out", 0, progress=fail)
    assert list((tmp_path / "deep").iterdir()) == []


def test_an_occupied_output_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "keep").write_text("x", encoding="utf-8")
    assert error_of(lambda: synthesize(CONFIG, tmp_path, 0)).code == "E-BUILD-002"
    assert error_of(lambda: synthesize(CONFIG, tmp_path / "keep", 0)).code == "E-BUILD-003"
    assert [p.name for p in tmp_path.iterdir()] == ["keep"]
    (tmp_path / "empty").mkdir()
    synthesize(CONFIG, tmp_path / "empty", 0, vision=False)
    assert (tmp_path / "empty" / INDEX_FILE).exists()


def test_what_does_not_fit_on_the_disk_is_refused_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 1_000_000})
    monkeypatch.setattr(synth.shutil, "disk_usage", lambda _: usage)
    assert error_of(lambda: synthesize(CONFIG, tmp_path / "a" / "b", 0)).code == "E-BUILD-004"
    assert list(tmp_path.iterdir()) == []


def test_full_size_shards_hold_pairs_together_and_respect_the_limit() -> None:
    shards = plan_shards(expected_tensors(example_config("v41-flash")), 10 * 2**30)
    assert 25 < len(shards) < 60
    for shard in shards:
        assert sum(t.nbytes for t in shard.tensors) <= 10 * 2**30 or len(shard.tensors) == 2  # an Engram table
        assert not shard.tensors[0].is_scale
    assert sum(len(shard.tensors) for shard in shards) == 96_085


def test_the_writer_notices_too_much_and_too_little(tmp_path: Path) -> None:
    tensors = [t for t in expected_tensors(example_config()) if t.name == "norm.weight"]
    with pytest.raises(ValueError, match="longer"), ShardWriter(tmp_path / "a", tensors) as writer:
        writer.write("norm.weight", bytes(257))
    with pytest.raises(ValueError, match="incomplete"), ShardWriter(tmp_path / "b", tensors) as writer:
        writer.write("norm.weight", bytes(100))
