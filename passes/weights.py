"""Entries of a model and their weight parameters: which they are, their buffers, their parts in the checkpoint."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from dinfc.diagnostics import DinfcError
from dinfc.ir.graph import Function, Module, Value
from dinfc.ir.plan import WeightBuffer, WeightPart, WeightRecipe
from dinfc.ir.scalar import DTYPE_BYTES
from dinfc.ir.types import TensorType

from .storage import pieces

# What a plan can run, in the order in which a step runs it; a model has some or all of them.
PREPARE, FORWARD, HEAD = "prepare", "forward", "head"
ENTRIES = (PREPARE, FORWARD, HEAD)
BLOCK_ROWS = 16  # rows that the layouts n16k and n16k4 store together


def is_weight(param: Value, module: Module) -> bool:
    """Weights are parameters with a dot in their name, or listed (comma separated) in `module.info["weights"]`."""
    listed = str(module.info.get("weights", "")).split(",")
    return isinstance(param.type, TensorType) and ("." in param.name or param.name in listed)


def entries(module: Module) -> list[Function]:
    """The entries that the module has, in the order of a step."""
    return [module.functions[name] for name in ENTRIES if name in module.functions]


def entry_weights(module: Module) -> list[tuple[Function, Value]]:
    """The weight parameters of the entries, in order; one that several entries read comes with the first of them."""
    found: dict[str, tuple[Function, Value]] = {}
    for function in entries(module):
        for param in function.params:
            if is_weight(param, module):
                found.setdefault(param.name, (function, param))
    return list(found.values())


def kept_results(module: Module) -> dict[str, TensorType]:
    """Tensor results that outlive their entry: all of `prepare`, and what a later entry has a parameter of."""
    kept: dict[str, TensorType] = {}
    present = entries(module)
    for number, function in enumerate(present):
        wanted = {p.name for later in present[number + 1:] for p in later.params}
        for result in function.results:
            if isinstance(result.type, TensorType) and (function.name == PREPARE or result.name in wanted):
                kept[result.name] = result.type
    return kept


def constant_shape(value: Value) -> tuple[int, ...]:
    """The shape of a weight. Raises DinfcError E-PLAN-014 if it depends on the step."""
    dims = value.tensor.shape
    shape = tuple(d for d in dims if isinstance(d, int))
    if len(shape) != len(dims):
        raise DinfcError("E-PLAN-014", weight=value.name, reason=f"its shape {value.tensor} depends on the step")
    return shape


def weight_buffers(value: Value) -> list[WeightBuffer]:
    """The packed buffers of a weight: values, or codes and scales (`NAME_s`)."""
    constant_shape(value)
    out = []
    for piece in pieces(value.tensor):
        shape = tuple(d for d in piece.shape if isinstance(d, int))
        out.append(WeightBuffer(value.name + piece.suffix, piece.dtype, shape, DTYPE_BYTES[piece.dtype] * prod(shape)))
    return out


def recipe_of(value: Value, recipes: Mapping[str, WeightRecipe]) -> WeightRecipe:
    """The recipe of a weight; without one, the checkpoint tensor of the same name (`NAME.weight` and `NAME.scale` for a
    codec value). Raises DinfcError E-PLAN-014 where the parts do not fill the slot row by row."""
    shape = constant_shape(value)
    rows = prod(shape[:-1])
    if value.name not in recipes:
        name = value.name
        part = WeightPart(f"{name}.weight", rows, 0, f"{name}.scale") if value.tensor.codec else WeightPart(name, rows)
        return WeightRecipe(name, (part,))
    recipe = recipes[value.name]
    at = 0
    for part in recipe.parts:
        if part.row != at:
            raise DinfcError("E-PLAN-014", weight=value.name,
                             reason=f"{part.source} starts at row {part.row}, the part before it ends at {at}")
        if bool(part.scale) != bool(value.tensor.codec):
            has = "has" if part.scale else "lacks"
            raise DinfcError("E-PLAN-014", weight=value.name,
                             reason=f"{part.source} {has} scales, the slot is {value.tensor}")
        at += part.rows
    if at != rows:
        raise DinfcError("E-PLAN-014", weight=value.name,
                         reason=f"its parts have {at} rows, the slot {value.tensor} has {rows}")
    return recipe


@dataclass(frozen=True)
class PartPlace:
    """Where a part lies: byte offset in every buffer of its weight, and the type of the part alone."""

    type: TensorType
    offsets: tuple[int, ...]


def part_place(value: Value, part: WeightPart) -> PartPlace:
    """Raises DinfcError E-PLAN-014 where the part does not start and end on whole storage blocks of the layout."""
    type_ = value.tensor
    *lead, k = constant_shape(value)
    n = lead[-1] if lead else 1
    matrix, row = divmod(part.row, n)
    codec = type_.codec
    block = BLOCK_ROWS if type_.layout else 1
    if codec and codec.rows > block:
        block = codec.rows
    whole_matrices = row == 0 and part.rows % n == 0
    inside = row + part.rows <= n
    if row % block or not (whole_matrices or inside) or (inside and row + part.rows != n and part.rows % block) or (
            not inside and n % block):
        raise DinfcError("E-PLAN-014", weight=value.name,
                         reason=f"{part.source} fills rows {part.row} to {part.row + part.rows}, which are not whole "
                                f"blocks of {block} rows of matrices of {n}")
    matrix_type = type_.with_(shape=(n, k))
    before_type = type_.with_(shape=(row, k)) if row else None
    offsets = []
    for number, piece in enumerate(pieces(matrix_type)):
        offset = matrix * _bytes(piece.dtype, piece.shape)
        if before_type is not None:
            before = pieces(before_type)[number]
            offset += _bytes(before.dtype, before.shape)
        offsets.append(offset)
    return PartPlace(type_.with_(shape=(part.rows, k)), tuple(offsets))


def _bytes(dtype: str, shape: tuple[object, ...]) -> int:
    return DTYPE_BYTES[dtype] * prod(d for d in shape if isinstance(d, int))
