"""The engine: texts in, logits or tokens out, step by step through scheduler and executor."""
from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

from .errors import RuntimeFault
from .executor import Executor, Logits
from .plan import Plan
from .sampling import sample
from .scheduler import Chunk, DefaultPolicy, Policy, Scheduler, Sequence


@dataclass(frozen=True)
class Request:
    """What to generate. `temperature` below 1e-5 is greedy; `seed` fixes the draws of this request alone."""

    ids: Items[int]
    max_tokens: int
    temperature: float = 0.0
    seed: int = 0
    ignore_eos: bool = False


@dataclass
class Generation:
    """What came out: `tokens` without the prompt, `stopped` by the end token rather than by max_tokens."""

    request: Request
    tokens: list[int] = field(default_factory=list)
    stopped: bool = False


@dataclass
class Statistics:
    """Rows and seconds of steps. A step is a decode step if all of its chunks are one row of a text that had begun."""

    steps: int = 0
    prefill_rows: int = 0
    prefill_seconds: float = 0.0
    decode_rows: int = 0
    decode_seconds: float = 0.0

    def add(self, rows: int, is_decode: bool, seconds: float) -> None:
        """Counts one step."""
        self.steps += 1
        if is_decode:
            self.decode_rows += rows
            self.decode_seconds += seconds
        else:
            self.prefill_rows += rows
            self.prefill_seconds += seconds


@dataclass
class StepResult:
    """One step that has run: its chunks, and the logits rows that were wanted, yet to be computed by the head."""

    chunks: list[Chunk]
    wanted: list[tuple[Chunk, int, int]]  # chunk, row of the chunk, row of the step
    executor: Executor
    seconds: float

    def pieces(self) -> Iterator[tuple[Chunk, int, Logits]]:
        """(chunk, row of the chunk, logits of that row and of those after it), in the order of the step.

        A piece lies in scratch: it is only valid until the next one. The time of the head counts as the step's.
        """
        at = 0
        begin = time.perf_counter()
        for logits in self.executor.head([row for _, _, row in self.wanted]):
            self.seconds += time.perf_counter() - begin
            first = 0
            for last in range(1, len(logits) + 1):
                chunk, row, _ = self.wanted[at + first]
                if last == len(logits) or self.wanted[at + last][0] is not chunk:
                    yield chunk, row, logits[first:last]
                    first = last
            at += len(logits)
            begin = time.perf_counter()


class Engine:
    """Runs texts on one executor. `statistics` covers everything since the engine was made."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.statistics = Statistics()

    def score(self, texts: Items[Items[int]], policy: Policy, sink: Callable[[int, int, Logits], None]) -> None:
        """Logits of every position of every text.

        `sink(text, first, logits)` is called with rows [first, first + n) of a text, f32 [n, V]; the array is only
        valid during the call. Raises RuntimeFault E-RUN-001 to 003 before anything runs.
        """
        check_texts(self.executor.plan, texts, [0] * len(texts))
        scheduler = self._scheduler(policy)
        for number, ids in enumerate(texts):
            scheduler.add(Sequence(number, list(ids), len(ids), every_row=True))
        for step in self._steps(scheduler):
            for chunk, row, logits in step.pieces():
                sink(chunk.sequence.number, chunk.sequence.computed + row, logits)
            for chunk in step.chunks:
                chunk.sequence.computed += chunk.rows
                if not chunk.sequence.pending:
                    scheduler.finish(chunk.sequence)

    def generate(self, requests: Items[Request], policy: Policy | None = None,
                 on_token: Callable[[int, int], None] = lambda request, token: None) -> list[Generation]:
        """Continues every prompt. `on_token(number of the request, token)` is called as tokens appear.

        Raises RuntimeFault: E-RUN-001 to 003 before anything runs, E-RUN-015 for logits that are NaN.
        """
        check_texts(self.executor.plan, [r.ids for r in requests], [r.max_tokens for r in requests])
        results = [Generation(r) for r in requests]
        scheduler = self._scheduler(policy or DefaultPolicy())
        for number, request in enumerate(requests):
            scheduler.add(Sequence(number, list(request.ids), len(request.ids) + request.max_tokens))
        for step in self._steps(scheduler):
            drawn: list[tuple[Sequence, int]] = []
            for chunk, _, logits in step.pieces():
                sequence, request = chunk.sequence, requests[chunk.sequence.number]
                drawn.append((sequence, sample(logits[0], request.temperature, request.seed, len(sequence.ids))))
            for chunk in step.chunks:
                chunk.sequence.computed += chunk.rows
            for sequence, token in drawn:
                sequence.ids.append(token)
                on_token(sequence.number, token)
                if self._is_done(results[sequence.number], token):
                    scheduler.finish(sequence)
        return results

    def _is_done(self, result: Generation, token: int) -> bool:
        """Appends a token to a result; True if it was the last one."""
        result.tokens.append(token)
        result.stopped = token == self.executor.plan.model.eos_token_id and not result.request.ignore_eos
        return result.stopped or len(result.tokens) == result.request.max_tokens

    def _scheduler(self, policy: Policy) -> Scheduler:
        memory = self.executor.memory
        return Scheduler(self.executor.plan, policy, memory.slots, memory.pages)

    def _steps(self, scheduler: Scheduler) -> Iterator[StepResult]:
        """Runs step after step; the caller takes the logits and advances the sequences."""
        while chunks := scheduler.next_step():
            is_decode = all(c.rows == 1 and c.sequence.computed for c in chunks)
            begin = time.perf_counter()
            rows = self.executor.forward([c.step() for c in chunks])
            step = StepResult(chunks, wanted_rows(chunks), self.executor, time.perf_counter() - begin)
            yield step
            self.statistics.add(rows, is_decode, step.seconds)


def wanted_rows(chunks: Items[Chunk]) -> list[tuple[Chunk, int, int]]:
    """(chunk, row of the chunk, row of the step) of every row whose logits are needed."""
    out, first = [], 0
    for chunk in chunks:
        out += [(chunk, row - first, row) for row in chunk.wanted(first)]
        first += chunk.rows
    return out


def check_texts(plan: Plan, texts: Items[Items[int]], new: Items[int]) -> None:
    """`new`: tokens to come after each text.

    Raises RuntimeFault: E-RUN-001 (empty), E-RUN-002 (too long), E-RUN-003 (id outside the vocabulary).
    """
    for number, (ids, more) in enumerate(zip(texts, new, strict=True)):
        which = f" #{number}" if len(texts) > 1 else ""
        if not ids:
            raise RuntimeFault("E-RUN-001", which=which)
        if len(ids) + more > plan.limits.max_len:
            raise RuntimeFault("E-RUN-002", which=which, length=len(ids), new=more, limit=plan.limits.max_len)
        for position, token in enumerate(ids):
            if not 0 <= token < plan.model.vocab_size:
                raise RuntimeFault("E-RUN-003", id=token, position=position, vocab=plan.model.vocab_size,
                                   which=f" of prompt{which}" if which else "")
