"""Emits a tile program for the CPU, builds it (cached by content), and runs it on given arrays.

Whatever runs here was printed, read back and verified before.

    run_program(program, {"x": x, "out": out}, {"T": 5})

Arrays are torch tensors or numpy arrays, contiguous, of the dtype in which the buffer is stored (bf16 buffers: torch
bfloat16, or numpy uint16); they are read and written in place.
"""
from __future__ import annotations

import ctypes
import hashlib
import os
import tempfile
import threading
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numpy
import torch

from dinfc.codegen.emit.cpu_build import build_library, check_symbols
from dinfc.codegen.emit.cpu_expr import identifier
from dinfc.codegen.emit.cpu_sources import library_sources
from dinfc.ir.scalar import Expr
from dinfc.ir.tile.parse import parse_program
from dinfc.ir.tile.program import SCALARS, Program
from dinfc.ir.tile.text import print_program
from dinfc.ir.tile.verify import verify_program

Array = torch.Tensor | numpy.ndarray
TORCH_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8,
                "u32": torch.uint32, "bool": torch.bool}
NUMPY_DTYPES = {"f32": "float32", "bf16": "uint16", "i32": "int32", "i64": "int64", "u8": "uint8", "u32": "uint32",
                "bool": "bool"}
_CACHE = Path(tempfile.gettempdir()) / f"dinfc-test-cache-{os.getuid()}"


class KernelFailed(AssertionError):
    """A check of the checked build failed; the message is dinfc_last_error()."""


def run_program(program: Program, arrays: Mapping[str, Array], scalars: Mapping[str, int] | None = None,
                checked: bool = False, threads: int = 1, isa: str = "avx2", verify: bool = True) -> None:
    """Runs the whole grid. Raises KernelFailed where a check of the checked build fails, TileError for a program that
    the verifier refuses (`verify` = False: for programs that are wrong on purpose)."""
    if verify:
        verify_text(print_program(program))
    library = load_library(program, checked, isa)
    values = {"row0": 0, "slots": 1, "pages": 1, "T": 1, "S": 1, "R": 1, **(scalars or {})}
    values.setdefault("rows", values["T"])
    unknown = set(values) - set(SCALARS)
    if unknown:
        raise ValueError(f"unknown scalars {sorted(unknown)}")
    context = (ctypes.c_int32 * len(SCALARS))(*(values[name] for name in SCALARS))
    pointers = [array_pointer(program, p.name, arrays, values) for p in program.params]
    args = (ctypes.c_void_p * max(1, len(pointers)))(*pointers)
    kernel = getattr(library, identifier(program.name))
    workers = [threading.Thread(target=kernel, args=(context, args, tid, threads)) for tid in range(1, threads)]
    for w in workers:
        w.start()
    kernel(context, args, 0, threads)
    for w in workers:
        w.join()
    message = library.dinfc_last_error()
    if message:
        library.dinfc_clear_error()
        raise KernelFailed(message.decode())


@lru_cache(maxsize=1024)
def verify_text(text: str) -> None:
    verify_program(parse_program(text))


def array_pointer(program: Program, name: str, arrays: Mapping[str, Array], values: Mapping[str, int]) -> int:
    """Address of a param's array, after checking that it is what the kernel takes it for."""
    buffer = next(p for p in program.params if p.name == name)
    array = arrays[name]
    count = 1
    for dim in buffer.shape:
        count *= dim_number(dim, values)
    if isinstance(array, torch.Tensor):
        fits = array.dtype == TORCH_DTYPES[buffer.dtype] and array.is_contiguous()
        size, at = array.numel(), array.data_ptr()
    else:
        fits = array.dtype == NUMPY_DTYPES[buffer.dtype] and bool(array.flags["C_CONTIGUOUS"])
        size, at = array.size, array.ctypes.data
    if not fits:
        raise TypeError(f"{name}: a contiguous array of {buffer.dtype} is needed, got {array.dtype}")
    if size < count:
        raise ValueError(f"{name}: the kernel takes {count} elements, the array has {size}")
    return at


def dim_number(dim: Expr, values: Mapping[str, int]) -> int:
    """The value of a dim expression of program scalars."""
    if dim.op == "const":
        assert isinstance(dim.attr, int)
        return dim.attr
    if dim.op == "var":
        return values[str(dim.attr)]
    a, *rest = (dim_number(x, values) for x in dim.args)
    table = {"add": lambda b: a + b, "sub": lambda b: a - b, "mul": lambda b: a * b, "idiv": lambda b: a // b,
             "mod": lambda b: a % b, "min": lambda b: min(a, b), "max": lambda b: max(a, b)}
    return table[dim.op](*rest)


def load_library(program: Program, checked: bool = False, isa: str = "avx2") -> ctypes.CDLL:
    """The compiled library of one program."""
    sources = library_sources([program], checked)
    key = hashlib.sha256(repr((sorted(sources.items()), checked, isa)).encode()).hexdigest()[:32]
    return _load(key, tuple(sorted(sources.items())), checked, isa)


@lru_cache(maxsize=256)
def _load(key: str, sources: tuple[tuple[str, str], ...], checked: bool, isa: str) -> ctypes.CDLL:
    path = _CACHE / f"{key}.so"
    if not path.exists():
        build_library(dict(sources), path, isa, jobs=2, checked=checked, cache=_CACHE / "objects")
        check_symbols(path)
    library = ctypes.CDLL(str(path))
    library.dinfc_last_error.restype = ctypes.c_char_p
    return library
