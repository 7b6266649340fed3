"""Sample cases of ops that need no more than operands and attributes: one row of the table a case (see op_cases.py)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from dinfc.ir.data import Data
from dinfc.ir.graph import Attr, Value

from .op_cases import OpCase, S, T, cases, one_op, value

STREAMS, WIDTH, EXPERTS = 3, 8, 6
X = value("x", "bf16", T, STREAMS, WIDTH)
END = value("end", "i32", T, bounds=(0, 25))
CAND = value("cand", "i32", T, 3)
BLOCKS = torch.tensor([[0, 1, -1], [0, -1, -1], [-1, -1, -1], [0, 1, 2], [0, 1, 2], [1, 2, -1]])
ENDS = torch.tensor([16, 3, 0, 18, 24, 20])

Row = tuple[str, str, Sequence[Value], Mapping[str, Attr], Mapping[str, Data]]

# (kind, case, parameters, attributes, values that must not be random)
TABLE: Sequence[Row] = (
    ("rms_norm", "rows", [value("x", "bf16", T, 64), value("w", "bf16", 64)], {"eps": 1e-20}, {}),
    ("rms_norm", "zero_row", [value("x", "bf16", T, 8), value("w", "bf16", 8)], {"eps": 1e-20},
     {"x": torch.zeros(6, 8)}),
    ("rope", "heads", [value("x", "bf16", T, 2, 12), value("cs", "f32", T, 8)], {}, {}),
    ("rope", "conjugate", [value("x", "bf16", T, 8), value("cs", "f32", T, 8)], {"conj": True}, {}),
    ("hc_mix", "mix", [X, value("fn", "f32", STREAMS * (STREAMS + 2), STREAMS * WIDTH), value("scale", "f32", 3),
                       value("base", "f32", STREAMS * (STREAMS + 2))],
     {"eps": 1e-6, "norm_eps": 1e-20, "iters": 4}, {}),
    ("hc_apply", "mix", [X, value("pre", "f32", T, STREAMS)], {}, {}),
    ("hc_post", "update", [X, value("y", "bf16", T, WIDTH), value("post", "f32", T, STREAMS),
                           value("c", "f32", T, STREAMS, STREAMS)], {}, {}),
    ("swiglu_clamp", "shared", [value("ab", "bf16", T, 16)], {"limit": 10.0}, {}),
    ("swiglu_clamp", "routed", [value("ab", "bf16", T, 16), value("weight", "f32", T)], {"limit": 10.0}, {}),
    ("gate_topk", "two", [value("z", "f32", T, EXPERTS), value("bias", "f32", EXPERTS)], {"k": 2, "scale": 1.5}, {}),
    ("softmax_pool", "two", [value("previous", "f32", T, 16), value("current", "f32", T, 16)], {}, {}),
    ("expert_sum", "two", [value("shared", "bf16", T, 8), value("y", "bf16", 12, 8), value("slot_row", "i32", T, 2)],
     {}, {"slot_row": torch.tensor([[0, 11], [-1, 3], [5, -1], [-1, -1], [12, 4], [7, 7]])}),
    ("block_max", "eight", [value("scores", "bf16", T, 24), END], {"block": 8}, {"end": ENDS}),
    ("compact_length", "eight", [CAND, END], {"block": 8}, {"cand": BLOCKS, "end": ENDS}),
    ("restore_blocks", "eight", [value("chosen", "i32", T, 2, bounds=(-1, 24)), CAND], {"block": 8}, {
        "chosen": torch.tensor([[0, 15], [3, -1], [-1, -1], [8, 23], [7, 9], [0, 16]]), "cand": BLOCKS}),
    ("page_translate", "pages", [value("token", "i32", T, 2), value("table", "i32", S, 3), value("seq", "i32", T)],
     {"capacity": 8}, {"token": torch.tensor([[0, 23], [7, 8], [-1, 24], [1, 2], [-1, -1], [9, 2**31 - 1]]),
                       "seq": torch.tensor([0, 0, 1, 1, -1, 0]), "table": torch.tensor([[5, 2, -1], [1, 3, 0]])}),
    ("engram_hash", "three", [value("ids", "i32", T, 3), value("multipliers", "i64", 3), value("primes", "i64", 2, 2),
                              value("offsets", "i64", 2, 2), value("pad", "i32")], {"rows": 40},
     {"ids": torch.tensor([[3, 2, 1], [0, -1, 5], [-1, 2, 2], [255, 255, 255], [4, 4, -1], [1, 0, 0]]),
      "multipliers": torch.tensor([29662608052400909, 1873410163432121, 13919202536988139]),
      "primes": torch.tensor([[7, 11], [5, 13]]), "offsets": torch.tensor([[0, 7], [18, 23]])}),
    ("engram_gate", "streams", [X, value("kv", "bf16", T, (STREAMS + 1) * WIDTH), value("wq", "bf16", STREAMS, WIDTH),
                                value("wk", "bf16", STREAMS, WIDTH), value("entries", "i32", T, 4)], {"eps": 1e-20},
     {"entries": torch.tensor([[0, 1, 2, 3], [-1] * 4, [5, 6, 7, 8], [1, 1, 1, 1], [-1] * 4, [2, 3, 4, 5]])}),
)


def of_kind(kind: str) -> Sequence[OpCase]:
    return [one_op(kind, name, params, attrs, given) for row, name, params, attrs, given in TABLE if row == kind]


for _kind in dict.fromkeys(row[0] for row in TABLE):
    cases(_kind)(lambda kind=_kind: of_kind(kind))
