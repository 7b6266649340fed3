"""Packed weights: made once from a checkpoint by the load kernels, kept in one file, mapped into memory afterwards.

The file's name is the hash of what it depends on (weights.json, the checkpoint's fingerprint, the token map), and it
appears complete or not at all. Large tensors that need no kernel are mapped from the checkpoint itself.
"""
from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .checkpoint import Checkpoint
from .errors import RuntimeFault
from .library import KernelLibrary
from .memory import address, allocate
from .safetensors_file import StoredTensor
from .weights_plan import TOKEN_MAP, LoadStep, WeightsPlan

ALIGNMENT = 4096  # of buffers in the file: a page, so that every mapped buffer is aligned for vector loads
MAP_BYTES = 64 * 2**20  # tensors from this size on are mapped from the checkpoint where no kernel touches them

Bytes = NDArray[np.uint8]


class TensorSource(Protocol):
    """Where the bytes of checkpoint tensors come from; `Checkpoint` is one, random tensors are another."""

    def read(self, name: str) -> Bytes:
        """The bytes of a tensor in its expected dtype."""
        ...


@dataclass(frozen=True)
class PackedWeights:
    """One array of bytes for each buffer of the plan, and where they come from (for reports)."""

    buffers: tuple[Bytes, ...]
    origin: str


@dataclass(frozen=True)
class Layout:
    """Where the buffers lie in the packed file; those of `mapped` lie in the checkpoint instead."""

    offsets: tuple[int, ...]
    total: int
    mapped: Mapping[int, StoredTensor]


