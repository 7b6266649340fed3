"""The slice of three kernels on a device: from tensor IR through the usual passes to dialect text and machine code."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dinfc.diagnostics import DinfcError
from dinfc.target_names import known_targets

if TYPE_CHECKING:
    from dinfc.codegen.emit.device_target import DeviceTarget
    from dinfc.ir.graph import Module
    from dinfc.ir.tile.program import Program

PASSES = ("decompose", "canonicalize", "pin_reductions", "fuse", "assign_layouts", "schedule")


def device_target(name: str) -> DeviceTarget:
    """The device of that name.

    Raises DinfcError E-TARGET-001 for an unknown target, E-TARGET-010 for one that is no device.
    """
    known = known_targets()
    devices = [n for n in known if n != "cpu"]
    if name not in known:
        raise DinfcError("E-TARGET-001", target=name, known=", ".join(known), hint=f"use one of: {', '.join(devices)}")
    folder = importlib.import_module(f"dinfc.targets.{name}")
    if not hasattr(folder, "slice_target"):
        raise DinfcError("E-TARGET-010", target=name, anchor="device", region="the slice",
                         known="those of `dinfc compile`")
    target: DeviceTarget = folder.slice_target()
    return target


def slice_programs(module: Module, target: DeviceTarget) -> Mapping[str, Program]:
    """Tile programs of the module's regions for the device, by kernel name.

    Raises DinfcError E-TARGET-010 or 011 where the device has no form for a region, or it does not fit.
    """
    from dinfc.ir.graph import IRError
    from dinfc.ir.protocols import Target
    from dinfc.ir_errors import refused
    from dinfc.passes.base import Context
    from dinfc.pipeline import limits_of_module, passes_by_name

    limits, logit_rows = limits_of_module(module, (), 1 << 26, 4096)
    context = Context(cast(Target, target), limits, logit_rows)  # its attributes are read-only, the protocol's are not
    passes = passes_by_name()
    for name in PASSES:
        try:
            module = passes[name]().run(module, context)
        except IRError as error:
            raise refused(error, module, f"the slice, pass {name}") from None
    return context.programs


def dialect_text(program: Program, target: DeviceTarget) -> str:
    """The program in the device's dialect. Raises DinfcError E-TARGET-011 for what the dialect cannot say."""
    from dinfc.codegen.schedules.device_walk import DeviceError

    try:
        return target.emit(program)
    except DeviceError as error:
        raise DinfcError("E-TARGET-011", target=target.name, region=program.name, reason=str(error)) from error


def build(name: str, anchor: str, text: str, target: DeviceTarget, folder: Path) -> Mapping[str, object]:
    """Lowers the text into `folder` and, for NVIDIA, assembles it; what is known of the result.

    Raises DinfcError E-TARGET-011 where TileLang or the compiler refuses it, where it spills, where it takes more
    shared memory than a block has, or where the machine code lacks the instruction that the kernel is about.
    """
    from dinfc.codegen.emit import tilelang_lower as tools
    from dinfc.codegen.schedules.device_walk import DeviceError

    def refuse(reason: object) -> DinfcError:
        return DinfcError("E-TARGET-011", target=target.name, region=name, reason=str(reason))

    try:
        lowered = tools.lower(text, name, target.lowering)
        source = folder / f"{name}{target.suffix}"
        source.write_text(lowered.source, encoding="utf-8")
        known: dict[str, object] = {"shared_bytes": lowered.shared}
        limit = target.limits.capacity["shared"]
        if lowered.shared > limit:
            raise refuse(f"it takes {lowered.shared} bytes of shared memory, a block has {limit}")
        if target.suffix != ".cu" or tools.nvcc() is None:
            return known
        binary = tools.compile_cubin(source, target.arch, source.with_suffix(".cubin"))
    except DeviceError as error:
        raise refuse(error) from error
    known |= {"registers": binary.registers, "spilled_bytes": binary.spilled}
    if binary.spilled:
        raise refuse(f"the assembler spills {binary.spilled} bytes of registers")
    if binary.instructions is not None:
        wanted = target.instructions.get(anchor, ())
        missing = [w for w in wanted if not tools.has_instruction(binary.instructions, w)]
        if missing:
            raise refuse(f"its machine code has no {missing[0]}")
        known |= {w: sum(c for n, c in binary.instructions.items() if n.split(".")[0] == w) for w in wanted}
    return known
