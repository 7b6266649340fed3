"""`generate`: continues prompts given as text or as token ids."""
from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path

from .engine import Engine, Generation, Request, Statistics, check_texts
from .errors import RuntimeFault
from .options import add_run_options, check_seed, open_executor, rate, read_ids
from .package import open_package
from .tokenizer import Tokenizer, require_tokenizer


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.add_argument("--prompt", metavar="TEXT", help="text to continue")
    parser.add_argument("--prompt-file", type=Path, metavar="F", help="file with the text to continue")
    parser.add_argument("--ids", type=Path, metavar="F.json", help="prompts as lists of token ids")
    parser.add_argument("--max-tokens", type=int, default=32, metavar="N", help="tokens to generate (default 32)")
    parser.add_argument("--temperature", type=float, default=0.0, metavar="X", help="0: the likeliest token")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the draws (default 0)")
    parser.add_argument("--ignore-eos", action="store_true", help="do not stop at the end token")
    parser.add_argument("--quiet", action="store_true", help="no summary")
    add_run_options(parser)


def run(root: Path, given: argparse.Namespace) -> None:
    """Prints the continuation (text, or one JSON list of ids a prompt), and a summary to stderr."""
    check_numbers(given)
    source = prompt_source(given)
    tokenizer: Tokenizer | None = None
    if source == "--ids":
        prompts = read_ids(given.ids)
    else:
        tokenizer = require_tokenizer(given.weights)
        prompts = [tokenizer.encode(prompt_text(given)).ids]
    # before weights are read, which may take long
    check_texts(open_package(root).plan, prompts, [given.max_tokens] * len(prompts))
    begin = time.perf_counter()
    _, executor = open_executor(root, given)
    opened = time.perf_counter() - begin
    engine = Engine(executor)
    requests = [Request(ids, given.max_tokens, given.temperature, given.seed, given.ignore_eos) for ids in prompts]
    results = engine.generate(requests)
    for result in results:
        print(tokenizer.decode(result.tokens) if tokenizer else json.dumps(result.tokens))
    if not given.quiet:
        sys.stdout.flush()
        print(summary(results, engine.statistics, opened, executor.settings.threads), file=sys.stderr)


def check_numbers(given: argparse.Namespace) -> None:
    """Raises RuntimeFault E-RUN-009."""
    if given.max_tokens < 1:
        raise RuntimeFault("E-RUN-009", option="--max-tokens", value=given.max_tokens, expected="at least 1")
    if not (math.isfinite(given.temperature) and given.temperature >= 0):
        raise RuntimeFault("E-RUN-009", option="--temperature", value=given.temperature, expected="0 or more")
    check_seed(given.seed)


def prompt_source(given: argparse.Namespace) -> str:
    """The one prompt option that is given. Raises RuntimeFault E-RUN-010 or 011."""
    found = [name for name, value in (("--prompt", given.prompt), ("--prompt-file", given.prompt_file),
                                      ("--ids", given.ids)) if value is not None]
    if len(found) > 1:
        raise RuntimeFault("E-RUN-010", first=found[0], second=found[1])
    if not found:
        raise RuntimeFault("E-RUN-011", option="--prompt", expected="--prompt TEXT, --prompt-file F or --ids F.json")
    return found[0]


def prompt_text(given: argparse.Namespace) -> str:
    """Raises RuntimeFault E-RUN-008 or 009 for a file that is missing, or bytes that are no UTF-8."""
    if given.prompt is not None:
        text = str(given.prompt)
        if any("\ud800" <= c <= "\udfff" for c in text):  # how Python hands over bytes that it could not decode
            raise RuntimeFault("E-RUN-009", option="--prompt", value=ascii(text), expected="text in UTF-8")
        return text
    try:
        return str(given.prompt_file.read_text(encoding="utf-8"))
    except OSError:
        raise RuntimeFault("E-RUN-008", path=given.prompt_file) from None
    except UnicodeDecodeError:
        raise RuntimeFault("E-RUN-009", option="--prompt-file", value=given.prompt_file,
                           expected="a text file in UTF-8") from None


def summary(results: list[Generation], statistics: Statistics, opened: float, threads: int) -> str:
    """How much was done, how fast, and why it ended."""
    prompt = sum(len(r.request.ids) for r in results)
    made = sum(len(r.tokens) for r in results)
    ends = ", ".join(dict.fromkeys("end token" if r.stopped else "max-tokens" for r in results))
    return "\n".join([
        f"prompt     {prompt} tokens in {len(results)} request{'s' if len(results) > 1 else ''}",
        f"generated  {made} tokens (stopped by: {ends})",
        f"start      {opened:.2f} s (weights packed or mapped)",
        f"prefill    {rate(statistics.prefill_rows, statistics.prefill_seconds)}",
        f"decode     {rate(statistics.decode_rows, statistics.decode_seconds)}",
        f"steps      {statistics.steps} with {threads} thread{'s' if threads > 1 else ''}",
    ])
