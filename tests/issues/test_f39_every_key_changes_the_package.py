"""F39: an option that is accepted and has no effect. Every key of model.yaml changes the package, or is refused."""
from __future__ import annotations

import hashlib
import shutil
from functools import lru_cache
from pathlib import Path

import pytest
from pydantic import BaseModel

from dinfc.codegen.package import BuildOptions
from dinfc.diagnostics import DinfcError
from dinfc.frontend.model_yaml import load_model_yaml
from dinfc.frontend.yaml_schema import ModelYaml
from support.compiled_model import ROOT
from support.package import compile_to

TEXT = """model: deepseek-v4.1-flash
config: config.json
target: cpu
parallel: {dp: 1, cp: 1, ep: 1}
limits: {max_seqs: 8, max_tokens: 64, max_len: 512, score_bytes: 4096}
buckets: {tokens: [1, 8, 64]}
cache: {main: fp4, memory_fraction: 0.9}
cpu: {isa: avx2}
"""

# key -> (text, other text) and what must happen: another package, or this error
CHANGES: dict[str, tuple[str, str, str]] = {
    "model": ("deepseek-v4.1-flash", "deepseek-v4", "E-YAML-018"),
    "config": ("config: config.json", "config: other.json", ""),
    "target": ("target: cpu", "target: sm100", "E-YAML-017"),
    "parallel.dp": ("dp: 1", "dp: 2", "E-YAML-010"),
    "parallel.cp": ("cp: 1", "cp: 2", "E-YAML-010"),
    "parallel.ep": ("ep: 1", "ep: 2", "E-YAML-010"),
    "limits.max_seqs": ("max_seqs: 8", "max_seqs: 4", ""),
    "limits.max_tokens": ("max_tokens: 64", "max_tokens: 80", ""),
    "limits.max_len": ("max_len: 512", "max_len: 384", ""),
    "limits.score_bytes": ("score_bytes: 4096", "score_bytes: 1024", ""),
    "buckets.tokens": ("[1, 8, 64]", "[2, 64]", ""),
    "cache.main": ("main: fp4", "main: mxfp8", ""),
    "cache.memory_fraction": ("memory_fraction: 0.9", "memory_fraction: 0.5", ""),
    "cpu.isa": ("isa: avx2", "isa: avx512", ""),
}


def leaves(schema: type[BaseModel], prefix: str = "") -> list[str]:
    out = []
    for name, field in schema.model_fields.items():
        kind = field.annotation
        nested = isinstance(kind, type) and issubclass(kind, BaseModel)
        out += leaves(kind, f"{prefix}{name}.") if nested else [prefix + name]  # type: ignore[arg-type]
    return out


def package_hash(text: str, folder: Path) -> str:
    """sha256 over all files of the package of a model.yaml; sources only, nothing is compiled."""
    shutil.copy(ROOT / "examples" / "tiny-test" / "config.json", folder / "config.json")
    shutil.copy(ROOT / "examples" / "production-shape" / "config.json", folder / "other.json")
    (folder / "model.yaml").write_text(text)
    deployment = load_model_yaml(folder / "model.yaml", ("cpu", "sm100"), host_isa="avx2")
    root = compile_to(folder / "out", deployment, BuildOptions(build=False))
    digest = hashlib.sha256()
    for path in sorted(p for p in root.rglob("*") if p.is_file() and p.name != "model.yaml"):
        digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


@lru_cache(maxsize=1)
def base_hash(folder: Path) -> str:
    folder.mkdir()
    return package_hash(TEXT, folder)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return base_hash(tmp_path_factory.mktemp("base") / "one")


def test_every_key_of_the_schema_is_listed_here() -> None:
    assert set(leaves(ModelYaml)) == set(CHANGES)


@pytest.mark.parametrize("key", CHANGES)
def test_a_key_has_an_effect_or_is_refused(key: str, base: str, tmp_path: Path) -> None:
    old, new, code = CHANGES[key]
    assert TEXT.count(old) == 1
    text = TEXT.replace(old, new)
    if code:
        with pytest.raises(DinfcError, match=code):
            package_hash(text, tmp_path)
    else:
        # beyond the copy of model.yaml itself, which is left out of the hash
        assert package_hash(text, tmp_path) != base
