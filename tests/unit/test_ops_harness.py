"""What every op must satisfy, on the sample cases of its kind; an op without a case fails here."""
from __future__ import annotations

import re

import pytest
import sympy
import torch

from dinfc.ir import ops  # noqa: F401 (registers every op)
from dinfc.ir.data import Quantised, State
from dinfc.ir.graph import REGISTRY, IRError, definition
from dinfc.ir.opkit import same_dim
from dinfc.ir.parse import parse_module
from dinfc.ir.scalar import FLOATS
from dinfc.ir.text import print_module
from dinfc.ir.types import Dim, StateType, TensorType, dim_value
from dinfc.ir.verify import verify_module
from support import op_cases as oc
from support.op_cases import ROWS, OpCase

ORDERS = ("contract", "reduce", "attend", "score")  # what a target pins (Target.reduction_order)
FACTOR = re.compile(r"[a-z]\d*|[A-Z]\d*")
CASES = oc.all_cases()
FLAT = [pytest.param(c, id=f"{kind}-{c.name}") for kind, found in CASES.items() for c in found]
ROW_PARALLEL = [p for p in FLAT if p.values[0].row_parallel]  # type: ignore[union-attr, attr-defined]


def test_every_op_has_a_sample_case() -> None:
    assert set(REGISTRY) - set(CASES) == set()


def test_every_op_says_what_the_passes_ask() -> None:
    for kind, rule in REGISTRY.items():
        assert rule.kind == kind
        assert type(rule).__doc__, f"{kind} has no docstring"


@pytest.mark.parametrize("case", FLAT)
def test_text_round_trips_and_verifies(case: OpCase) -> None:
    text = print_module(case.module)
    again = parse_module(text, {n: c.make for n, c in case.module.constants.items()})
    assert print_module(again) == text
    verify_module(case.module)
    verify_module(again)
    for have, want in zip(again.functions["f"].ops, case.function.ops, strict=True):
        assert have.attrs == want.attrs


@pytest.mark.parametrize("case", FLAT)
def test_values_have_the_inferred_types(case: OpCase) -> None:
    for data, result in zip(case.run(), case.function.results, strict=True):
        if isinstance(result.type, StateType):
            assert isinstance(data, State)
            continue
        shape = tuple(dim_value(d, dict(case.symbols)) for d in result.type.shape)
        if result.type.codec is not None:
            assert isinstance(data, Quantised)
            assert data.codec == result.type.codec
            assert tuple(data.codes.shape) == shape
            continue
        assert isinstance(data, torch.Tensor)
        assert tuple(data.shape) == shape
        assert data.dtype == (torch.float64 if result.type.elem in FLOATS else torch.int64)
        if result.type.bounds is not None and data.numel():
            low, high = (dim_value(d, dict(case.symbols)) for d in result.type.bounds)
            assert low <= int(data.min()) <= int(data.max()) < high
        if result.type.elem == "bf16":
            assert oc.same(data, data.to(torch.bfloat16).to(torch.float64))


@pytest.mark.parametrize("case", FLAT)
def test_same_run_gives_the_same_bits(case: OpCase) -> None:
    for a, b in zip(case.run(), case.run(), strict=True):
        assert all(oc.same(x, y) for x, y in zip(oc.tensors(a), oc.tensors(b), strict=True))


@pytest.mark.parametrize("case", ROW_PARALLEL)
def test_a_row_alone_equals_the_row_in_the_batch(case: OpCase) -> None:
    together = case.run()
    for row in range(ROWS):
        for whole, alone, result in zip(together, oc.row_alone(case, row), case.function.results, strict=True):
            # Unrounded sums may differ in the last bits of fp64 (spec 0.3); everything rounded is equal.
            exact = not isinstance(result.type, TensorType) or result.type.elem != "f32"
            for x, y in zip(oc.tensors(whole), oc.tensors(alone), strict=True):
                assert oc.same(x[row:row + 1], y, exact)


@pytest.mark.parametrize("case", ROW_PARALLEL)
def test_poisoned_rows_behind_the_step_change_nothing(case: OpCase) -> None:
    for a, b in zip(case.run(), oc.with_poisoned_rows(case), strict=True):
        for x, y in zip(oc.tensors(a), oc.tensors(b), strict=True):
            assert oc.same(x, y[:ROWS], exact=not x.dtype.is_floating_point)


