"""Type rules answer a wrong op with IRError and nothing else, whatever is wrong with it: text files hold anything."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest

from dinfc.ir.graph import Attr, IRError, Op, Value, definition
from dinfc.ir.scalar import arg, var
from dinfc.ir.types import StateType, TensorType, Type
from support import op_cases as oc
from support.op_cases import S, T

TYPED_BY_BUILDER = ("call", "constant", "region")  # no rule infers their results; the verifier checks them
CASES = {f"{kind}-{c.name}": c for kind, found in oc.all_cases().items() for c in found
         if kind not in TYPED_BY_BUILDER}
PLAIN = [TensorType("f32", ()), TensorType("i32", (T,)), TensorType("bf16", (T, 7)), TensorType("bool", (T, S)),
         TensorType("i64", (T, T)), TensorType("mxfp8<32>", (T, 64)), TensorType("wfp8<32x32>", (64, T * 32)),
         TensorType("f32", (T, S, T)), StateType("ring", "mxfp8<32>", 64, 5),
         StateType("pages", "mxfp4<32>", 32, 8, 4096, 0, 128)]
ODD_ATTRS: Sequence[Attr] = (-1, 0, 10**9, 1.5, float("nan"), "T", "?", "1/0", True, None, (), (1,), ((0, 1), 5),
                             ("T", "S"), arg(0, "f32"), arg(9, "i32"), var("v", "f32"))


def infer(kind: str, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Type] | None:
    """Result types; None where the rule refuses. Anything but IRError is a defect and passes through."""
    try:
        return definition(kind).infer(operands, attrs)
    except IRError as error:
        assert str(error).strip()
        return None


def mutants(op: Op) -> Iterator[tuple[str, list[Value], dict[str, Attr]]]:
    """The op with one thing changed at a time: an operand of another type, gone or twice; an attribute odd or gone."""
    for number, value in enumerate(op.operands):
        rest = op.operands[:number], op.operands[number + 1:]
        yield f"without operand {number}", [*rest[0], *rest[1]], op.attrs
        yield f"operand {number} twice", [*rest[0], value, value, *rest[1]], op.attrs
        for type_ in [*PLAIN, *reshaped(value.type)]:
            yield f"operand {number} is {type_}", [*rest[0], Value("other", type_), *rest[1]], op.attrs
    for name in op.attrs:
        yield f"without {name}", op.operands, {n: v for n, v in op.attrs.items() if n != name}
        for odd in ODD_ATTRS:
            yield f"{name} = {odd}", op.operands, {**op.attrs, name: odd}


def reshaped(type_: Type) -> Iterator[Type]:
    """The type with a dim more, a dim less, another last dim, a symbol as last dim, another element."""
    if isinstance(type_, StateType):
        yield StateType(type_.kind, "f32", type_.width, type_.capacity)
        return
    yield TensorType(type_.elem, (*type_.shape, 32))
    yield TensorType("u32", type_.shape)
    if type_.shape:
        yield TensorType(type_.elem, type_.shape[1:])
        yield TensorType(type_.elem, (*type_.shape[:-1], 96))
        yield TensorType(type_.elem, (*type_.shape[:-1], 32 * T))


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_op_is_refused_or_well_typed(name: str) -> None:
    op = CASES[name].op
    for what, operands, attrs in mutants(op):
        try:
            types = infer(op.kind, operands, attrs)
            if types is not None:
                changed = Op(op.kind, operands, attrs, [Value(f"r{n}", t) for n, t in enumerate(types)], op.regions)
                definition(op.kind).cost(changed)
                definition(op.kind).factors(changed)
        except Exception as error:
            raise AssertionError(f"{op.kind} {what}: {type(error).__name__}: {error}") from error


@pytest.mark.parametrize("name", CASES)
def test_unknown_attributes_and_surplus_states_are_refused(name: str) -> None:
    op = CASES[name].op
    assert infer(op.kind, op.operands, {**op.attrs, "colour": 1}) is None
    state = Value("state", StateType("ring", "f32", 8, 3))
    assert infer(op.kind, [*op.operands, *[state] * 7], op.attrs) is None


@pytest.mark.parametrize("name", CASES)
def test_an_operand_of_an_impossible_type_is_refused(name: str) -> None:
    """No op takes a table of flags of three dims in the place of any operand but a shape-only op, which keeps it."""
    op = CASES[name].op
    for number in range(len(op.operands)):
        flags = Value("flags", TensorType("bool", (3, 5, 7, 9)))
        operands = [*op.operands[:number], flags, *op.operands[number + 1:]]
        types = infer(op.kind, operands, op.attrs)
        assert types is None or any(isinstance(t, TensorType) and t.elem == "bool" for t in types)
