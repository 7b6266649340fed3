"""`bench`: tokens a second of prefill and decode, with real or with random weights."""
from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median

import numpy as np

from .command_check import weights_of
from .engine import Engine, Request
from .errors import RuntimeFault
from .options import add_run_options, check_seed, rate, settings_of
from .package import open_package


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.add_argument("--batch", type=int, default=1, metavar="N", help="requests at the same time (default 1)")
    parser.add_argument("--prompt-tokens", type=int, default=64, metavar="N", help="length of each prompt (default 64)")
    parser.add_argument("--max-tokens", type=int, default=32, metavar="N", help="tokens to generate (default 32)")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs; medians are shown (default 3)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of prompts and random weights")
    add_run_options(parser, weights_required=False)


def run(root: Path, given: argparse.Namespace) -> None:
    """Prints medians over the runs, after one run to warm up, and the conditions."""
    for option, value in (("--batch", given.batch), ("--prompt-tokens", given.prompt_tokens),
                          ("--max-tokens", given.max_tokens), ("--repeat", given.repeat)):
        if value < 1:
            raise RuntimeFault("E-RUN-009", option=option, value=value, expected="at least 1")
    check_seed(given.seed)
    package = open_package(root)
    settings = settings_of(package, given)
    library = package.library(given.checked)
    packed = weights_of(package, library, given, settings.threads)
    executor = package.executor(packed, settings, library)
    random = np.random.default_rng(given.seed)
    prompts = random.integers(0, package.plan.model.vocab_size, (given.batch, given.prompt_tokens)).tolist()
    prefill, decode = [], []
    rows = (0, 0)
    for number in range(given.repeat + 1):
        engine = Engine(executor)
        engine.generate([Request(p, given.max_tokens, ignore_eos=True) for p in prompts])
        s = engine.statistics
        rows = (s.prefill_rows, s.decode_rows)
        if number:
            prefill.append(s.prefill_seconds)
            decode.append(s.decode_seconds)
    print(f"conditions  {given.batch} x {given.prompt_tokens} prompt tokens, {given.max_tokens} generated, "
          f"{settings.threads} threads, {package.plan.isa}, "
          f"{'random weights' if given.weights is None else 'checkpoint'}, median of {given.repeat}")
    print(f"prefill     {rate(rows[0], median(prefill))}")
    print(f"decode      {rate(rows[1], median(decode))}")