@pytest.mark.parametrize("case", [p for p in FLAT if p.values[0].unread or p.values[0].defined])  # type: ignore[union-attr, attr-defined]
def test_poison_where_nothing_may_be_read_changes_nothing(case: OpCase) -> None:
    args = dict(case.args)
    if case.unread is not None:
        case.unread(args)
    clean, poisoned = case.run(), case.run(args)
    masks = case.defined(case.args, clean) if case.defined else [None] * len(clean)
    for a, b, mask in zip(clean, poisoned, masks, strict=True):
        assert isinstance(a, torch.Tensor)
        assert isinstance(b, torch.Tensor)
        assert oc.same(a, b)
        if a.dtype.is_floating_point:
            defined = torch.ones_like(a, dtype=torch.bool) if mask is None else mask
            assert not a[defined].isnan().any()
            assert a[~defined].isnan().all()


@pytest.mark.parametrize("case", FLAT)
def test_cost_is_positive_and_counts_bytes(case: OpCase) -> None:
    op, rule = case.op, definition(case.kind)
    flops, moved = (sympy.sympify(c) for c in rule.cost(op))
    known = {s.name for s in oc.SYMBOLS}
    assert {str(s) for s in (flops + moved).free_symbols} <= known
    work, traffic = dim_value(flops, dict(case.symbols)), dim_value(moved, dict(case.symbols))
    assert work >= 0
    assert traffic >= 0
    assert work + traffic > 0 or rule.fusion == ""  # views and tables move nothing: whoever reads them counts it
    if case.counted:
        counted = sum(data_bytes(v.type, case) for v in dict.fromkeys([*op.operands, *op.results]))
        assert traffic == counted


@pytest.mark.parametrize("case", FLAT)
def test_sharding_factors_are_well_formed(case: OpCase) -> None:
    """One term a value and one name a dim; a dim that may be split has one extent and comes back in a result."""
    op = case.op
    left, arrow, right = definition(case.kind).factors(op).partition("->")
    assert arrow
    terms = [t.split() for t in [*(left.split(",") if left.strip() else []), *right.split(",")]]
    values = [*op.operands, *op.results]
    assert len(terms) == len(values)
    extents: dict[str, Dim] = {}
    for term, value in zip(terms, values, strict=True):
        if isinstance(value.type, StateType):
            assert term == ["S"]
            continue
        assert (term == ["."]) == (value.type.rank == 0)
        dims = list(zip(term, value.type.shape, strict=True)) if value.type.rank else []
        assert len({name for name, _ in dims}) == len(dims)
        for name, extent in dims:
            assert FACTOR.fullmatch(name)
            if name.islower():
                assert same_dim(extents.setdefault(name, extent), extent)
    split = {name for term in terms[:len(op.operands)] for name in term if name.islower()}
    kept = {name for term in terms[len(op.operands):] for name in term}
    assert split <= kept


@pytest.mark.parametrize("case", FLAT)
def test_an_op_has_an_order_if_and_only_if_it_reduces(case: OpCase) -> None:
    op, rule = case.op, definition(case.kind)
    order = rule.order(op)
    if order is not None:
        assert order.kind in ORDERS
        assert any(order.extent == dim for v in op.operands if isinstance(v.type, TensorType) for dim in v.type.shape)
        ordered = rule.infer(op.operands, {**op.attrs, "order": "chain"})
        assert ordered == [r.type for r in op.results]
    else:
        with pytest.raises(IRError):
            rule.infer(op.operands, {**op.attrs, "order": "chain"})


def data_bytes(type_: TensorType | StateType, case: OpCase) -> int:
    """Bytes of a value, counted on a value of its type."""
    data = oc.random_value(type_, case.symbols, torch.Generator())
    if isinstance(data, State):
        return 0
    if isinstance(data, Quantised):
        return data.codes.numel() * data.codec.bits // 8 + data.scales.numel()
    size = {"f32": 4, "bf16": 2, "i32": 4, "i64": 8, "u8": 1, "u32": 4, "bool": 1}
    assert isinstance(type_, TensorType)
    return data.numel() * size[type_.elem]
