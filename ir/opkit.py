"""What op files share: attributes, checks of operands and dims, sizes in bytes. Knows no single op."""
from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from functools import cache

import sympy

from .graph import Attr, IRError, Op, Value
from .scalar import DTYPE_BYTES
from .types import Codec, Dim, StateType, TensorType, Type, dim_text, parse_dim, simplify_dim

Bounds = tuple[Dim, Dim] | None


def int_attr(attrs: Mapping[str, Attr], name: str, default: int | None = None, least: int | None = None) -> int:
    """An integer attribute. Raises IRError where it is missing (without default), no integer or less than `least`."""
    value = attrs.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise IRError(f"attribute '{name}' must be an integer, it is {value!r}")
    if least is not None and value < least:
        raise IRError(f"attribute '{name}' must be at least {least}, it is {value}")
    return value


def number_attr(attrs: Mapping[str, Attr], name: str, default: float | None = None) -> int | float:
    """An int or float attribute."""
    value = attrs.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise IRError(f"attribute '{name}' must be a number, it is {value!r}")
    return value


def text_attr(attrs: Mapping[str, Attr], name: str, default: str | None = None) -> str:
    """A text attribute."""
    value = attrs.get(name, default)
    if not isinstance(value, str):
        raise IRError(f"attribute '{name}' must be a text, it is {value!r}")
    return value


def choice_attr(attrs: Mapping[str, Attr], name: str, choices: Sequence[str], default: str | None = None) -> str:
    """A text attribute that must be one of `choices`."""
    value = text_attr(attrs, name, default)
    if value not in choices:
        raise IRError(f"attribute '{name}' must be one of {', '.join(choices)}, it is {value!r}")
    return value


def flag_attr(attrs: Mapping[str, Attr], name: str) -> bool:
    """A boolean attribute, false where it is missing."""
    value = attrs.get(name, False)
    if not isinstance(value, bool):
        raise IRError(f"attribute '{name}' must be true or false, it is {value!r}")
    return value


def tuple_attr(attrs: Mapping[str, Attr], name: str) -> tuple[Attr, ...]:
    """A list attribute."""
    value = attrs.get(name)
    if not isinstance(value, tuple):
        raise IRError(f"attribute '{name}' must be a list, it is {value!r}")
    return value


def to_dim(value: Attr) -> Dim:
    """A dim from an attribute: an int, or the text of an expression over symbols."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            return parse_dim(value)
        except (ValueError, SyntaxError, TypeError, ZeroDivisionError) as error:
            raise IRError(f"not a dimension: {value!r} ({error})") from None
    raise IRError(f"a dimension must be an integer or a text, it is {value!r}")


def dims_attr(attrs: Mapping[str, Attr], name: str) -> tuple[Dim, ...]:
    """A list attribute of dims."""
    return tuple(to_dim(v) for v in tuple_attr(attrs, name))


def dim_attr_value(dim: Dim) -> int | str:
    """How a dim is stored in an attribute."""
    return dim if isinstance(dim, int) else dim_text(dim)


def bounds_attr(attrs: Mapping[str, Attr], name: str = "bounds") -> Bounds:
    """The (lo, hi) attribute, or None where it is missing."""
    if attrs.get(name) is None:
        return None
    bounds = dims_attr(attrs, name)
    if len(bounds) != 2:
        raise IRError(f"attribute '{name}' must be (lo, hi), it has {len(bounds)} entries")
    return bounds


def known_attrs(attrs: Mapping[str, Attr], *names: str) -> None:
    """Raises IRError for an attribute that the op does not read."""
    unknown = sorted(set(attrs) - set(names))
    if unknown:
        raise IRError(f"unknown attribute '{unknown[0]}'" + (f", known are {', '.join(names)}" if names else ""))


def count(operands: Sequence[Value], least: int, most: int | None = None) -> None:
    """Raises IRError unless the number of operands lies in [least, most] (most = least by default)."""
    most = least if most is None else most
    if not least <= len(operands) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise IRError(f"takes {wanted} operands, got {len(operands)}")


def same_dim(a: Dim, b: Dim) -> bool:
    """Whether two dims are provably equal."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return bool(a == b) or _equal(sympy.sympify(a), sympy.sympify(b))


@cache
def _equal(a: sympy.Expr, b: sympy.Expr) -> bool:
    return bool(sympy.expand(a - b) == 0) or bool(sympy.simplify(a - b) == 0)


def need_dim(a: Dim, b: Dim, what: str) -> None:
    """Raises IRError unless the dims are provably equal."""
    if not same_dim(a, b):
        raise IRError(f"{what}: {dim_text(a)} is not {dim_text(b)}")


def need_shape(value: Value, shape: Sequence[Dim], what: str) -> None:
    """Raises IRError unless the tensor has this shape."""
    have = value.tensor.shape
    if len(have) != len(shape) or not all(same_dim(a, b) for a, b in zip(have, shape, strict=True)):
        wanted = ", ".join(dim_text(d) for d in shape)
        raise IRError(f"{what} %{value.name} must have shape [{wanted}], it is {value.tensor}")


