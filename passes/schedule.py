"""`schedule`: every region gets a tile program; equal ones are shared by all functions and layers."""
from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import ClassVar

from dinfc.diagnostics import DinfcError
from dinfc.ir.graph import Function, IRError, Module, Op, Value
from dinfc.ir.tile.program import Program, TileError
from dinfc.ir.tile.verify import verify_program

from .base import Context, Level, Pass

HASH_DIGITS = 6


@dataclass(frozen=True)
class Schedule(Pass):
    """Asks the target's schedule of each region's anchor class for a program and names it.

    Regions of equal structure (names left aside) are scheduled once; programs of equal content become one kernel. The
    name is the hint that `fuse` gave the first such region, then digits of a hash of the content.
    """

    name: ClassVar[str] = "schedule"
    requires: ClassVar[Level] = Level.laid_out
    guarantees: ClassVar[Level] = Level.scheduled

    def run(self, module: Module, context: Context) -> Module:
        by_structure: dict[str, str] = {}
        by_content: dict[str, str] = {}
        regions = 0
        for function in module.functions.values():
            for op in function.ops:
                if op.kind != "region":
                    continue
                regions += 1
                key = region_key(op)
                if key not in by_structure:
                    program = build(op, module, context)
                    digest = content_hash(program)
                    if digest not in by_content:
                        check(program, context)
                        name = f"{op.attrs['kernel']}_{digest[:HASH_DIGITS]}"
                        context.programs[name] = dataclasses.replace(program, name=name)
                        by_content[digest] = name
                    by_structure[key] = by_content[digest]
                op.attrs["kernel"] = by_structure[key]
                context.fired[self.name, str(op.attrs["anchor"])] += 1
        context.note(self.name, f"{regions} regions share {len(by_content)} kernels")
        return module


def build(region: Op, module: Module, context: Context) -> Program:
    """The program of one region.

    Raises DinfcError E-TARGET-010 where the target has no schedule of this class, E-TARGET-011 where it refuses.
    """
    target, anchor = context.target, str(region.attrs["anchor"])
    if anchor not in target.schedules:
        raise DinfcError("E-TARGET-010", target=target.name, anchor=anchor, region=region.attrs["kernel"],
                         known=", ".join(sorted(target.schedules)))
    try:
        return target.schedules[anchor].build(region, str(region.attrs["kernel"]), target.limits, module)
    except IRError as error:
        name = region.attrs["kernel"]
        raise DinfcError("E-TARGET-011", target=target.name, region=name, reason=str(error)) from error


def check(program: Program, context: Context) -> None:
    """Raises DinfcError E-TILE-001 for a program that the verifier of tile IR refuses."""
    try:
        verify_program(program, context.target.limits.capacity)
    except TileError as error:
        raise DinfcError("E-TILE-001", kernel=program.name, reason=str(error)) from error


def region_key(region: Op) -> str:
    """Text that is equal for regions of equal programs: structure, types and attributes, without names."""
    body = region.regions[0]
    numbers: dict[Value, int] = {}
    lines = [str(region.attrs["anchor"]), *_function_lines(body, numbers)]
    named = {v.name: n for v, n in numbers.items() if v in body.params or v in body.results}
    chunk = region.attrs.get("chunk") or ()
    assert isinstance(chunk, tuple)
    lines.append(f"chunk {[named[str(c)] for c in chunk]} guard {named.get(str(region.attrs.get('guard')))}")
    return "\n".join(lines)


def _function_lines(function: Function, numbers: dict[Value, int]) -> list[str]:
    lines = []
    for param in function.params:
        numbers[param] = len(numbers)
        lines.append(f"param {numbers[param]} {param.type}")
    for op in function.ops:
        attrs = sorted((k, repr(v)) for k, v in op.attrs.items())
        lines.append(f"{op.kind} {[numbers[v] for v in op.operands]} {attrs}")
        for region in op.regions:
            lines += _function_lines(region, numbers)
        for result in op.results:
            numbers[result] = len(numbers)
            lines.append(f"result {numbers[result]} {result.type}")
    return [*lines, f"return {[numbers[v] for v in function.results]}"]


def content_hash(program: Program) -> str:
    """Hash of everything in a program but its name and its origin comments."""
    bare = dataclasses.replace(program, name="", origin=(), attrs=dict(sorted(program.attrs.items())))
    return hashlib.sha256(repr(bare).encode()).hexdigest()
