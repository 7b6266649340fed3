"""Tile products of the checked build: one scalar chain after the other, as `Dot` defines them."""
from __future__ import annotations

from dinfc.ir.scalar import Expr
from dinfc.ir.tile.program import Buffer, Dot

from .cpu_dot import check_dot
from .cpu_expr import EmitError
from .cpu_scope import Scope


def checked_dot(d: Dot, scope: Scope) -> None:
    check_dot(d, scope)
    acc = scope.buffers[d.acc]
    rows = str(d.m) if d.rows is None else f"dinfc_min(dinfc_max({scope.outer(d.rows)}, 0), {d.m})"
    with (scope.block(f"for (int i_ = 0; i_ < {rows}; ++i_)"), scope.block(f"for (int j_ = 0; j_ < {d.n}; ++j_)"),
          scope.block(f"for (int g_ = 0; g_ < {d.k // d.group}; ++g_)")):
        scope.line("float chain_ = 0.0f;")
        with scope.block(f"for (int k_ = g_ * {d.group}; k_ < (g_ + 1) * {d.group}; ++k_)"):
            scope.line(f"const float a_ = {a_element(d, scope)};")
            scope.line(f"const float b_ = {b_element(d, scope)};")
            scope.line("chain_ = __builtin_fmaf(a_, b_, chain_);")
        before = scope.read(acc, ["i_", "j_"])
        scope.line(f"const float sum_ = {before};")
        if d.a_scale is None and d.b_scale is None:
            value = "sum_ + chain_"
        else:
            factors = [scale(d, scope, d.a_scale, d.a_scale_at, "i_")]
            factors.append(scale(d, scope, d.b_scale, d.b_scale_at, f"j_ / {d.b_scale_rows}"))
            scope.line(f"const float scale_ = {' * '.join(f for f in factors if f)};")
            value = "__builtin_fmaf(chain_, scale_, sum_)"
        scope.line(scope.write(acc, ["i_", "j_"], value))


def offsets(scope: Scope, at: tuple[Expr, ...], inner: dict[int, str]) -> list[str]:
    """Index texts; `inner` adds a text to the dim counted from the last (-1, -2 ...)."""
    texts = [scope.text(e) for e in at]
    for dim, extra in inner.items():
        texts[dim] = f"({texts[dim]} + {extra})"
    return texts


def decoded(scope: Scope, buffer: Buffer, codec: str, at: list[str], nibble: str) -> str:
    """The value of a stored element, or of one half of it."""
    stored = scope.read(buffer, at)
    if codec == "e4m3":
        return f"dinfc_e4m3_decode({stored})"
    if codec == "e2m1":
        return f"dinfc_e2m1_decode((uint8_t)({stored} >> 4 * ({nibble} & 1)))"
    return stored


def a_element(d: Dot, scope: Scope) -> str:
    along_k = "k_ / 2" if d.a_codec == "e2m1" else "k_"
    return decoded(scope, scope.buffers[d.a], d.a_codec, offsets(scope, d.a_at, {-2: "i_", -1: along_k}), "k_")


def b_element(d: Dot, scope: Scope) -> str:
    packed = d.b_codec == "e2m1"
    b = scope.buffers[d.b]
    if d.b_layout == "nk":
        inner, nibble = {-2: "j_", -1: "k_ / 2" if packed else "k_"}, "k_"
    elif d.b_layout == "kn":
        inner, nibble = {-2: "k_", -1: "j_ / 2" if packed else "j_"}, "j_"
    elif d.b_layout in ("n16k", "n16k4"):
        inner, nibble = {-3: "j_ / 16", -2: "k_", -1: "j_ % 16 / 2" if packed else "j_ % 16"}, "j_"
    else:
        raise EmitError(f"dot into {d.acc}: unknown layout {d.b_layout!r}")
    return decoded(scope, b, d.b_codec, offsets(scope, d.b_at, inner), nibble)


def scale(d: Dot, scope: Scope, name: str | None, at: tuple[Expr, ...] | None, row: str) -> str:
    if name is None or at is None:
        return ""
    buffer = scope.buffers[name]
    value = scope.read(buffer, offsets(scope, at, {-2: row, -1: "g_"}))
    return f"dinfc_e8m0_decode({value})" if buffer.dtype == "u8" else value
