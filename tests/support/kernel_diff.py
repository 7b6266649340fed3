"""Every kernel of a compiled model against the reference interpreter, on the interpreter's own inputs.

`CheckedRegions` interprets a scheduled module; whenever it reaches a region, the region's kernel runs on the same
operands (layouts, records and poison as in a package), and `findings` gets how far its results are from the reference.
"""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy
import torch
from torch import Tensor

from dinfc.codegen.emit.cpu_expr import identifier
from dinfc.ir.data import Data, Quantised, State
from dinfc.ir.graph import Module, Op
from dinfc.ir.interpret import Evaluation, Interpreter
from dinfc.ir.tile.program import SCALARS
from dinfc.ir.types import StateType, TensorType
from support.stored_values import (
    POISON,
    Stored,
    bf16_numbers,
    read_state,
    read_value,
    section_mask,
    state_array,
    unpack_codes,
    value_arrays,
)


@dataclass(frozen=True)
class Finding:
    """One result of one kernel run.

    `kind`: exact (integers, states), codes, float. `wrong`: share of elements that differ (exact, codes); `steps`:
    largest distance of codes; `error`: largest abs(y - ref) / (abs(ref) + row scale) of floats.
    """

    kernel: str
    anchor: str
    result: str
    kind: str
    wrong: float = 0.0
    steps: int = 0
    error: float = 0.0


class CheckedRegions(Interpreter):
    """`libraries`: loaded kernel libraries. All of them must give the same bytes (fast and checked build); the first
    one's results are compared with the interpreter's. Raises AssertionError where two libraries differ."""

    def __init__(self, module: Module, weights: Mapping[str, Data], libraries: Sequence[ctypes.CDLL], slots: int,
                 pages: int) -> None:
        super().__init__(module, weights)
        self.libraries, self.slots, self.pages = libraries, slots, pages
        self.findings: list[Finding] = []

    def _evaluate(self, op: Op) -> Callable[[Evaluation, Op, list[Data]], list[Data]]:
        inner = super()._evaluate(op)
        if op.kind != "region":
            return inner

        def run(evaluation: Evaluation, region: Op, args: list[Data]) -> list[Data]:
            call = KernelCall(self, region, evaluation, args)
            results = inner(evaluation, region, args)
            call.run()
            self.findings += call.compare(results)
            return results

        return run


class ChainedKernels(CheckedRegions):
    """Regions give what their kernels give: a whole function runs on kernels, one after the other."""

    def _evaluate(self, op: Op) -> Callable[[Evaluation, Op, list[Data]], list[Data]]:
        if op.kind != "region":
            return Interpreter._evaluate(self, op)

        def run(evaluation: Evaluation, region: Op, args: list[Data]) -> list[Data]:
            call = KernelCall(self, region, evaluation, args)
            call.run()
            return call.results()

        return run


class CheckedCalls(Interpreter):
    """`call`s are interpreted, and run on kernels from the same operands; `errors` gets, for each row of the streams X
    that a layer returns, its largest error relative to the row's largest element."""

    def __init__(self, module: Module, weights: Mapping[str, Data], chained: ChainedKernels) -> None:
        super().__init__(module, weights)
        self.chained = chained
        self.errors: dict[str, list[float]] = {}

    def _evaluate(self, op: Op) -> Callable[[Evaluation, Op, list[Data]], list[Data]]:
        inner = super()._evaluate(op)
        if op.kind != "call":
            return inner

        def run(evaluation: Evaluation, call: Op, args: list[Data]) -> list[Data]:
            copies: list[Data] = [a.clone() if isinstance(a, State) else a for a in args]
            results = inner(evaluation, call, args)
            callee = str(call.attrs["callee"])
            got = self.chained.evaluation(evaluation.symbols).call(callee, copies)
            ref, y = results[0], got[0]
            assert isinstance(ref, Tensor) and isinstance(y, Tensor)
            flat = ref.reshape(ref.shape[0], -1)
            error = (y.reshape(flat.shape) - flat).abs().amax(1) / flat.abs().amax(1)
            self.errors.setdefault(callee, []).extend(error.tolist())
            return results

        return run


