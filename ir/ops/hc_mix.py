"""`hc_mix`: the mixing coefficients of a hyper-connection sub-layer (spec 1.3)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..build import contract, emap, reduce_max, reduce_sum, repeat, slice_, view
from ..composite import Composite
from ..graph import Attr, Builder, Value, register
from ..opkit import int_attr, known_attrs, need_rank, need_shape, need_size, number_attr
from ..scalar import Expr, apply


@register
class HcMix(Composite):
    """X bf16 `[T, m, D]`, fn f32 `[m(m+2), mD]`, scale f32 `[3]`, base f32 `[m(m+2)]` -> pre `[T, m]`, post `[T, m]`,
    C `[T, m, m]`, all f32. `eps` is eps_h, `norm_eps` that of the norm, `iters` the Sinkhorn iterations."""

    kind = "hc_mix"
    takes = (4, 4)

    def build(self, b: Builder, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Value]:
        known_attrs(attrs, "eps", "norm_eps", "iters")
        x, fn, scale, base = operands
        eps, norm_eps = float(number_attr(attrs, "eps")), float(number_attr(attrs, "norm_eps"))
        rows, streams, channels = need_rank(x, 3, "streams")
        m = need_size(streams, "the number of streams")
        n = m * need_size(channels, "the width of a stream")
        need_shape(fn, (m * (m + 2), n), "mix weights")
        need_shape(scale, (3,), "scale")
        need_shape(base, (m * (m + 2),), "base")
        flat = view(b, x, (rows, n), hint="flat")
        total = reduce_sum(b, emap(b, lambda v: v * v, [flat], hint="squares"), 1, hint="square_sum")
        rho = emap(b, lambda s: apply("rsqrt", s / float(n) + norm_eps), [total], hint="rho")
        z = contract(b, flat, fn, "GT", hint="z")

        def part(number: int, start: int, stop: int, finish: Sequence[str]) -> Value:
            """z * rho * scale[number] + base, then sigmoid and a factor where `finish` says so."""
            zs = slice_(b, z, 1, start, stop, hint=f"z{number}")
            factor = view(b, slice_(b, scale, 0, number, number + 1), (), hint=f"scale{number}")
            offset = slice_(b, base, 0, start, stop, hint=f"base{number}")

            def body(v: Expr, r: Expr, s: Expr, o: Expr) -> Expr:
                a = v * r * s + o
                if "sigmoid" in finish:
                    a = apply("sigmoid", a)
                if "eps" in finish:
                    a = a + eps
                return a * 2.0 if "double" in finish else a

            return emap(b, body, [zs, rho, factor, offset], dims=[(0, 1), (0,), (), (1,)], hint=f"mix{number}")

        pre = part(0, 0, m, ("sigmoid", "eps"))
        post = part(1, m, 2 * m, ("sigmoid", "double"))
        logits = view(b, part(2, 2 * m, 2 * m + m * m, ()), (rows, m, m), hint="A")
        return [pre, post, sinkhorn(b, logits, eps, int_attr(attrs, "iters", least=1))]


def sinkhorn(b: Builder, logits: Value, eps: float, iters: int) -> Value:
    """Softmax over the last dim, then alternating column and row normalisation, columns last."""
    top = reduce_max(b, logits, 2, hint="row_max")
    e = emap(b, lambda a, t: apply("exp", a - t), [logits, top], dims=[(0, 1, 2), (0, 1)], hint="e")
    s = reduce_sum(b, e, 2, hint="row_sum")
    c = emap(b, lambda v, t: v / t + eps, [e, s], dims=[(0, 1, 2), (0, 1)], hint="c")
    c = normalise(b, c, 1, eps)
    if iters == 1:
        return c
    return repeat(b, iters - 1, [c], lambda inner, cs: [normalise(inner, normalise(inner, cs[0], 2, eps), 1, eps)],
                  hint="C")[0]


def normalise(b: Builder, c: Value, axis: int, eps: float) -> Value:
    """c / (sum of c over `axis` + eps)."""
    s = reduce_sum(b, c, axis, hint="sums")
    kept = [d for d in range(3) if d != axis]
    return emap(b, lambda v, t: v / (t + eps), [c, s], dims=[(0, 1, 2), kept], hint="c")
