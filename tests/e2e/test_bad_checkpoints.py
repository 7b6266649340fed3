"""A checkpoint that does not fit ends in one catalogued error that names the tensor; nothing is left behind."""
from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dinfc.runtime.safetensors_file import StoredTensor, read_header
from support.package import call_package, checkpoint, package, write_ids

INDEX = "model.safetensors.index.json"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A checkpoint that a test may break."""
    return Path(shutil.copytree(checkpoint(), tmp_path / "ckpt"))


def generate(folder: Path, tmp_path: Path) -> tuple[int, str]:
    """Exit code and stderr of a run on a checkpoint; packed weights go to a folder of the test."""
    ids = write_ids(tmp_path / "ids.json", [[1, 2, 3]])
    cache = tmp_path / "packed"
    done = call_package(package(), "generate", "--weights", str(folder), "--ids", str(ids), "--max-tokens", "2",
                       "--quiet", "--pack-cache", str(cache), "--threads", "1")
    if done.returncode:
        assert done.stdout == ""
        assert not cache.exists() or not any(cache.iterdir()), "something half-written is left"
    return done.returncode, done.stderr


def locate(folder: Path, name: str) -> StoredTensor:
    index = json.loads((folder / INDEX).read_text())["weight_map"]
    full = name if name in index else f"model.{name}"
    return read_header(folder / index[full])[full]


def edit_header(path: Path, change: Callable[[dict[str, dict[str, object]]], None]) -> None:
    """Rewrites the header of a shard; the data stay."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])


def full_name(folder: Path, name: str) -> str:
    return name if name in json.loads((folder / INDEX).read_text())["weight_map"] else f"model.{name}"


def expect(result: tuple[int, str], code: str, *words: str) -> None:
    status, text = result
    assert status == 1, text
    assert text.startswith(f"{code}: ") and text.count("E-") == 1, text
    assert "mend" in text and "Traceback" not in text
    for word in words:
        assert word in text, text


def test_the_untouched_checkpoint_works(copy: Path, tmp_path: Path) -> None:
    assert generate(copy, tmp_path) == (0, "")


def rename_in_place(folder: Path, old: str, new: str | None) -> None:
    """Renames a tensor in shard and index, or (None) takes it out of both by turning it into metadata-free padding."""
    index = json.loads((folder / INDEX).read_text())
    old = full_name(folder, old)
    shard = folder / index["weight_map"].pop(old)
    if new is not None:
        index["weight_map"][new] = shard.name
        edit_header(shard, lambda h: h.update({new: h.pop(old)}))
    (folder / INDEX).write_text(json.dumps(index))


def test_a_missing_tensor(copy: Path, tmp_path: Path) -> None:
    rename_in_place(copy, "layers.1.attn.wq_a.weight", "vision.surplus")
    expect(generate(copy, tmp_path), "E-CKPT-002", "layers.1.attn.wq_a.weight")


def test_an_extra_tensor(copy: Path, tmp_path: Path) -> None:
    def add(header: dict[str, dict[str, object]]) -> None:
        header["layers.0.surplus"] = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}

    index = json.loads((copy / INDEX).read_text())
    shard = sorted(set(index["weight_map"].values()))[0]
    index["weight_map"]["layers.0.surplus"] = shard
    (copy / INDEX).write_text(json.dumps(index))
    edit_header(copy / shard, add)
    expect(generate(copy, tmp_path), "E-CKPT-003", "layers.0.surplus", shard)


def test_a_tensor_of_another_shape(copy: Path, tmp_path: Path) -> None:
    name = full_name(copy, "layers.0.attn.wq_a.weight")
    stored = locate(copy, "layers.0.attn.wq_a.weight")
    turned = [stored.shape[1], stored.shape[0]]
    edit_header(stored.path, lambda h: h[name].update(shape=turned))
    expect(generate(copy, tmp_path), "E-CKPT-004", "layers.0.attn.wq_a.weight", str(turned), str(list(stored.shape)))