def need_rank(value: Value, rank: int, what: str) -> tuple[Dim, ...]:
    """The shape of a tensor that must have `rank` dims."""
    if value.tensor.rank != rank:
        raise IRError(f"{what} %{value.name} must have {rank} dims, it is {value.tensor}")
    return value.tensor.shape


def need_size(dim: Dim, what: str) -> int:
    """A dim that must be a number of at least 1. Raises IRError where it is not, or depends on the step."""
    if not isinstance(dim, int) or dim < 1:
        raise IRError(f"{what} must be a number of at least 1, it is {dim_text(dim)}")
    return dim


def need_elem(value: Value, elems: Sequence[str], what: str) -> str:
    """The element type of a tensor that must be one of `elems`."""
    if value.tensor.elem not in elems:
        raise IRError(f"{what} %{value.name} must be {' or '.join(elems)}, it is {value.tensor.elem}")
    return value.tensor.elem


def need_state(value: Value, kinds: Sequence[str], what: str) -> StateType:
    """The type of an operand that must be a state of one of `kinds`."""
    if not isinstance(value.type, StateType) or value.type.kind not in kinds:
        raise IRError(f"{what} %{value.name} must be a state ({' or '.join(kinds)}), it is {value.type}")
    return value.type


def need_axis(axis: int, rank: int) -> int:
    """Raises IRError unless 0 <= axis < rank."""
    if not 0 <= axis < rank:
        raise IRError(f"axis {axis} is outside of the {rank} dims")
    return axis


def is_multiple(dim: Dim, factor: int) -> bool:
    """Whether `factor` provably divides `dim`."""
    if isinstance(dim, int):
        return dim % factor == 0
    return bool(sympy.simplify(dim / factor).is_integer)


def check_codec_shape(codec: Codec | None, shape: Sequence[Dim]) -> None:
    """Raises IRError where a codec's groups do not tile the last dim."""
    if codec is not None and (not shape or not is_multiple(shape[-1], codec.group)):
        raise IRError(f"{codec.name} needs a last dim that is a multiple of {codec.group}, got "
                      f"[{', '.join(dim_text(d) for d in shape)}]")


def union_bounds(a: Bounds, b: Bounds) -> Bounds:
    """Bounds of a value that comes from either side; None where one side or an order is unknown."""
    if a is None or b is None:
        return None
    low, high = sympy.Min(a[0], b[0]), sympy.Max(a[1], b[1])
    return simplify_dim(low), simplify_dim(high)


def with_fill(bounds: Bounds, fill: int | float) -> Bounds:
    """Bounds of a gathered integer value: those of its source and the fill."""
    return union_bounds(bounds, (int(fill), int(fill) + 1)) if isinstance(fill, int) else None


# ---- sizes -------------------------------------------------------------------------------------------------------


def elements(shape: Sequence[Dim]) -> sympy.Expr:
    """Number of elements."""
    return sympy.prod([sympy.sympify(d) for d in shape])


def element_bytes(elem_type: TensorType | StateType) -> sympy.Rational:
    """Mean bytes an element takes, scales included."""
    codec = elem_type.codec
    if codec is None:
        return sympy.Rational(DTYPE_BYTES[elem_type.elem])
    return sympy.Rational(codec.bits, 8) + sympy.Rational(1, codec.group * codec.rows)


def tensor_bytes(type_: Type) -> sympy.Expr:
    """Bytes of a tensor value, scales included; a state counts nothing by itself (ops count the records they touch)."""
    if isinstance(type_, StateType):
        return sympy.Integer(0)
    return elements(type_.shape) * element_bytes(type_)


def traffic(op: Op) -> sympy.Expr:
    """Bytes of all tensor operands and results, each once."""
    values = dict.fromkeys([*op.operands, *op.results])
    return sum((tensor_bytes(v.type) for v in values), sympy.Integer(0))


def product_cost(m: Dim, n: Dim, k: Dim) -> sympy.Expr:
    """Flops of an m x n x k matrix product."""
    return 2 * elements((m, n, k))


def letters(rank: int, start: int = 0) -> list[str]:
    """Names of dims for `factors`."""
    return list(string.ascii_lowercase[start:start + rank])


def opaque(op: Op) -> str:
    """Sharding factors of an op in which nothing may be split but the first dim of tensors that start with the result's
    first dim (its rows)."""
    first = op.results[0].type
    rows = first.shape[0] if isinstance(first, TensorType) and first.shape else None

    def one(type_: Type) -> str:
        if isinstance(type_, StateType):
            return "S"
        mapped = rows is not None and bool(type_.shape) and same_dim(type_.shape[0], rows)
        names = [c.upper() for c in letters(type_.rank, 1)]
        if mapped:
            names[0] = "a"
        return " ".join(names) or "."

    left = ", ".join(one(v.type) for v in op.operands)
    return f"{left} -> {', '.join(one(v.type) for v in op.results)}"
