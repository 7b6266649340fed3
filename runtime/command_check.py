"""`check`: does this package, on this machine, give every row the same bits in every way that it can be computed?"""
from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .engine import Engine
from .errors import RuntimeFault
from .executor import Logits, Settings
from .library import KernelLibrary
from .memory import available_memory, human
from .options import add_run_options, check_seed, progress, settings_of, thread_count
from .package import Package, open_package
from .plan import CHECKED_LIBRARY, check_file
from .random_weights import RandomTensors, random_token_map
from .scheduler import DefaultPolicy, FixedChunks, Policy, RandomMix
from .weights import PackedWeights, pack_in_memory

TEXT_LENGTHS = (1, 9, 33, 70)  # shortened to max_len
Scores = dict[int, NDArray[np.float32]]


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of texts and random weights")
    add_run_options(parser, weights_required=False)


def run(root: Path, given: argparse.Namespace) -> None:
    """Prints one line a test. Raises RuntimeFault E-PLAN-002 (a damaged file), E-RUN-020 (other bits)."""
    check_seed(given.seed)
    package = open_package(root)
    base = settings_of(package, given)
    for name in package.plan.files:
        check_file(root, name, package.plan)
    print(f"ok    {len(package.plan.files)} files have the hashes of plan.json")
    library = package.library(given.checked)
    packed = weights_of(package, library, given, base.threads)
    texts = sample_texts(package, given.seed)

    def score(policy: Policy, settings: Settings, used: KernelLibrary = library) -> Scores:
        return score_all(package, packed, texts, policy, settings, used)

    reference = score(DefaultPolicy(), base)
    if not all(np.isfinite(x).all() for x in reference.values()):
        raise RuntimeFault("E-RUN-015", position=0)
    digest = hashlib.sha256(b"".join(x.tobytes() for x in reference.values())).hexdigest()
    print(f"ok    logits of {len(texts)} texts are finite; their sha256 is {digest[:16]}")
    for what, other in variants(package, base, score):
        compare(what, reference, other())
        print(f"ok    {what}: the same bits")
    if (root / CHECKED_LIBRARY).is_file() and not given.checked:
        compare("the checked build", reference, score(DefaultPolicy(), base, package.library(True)))
        print("ok    checked build: the same bits")


def variants(package: Package, base: Settings,
             score: Callable[[Policy, Settings], Scores]) -> list[tuple[str, Callable[[], Scores]]]:
    """Other ways to the same logits."""
    largest = package.plan.buckets[-1]
    return [
        ("one token a step", lambda: score(FixedChunks([1]), base)),
        ("chunks of 33, 1, 30, 7", lambda: score(FixedChunks([33, 1, 30, 7]), base)),
        ("mixed batches (seed 1)", lambda: score(RandomMix(1), base)),
        ("mixed batches (seed 2)", lambda: score(RandomMix(2), base)),
        ("one thread", lambda: score(DefaultPolicy(), Settings(1, base.bucket_rows, base.poison))),
        ("two threads", lambda: score(DefaultPolicy(), Settings(2, base.bucket_rows, base.poison))),
        ("largest bucket", lambda: score(DefaultPolicy(), Settings(base.threads, largest, base.poison))),
        ("poisoned scratch", lambda: score(RandomMix(3), Settings(base.threads, base.bucket_rows, True))),
    ]


def weights_of(package: Package, library: KernelLibrary, given: argparse.Namespace, threads: int) -> PackedWeights:
    """Those of --weights, else random ones. Raises RuntimeFault E-RUN-012 where these do not fit into memory."""
    if given.weights is not None:
        return package.pack(given.weights, library, given.pack_cache, threads, progress)
    needed, available = package.plan.weight_bytes, available_memory()
    if needed > available:
        raise RuntimeFault("E-RUN-012", what="random weights", needed=human(needed), available=human(available))
    source = RandomTensors({t.name: t for t in package.weights.tensors}, given.seed)
    return pack_in_memory(package.weights, source, library, random_token_map(package.plan.model),
                          thread_count(given.threads))


def sample_texts(package: Package, seed: int) -> list[list[int]]:
    """Random texts whose lengths straddle windows, pages and buckets."""
    random = np.random.default_rng(seed)
    plan = package.plan
    return [random.integers(0, plan.model.vocab_size, min(length, plan.limits.max_len)).tolist()
            for length in TEXT_LENGTHS]


def score_all(package: Package, packed: PackedWeights, texts: list[list[int]], policy: Policy, settings: Settings,
              library: KernelLibrary) -> Scores:
    """Logits of every text, f32 [length, V]."""
    plan = package.plan
    pages = sum(-(-len(t) // plan.page_tokens) for t in texts) + 1
    executor = package.executor(packed, settings, library, pages)
    out = {i: np.full((len(t), plan.model.vocab_size), np.nan, np.float32) for i, t in enumerate(texts)}

    def take(text: int, first: int, logits: Logits) -> None:
        out[text][first : first + len(logits)] = logits

    Engine(executor).score(texts, policy, take)
    return out


def compare(what: str, reference: Scores, other: Scores) -> None:
    """Raises RuntimeFault E-RUN-020 at the first row that differs."""
    for text, rows in reference.items():
        differ = (rows.view(np.uint32) != other[text].view(np.uint32)).any(axis=1)
        if differ.any():
            row = int(np.flatnonzero(differ)[0])
            raise RuntimeFault("E-RUN-020", what=what, reference="one step after the other",
                               detail=f"position {row} of a text of {len(rows)} tokens is the first of "
                                      f"{int(differ.sum())}")
