"""Huawei Ascend 950: Ascend C; so far the slice {norm and quantise, scaled product, sparse attention} only."""
from __future__ import annotations

from dinfc.codegen.emit.device_target import DeviceTarget

from .manifest import make_slice_target


def slice_target() -> DeviceTarget:
    """The target of `dinfc emit-slice`. Whole models are not compiled for it yet, so there is no `make_target`."""
    return make_slice_target()
