"""IR files with their expected output beside the input (tests/text/*.ir).

    // Why this matters to somebody.
    // RUN: canonicalize,fuse{max_ops=4}
    // LIMITS: score_bytes=512 buckets=8,64      (optional)
    func @f(...) ...
    // CHECK:
    func @f(...) ...                             (the whole printed module)

or, where the passes must refuse the input, `// ERROR: text` instead of CHECK: every such line is part of the error.
Symbols T, S, R are declared for every file. The IR and the level are verified after every pass.
"""
from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from dinfc.ir.parse import parse_module
from dinfc.ir.text import print_module
from dinfc.ir.types import Limits
from dinfc.passes.base import Context
from dinfc.passes.pipeline_text import parse_pipeline
from dinfc.pipeline import Run, passes_by_name, run_pipeline
from dinfc.targets.cpu import CpuTarget
from support.pass_models import LIMITS

SYMBOLS = "symbol T in [1, 64]\nsymbol S in [1, 8]\nsymbol R in [1, 8]\n"
CHECK, ERROR = "// CHECK:", "// ERROR:"


@dataclass(frozen=True)
class Case:
    """One file. `head`: its comment lines, RUN included; `source`: the input; `expected`: the text after CHECK."""

    path: Path
    head: list[str]
    source: str
    expected: str
    errors: list[str]

    @property
    def pipeline(self) -> str:
        return next(line.partition("RUN:")[2].strip() for line in self.head if "RUN:" in line)

    @property
    def limits(self) -> Limits:
        changes: dict[str, int | tuple[int, ...]] = {}
        for line in self.head:
            if "LIMITS:" in line:
                for part in line.partition("LIMITS:")[2].split():
                    name, _, text = part.partition("=")
                    numbers = tuple(map(int, text.split(",")))
                    changes[name] = numbers if name == "buckets" else numbers[0]
        return dataclasses.replace(LIMITS, **changes)  # type: ignore[arg-type]


def read_case(path: Path) -> Case:
    before, _, expected = path.read_text(encoding="utf-8").partition(CHECK)
    lines = before.splitlines()
    head = [line for line in lines if line.startswith("//") and not line.startswith(ERROR)]
    errors = [line.removeprefix(ERROR).strip() for line in lines if line.startswith(ERROR)]
    source = "\n".join(line for line in lines if not line.startswith("//")).strip("\n")
    return Case(path, head, source + "\n", expected.strip("\n") + "\n", errors)


def run_case(case: Case) -> str:
    """The printed module after the passes, without the symbol lines. Raises what the passes raise."""
    context = Context(CpuTarget(), case.limits, 8)
    module = parse_module(SYMBOLS + case.source)
    passes = parse_pipeline(case.pipeline, passes_by_name())
    module = run_pipeline(module, context, passes, Run(verify=True))
    return print_module(module).removeprefix(SYMBOLS).lstrip("\n")


def case_text(case: Case, output: str) -> str:
    """The file with `output` as its expected text."""
    return "\n".join(case.head) + "\n" + case.source + "\n" + CHECK + "\n" + output
