"""A compiled package and a checkpoint for end-to-end tests: made once a process, objects cached between processes."""
from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dinfc.codegen.package import BuildOptions
from dinfc.compiled import compile_deployment, write
from dinfc.frontend.model_yaml import Deployment, load_model_yaml
from dinfc.frontend.synth import synthesize
from dinfc.runtime import cli
from dinfc.runtime.engine import Engine
from dinfc.runtime.executor import Executor, Logits, Settings
from dinfc.runtime.package import Package, open_package
from dinfc.runtime.scheduler import DefaultPolicy, Policy
from dinfc.runtime.weights import PackedWeights
from support.compiled_model import CACHE, ROOT

Scores = dict[int, NDArray[np.float32]]


class Quiet:
    """Phases that tell nothing."""

    def phase(self, name: str) -> nullcontext[None]:
        return nullcontext()


def deployment(example: str = "tiny-test", **changes: object) -> Deployment:
    """The deployment of an example for the instruction set that every machine of the project has."""
    found = load_model_yaml(ROOT / "examples" / f"{example}.yaml", ("cpu",), target="cpu", cpu_isa="avx2",
                            host_isa="avx2")
    return replace(found, **changes)  # type: ignore[arg-type]


def compile_to(place: Path, given: Deployment, options: BuildOptions | None = None) -> Path:
    """Writes a package. `options`: as given, else with cached objects."""
    write(compile_deployment(given, Quiet()), place, options or BuildOptions(cache=CACHE), Quiet())
    return place


@lru_cache(maxsize=8)
def package(example: str = "tiny-test", checked: bool = False) -> Path:
    """A package of an example that all tests of this process share; they must not change it."""
    place = Path(tempfile.mkdtemp(prefix="dinfc-e2e-")) / "package"
    return compile_to(place, deployment(example), BuildOptions(checked=checked, cache=CACHE))


@lru_cache(maxsize=4)
def checkpoint(example: str = "tiny-test") -> Path:
    """A synthetic checkpoint of an example; tests must not change it."""
    place = Path(tempfile.mkdtemp(prefix="dinfc-e2e-")) / "checkpoint"
    tokenizer = ROOT / "examples" / example / "tokenizer.json"
    synthesize(ROOT / "examples" / example / "config.json", place, 1, shard_bytes=2**20, vision=True,
               tokenizer=tokenizer if tokenizer.is_file() else None, progress=lambda _: None)
    return place


@lru_cache(maxsize=8)
def loaded(root: Path, checked: bool = False) -> tuple[Package, PackedWeights]:
    """An opened package with the weights of the tiny checkpoint."""
    opened = open_package(root)
    return opened, opened.pack(checkpoint(), opened.library(checked), None, 1)


def executor(root: Path, settings: Settings | None = None, checked: bool = False) -> Executor:
    opened, packed = loaded(root, checked)
    return opened.executor(packed, settings or Settings(), opened.library(checked))


def scores(texts: Sequence[Sequence[int]], policy: Policy | None = None, settings: Settings | None = None,
           root: Path | None = None, checked: bool = False) -> Scores:
    """Logits of every position of every text, f32 [length, V]; NaN where nothing was written."""
    engine = Engine(executor(root or package(), settings, checked))
    vocab = engine.executor.plan.model.vocab_size
    out = {i: np.full((len(t), vocab), np.nan, np.float32) for i, t in enumerate(texts)}

    def take(text: int, first: int, logits: Logits) -> None:
        out[text][first : first + len(logits)] = logits

    engine.score(texts, policy or DefaultPolicy(), take)
    return out


def same_bits(a: NDArray[np.float32], b: NDArray[np.float32]) -> bool:
    return a.shape == b.shape and bool((a.view(np.uint32) == b.view(np.uint32)).all()) and not np.isnan(a).any()


def random_texts(lengths: Sequence[int], seed: int = 0, vocab: int = 512) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [random.integers(0, vocab, n).tolist() for n in lengths]


def run_package(root: Path, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """`python ROOT ...` in a process of its own."""
    return subprocess.run([sys.executable, str(root), *arguments], capture_output=True, text=True, check=False,
                          env={**os.environ, **(env or {})})


def call_package(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The same command line in this process, with the runtime that packages carry: no start of an interpreter."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = cli.main(root, arguments)
    return subprocess.CompletedProcess([str(root), *arguments], status, out.getvalue(), err.getvalue())


def write_ids(place: Path, texts: Sequence[Sequence[int]]) -> Path:
    place.write_text(json.dumps([list(t) for t in texts]))
    return place
