"""model.yaml: defaults, the canonical text, and one catalogued error with its line for each kind of mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dinfc.diagnostics import DinfcError
from dinfc.frontend import model_yaml
from dinfc.frontend.config import canonical_json
from dinfc.frontend.model_yaml import Deployment, canonical_yaml, json_schema, load_model_yaml
from dinfc.frontend.yaml_schema import ModelYaml, parse_size
from frontend_support import EXAMPLES, TARGETS, error_of, example_json

GOOD = """\
model: deepseek-v4.1-flash
config: config.json
target: cpu
limits:
  max_seqs: 8
  max_tokens: 64
  max_len: 512
  score_bytes: 4KiB
buckets: {tokens: [1, 8, 64]}
"""


def _write(folder: Path, text: str) -> Path:
    (folder / "config.json").write_text(json.dumps(example_json()), encoding="utf-8")
    path = folder / "model.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def _load(folder: Path, text: str, **options: str | None) -> Deployment:
    return load_model_yaml(_write(folder, text), TARGETS, **{"host_isa": "avx2", **options})


def _error(folder: Path, text: str, **options: str | None) -> DinfcError:
    return error_of(lambda: _load(folder, text, **options))


def test_what_is_left_out_gets_a_default(tmp_path: Path) -> None:
    d = _load(tmp_path, "model: deepseek-v4.1-flash\nconfig: config.json\n", target="cpu")
    assert (d.max_seqs, d.max_tokens, d.max_len, d.score_bytes) == (8, 512, 4096, 64 * 2**20)
    assert d.buckets == (1, 8, 64, 512)
    assert (d.cache_main, d.memory_fraction, d.cpu_isa) == ("fp4", 0.9, "avx2")


def test_the_cache_format_comes_from_the_config_unless_the_yaml_gives_one(tmp_path: Path) -> None:
    raw = example_json()
    raw["text_config"]["use_fp4_sparse_kv"] = False
    path = _write(tmp_path, GOOD)
    (tmp_path / "config.json").write_text(json.dumps(raw), encoding="utf-8")
    assert load_model_yaml(path, TARGETS, host_isa="avx2").cache_main == "mxfp8"
    path.write_text(GOOD + "cache: {main: fp4}\n", encoding="utf-8")
    assert load_model_yaml(path, TARGETS, host_isa="avx2").cache_main == "fp4"


def test_the_last_bucket_is_always_max_tokens(tmp_path: Path) -> None:
    assert _load(tmp_path, GOOD.replace("[1, 8, 64]", "[1, 8]")).buckets == (1, 8, 64)
    assert _load(tmp_path, GOOD.replace("buckets: {tokens: [1, 8, 64]}\n", "")).buckets == (1, 8, 64)


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    assert _load(tmp_path, GOOD, target="sm90").target == "sm90"
    text = GOOD + "cpu: {isa: avx2}\n"
    assert _load(tmp_path, text, host_isa="avx512").cpu_isa == "avx2"
    assert _load(tmp_path, text, cpu_isa="avx512").cpu_isa == "avx512"
    assert _load(tmp_path, GOOD, host_isa="avx512").cpu_isa == "avx512"


def test_every_key_changes_the_canonical_text(tmp_path: Path) -> None:
    """F39: no option is accepted and without effect."""
    base = canonical_yaml(_load(tmp_path, GOOD))
    variants = {
        "target": GOOD.replace("target: cpu", "target: sm90"),
        "max_seqs": GOOD.replace("max_seqs: 8", "max_seqs: 4"),
        "max_tokens": GOOD.replace("max_tokens: 64", "max_tokens: 128"),
        "max_len": GOOD.replace("max_len: 512", "max_len: 256"),
        "score_bytes": GOOD.replace("4KiB", "8KiB"),
        "tokens": GOOD.replace("[1, 8, 64]", "[2, 64]"),
        "main": GOOD + "cache: {main: mxfp8}\n",
        "memory_fraction": GOOD + "cache: {memory_fraction: 0.5}\n",
        "isa": GOOD + "cpu: {isa: avx512}\n",
    }
    texts = {key: canonical_yaml(_load(tmp_path, text)) for key, text in variants.items()}
    assert len({base, *texts.values()}) == len(variants) + 1
    leaves = {key for section in ModelYaml.model_json_schema()["$defs"].values() for key in section["properties"]}
    refused = {"dp", "cp", "ep"}  # only 1 is accepted
    assert leaves - refused == set(variants) - {"target"}


def test_the_canonical_text_loads_again_and_holds_no_path(tmp_path: Path) -> None:
    d = _load(tmp_path, GOOD + "cache: {main: mxfp8, memory_fraction: 0.25}\n", host_isa="avx512")
    text = canonical_yaml(d)
    assert str(tmp_path) not in text
    other = tmp_path / "package"
    other.mkdir()
    (other / "config.json").write_text(canonical_json(d.config), encoding="utf-8")
    (other / "model.yaml").write_text(text, encoding="utf-8")
    again = load_model_yaml(other / "model.yaml", TARGETS)
    assert again == d and canonical_yaml(again) == text


@pytest.mark.parametrize("name", ["tiny", "tiny-test", "production-shape", "v41-flash"])
def test_the_examples_load(name: str) -> None:
    d = load_model_yaml(EXAMPLES / f"{name}.yaml", TARGETS, host_isa="avx2")
    assert d.target == "cpu" and d.buckets[-1] == d.max_tokens


def test_the_tiny_examples_need_several_chunks_of_scores() -> None:
    for name in ("tiny", "tiny-test"):
        d = load_model_yaml(EXAMPLES / f"{name}.yaml", TARGETS, host_isa="avx2")
        assert 1 < d.score_bytes // (2 * d.max_len) < d.max_tokens


# text -> (code, line, a word of message or mend)
MISTAKES: dict[str, tuple[str, str, int | None, str]] = {
    "unknown key": (GOOD + "bukets: {}\n", "E-YAML-003", 10, "buckets"),
    "unknown key below": (GOOD.replace("max_len", "max_lem"), "E-YAML-003", 7, "max_len"),
    "key at the wrong level": (GOOD + "max_len: 3\n", "E-YAML-003", 10, "limits"),
    "later key": (GOOD + "draft: {tokens: 5}\n", "E-YAML-003", 10, "draft"),
    "number as text": (GOOD.replace("max_seqs: 8", "max_seqs: eight"), "E-YAML-004", 5, "integer"),
    "number as float": (GOOD.replace("max_seqs: 8", "max_seqs: 8.0"), "E-YAML-004", 5, "integer"),
    "boolean as number": (GOOD.replace("max_seqs: 8", "max_seqs: true"), "E-YAML-004", 5, "integer"),
    "bad size": (GOOD.replace("4KiB", "4KB"), "E-YAML-004", 8, "64MiB"),
    "list item": (GOOD.replace("[1, 8, 64]", "[1, x]"), "E-YAML-004", 9, "buckets.tokens[1]"),
    "section as number": (GOOD + "cache: 5\n", "E-YAML-004", 10, "mapping"),
    "section empty": (GOOD + "cache:\n", "E-YAML-004", 10, "mapping"),
    "model as list": (GOOD.replace("model: deepseek-v4.1-flash", "model: [a]"), "E-YAML-004", 1, "text"),
    "zero": (GOOD.replace("max_seqs: 8", "max_seqs: 0"), "E-YAML-007", 5, "greater than 0"),
    "zero size": (GOOD.replace("4KiB", "0MiB"), "E-YAML-007", 8, "greater than 0"),
    "no buckets": (GOOD.replace("[1, 8, 64]", "[]"), "E-YAML-007", 9, "length"),
    "fraction": (GOOD + "cache: {memory_fraction: 1.5}\n", "E-YAML-007", 10, "at most 1"),
    "fraction nan": (GOOD + "cache: {memory_fraction: .nan}\n", "E-YAML-007", 10, "memory_fraction"),
    "cache format": (GOOD + "cache: {main: fp8}\n", "E-YAML-007", 10, "mxfp8"),
    "isa": (GOOD + "cpu: {isa: sse}\n", "E-YAML-007", 10, "avx512"),
    "twice": (GOOD + "limits: {}\n", "E-YAML-005", 10, "limits"),
    "missing": (GOOD.replace("config: config.json\n", ""), "E-YAML-006", None, "config"),
    "not yaml": (GOOD + "  x: [\n", "E-YAML-002", 10, "YAML"),
    "tab": (GOOD + "\tx: 1\n", "E-YAML-002", 10, "token"),
    "empty": ("", "E-YAML-002", 1, "empty"),
    "list": ("- 1\n", "E-YAML-002", 1, "mapping"),
    "parallel": (GOOD + "parallel: {dp: 1, ep: 2}\n", "E-YAML-010", 10, "parallel.ep"),
    "bucket order": (GOOD.replace("[1, 8, 64]", "[8, 1]"), "E-YAML-011", 9, "ascending"),
    "bucket twice": (GOOD.replace("[1, 8, 64]", "[8, 8]"), "E-YAML-011", 9, "ascending"),
    "bucket too large": (GOOD.replace("[1, 8, 64]", "[1, 128]"), "E-YAML-012", 9, "limits.max_tokens"),
    "length": (GOOD.replace("max_len: 512", "max_len: 5000"), "E-YAML-013", 7, "max_position_embeddings"),
    "rows": (GOOD.replace("max_tokens: 64", "max_tokens: 4"), "E-YAML-014", 6, "limits.max_seqs"),
    "no target": (GOOD.replace("target: cpu\n", ""), "E-YAML-016", None, "--target"),
    "target": (GOOD.replace("target: cpu", "target: sm80"), "E-TARGET-001", 3, "sm90"),
    "foreign key": (GOOD.replace("cpu", "sm90") + "cpu: {isa: avx2}\n", "E-YAML-017", 10, "cpu.isa"),
    "model": (GOOD.replace("v4.1", "v4"), "E-YAML-018", 1, "deepseek-v4.1-flash"),
    "no config": (GOOD.replace("config.json", "nothing.json"), "E-CONFIG-004", 2, "nothing.json"),
}


@pytest.mark.parametrize("mistake", list(MISTAKES))
def test_a_mistake_gives_one_error_with_its_line(tmp_path: Path, mistake: str) -> None:
    text, code, line, word = MISTAKES[mistake]
    error = _error(tmp_path, text)
    assert error.code == code
    assert error.place is not None and error.place.line == line and error.place.name.endswith("model.yaml")
    assert word in error.message + error.mend
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "model.yaml"]  # nothing was written


def test_a_broken_rule_of_the_config_is_placed_in_the_config(tmp_path: Path) -> None:
    path = _write(tmp_path, GOOD)
    raw = example_json()
    raw["text_config"]["candidate_source_layer_id"] = 6
    (tmp_path / "config.json").write_text(json.dumps(raw, indent=1), encoding="utf-8")
    error = error_of(lambda: load_model_yaml(path, TARGETS, host_isa="avx2"))
    assert error.code == "E-CONFIG-021" and error.place is not None and error.place.name.endswith("config.json")


def test_no_such_file_or_not_text(tmp_path: Path) -> None:
    assert error_of(lambda: load_model_yaml(tmp_path / "none.yaml", TARGETS)).code == "E-YAML-001"
    assert error_of(lambda: load_model_yaml(tmp_path, TARGETS)).code == "E-YAML-001"
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    assert error_of(lambda: load_model_yaml(tmp_path / "b.yaml", TARGETS)).code == "E-YAML-002"


def test_command_line_values_are_checked_too(tmp_path: Path) -> None:
    assert _error(tmp_path, GOOD, target="sm80").code == "E-TARGET-001"
    assert _error(tmp_path, GOOD, cpu_isa="sse").code == "E-TARGET-002"
    assert _error(tmp_path, GOOD, target="sm90", cpu_isa="avx2").code == "E-YAML-017"
    with pytest.raises(DinfcError) as caught:
        _load(tmp_path, GOOD, host_isa=None)
    assert (caught.value.code, caught.value.exit_code) == ("E-TARGET-003", 3)


def test_yaml_cannot_construct_objects(tmp_path: Path) -> None:
    text = GOOD.replace("target: cpu", "target: !!python/object/apply:os.getcwd []")
    assert _error(tmp_path, text).code in ("E-YAML-002", "E-YAML-004")


def test_anchors_and_merges_are_ordinary_values(tmp_path: Path) -> None:
    text = GOOD.replace("max_seqs: 8", "max_seqs: &n 8").replace("[1, 8, 64]", "[1, *n, 64]")
    assert _load(tmp_path, text).buckets == (1, 8, 64)


@pytest.mark.parametrize(("text", "size"), [("64MiB", 2**26), ("2GiB", 2**31), ("7", 7), ("7 B", 7), (9, 9)])
def test_sizes(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["64MB", "1.5GiB", "-1", "MiB", "", True, None, 1.5])
def test_no_sizes(text: object) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_size(text)


def test_the_shipped_json_schema_is_current() -> None:
    shipped = Path(model_yaml.__file__).with_name("model_yaml.schema.json").read_text(encoding="utf-8")
    assert shipped == json_schema()