@dataclass
class KernelCall:
    """One run of a region's kernel; inputs are captured before the interpreter changes states in place."""

    owner: CheckedRegions
    region: Op
    evaluation: Evaluation
    args: list[Data]
    inputs: list[Stored] = field(default_factory=list)
    outputs: list[list[Stored]] = field(default_factory=list)
    states: dict[int, Stored] = field(default_factory=dict)

    def __post_init__(self) -> None:
        body = self.region.regions[0]
        for number, (param, value) in enumerate(zip(body.params, self.args, strict=True)):
            if isinstance(value, State):
                self.states[number] = state_array(value)
                self.inputs.append(self.states[number])
            else:
                assert isinstance(param.type, TensorType)
                self.inputs += value_arrays(value, param.type)

    def run(self) -> None:
        """Runs the kernel of every library on the same inputs; keeps the results of the first."""
        name = identifier(str(self.region.attrs["kernel"]))
        before = {n: a.copy() for n, a in self.states.items()}
        first: list[Stored] | None = None
        for library in reversed(self.owner.libraries):
            for number, array in self.states.items():
                array[...] = before[number]
            self.outputs = [empty_arrays(r.type, self.evaluation) for r in self.region.regions[0].results
                            if isinstance(r.type, TensorType)]
            self.call(library, name)
            stored = [bits(a).copy() for a in (*self.states.values(), *(a for out in self.outputs for a in out))]
            assert first is None or all(numpy.array_equal(a, b) for a, b in zip(first, stored, strict=True)), name
            first = stored

    def call(self, library: ctypes.CDLL, name: str) -> None:
        kernel = getattr(library, name)
        arrays = [*self.inputs, *(a for out in self.outputs for a in out)]
        pointers = (ctypes.c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))
        symbols = self.evaluation.symbols
        values = {**symbols, "row0": 0, "rows": symbols["T"], "slots": self.owner.slots,
                  "pages": self.owner.pages}
        context = (ctypes.c_int32 * len(SCALARS))(*(values.get(name, 0) for name in SCALARS))
        kernel(context, pointers, 0, 1)
        if (failure := library.dinfc_last_error()) is not None:
            raise AssertionError(failure.decode())

    def results(self) -> list[Data]:
        """What the kernel made; states that it wrote are copied back."""
        outputs, out = iter(self.outputs), []
        for result in self.region.regions[0].results:
            if isinstance(result.type, StateType):
                number = self.written_state(result.type)
                state = self.args[number]
                made = read_state(self.states[number], result.type)
                assert isinstance(state, State)
                state.data, state.scales = made.data, made.scales
                state._values = None
                out.append(state)
            else:
                out.append(read_value(next(outputs), result.type))
        return out

    def written_state(self, type_: StateType) -> int:
        """Number of the operand whose next version a result is."""
        body = self.region.regions[0]
        return next(n for n, p in enumerate(body.params) if p.type == type_
                    and any(op.kind == "state_write" and op.operands[0] is p for op in body.ops))

    def compare(self, results: list[Data]) -> list[Finding]:
        body, out = self.region.regions[0], []
        outputs = iter(self.outputs)
        for result, expected in zip(body.results, results, strict=True):
            if isinstance(result.type, StateType):
                assert isinstance(expected, State)
                out.append(self.finding(result.name, "exact", **self.compare_state(result.type, expected)))
                continue
            got, type_ = next(outputs), result.type
            assert isinstance(type_, TensorType)
            if isinstance(expected, Quantised):
                out.append(self.finding(result.name, "codes", **compare_codes(got, expected)))
            elif type_.elem in ("f32", "bf16"):
                assert isinstance(expected, Tensor)
                out.append(self.finding(result.name, "float", **compare_floats(got[0], expected, type_.elem)))
            else:
                assert isinstance(expected, Tensor)
                wrong = numpy.not_equal(got[0].astype(numpy.int64), expected.numpy())
                out.append(self.finding(result.name, "exact", wrong=float(wrong.mean()) if wrong.size else 0.0))
        return out

    def finding(self, result: str, kind: str, **measured: float) -> Finding:
        return Finding(str(self.region.attrs["kernel"]), str(self.region.attrs["anchor"]), result, kind,
                       **measured)  # type: ignore[arg-type]

    def compare_state(self, type_: StateType, expected: State) -> dict[str, float]:
        got, want = self.states[self.written_state(type_)], state_array(expected)
        mask = section_mask(type_, got.shape)
        return {"wrong": float(numpy.not_equal(bits(got), bits(want))[mask].mean())}


def bits(stored: Stored) -> Stored:
    """The same elements as unsigned integers, so that NaN equals itself."""
    return stored.view(f"u{stored.dtype.itemsize}")


def empty_arrays(type_: TensorType, evaluation: Evaluation) -> list[Stored]:
    """Poisoned buffers for a result."""
    shape = evaluation.shape(type_.shape)
    codec = type_.codec
    if codec is None:
        like = value_arrays(torch.zeros(shape, dtype=torch.float64), type_.with_(layout=""))
    else:
        groups = torch.zeros((*shape[:-1], shape[-1] // codec.group), dtype=torch.uint8)
        like = value_arrays(Quantised(torch.zeros(shape, dtype=torch.uint8), groups, codec), type_.with_(layout=""))
    for array in like:
        array.view(numpy.uint8).fill(POISON)
    return like


def compare_codes(got: list[Stored], expected: Quantised) -> dict[str, float]:
    """Where a scale differs, its codes are counted once, as wrong."""
    codec = expected.codec
    codes = unpack_codes(got[0], codec).astype(numpy.int64)
    want = expected.codes.numpy().astype(numpy.int64)
    if codec.bits == 4:
        want = want & 15
    same_scale = numpy.repeat(got[1] == expected.scales.numpy(), codec.group, axis=-1)
    sign = 0x80 if codec.bits == 8 else 8
    distance = numpy.abs(ordered(codes, sign) - ordered(want, sign))
    return {"wrong": float(((codes != want) | ~same_scale).mean()) if codes.size else 0.0,
            "steps": int(distance[same_scale].max(initial=0))}


def ordered(codes: Stored, sign: int) -> Stored:
    """Codes as integers in the order of their values."""
    return numpy.where(codes & sign, -(codes & (sign - 1)), codes & (sign - 1))


def compare_floats(got: Stored, expected: Tensor, elem: str) -> dict[str, float]:
    """Elements that the reference leaves undefined (NaN) do not count."""
    y = bf16_numbers(got) if elem == "bf16" else got.astype(numpy.float64)
    ref = expected.to(torch.float64).numpy()
    known = ~numpy.isnan(ref)
    if not known.any():
        return {"error": 0.0}
    size = numpy.abs(numpy.where(known, ref, 0.0))
    scale = size.max(axis=-1, keepdims=True) if size.ndim > 1 else size
    with numpy.errstate(invalid="ignore"):
        difference = numpy.where(ref == y, 0.0, numpy.abs(y - ref))
        relative = difference / (size + scale + 1e-30)
    return {"error": float(relative[known].max())}
