"""Engram: `engram_hash` (spec 4.2, 4.3) and `engram_gate` (spec 4.4)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..build import concat, emap, reduce_sum, slice_, view
from ..composite import Composite
from ..graph import Attr, Builder, Value, register
from ..opkit import int_attr, known_attrs, need_rank, need_shape, need_size, number_attr
from ..scalar import Expr, apply, bf16, cast, compare, const, land, select


@register
class EngramHash(Composite):
    """compressed ids i32 `[T, n_max]` (a_k of the token k back; -1: absent or not text), multipliers i64 `[n_max]`,
    primes and offsets i64 `[orders, heads]`, pad i32 `[]` -> table rows i32 `[T, orders*heads]`.

    From the first -1 on, ids count as `pad`; a row whose own id is -1 has rows -1. Products are non-negative int64.
    """

    kind = "engram_hash"
    takes = (5, 5)

    def build(self, b: Builder, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Value]:
        known_attrs(attrs, "rows")
        table_rows = int_attr(attrs, "rows", least=1)
        ids, multipliers, primes, offsets, pad = operands
        rows, depth = need_rank(ids, 2, "compressed ids")
        n_max = need_size(depth, "the ids of a row")
        orders, heads = need_rank(primes, 2, "primes")
        need_shape(primes, (n_max - 1, need_size(heads, "hash heads")), "primes")
        need_shape(offsets, (n_max - 1, heads), "offsets")
        need_shape(multipliers, (n_max,), "multipliers")
        need_shape(pad, (), "pad")
        own = view(b, slice_(b, ids, 1, 0, 1), (rows,), hint="own")
        known = own
        acc = self._product(b, own, multipliers, 0, rows, None)
        accs = []
        for k in range(1, n_max):
            a = view(b, slice_(b, ids, 1, k, k + 1), (rows,), hint=f"a{k}")
            # `known` stays non-negative while every id so far was text
            known = emap(b, lambda p, v: select(compare("ge", p, 0), v, -1), [known, a], hint=f"known{k}")
            padded = emap(b, lambda v, d: select(compare("ge", v, 0), v, d), [known, pad], dims=[(0,), ()],
                          hint=f"id{k}")
            acc = self._product(b, padded, multipliers, k, rows, acc)
            accs.append(view(b, acc, (rows, 1)))
        stacked = concat(b, accs, 1, hint="acc") if len(accs) > 1 else accs[0]

        def place(v: Expr, p: Expr, o: Expr, own_id: Expr) -> Expr:
            return select(compare("ge", own_id, 0), cast(v % p + o, "i32"), -1)

        dims = [(0, 1), (1, 2), (1, 2), (0,)]
        out = emap(b, place, [stacked, primes, offsets, own], dims=dims, bounds=(-1, table_rows), hint="rows")
        return [view(b, out, (rows, need_size(orders, "n-gram orders") * need_size(heads, "hash heads")),
                     hint="engram_rows")]

    @staticmethod
    def _product(b: Builder, ids: Value, multipliers: Value, k: int, rows: object, acc: Value | None) -> Value:
        """ids * M_k in i64, xored onto `acc`."""
        factor = view(b, slice_(b, multipliers, 0, k, k + 1), (), hint=f"m{k}")
        more = [] if acc is None else [acc]

        def body(v: Expr, f: Expr, *a: Expr) -> Expr:
            product = cast(v, "i64") * f
            return a[0] ^ product if a else product

        return emap(b, body, [ids, factor, *more], dims=[(0,), (), (0,)][:2 + len(more)], hint=f"acc{k}")


@register
class EngramGate(Composite):
    """X bf16 `[T, m, D]`, kv bf16 `[T, (m+1) D]` (k_0.., v), q_weight and k_weight bf16 `[m, D]`, rows i32 `[T, n]`
    -> X + g v, bf16. Rows without an entry (-1) keep X as it is."""

    kind = "engram_gate"
    takes = (5, 5)

    def build(self, b: Builder, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Value]:
        known_attrs(attrs, "eps")
        eps = float(number_attr(attrs, "eps"))
        x, kv, wq, wk, entries = operands
        rows, streams, channels = need_rank(x, 3, "streams")
        m, width = need_size(streams, "the number of streams"), need_size(channels, "the width of a stream")
        need_shape(kv, (rows, (m + 1) * width), "keys and value")
        need_rank(entries, 2, "table rows")
        k = view(b, slice_(b, kv, 1, 0, m * width), (rows, m, width), hint="k")
        v = slice_(b, kv, 1, m * width, (m + 1) * width, hint="v")
        own = view(b, slice_(b, entries, 1, 0, 1), (rows,), hint="own")

        def inverse_rms(value: Value, hint: str) -> Value:
            total = reduce_sum(b, emap(b, lambda a: a * a, [value]), 2)
            return emap(b, lambda s: apply("rsqrt", s / float(width) + eps), [total], hint=hint)

        rx, rk = inverse_rms(x, "inv_x"), inverse_rms(k, "inv_k")
        terms = emap(b, lambda a, q, w, c: a * (q * w) * c, [x, wq, wk, k],
                     dims=[(0, 1, 2), (1, 2), (1, 2), (0, 1, 2)], hint="terms")
        dot = reduce_sum(b, terms, 2, hint="dot_sum")

        def gate(d: Expr, a: Expr, c: Expr) -> Expr:
            value = d * a * c * width ** -0.5
            root = apply("sqrt", apply("max", apply("abs", value), const(1e-6)))
            signed = select(compare("gt", value, 0.0), root, select(compare("lt", value, 0.0), -root, 0.0))
            return apply("sigmoid", signed)

        g = emap(b, gate, [dot, rx, rk], hint="g")

        def update(a: Expr, h: Expr, c: Expr, e: Expr) -> Expr:
            return bf16(select(land(compare("ge", e, 0)), a + h * c, a))

        return [emap(b, update, [x, g, v, own], dims=[(0, 1, 2), (0, 1), (0, 2), (0,)], hint="X")]
