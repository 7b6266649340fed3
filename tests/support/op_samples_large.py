"""Sample cases of products, selection, scoring and attention (see op_cases.py)."""
from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dinfc.ir import build as ir
from dinfc.ir.data import Data, Quantised
from dinfc.ir.graph import Value
from dinfc.ir.types import StateType

from .op_cases import ROWS, Args, OpCase, S, T, case, cases, value

INDEX_PAGES = StateType("pages", "mxfp4<32>", 32, 8, 4096, 0, 128)
KEY_PAGES = StateType("pages", "fp4e4m3<16>", 64, 8, 4096, 256, 512)
RING = StateType("ring", "mxfp8<32>", 64, 5)
WIDTH = 24


@cases("contract")
def products() -> Sequence[OpCase]:
    def of(a: str, w: str, cls: str) -> OpCase:
        params = [value("a", a, T, 64), value("w", w, 40, 64)]
        return case("contract", cls, params, lambda b, p: ir.contract(b, p["a"], p["w"], cls), counted=True)

    params = [value("a", "mxfp8<32>", T, 2, 64), value("w", "wfp8<32x32>", 2, 32, 64)]
    return [
        of("mxfp8<32>", "mxfp4<32>", "G4"), of("bf16", "bf16", "GB"), of("bf16", "bf16", "GB32"),
        of("f32", "f32", "GT"),
        case("contract", "G8", [value("a", "mxfp8<32>", T, 64), value("w", "wfp8<32x32>", 64, 64)],
             lambda b, p: ir.contract(b, p["a"], p["w"], "G8"), counted=True),
        case("contract", "batched", params, lambda b, p: ir.contract(b, p["a"], p["w"], "G8"), counted=True),
    ]


@cases("grouped_contract")
def grouped_products() -> Sequence[OpCase]:
    params = [value("a", "mxfp8<32>", T, 32), value("w", "mxfp4<32>", 4, 16, 32), value("rows", "i32", 12),
              value("tiles", "i32", 3)]
    rows = torch.tensor([0, 5, -1, -1, 2, 2, 3, -1, 1, 2**31 - 1, 4, 6])
    given = {"rows": rows, "tiles": torch.tensor([3, 0, -1])}

    def exists(args: Args, results: list[Data]) -> list[Tensor]:
        return [((rows >= 0) & (rows < ROWS) & (torch.arange(12) < 8)).unsqueeze(1).expand(12, 16)]

    def poison(args: Args) -> None:
        """Expert 1 and 2 have no tile, so their weights must not be read."""
        w = args["w"]
        assert isinstance(w, Quantised)
        scales = w.scales.clone()
        scales[1:3] = 0xFF
        args["w"] = Quantised(w.codes, scales, w.codec)

    return [case("grouped_contract", "G4", params,
                 lambda b, p: ir.grouped_contract(b, p["a"], p["w"], p["rows"], p["tiles"], 4), given,
                 row_parallel=False, unread=poison, defined=exists, counted=True)]


@cases("topk")
def selections() -> Sequence[OpCase]:
    params = [value("scores", "bf16", T, WIDTH), value("end", "i32", T)]
    given = {"end": torch.tensor([0, 1, 3, 5, 24, 99])}

    def poison(args: Args) -> None:
        scores, end = args["scores"], args["end"]
        assert isinstance(scores, Tensor)
        assert isinstance(end, Tensor)
        args["scores"] = torch.where(torch.arange(WIDTH) < end.unsqueeze(1), scores, torch.nan)

    return [
        *(case("topk", by, params, lambda b, p, by=by: ir.topk(b, p["scores"], p["end"], 4, by), given,  # type: ignore[misc]
               unread=poison, counted=True) for by in ("index", "rank")),
        case("topk", "wider_than_the_row", [value("scores", "f32", T, 3), value("end", "i32", T)],
             lambda b, p: ir.topk(b, p["scores"], p["end"], 5), given),
    ]


@cases("segment")
def segments() -> Sequence[OpCase]:
    ids = torch.tensor([[1, 3], [-1, 1], [0, 4], [3, 1], [1, 2**31 - 1], [0, 3]])
    return [case("segment", "four_experts", [value("ids", "i32", T, 2)],
                 lambda b, p: ir.segment(b, p["ids"], 4, 4), {"ids": ids}, row_parallel=False, counted=True)]


@cases("index_score")
def scores() -> Sequence[OpCase]:
    q, w, keys = value("q", "mxfp4<32>", T, 2, 32), value("w", "bf16", T, 2), Value("keys", INDEX_PAGES)
    table, seq = value("table", "i32", S, 3), value("seq", "i32", T)
    end, cand = value("end", "i32", T), value("cand", "i32", T, 3)
    given = {"table": torch.tensor([[2, 0, 2**31 - 1], [1, 3, -1]]), "seq": torch.tensor([0, 0, 1, 1, 0, 2]),
             "end": torch.tensor([16, 3, 0, 12, 1, 4])}
    blocks = torch.tensor([[0, 1, -1], [0, -1, -1], [-1, -1, -1], [0, 1, 2], [0, 1, 2], [0, 1, 2]])
    given_cand = {**given, "cand": blocks}

    def before_end(args: Args, results: list[Data]) -> list[Tensor]:
        end = given["end"] * (given["seq"] < 2)
        return [torch.arange(WIDTH) < end.unsqueeze(1)]

    return [
        case("index_score", "all", [q, w, keys, table, seq, end], lambda b, p: ir.index_score(
            b, p["q"], p["w"], p["keys"], p["table"], p["seq"], p["end"], WIDTH), given, defined=before_end),
        case("index_score", "candidates", [q, w, keys, table, seq, end, cand], lambda b, p: ir.index_score(
            b, p["q"], p["w"], p["keys"], p["table"], p["seq"], p["end"], WIDTH, p["cand"], 8), given_cand,
            defined=before_end),
    ]


@cases("sparse_attend")
def attends() -> Sequence[OpCase]:
    q, keys = value("q", "bf16", T, 2, 64), value("keys", "i32", T, 5)
    current, ring = value("current", "mxfp8<32>", 6, 64), Value("ring", RING)
    sink, pages = value("sink", "f32", 2), Value("pages", KEY_PAGES)
    ring0, page0 = 1 << 30, -(1 << 31)
    index = torch.tensor([[-1] * 5, [0, -1, -1, -1, -1], [0, 1, ring0, page0, page0 + 31], [5, -1, ring0 + 19, -1, 2],
                          [6, ring0 + 20, page0 + 32, 2**31 - 1, (1 << 30) - 1], [3, 3, ring0 + 4, page0 + 9, -1]])

    def poison(args: Args) -> None:
        """Current row 4 is on nobody's list."""
        c = args["current"]
        assert isinstance(c, Quantised)
        scales = c.scales.clone()
        scales[4] = 0xFF
        args["current"] = Quantised(c.codes, scales, c.codec)

    return [
        case("sparse_attend", "three_sources", [q, keys, current, ring, sink, pages], lambda b, p: ir.sparse_attend(
            b, p["q"], p["keys"], p["current"], p["ring"], p["sink"], 0.125, p["pages"]), {"keys": index},
            unread=poison),
        case("sparse_attend", "window_only", [q, keys, current, ring, sink], lambda b, p: ir.sparse_attend(
            b, p["q"], p["keys"], p["current"], p["ring"], p["sink"], 0.125), {"keys": index}, unread=poison),
    ]
