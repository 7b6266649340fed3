"""The straight list of passes, with the reason for each one's place, and what runs them."""
from __future__ import annotations

import importlib
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dinfc.diagnostics import DinfcError
from dinfc.ir.graph import Module
from dinfc.ir.plan import WeightRecipe
from dinfc.ir.protocols import Target
from dinfc.ir.text import print_module
from dinfc.ir.types import Limits
from dinfc.passes.assign_layouts import AssignLayouts
from dinfc.passes.base import Context, Level, Pass, known_passes
from dinfc.passes.canonicalize import Canonicalize
from dinfc.passes.decompose import Decompose
from dinfc.passes.fuse import Fuse
from dinfc.passes.levels import missing
from dinfc.passes.pin_reductions import PinReductions, changed_orders
from dinfc.passes.pipeline_text import closest
from dinfc.passes.plan_launches import PlanLaunches
from dinfc.passes.plan_memory import PlanMemory
from dinfc.passes.schedule import Schedule
from dinfc.passes.verify import Verify
from dinfc.passes.walk import clone_module
from dinfc.target_names import known_targets

STANDARD: tuple[Pass, ...] = (
    # First, while composites are still one op each: equal rotations or norms are found cheaply, dead ones never expand.
    Canonicalize(),
    # Everything below reads primitives only; a composite has no schedule, no order, no rows.
    Decompose(),
    # Again: decompositions bring views of views, constants and shared subexpressions of their own.
    Canonicalize(),
    # Before any grouping: an order depends on the target and the extent alone, never on what fusion makes of the op.
    PinReductions(),
    # Needs orders, since a region's kernel has to honour them; from here on functions are lists of kernels.
    Fuse(),
    # After fusion: the ops that read a weight are settled, so their wishes agree; before schedules, which read layouts.
    AssignLayouts(),
    # Regions and layouts are final: programs can be made and shared.
    Schedule(),
    # Needs the order of kernels and the chunk loops, both settled by fuse. Lifetimes are those of the final list.
    PlanMemory(),
    # Last: every address is known.
    PlanLaunches(),
)
EXTRA: tuple[type[Pass], ...] = (Verify,)  # known by name, in no standard pipeline


@dataclass
class Run:
    """Options of one pipeline run, and what it measured.

    `print_after`: pass names whose output is kept in `printed` (every occurrence). `dump_dir`: a folder that gets the
    IR after each pass as numbered files, and an index page. `verify`: check the IR and the level after every pass.
    `times`: seconds of each pass in order. `step`, `module`: the pass that runs and what it works on, to say where an
    IRError was raised.
    """

    stop_after: str = ""
    print_after: Collection[str] = ()
    dump_dir: Path | None = None
    verify: bool = False
    printed: list[tuple[str, str]] = field(default_factory=list)
    times: list[tuple[str, float]] = field(default_factory=list)
    step: str = ""
    module: Module | None = None


def passes_by_name() -> dict[str, type[Pass]]:
    """Every pass that a pipeline text may name: the standard ones, `verify`, and those of installed packages."""
    builtin = [*dict.fromkeys(type(p) for p in STANDARD), *EXTRA]
    return known_passes(builtin)


def run_pipeline(module: Module, context: Context, passes: Sequence[Pass] = STANDARD, run: Run | None = None) -> Module:
    """Runs the passes on a copy of the module and returns it; what they produce besides is in `context`.

    Raises DinfcError E-CLI-021 if `stop_after` names no pass of the list, E-IR-020 where a pass needs a lower module,
    E-IR-022 and E-IR-023 (only with `verify`) where a pass breaks its promise or an order; IRError where the verifier
    or a pass refuses the module.
    """
    run = run or Run()
    names = [p.name for p in passes]
    for wanted in ([run.stop_after] if run.stop_after else []) + list(run.print_after):
        if wanted not in names:
            raise DinfcError("E-CLI-021", name=wanted, hint=f"this pipeline has: {', '.join(dict.fromkeys(names))}")
    run.module = module = clone_module(module)
    writer = DumpWriter(run.dump_dir) if run.dump_dir else None
    if writer:
        writer.add("input", module, 0.0)
    for position, step in enumerate(passes):
        if reason := missing(module, step.requires, context):
            raise DinfcError("E-IR-020", name=step.name, level=step.requires.name, reason=reason,
                             before=", ".join(names[:position]) or "(none)")
        run.step, start = step.name, time.perf_counter()
        run.module = module = step.run(module, context)
        seconds = time.perf_counter() - start
        run.times.append((step.name, seconds))
        if run.verify:
            check_after(step, module, context)
        if step.name in run.print_after:
            run.printed.append((step.name, module_text(module)))
        if writer:
            writer.add(step.name, module, seconds)
        if step.name == run.stop_after and step.name not in names[position + 1:]:
            break
    if writer:
        writer.finish()
    return module


