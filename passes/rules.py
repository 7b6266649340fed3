"""Rewrite rules: named tables of (pattern, check, rewrite), the driver that applies them, and `why_not`.

A rule looks at one op. `check` says in words why the op does not match ("" where it does), `rewrite` gives the values
that replace its results. Both are named functions, so a traceback and a statistic name the rule.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dinfc.ir.graph import Builder, Function, IRError, Module, Op, Value

from .base import Context
from .walk import remap

Check = Callable[[Op], str]
Rewrite = Callable[[Op, Builder], Value]


@dataclass(frozen=True)
class Rule:
    """One rewrite of ops of `kinds` with a single result (empty: every kind)."""

    kinds: tuple[str, ...]
    check: Check
    rewrite: Rewrite

    @property
    def name(self) -> str:
        return self.rewrite.__name__

    def why_not(self, op: Op) -> str:
        """Why this rule leaves the op alone, in words; "" where it would fire."""
        if self.kinds and op.kind not in self.kinds:
            return f"{op.kind} is not {' or '.join(self.kinds)}"
        return self.check(op)


def apply_rules(function: Function, module: Module, rules: Sequence[Rule], pass_name: str, context: Context) -> bool:
    """Applies the table to every op in order, once over the function; True if any rule fired.

    New ops are built in front of the op that they replace, so operands of later ops are already rewritten.
    """
    old, function.ops = function.ops, []
    replaced: dict[Value, Value] = {}
    builder = Builder(function, module)
    builder.names |= {r.name for op in old for r in op.results}
    changed = False
    for op in old:
        op.operands = remap(op.operands, replaced)
        rule = next((r for r in rules if not r.why_not(op)), None) if len(op.results) == 1 else None
        if rule is None:
            function.ops.append(op)
            continue
        builder.loc = op.loc
        before = len(function.ops)
        value = rule.rewrite(op, builder)
        if value.type != op.result.type:
            raise IRError(f"rule {rule.name} of {pass_name} turned {op.result.type} into {value.type}", op)
        if value.producer in function.ops[before:]:
            value.name = op.result.name  # the new op stands for the old one: keep the stable name
        replaced[op.result] = value
        context.fired[pass_name, rule.name] += 1
        changed = True
    function.results = remap(function.results, replaced)
    return changed
