"""`topk`: the k largest of the first `end` scores of a row, ties to the lowest index (spec 2.7, 2.8, 3.1).

Exact and integer throughout. A score becomes a key whose unsigned order is the order of the values (-0 made +0; NaN the
lowest key of all, below -inf). Grid: rows.

by = index: a radix selection. Per byte of the key, from the highest, a histogram of the scores that match the bytes
            found so far gives the next byte of the k-th largest key and how many scores lie above it. One ascending
            pass then emits every score above the k-th key and, of those equal to it, the first as many as are missing.
by = rank:  k times the largest remaining key, lowest index first; for small k.

Only scores below the row's end are read: what lies behind them may be anything (faults F07, F31).
"""
from __future__ import annotations

from dataclasses import dataclass

from dinfc.codegen.binding import dim_expr
from dinfc.ir.graph import IRError, Module, Op
from dinfc.ir.protocols import TargetLimits
from dinfc.ir.scalar import Expr, apply, bitcast, cast, const, f32, select, var
from dinfc.ir.tile.program import Alloc, Buffer, Fill, Let, Program, Reduce

from .anchor import Anchor, constant_dim, find_anchor, text_attr
from .tiles import Body, either, eq, inside, local, loop, lt, maximum, minimum, ne, scalar_state, store

BYTE = 256
MAX_RANK_WIDTH = 8192  # scores of a row that the rank form may hold near the core


@dataclass(frozen=True)
class SelectSchedule:
    """Schedule of regions whose anchor is `topk`."""

    anchor: str = "select"

    def build(self, region: Op, name: str, limits: TargetLimits, module: Module) -> Program:
        """The program. Raises IRError for another element type or `by`, or a row too wide for by = rank."""
        anchor = find_anchor(region, ("topk",))
        op = anchor.op
        scores, end = op.operands
        if scores.tensor.elem not in ("bf16", "f32"):
            raise IRError(f"topk ranks bf16 or f32 scores, not {scores.tensor.elem}", op)
        by, k, lanes = text_attr(op, "by", "index"), anchor.int_attr("k"), limits.lanes
        width = dim_expr(scores.tensor.shape[1])
        rows = anchor.rows(scores)
        body: Body = [
            Let("t", rows.row(var("r"))),
            Let("end", maximum(minimum(anchor.buffer(end)[anchor.at(end, var("t"))], width), 0))]
        if by == "index":
            body += _by_index(anchor, k)
        elif by == "rank":
            body += _by_rank(anchor, k, lanes)
        else:
            raise IRError(f"topk has by = index or rank, not {by!r}", op)
        return anchor.program(name, self.anchor, (("r", rows.count),), body, (), {"k": k})


def ordered_key(score: Expr) -> Expr:
    """A u32 (16 bits used for bf16) whose order is the order of the scores; NaN is 0."""
    # Adding +0 turns -0 into +0, so that both have one key.
    bits = bitcast(f32(score) + 0.0, "u32")
    sign = bits >> 31
    flipped = select(eq(sign, 1), bits ^ 0xFFFFFFFF, bits ^ 0x80000000)
    key = select(apply("ne", score, score), const(0, "u32"), flipped)
    return key >> 16 if score.dtype == "bf16" else key


def _score(anchor: Anchor, j: Expr) -> Expr:
    scores = anchor.op.operands[0]
    return anchor.buffer(scores)[anchor.at(scores, var("t")), j]


def _out(anchor: Anchor) -> tuple[Buffer, Expr]:
    out = anchor.op.result
    return anchor.buffer(out), anchor.at(out, var("t"))


def _byte(key: Expr, level: int, levels: int) -> Expr:
    """Byte `level` of a key, 0 = the highest."""
    shift = 8 * (levels - 1 - level)
    return cast((key >> shift if shift else key) & (BYTE - 1), "i32")


def _above(key: Expr, level: int, levels: int) -> Expr:
    """The bytes of a key above byte `level`."""
    return key >> (8 * (levels - level))


