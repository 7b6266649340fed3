"""`score`: the logits of every position of given texts, in whatever chunks or batches one likes."""
from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .engine import Engine, check_texts
from .errors import RuntimeFault
from .options import add_run_options, open_executor, rate, read_ids
from .package import open_package
from .safetensors_file import TensorWriter
from .scheduler import DefaultPolicy, FixedChunks, Policy, RandomMix


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.add_argument("--ids", type=Path, required=True, metavar="F.json", help="texts as lists of token ids")
    parser.add_argument("--logits", type=Path, required=True, metavar="OUT.safetensors",
                        help="file to write: logits.0, logits.1, ... f32 [length, V]")
    parser.add_argument("--chunks", metavar="33,1,30", help="chunk sizes, repeated cyclically, for each text anew")
    parser.add_argument("--mix", type=int, metavar="SEED", help="random mixed batches of all texts")
    add_run_options(parser)


def run(root: Path, given: argparse.Namespace) -> None:
    """Writes the file; it appears complete or not at all."""
    policy = policy_of(given)
    texts = read_ids(given.ids)
    plan = open_package(root).plan
    check_texts(plan, texts, [0] * len(texts))
    shapes = {f"logits.{i}": (len(ids), plan.model.vocab_size) for i, ids in enumerate(texts)}
    with TensorWriter(given.logits, shapes, "--logits") as writer:
        _, executor = open_executor(root, given)
        engine = Engine(executor)
        engine.score(texts, policy, lambda text, first, logits: writer.write_rows(f"logits.{text}", first, logits))
    statistics = engine.statistics
    rows = statistics.prefill_rows + statistics.decode_rows
    seconds = statistics.prefill_seconds + statistics.decode_seconds
    print(f"{rows} positions of {len(texts)} texts in {statistics.steps} steps, {rate(rows, seconds)}", file=sys.stderr)


def policy_of(given: argparse.Namespace) -> Policy:
    """How texts become steps. Raises RuntimeFault E-RUN-009 or 010."""
    if given.chunks is not None and given.mix is not None:
        raise RuntimeFault("E-RUN-010", first="--chunks", second="--mix")
    if given.mix is not None:
        if given.mix < 0:
            raise RuntimeFault("E-RUN-009", option="--mix", value=given.mix, expected="a seed of 0 or more")
        return RandomMix(given.mix)
    if given.chunks is None:
        return DefaultPolicy()
    parts = given.chunks.split(",")
    if not all(p.strip().isdecimal() and int(p) > 0 for p in parts):
        raise RuntimeFault("E-RUN-009", option="--chunks", value=given.chunks, expected="sizes such as 33,1,30")
    return FixedChunks([int(p) for p in parts])