@pytest.mark.parametrize(("name", "dtype"), [
    ("layers.0.attn.wq_a.weight", "U8"), ("layers.0.attn.wq_a.scale", "U8"),
    ("layers.0.ffn.experts.0.w1.weight", "U8"), ("norm.weight", "F16"), ("layers.0.attn.wq_a.weight", "F8_E5M2"),
])
def test_codes_and_scales_are_strict_about_their_dtype(copy: Path, tmp_path: Path, name: str, dtype: str) -> None:
    full = full_name(copy, name)
    edit_header(locate(copy, name).path, lambda h: h[full].update(dtype=dtype))
    expect(generate(copy, tmp_path), "E-CKPT-005", name, dtype)


def one_file(folder: Path, change: Callable[[dict[str, np.ndarray], dict[str, str]], None]) -> Path:
    """The checkpoint as a single file without an index; `change` may edit arrays and dtypes."""
    arrays: dict[str, np.ndarray] = {}
    dtypes: dict[str, str] = {}
    shapes: dict[str, list[int]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        for name, stored in read_header(path).items():
            arrays[name] = np.fromfile(path, np.uint8, stored.nbytes, offset=stored.start)
            dtypes[name], shapes[name] = stored.dtype, list(stored.shape)
        path.unlink()
    (folder / INDEX).unlink()
    change(arrays, dtypes)
    header, at = {}, 0
    for name, data in arrays.items():
        header[name] = {"dtype": dtypes[name], "shape": shapes[name], "data_offsets": [at, at + data.size]}
        at += data.size
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for data in arrays.values():
            file.write(data.tobytes())
    return folder


def test_bf16_stored_as_f32_is_accepted_where_no_value_changes(copy: Path, tmp_path: Path) -> None:
    def widen(arrays: dict[str, np.ndarray], dtypes: dict[str, str]) -> None:
        name = next(n for n in arrays if n.endswith("layers.0.attn_norm.weight"))
        arrays[name] = (arrays[name].view(np.uint16).astype(np.uint32) << 16).view(np.uint8)
        dtypes[name] = "F32"

    assert generate(one_file(copy, widen), tmp_path)[0] == 0


def test_f32_with_more_bits_than_bf16_is_refused(copy: Path, tmp_path: Path) -> None:
    def widen(arrays: dict[str, np.ndarray], dtypes: dict[str, str]) -> None:
        name = next(n for n in arrays if n.endswith("layers.0.attn_norm.weight"))
        arrays[name] = ((arrays[name].view(np.uint16).astype(np.uint32) << 16) + 1).view(np.uint8)
        dtypes[name] = "F32"

    expect(generate(one_file(copy, widen), tmp_path), "E-CKPT-007", "layers.0.attn_norm.weight")


def test_f32_stored_as_bf16_is_accepted_and_gives_the_values_back(tmp_path: Path) -> None:
    """Values that bf16 holds: stored either way, the same tokens come out."""
    def name_of(arrays: dict[str, np.ndarray]) -> str:
        return next(n for n in arrays if n.endswith("layers.0.attn.attn_sink"))

    def short(arrays: dict[str, np.ndarray], dtypes: dict[str, str]) -> None:
        assert dtypes[name_of(arrays)] == "F32"
        arrays[name_of(arrays)] = (arrays[name_of(arrays)].view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        dtypes[name_of(arrays)] = "BF16"

    def rounded(arrays: dict[str, np.ndarray], dtypes: dict[str, str]) -> None:
        arrays[name_of(arrays)] = (arrays[name_of(arrays)].view(np.uint32) & 0xFFFF0000).view(np.uint8)

    ids = write_ids(tmp_path / "text.json", [list(range(3, 40))])
    found = []
    for number, change in enumerate((short, rounded)):
        folder = one_file(Path(shutil.copytree(checkpoint(), tmp_path / f"ckpt-{number}")), change)
        out = tmp_path / f"{number}.safetensors"
        done = call_package(package(), "score", "--weights", str(folder), "--ids", str(ids), "--logits", str(out),
                            "--pack-cache", str(tmp_path / "both"), "--threads", "1")
        assert done.returncode == 0, done.stderr
        found.append(out.read_bytes())
    assert found[0] == found[1]


def test_weights_that_hold_nan_are_told_and_not_sampled_from(copy: Path, tmp_path: Path) -> None:
    def spoil(arrays: dict[str, np.ndarray], dtypes: dict[str, str]) -> None:
        name = next(n for n in arrays if n.removeprefix("model.") == "norm.weight")
        arrays[name][:2] = [0xC0, 0x7F]

    done = call_package(package(), "generate", "--weights", str(one_file(copy, spoil)), "--ids",
                       str(write_ids(tmp_path / "ids.json", [[1, 2, 3]])), "--pack-cache", str(tmp_path / "packed"),
                        "--threads", "1")
    expect((done.returncode, done.stderr), "E-RUN-015", "position 2")
    assert done.stdout == ""


def test_a_truncated_tensor(copy: Path, tmp_path: Path) -> None:
    """Its bytes end before its shape does."""
    name = full_name(copy, "layers.0.attn.wq_a.weight")

    def cut(header: dict[str, dict[str, object]]) -> None:
        first, last = header[name]["data_offsets"]  # type: ignore[misc]
        header[name]["data_offsets"] = [first, last - 1]

    path = locate(copy, "layers.0.attn.wq_a.weight").path
    edit_header(path, cut)
    expect(generate(copy, tmp_path), "E-CKPT-006", path.name, "layers.0.attn.wq_a.weight")


@pytest.mark.parametrize("size", [0, 5, 8, 200])
def test_a_shard_that_ends_inside_its_header(copy: Path, tmp_path: Path, size: int) -> None:
    shard = sorted(copy.glob("*.safetensors"))[0]
    shard.write_bytes(shard.read_bytes()[:size])
    expect(generate(copy, tmp_path), "E-CKPT-006", shard.name)


@pytest.mark.parametrize(("content", "word"), [
    ("{", "not JSON"), ("{}", "weight_map"), ('{"weight_map": {"a": "../other.safetensors"}}', "no file name"),
    ('{"weight_map": {"a": 5}}', "no file name"),
])
def test_an_index_that_cannot_be_used(copy: Path, tmp_path: Path, content: str, word: str) -> None:
    (copy / INDEX).write_text(content)
    expect(generate(copy, tmp_path), "E-CKPT-009", INDEX, word)


def test_a_truncated_shard(copy: Path, tmp_path: Path) -> None:
    shard = sorted(copy.glob("*.safetensors"))[1]
    raw = shard.read_bytes()
    shard.write_bytes(raw[: len(raw) - 100])
    expect(generate(copy, tmp_path), "E-CKPT-006", shard.name)


def test_a_missing_shard(copy: Path, tmp_path: Path) -> None:
    shard = sorted(copy.glob("*.safetensors"))[0]
    shard.unlink()
    expect(generate(copy, tmp_path), "E-CKPT-008", shard.name)


@pytest.mark.parametrize("what", ["nothing", "file", "empty"])
def test_a_folder_that_is_no_checkpoint(tmp_path: Path, what: str) -> None:
    place = tmp_path / "place"
    if what == "file":
        place.write_text("x")
    elif what == "empty":
        place.mkdir()
    expect(generate(place, tmp_path), "E-CKPT-001", str(place))


def test_vision_tensors_may_be_absent(copy: Path, tmp_path: Path) -> None:
    def drop(arrays: dict[str, np.ndarray], dtypes: dict[str, str]) -> None:
        for name in [n for n in arrays if n.removeprefix("model.").startswith(("vision.", "aligner."))]:
            del arrays[name]

    assert generate(one_file(copy, drop), tmp_path)[0] == 0


def test_a_config_that_contradicts_the_package(copy: Path, tmp_path: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    config["text_config"]["rope_theta"] = 12345.0
    (copy / "config.json").write_text(json.dumps(config))
    expect(generate(copy, tmp_path), "E-CKPT-012", "rope_theta", "12345")


def test_a_token_map_of_another_size(copy: Path, tmp_path: Path) -> None:
    (copy / "engram_token_map.json").write_text(json.dumps([0, 1, 2]))
    expect(generate(copy, tmp_path), "E-CKPT-014", "3 entries")
