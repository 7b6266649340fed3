"""The kernel library through ctypes: one foreign call runs one entry of a step (`dinfc_run`).

The structures are those of the launcher's text (dinfc's `codegen/templates/launcher.cc.j2`).
"""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

from .errors import RuntimeFault
from .plan import LAUNCHER_ABI, Plan

_REFUSALS = {-1: "another launcher ABI", -2: "no such entry, range or kernel", -3: "sizes outside the buckets"}


class StepArgs(ctypes.Structure):
    """`struct dinfc_step`. bucket -1: the smallest that holds T; first, last -1: the whole entry."""

    _fields_ = (
        ("abi", ctypes.c_uint32), ("entry", ctypes.c_uint32),
        ("T", ctypes.c_int32), ("S", ctypes.c_int32), ("R", ctypes.c_int32), ("bucket", ctypes.c_int32),
        ("first", ctypes.c_int32), ("last", ctypes.c_int32), ("threads", ctypes.c_int32),
        ("slots", ctypes.c_int32), ("pages", ctypes.c_int32),
        ("arena", ctypes.c_void_p), ("weights", ctypes.c_void_p), ("states", ctypes.c_void_p),
        ("step", ctypes.c_void_p), ("stream", ctypes.c_void_p),
    )


class KernelContext(ctypes.Structure):
    """`struct dinfc_ctx`: the run-time scalars of a launch."""

    _fields_ = tuple((name, ctypes.c_int32) for name in ("T", "S", "R", "row0", "rows", "slots", "pages"))


class KernelLibrary:
    """A loaded library. Raises RuntimeFault E-RUN-013 if it does not load, E-PLAN-001 if its ABI is another."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path, self._plan = path, plan
        self._numbers = {name: i for i, name in enumerate(plan.kernels)}
        try:
            library = ctypes.CDLL(str(path.absolute()))
            self._run, self._kernel, abi = library.dinfc_run, library.dinfc_kernel, library.dinfc_abi
            self._error, self._clear = library.dinfc_last_error, library.dinfc_clear_error
        except (OSError, AttributeError) as error:
            raise RuntimeFault("E-RUN-013", path=path, reason=str(error)) from None
        abi.restype = ctypes.c_uint32
        if abi() != LAUNCHER_ABI:
            raise RuntimeFault("E-PLAN-001", place=path, found=f"launcher {abi()}", expected=f"launcher {LAUNCHER_ABI}")
        self._run.argtypes = [ctypes.POINTER(StepArgs)]
        self._run.restype = ctypes.c_int
        self._kernel.argtypes = [ctypes.c_int, ctypes.POINTER(KernelContext), ctypes.c_void_p, ctypes.c_int]
        self._kernel.restype = ctypes.c_int
        self._error.restype = ctypes.c_char_p

    def run(self, args: StepArgs) -> None:
        """Runs an entry. Raises RuntimeFault: E-RUN-014 (a check of the checked build failed), E-RUN-019 (refused)."""
        status = int(self._run(ctypes.byref(args)))
        if status > 0:
            launch = self._plan.launches[status - 1]
            raise RuntimeFault("E-RUN-014", kernel=launch.kernel, origin=launch.origin, reason=self._take_error())
        if status < 0:
            raise RuntimeFault("E-RUN-019", reason=_REFUSALS.get(status, str(status)), rows=args.T)

    def kernel(self, name: str, pointers: Sequence[int], threads: int, context: KernelContext | None = None) -> None:
        """Runs one kernel alone (load steps). Raises RuntimeFault like `run`."""
        array = (ctypes.c_void_p * max(1, len(pointers)))(*pointers)
        scalars = KernelContext() if context is None else context
        status = int(self._kernel(self._numbers.get(name, -1), ctypes.byref(scalars), array, threads))
        if status > 0:
            raise RuntimeFault("E-RUN-014", kernel=name, origin="load", reason=self._take_error())
        if status < 0:
            raise RuntimeFault("E-RUN-019", reason=f"{_REFUSALS.get(status, str(status))} ({name})", rows=0)

    def _take_error(self) -> str:
        """The kernels' message; the flag is cleared so that the library can be used again."""
        text = self._error()
        self._clear()
        return text.decode(errors="replace") if text else "no message"
