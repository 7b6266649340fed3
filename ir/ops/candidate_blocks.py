"""Candidate blocks: `block_max`, `compact_length`, `restore_blocks` (spec 2.8)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..build import emap, reduce_max, reduce_sum, take, view
from ..composite import Composite
from ..graph import Attr, Builder, IRError, Value, register
from ..opkit import int_attr, known_attrs, need_rank
from ..scalar import Expr, apply, bf16, compare, const, index, land, select

LARGEST_BF16 = 3.3895313892515355e38


@register
class BlockMax(Composite):
    """scores bf16 `[T, N]`, end i32 `[T]` -> block scores bf16 `[T, N/block]`, blocks i32 `[T]`.

    A block's score is its largest valid one, at most the largest finite bf16; the newest block's is +inf.
    """

    kind = "block_max"
    takes = (2, 2)

    def build(self, b: Builder, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Value]:
        known_attrs(attrs, "block")
        block = int_attr(attrs, "block", least=1)
        scores, end = operands
        rows, width = need_rank(scores, 2, "scores")
        if not isinstance(width, int) or width % block:
            raise IRError(f"block_max: {width} scores are not whole blocks of {block}")

        def masked(s: Expr, e: Expr) -> Expr:
            return select(compare("lt", index(1), e), s, -float("inf"))

        valid = emap(b, masked, [scores, end], dims=[(0, 1), (0,)], hint="valid")
        top = reduce_max(b, view(b, valid, (rows, width // block, block)), 2, hint="block_top")
        blocks = emap(b, lambda e: (e + (block - 1)) // block, [end], bounds=(0, width // block + 1), hint="blocks")

        def capped(v: Expr, n: Expr) -> Expr:
            capped_value = apply("min", v, const(LARGEST_BF16))
            return bf16(select(compare("eq", index(1), n - 1), float("inf"), capped_value))

        return [emap(b, capped, [top, blocks], dims=[(0, 1), (0,)], hint="block_scores"), blocks]


@register
class CompactLength(Composite):
    """candidates i32 `[T, N_c]`, end i32 `[T]` -> i32 `[T]`: valid entries of the compact list."""

    kind = "compact_length"
    takes = (2, 2)

    def build(self, b: Builder, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Value]:
        known_attrs(attrs, "block")
        block = int_attr(attrs, "block", least=1)
        cand, end = operands

        def part(c: Expr, e: Expr) -> Expr:
            inside = apply("min", apply("max", e - c * block, const(0)), const(block))
            return select(compare("ge", c, 0), inside, 0)

        parts = emap(b, part, [cand, end], dims=[(0, 1), (0,)], hint="inside")
        return [reduce_sum(b, parts, 1, hint="compact_end")]


@register
class RestoreBlocks(Composite):
    """index i32 `[T, k]` into the compact list, candidates i32 `[T, N_c]` -> compressed token i32 `[T, k]`, -1 kept."""

    kind = "restore_blocks"
    takes = (2, 2)

    def build(self, b: Builder, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Value]:
        known_attrs(attrs, "block")
        block = int_attr(attrs, "block", least=1)
        chosen, cand = operands
        rows, k = need_rank(chosen, 2, "index")
        row = emap(b, lambda: index(0), [], shape=(rows, k), bounds=(0, rows), hint="row")
        which = emap(b, lambda c: select(compare("ge", c, 0), c // block, -1), [chosen], hint="which")
        first = take(b, cand, [row, which], fill=-1, hint="first")

        def body(c: Expr, f: Expr) -> Expr:
            return select(land(compare("ge", c, 0), compare("ge", f, 0)), f * block + c % block, -1)

        return [emap(b, body, [chosen, first], hint="token")]