def check_after(step: Pass, module: Module, context: Context) -> None:
    """The verifier after one pass: types and structure, the pass's promise, and that orders are as pinned."""
    Verify().run(module, context)
    if reason := missing(module, step.guarantees, context):
        raise DinfcError("E-IR-022", name=step.name, level=step.guarantees.name, reason=reason)
    if not missing(module, Level.pinned, context) and (changed := changed_orders(module, context.target)):
        raise DinfcError("E-IR-023", name=step.name, reason=changed[0])


def module_text(module: Module) -> str:
    """The printed module."""
    return print_module(module)


@dataclass
class DumpWriter:
    """Numbered IR files of one run, and `index.md` that lists them with times and sizes."""

    folder: Path
    lines: list[str] = field(default_factory=list)

    def add(self, name: str, module: Module, seconds: float) -> None:
        """Writes the next file. Raises DinfcError E-BUILD-004 where the folder cannot be written."""
        text = module_text(module)
        file = f"{len(self.lines):02}-{name}.ir"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / file).write_text(text, encoding="utf-8")
        except OSError as error:
            raise DinfcError("E-BUILD-004", path=self.folder, reason=error.strerror) from None
        ops = sum(len(f.ops) for f in module.functions.values())
        self.lines.append(f"| [{file}]({file}) | {len(module.functions)} | {ops} | {seconds:.2f} |")

    def finish(self) -> None:
        head = "# IR after each pass\n\n| file | functions | top-level ops | seconds |\n|---|---|---|---|\n"
        (self.folder / "index.md").write_text(head + "\n".join(self.lines) + "\n", encoding="utf-8")


def load_target(name: str, isa: str = "") -> Target:
    """The target of that name; `isa` is `--cpu-isa`, "" for its default.

    Raises DinfcError E-TARGET-001 for an unknown target, E-TARGET-002 for an unknown instruction set, E-TARGET-009 for
    a target that has no schedules for whole models.
    """
    known = known_targets()
    if name not in known:
        raise DinfcError("E-TARGET-001", target=name, known=", ".join(known), hint=closest(name, dict.fromkeys(known)))
    folder = importlib.import_module(f"dinfc.targets.{name}")
    if not hasattr(folder, "make_target"):
        raise DinfcError("E-TARGET-009", target=name, known="cpu")
    target: Target = folder.make_target(isa)
    return target


def limits_of_module(module: Module, buckets: tuple[int, ...], score_bytes: int, max_len: int) -> tuple[Limits, int]:
    """Limits for a module by itself, and the bound of logit rows: the upper bounds of its symbols T, S and R."""
    upper = {name: symbol.upper for name, symbol in module.symbols.items()}
    rows = upper.get("T", buckets[-1] if buckets else 1)
    limits = Limits(upper.get("S", 1), rows, max_len, score_bytes, buckets or (rows,))
    return limits, upper.get("R", rows)


def compile_to_plan(module: Module, target: Target, limits: Limits, max_logit_rows: int = 0,
                    recipes: Mapping[str, WeightRecipe] | None = None, run: Run | None = None) -> Context:
    """From the model's tensor IR to the plan: the context holds `plan`, `programs` and what each pass noted.

    `max_logit_rows`: bound of R (default: that of the symbol R in the module, else max_tokens).
    """
    if not max_logit_rows:
        max_logit_rows = module.symbols["R"].upper if "R" in module.symbols else limits.max_tokens
    context = Context(target, limits, max_logit_rows, dict(recipes or {}))
    run_pipeline(module, context, STANDARD, run)
    return context