def _by_index(anchor: Anchor, k: int) -> Body:
    levels = 2 if anchor.op.operands[0].tensor.elem == "bf16" else 4
    out, row = _out(anchor)
    count = scalar_state("count")
    fits = [  # every score is selected
        *loop("a", k, lambda c: [store(out, (row, c), select(lt(c, var("end")), c, -1))])]
    histogram, prefix = local("histogram", "i32", BYTE), scalar_state("prefix", "u32")
    missing, found = scalar_state("missing"), scalar_state("found")
    search: Body = [Alloc(b) for b in (histogram, prefix, missing, found)]
    search += [store(prefix, (0,), 0), store(missing, (0,), k)]
    for level in range(levels):
        search += _find_byte(anchor, level, levels, (histogram, prefix, missing, found))
    search.append(store(count, (0,), 0))
    search += loop("e", var("end"), lambda j: _emit(anchor, j, k, (prefix, missing, count)))
    return [Alloc(count), either(lt(var("end"), k + 1), fits, search)]


def _find_byte(anchor: Anchor, level: int, levels: int, state: tuple[Buffer, Buffer, Buffer, Buffer]) -> Body:
    """Extends `prefix` by one byte of the k-th largest key and takes what lies above it from `missing`."""
    histogram, prefix, missing, found = state
    key, digit, bin_ = var(f"key{level}", "u32"), var(f"digit{level}"), var(f"bin{level}")

    def tally(j: Expr) -> Body:
        add = store(histogram, (digit,), histogram[digit] + 1)
        counted: Body = [Let(f"digit{level}", _byte(key, level, levels)), add]
        if level:  # only scores that share the bytes found so far
            counted = [either(eq(_above(key, level, levels), prefix[0]), counted)]
        return [Let(f"key{level}", ordered_key(_score(anchor, j))), *counted]

    def scan(b: Expr) -> Body:
        take: Body = [store(found, (0,), bin_)]
        skip: Body = [store(missing, (0,), missing[0] - histogram[bin_])]
        return [Let(f"bin{level}", const(BYTE - 1) - b),
                either(lt(found[0], 0), [either(lt(histogram[bin_], missing[0]), skip, take)])]

    return [
        Fill(histogram.name, const(0)), *loop(f"j{level}", var("end"), tally),
        store(found, (0,), -1), *loop(f"b{level}", BYTE, scan),
        store(prefix, (0,), prefix[0] * BYTE + cast(found[0], "u32"))]


def _emit(anchor: Anchor, j: Expr, k: int, state: tuple[Buffer, Buffer, Buffer]) -> Body:
    """Emits index j if its key is above the k-th key, or equal to it while some of the ties are missing."""
    prefix, missing, count = state
    out, row = _out(anchor)
    key, bound = var("key", "u32"), prefix[0]
    # Exactly k scores are emitted, so the guard never bites.
    emit: Body = [store(out, (row, count[0]), j, inside(count[0], k)), store(count, (0,), count[0] + 1)]
    tie: Body = [either(lt(0, missing[0]), [store(missing, (0,), missing[0] - 1), *emit])]
    return [Let("key", ordered_key(_score(anchor, j))),
            either(eq(key, bound), tie, [either(lt(bound, key), emit)])]


def _by_rank(anchor: Anchor, k: int, lanes: int) -> Body:
    """Repeated maximum over signed keys; a taken or absent score has the lowest key of all."""
    n = constant_dim(anchor.op.operands[0], 1)
    if n > MAX_RANK_WIDTH:
        raise IRError(f"topk by rank takes rows of at most {MAX_RANK_WIDTH} scores, this one has {n}", anchor.op)
    out, row = _out(anchor)
    lowest = const(-(1 << 31))
    keys = local("keys", "i32", n)

    def signed(j: Expr) -> Expr:
        # Unsigned order with the top bit flipped is signed order. NaN moves from key 0 to 1, which no number has, so
        # that the lowest key means taken or absent. A bf16 score is widened first, which keeps the order.
        return bitcast(maximum(ordered_key(f32(_score(anchor, j))), 1) ^ 0x80000000, "i32")

    def take(i: Expr) -> Body:
        return [
            Reduce("best", "max", "j", const(n), keys[var("j")], lowest, lanes),
            Reduce("where", "min", "j", const(n), select(eq(keys[var("j")], var("best")), var("j"), const(n)),
                   const(n), lanes),
            either(ne(var("best"), lowest),
                   [store(out, (row, i), var("where")), store(keys, (minimum(var("where"), n - 1),), lowest)],
                   [store(out, (row, i), -1)])]

    return [
        Alloc(keys),
        *loop("fill", n, lambda j: [store(keys, (j,), select(lt(j, var("end")), signed(j), lowest))]),
        *loop("i", k, take)]
