"""`info`: what a package is, what it needs, what it holds."""
from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from .memory import human, slot_count
from .plan import CHECKED_LIBRARY, LIBRARY, Plan, cpu_flags, load_plan


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(root: Path, given: argparse.Namespace) -> None:
    """Prints the facts. Raises RuntimeFault: E-PLAN-001, E-PLAN-003."""
    plan = load_plan(root)
    facts = gather(root, plan)
    if given.json:
        print(json.dumps(facts, indent=1))
        return
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        print(f"{name:<{width}}  {value}")


def gather(root: Path, plan: Plan) -> dict[str, str | int]:
    """Facts in the order in which they are shown."""
    lacking = [f for f in plan.cpu_features if f not in cpu_flags()]
    anchors = Counter(plan.kernels.values())
    limits = plan.limits
    return {
        "model": plan.model.name,
        "target": f"{plan.target} ({plan.isa})",
        "this machine": f"lacks {', '.join(lacking)}" if lacking else "has the CPU features",
        "kernels built": ", ".join(n for n in (LIBRARY, CHECKED_LIBRARY) if (root / n).is_file()) or "no",
        "limits": f"{limits.max_seqs} sequences, {limits.max_tokens} rows a step, {limits.max_len} tokens a sequence",
        "buckets": ", ".join(map(str, plan.buckets)),
        "vocabulary": plan.model.vocab_size,
        "weights": human(plan.weight_bytes),
        "scratch": " / ".join(human(a) for a in plan.arena) + " by bucket",
        "page": f"{plan.page_bytes} B for {plan.page_tokens} tokens",
        "rings": f"{plan.slot_bytes} B a slot, {slot_count(plan)} slots",
        "kernels": f"{len(plan.kernels)} ({', '.join(f'{n} {a}' for a, n in sorted(anchors.items()))})",
        "launches": ", ".join(f"{last - first} {name}" for name, (first, last) in plan.entries.items()),
        "row chunks": ", ".join(dict.fromkeys(f"{rows} rows" for _, _, rows in plan.loops)) or "none",
    }
