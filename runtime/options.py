"""Options that several commands share, and what is made of them."""
from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from .errors import RuntimeFault
from .executor import Executor, Settings
from .memory import human
from .package import Package, open_package
from .weights import PackedWeights

MAX_THREADS = 1024  # OpenMP's start of a team takes stack for each of them; far above this the process would die


def add_run_options(parser: argparse.ArgumentParser, weights_required: bool = True) -> None:
    """--weights, --threads, --checked, --bucket, --poison, --pack-cache."""
    parser.add_argument("--weights", type=Path, required=weights_required, metavar="DIR",
                        help="checkpoint folder" + ("" if weights_required else " (default: random weights)"))
    parser.add_argument("--pack-cache", type=Path, metavar="DIR",
                        help="where packed weights are kept (default: packed/ in the package)")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="threads (default: all CPUs); results do "
                        "not depend on it")
    parser.add_argument("--checked", action="store_true", help="use the checked kernels (slow: every index is tested)")
    parser.add_argument("--bucket", type=int, metavar="ROWS",
                        help="use no bucket of fewer rows; results do not depend on it")
    parser.add_argument("--poison", action="store_true",
                        help="fill scratch with 0xFF before every step; results do not depend on it")


def thread_count(given: int) -> int:
    """0: all CPUs. Raises RuntimeFault E-RUN-009 outside [0, MAX_THREADS]."""
    if not 0 <= given <= MAX_THREADS:
        raise RuntimeFault("E-RUN-009", option="--threads", value=given, expected=f"from 1 to {MAX_THREADS}")
    return given or min(len(os.sched_getaffinity(0)), MAX_THREADS)


def check_seed(given: int) -> None:
    """Raises RuntimeFault E-RUN-009 for a seed that generators do not take."""
    if not 0 <= given < 2**64:
        raise RuntimeFault("E-RUN-009", option="--seed", value=given, expected="in [0, 2^64)")


def settings_of(package: Package, given: argparse.Namespace) -> Settings:
    """Raises RuntimeFault E-RUN-009 for a bucket that the package does not have."""
    buckets = package.plan.buckets
    if given.bucket is not None and given.bucket not in buckets:
        raise RuntimeFault("E-RUN-009", option="--bucket", value=given.bucket,
                           expected=f"one of {', '.join(map(str, buckets))}")
    return Settings(thread_count(given.threads), given.bucket or 1, given.poison)


def open_executor(root: Path, given: argparse.Namespace) -> tuple[Package, Executor]:
    """The package with weights in memory, ready to run. Raises RuntimeFault (E-PLAN-*, E-CKPT-*, E-RUN-*)."""
    package = open_package(root)
    settings = settings_of(package, given)
    library = package.library(given.checked)
    packed: PackedWeights = package.pack(given.weights, library, given.pack_cache, settings.threads, progress)
    return package, package.executor(packed, settings, library)


def progress(share: float) -> None:
    """A line that counts up while weights are packed, on a terminal only."""
    if sys.stderr.isatty():
        end = "\n" if share >= 1 else ""
        print(f"\rpacking weights {100 * share:5.1f} %", end=end, file=sys.stderr, flush=True)


def read_ids(path: Path) -> list[list[int]]:
    """A JSON list of token id lists. Raises RuntimeFault E-RUN-006 or 008."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RuntimeFault("E-RUN-008", path=path) from None
    except (OSError, ValueError, RecursionError) as error:
        raise RuntimeFault("E-RUN-006", path=path, reason=str(error)) from None
    if not isinstance(raw, list) or not raw:
        raise RuntimeFault("E-RUN-006", path=path, reason="it holds no list, or an empty one")
    for number, text in enumerate(raw):
        if not isinstance(text, list) or not all(type(i) is int for i in text):
            raise RuntimeFault("E-RUN-006", path=path, reason=f"entry {number} is no list of integers")
    return raw


def rate(rows: int, seconds: float) -> str:
    """Tokens a second for people."""
    return f"{rows / seconds:.1f} tokens/s" if rows and seconds else "-"


def size(value: int) -> str:
    return human(value)
