"""The schedule of `grouped_contract` and of `segment`, which makes its row lists."""
from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dinfc.codegen.schedules.grouped_matmul import GroupedMatmulSchedule
from dinfc.codegen.schedules.segment import SegmentSchedule
from dinfc.ir.graph import Op
from dinfc.ir.types import parse_dim
from support.anchors import DEVICE, T, bits, build, make_region, near_product, random_quantised, run, stored, tensor

ORDER = "fold(32; chain fma)"


def segment_region(slots: int, experts: int, tile: int) -> Op:
    tiles = f"ceiling((T*{slots}+{experts * (tile - 1)})/{tile})"
    results = [tensor("slot_row", "i32", T, slots), tensor("pair", "i32", parse_dim(f"{tile}*{tiles}")),
               tensor("tile_expert", "i32", parse_dim(tiles))]
    return make_region("segment", [tensor("ids", "i32", T, slots)], results, {"experts": experts, "tile": tile})


def segment(ids: Tensor, experts: int, tile: int, checked: bool = False) -> dict[str, Tensor]:
    rows, slots = ids.shape
    region = segment_region(slots, experts, tile)
    tiles = -(-(rows * slots + experts * (tile - 1)) // tile)
    buffers = {"ids": ids.int(), "slot_row": torch.full((rows, slots), 77).int(),
               "pair": torch.full((tiles * tile,), 77).int(), "tile_expert": torch.full((tiles,), 77).int()}
    return run(build(SegmentSchedule(), region), buffers, {"T": rows}, checked)


def expected_segment(ids: Tensor, experts: int, tile: int) -> dict[str, Tensor]:
    rows, slots = ids.shape
    tiles = -(-(rows * slots + experts * (tile - 1)) // tile)
    slot_row, pair, tile_expert = torch.full((rows * slots,), -1), torch.full((tiles * tile,), -1), []
    position = 0
    for e in range(experts):
        mine = (ids.flatten() == e).nonzero().flatten()
        pair[position: position + len(mine)] = mine
        slot_row[mine] = torch.arange(position, position + len(mine))
        used = -(-len(mine) // tile)
        tile_expert += [e] * used
        position += used * tile
    tile_expert += [-1] * (tiles - len(tile_expert))
    return {"slot_row": slot_row.reshape(rows, slots).int(), "pair": pair.int(),
            "tile_expert": torch.tensor(tile_expert).int()}


@pytest.mark.parametrize("tile", [1, 4, 8])
@pytest.mark.parametrize("rows", [0, 1, 5, 33, 200])
def test_segment_groups_stably_pads_to_tiles_and_drops_foreign_ids(tile: int, rows: int) -> None:
    g = torch.Generator().manual_seed(rows)
    ids = torch.randint(-2, 10, (rows, 3), generator=g)  # -2, -1, 8 and 9 belong to nobody
    got, want = segment(ids, 8, tile), expected_segment(ids, 8, tile)
    for name in want:
        assert torch.equal(got[name], want[name]), name
    checked = segment(ids, 8, tile, checked=True)
    assert all(torch.equal(got[name], checked[name]) for name in want)


def test_segment_holds_the_worst_case_of_every_id_on_one_expert() -> None:
    ids = torch.full((40, 6), 3)
    got = segment(ids, 8, 8)
    assert (got["pair"] >= 0).sum() == 240
    assert torch.equal(got["pair"][:240], torch.arange(240).int())


class Experts:
    """One expert layer: rows of A, expert weights, and a routing."""

    def __init__(self, experts: int = 4, n: int = 40, k: int = 96, rows: int = 40, seed: int = 0) -> None:
        g = torch.Generator().manual_seed(seed)
        self.experts, self.n, self.k = experts, n, k
        self.a = random_quantised(g, "mxfp8<32>", rows, k)
        self.b = random_quantised(g, "mxfp4<32>", experts, n, k)

    def region(self, tile: int, layout: str = "n16k4") -> Op:
        tiles = f"ceiling((T+{self.experts * (tile - 1)})/{tile})"
        positions = parse_dim(f"{tile}*{tiles}")
        a = tensor("a", "mxfp8<32>", T, self.k)
        b = tensor("b", "mxfp4<32>", self.experts, self.n, self.k, layout=layout)
        rows, owner = tensor("rows", "i32", positions), tensor("tile_expert", "i32", parse_dim(tiles))
        y = tensor("y", "bf16", positions, self.n)
        return make_region("grouped_contract", [a, b, rows, owner], [y], {"cls": "G4", "tile": tile, "order": ORDER})

    def run(self, ids: Tensor, tile: int = 8, checked: bool = False, layout: str = "n16k4") -> Tensor:
        """Result rows in the order of the A rows, NaN where an id belongs to no expert. ids: one per row."""
        rows = len(ids)
        groups = expected_segment(ids[:, None], self.experts, tile)
        region = self.region(tile, layout)
        a, b = region.regions[0].params[:2]
        buffers = stored(a, self.a) | stored(b, self.b)
        buffers |= {name: buffers[name][:rows].contiguous() for name in ("a", "a_s")}
        buffers |= {"rows_": groups["pair"], "tile_expert": groups["tile_expert"],
                    "y": torch.full((len(groups["pair"]), self.n), float("nan"), dtype=torch.bfloat16)}
        limits = {} if layout else {"limits": DEVICE}
        sorted_rows = run(build(GroupedMatmulSchedule(), region, **limits), buffers, {"T": rows}, checked)["y"]
        padding = groups["pair"] < 0
        assert bool(sorted_rows[padding].isnan().all()), "a padding row was written"
        out = torch.full((rows, self.n), float("nan"), dtype=torch.bfloat16)
        out[groups["pair"][~padding].long()] = sorted_rows[~padding]
        return out


def test_each_row_is_multiplied_by_its_own_expert() -> None:
    layer = Experts()
    ids = torch.randint(-1, 4, (40,), generator=torch.Generator().manual_seed(5))
    fast = layer.run(ids)
    assert torch.equal(bits(fast), bits(layer.run(ids, checked=True)))
    for row, expert in enumerate(ids.tolist()):
        if expert < 0:
            assert bool(fast[row].isnan().all())
            continue
        a, b = layer.a.values[row], layer.b.values[expert]
        assert near_product(fast[row], a @ b.T, a.abs() @ b.abs().T, 35)


@pytest.mark.parametrize("tile", [1, 2, 8, 16])
def test_the_tile_height_does_not_change_a_bit(tile: int) -> None:
    layer, ids = Experts(), torch.arange(40) % 4
    assert torch.equal(bits(layer.run(ids, tile)), bits(layer.run(ids, 8)))


def test_staged_operands_give_the_same_bits() -> None:
    layer, ids = Experts(), torch.arange(40) % 3
    assert torch.equal(bits(layer.run(ids, 8, layout="")), bits(layer.run(ids, 8)))