def plan_layout(plan: WeightsPlan, checkpoint: Checkpoint | None = None) -> Layout:
    """Buffers one after the other, each at a multiple of ALIGNMENT."""
    mapped = {} if checkpoint is None else mappable(plan, checkpoint)
    offsets, total = [], 0
    for number, buffer in enumerate(plan.buffers):
        offsets.append(total)
        if number not in mapped:
            total += -(-buffer.bytes // ALIGNMENT) * ALIGNMENT
    return Layout(tuple(offsets), max(total, ALIGNMENT), mapped)


def mappable(plan: WeightsPlan, checkpoint: Checkpoint) -> dict[int, StoredTensor]:
    """Buffers that are one large tensor as it lies in its file: number of the buffer -> tensor."""
    fillers: dict[int, list[tuple[str, str]]] = {}
    for step in plan.load:
        for source, (number, _) in zip(step.sources, step.targets, strict=True):
            fillers.setdefault(number, []).append((step.kernel, source))
    out = {}
    for number, found in fillers.items():
        kernel, source = found[0]
        stored = checkpoint.tensors.get(source)
        size = plan.buffers[number].bytes
        if len(found) > 1 or kernel or stored is None or size < MAP_BYTES:
            continue
        # 64 bytes: no vector load may straddle more lines than in the packed file
        if stored.dtype == checkpoint.expected[source].dtype and stored.nbytes == size and stored.start % 64 == 0:
            out[number] = stored
    return out


def fill(plan: WeightsPlan, source: TensorSource, library: KernelLibrary, buffers: Mapping[int, Bytes],
         token_map: NDArray[np.int32] | None, threads: int, progress: Callable[[float], None] = lambda _: None) -> None:
    """Runs all load steps whose targets are in `buffers` (the others are mapped).

    Raises RuntimeFault: E-CKPT-007 (a cast loses bits), E-PLAN-002 (a step that does not fit its buffers).
    """
    for number, step in enumerate(plan.load):
        if all(target in buffers for target, _ in step.targets):
            run_step(plan, step, source, library, buffers, token_map, threads)
        progress((number + 1) / len(plan.load))


def run_step(plan: WeightsPlan, step: LoadStep, source: TensorSource, library: KernelLibrary,
             buffers: Mapping[int, Bytes], token_map: NDArray[np.int32] | None, threads: int) -> None:
    """One load step."""
    arrays = []
    for name in step.sources:
        if name == TOKEN_MAP:
            if token_map is None:
                raise RuntimeFault("E-PLAN-002", path=f"weights.json ({name})")
            arrays.append(token_map.view(np.uint8))
        else:
            arrays.append(source.read(name))
    if step.kernel:
        pointers = [address(a) for a in arrays]
        pointers += [address(buffers[number]) + offset for number, offset in step.targets]
        library.kernel(step.kernel, pointers, threads)
        return
    for array, (number, offset) in zip(arrays, step.targets, strict=True):
        if offset + array.size > buffers[number].size:
            raise RuntimeFault("E-PLAN-002", path=f"weights.json ({plan.buffers[number].name})")
        buffers[number][offset : offset + array.size] = array


def pack_in_memory(plan: WeightsPlan, source: TensorSource, library: KernelLibrary,
                   token_map: NDArray[np.int32] | None, threads: int) -> PackedWeights:
    """Packs into anonymous memory: for self tests and benchmarks without a checkpoint."""
    layout = plan_layout(plan)
    block = allocate(layout.total)
    buffers = slices(plan, layout, block)
    fill(plan, source, library, buffers, token_map, threads)
    return PackedWeights(tuple(buffers[i] for i in range(len(plan.buffers))), "random tensors")


def load_weights(plan: WeightsPlan, checkpoint: Checkpoint, library: KernelLibrary, folder: Path,
                 token_map: NDArray[np.int32] | None, threads: int,
                 progress: Callable[[float], None] = lambda _: None) -> PackedWeights:
    """The packed weights of a checkpoint, from `folder` if they are there, else packed into it first.

    Raises RuntimeFault: E-RUN-016 (cannot write), E-CKPT-007 (a cast loses bits).
    """
    layout = plan_layout(plan, checkpoint)
    path = folder / f"{pack_key(plan, checkpoint, token_map, layout)}.bin"
    if not os.path.isfile(path) or path.stat().st_size != layout.total:
        with packing(path, layout.total) as block:
            fill(plan, checkpoint, library, slices(plan, layout, block), token_map, threads, progress)
    with path.open("rb") as file:
        view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    buffers = slices(plan, layout, np.frombuffer(view, np.uint8))
    for number, stored in layout.mapped.items():
        buffers[number] = np.memmap(stored.path, np.uint8, "r", stored.start, (stored.nbytes,))
    return PackedWeights(tuple(buffers[i] for i in range(len(plan.buffers))), str(path))


def pack_key(plan: WeightsPlan, checkpoint: Checkpoint, token_map: NDArray[np.int32] | None, layout: Layout) -> str:
    """The name of the packed file."""
    digest = hashlib.sha256(f"{plan.digest} {checkpoint.fingerprint()} {sorted(layout.mapped)}".encode())
    if token_map is not None:
        digest.update(token_map.tobytes())
    return digest.hexdigest()[:32]


def slices(plan: WeightsPlan, layout: Layout, block: Bytes) -> dict[int, Bytes]:
    """The buffers inside the packed block."""
    return {number: block[start : start + buffer.bytes]
            for number, (buffer, start) in enumerate(zip(plan.buffers, layout.offsets, strict=True))
            if number not in layout.mapped}


@contextmanager
def packing(path: Path, size: int) -> Iterator[Bytes]:
    """A writable block that becomes `path` when the body ends, and disappears if it raises."""
    work = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with work.open("wb+") as file:
            os.posix_fallocate(file.fileno(), 0, size)  # a full disk is an error now, not a crash in a kernel
            view = mmap.mmap(file.fileno(), size)
    except OSError as error:
        with suppress(OSError):
            work.unlink()
        raise RuntimeFault("E-RUN-016", path=path.parent, reason=error.strerror, option="--pack-cache") from None
    try:
        yield np.frombuffer(view, np.uint8)
        view.flush()  # the name must not survive a power cut that the contents do not
        work.replace(path)
    finally:
        work.unlink(missing_ok=True)
