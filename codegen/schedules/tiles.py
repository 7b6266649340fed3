"""Small words for writing tile programs: comparisons, bounds, loops, blocks along a constant extent."""
from __future__ import annotations

from collections.abc import Callable, Iterator

from dinfc.ir.scalar import Expr, Operand, binary, compare, const, land, var
from dinfc.ir.tile.program import Buffer, For, If, Stmt, Store

Body = list[Stmt]


def lt(a: Operand, b: Operand) -> Expr:
    return compare("lt", a, b)


def ge(a: Operand, b: Operand) -> Expr:
    return compare("ge", a, b)


def eq(a: Operand, b: Operand) -> Expr:
    return compare("eq", a, b)


def ne(a: Operand, b: Operand) -> Expr:
    return compare("ne", a, b)


def minimum(a: Operand, b: Operand) -> Expr:
    return binary("min", a, b)


def maximum(a: Operand, b: Operand) -> Expr:
    return binary("max", a, b)


def inside(i: Expr, end: Expr | int) -> Expr:
    """0 <= i < end: the only bounds check of data-dependent indices (never the sign alone, fault F07)."""
    return land(ge(i, 0), lt(i, end))


def ceil_div(a: Expr, b: int) -> Expr:
    """ceil(a / b) for a >= 0."""
    return a if b == 1 else (a + (b - 1)) // b


def either(cond: Expr, then: Body, otherwise: Body | None = None) -> If:
    return If(cond, tuple(then), tuple(otherwise or ()))


def loop(name: str, extent: Expr | int, body: Callable[[Expr], Body], kind: str = "serial") -> Body:
    """`for name in extent: body`; a loop of one constant iteration is written without the loop."""
    if extent == 1:
        return body(const(0))
    return [For(name, const(extent) if isinstance(extent, int) else extent, kind, tuple(body(var(name))))]


def store(buffer: Buffer, indices: tuple[Operand, ...], value: Operand, where: Expr | None = None) -> Store:
    """`buffer[indices] = value`. Raises ValueError where the number of indices or the dtype does not fit."""
    full = tuple(const(i) if not isinstance(i, Expr) else i for i in indices)
    if len(full) != len(buffer.shape):
        raise ValueError(f"{buffer.name} has {len(buffer.shape)} dims, stored with {len(full)}")
    lifted = value if isinstance(value, Expr) else const(value, buffer.dtype)
    if lifted.dtype != buffer.dtype:
        raise ValueError(f"{buffer.name} is {buffer.dtype}, the stored value {lifted.dtype}")
    return Store(buffer.name, full, lifted, where)


def local(name: str, dtype: str, *shape: int, space: str = "near") -> Buffer:
    """A buffer of constant shape that belongs to one instance."""
    return Buffer(name, dtype, tuple(const(n) for n in shape), space)


def scalar_state(name: str, dtype: str = "i32") -> Buffer:
    """One mutable scalar (a `Let` binds once)."""
    return local(name, dtype, 1)


def largest_divisor(n: int, limit: int, multiple: int = 1) -> int:
    """The largest divisor of n that is <= limit and a multiple of `multiple`; 0 where there is none."""
    return next((c for c in range(min(n, limit), 0, -1) if n % c == 0 and c % multiple == 0), 0)


def blocks(extent: int, step: int) -> Iterator[tuple[int, int, int]]:
    """Splits a constant extent into equal blocks and a rest: yields (first element, number of blocks, block size)."""
    if extent >= step:
        yield 0, extent // step, step
    if extent % step:
        yield extent - extent % step, 1, extent % step


def clamp_index(i: Expr, extent: Expr | int) -> Expr:
    """An index whose value is not used where it is out of range, made safe to load with (extent >= 1)."""
    return maximum(minimum(i, extent - 1), 0)
