"""Spec §10: typed, lazily dequantised access to checkpoint tensors, everything in fp64."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from oracle.codecs import F64, Quant, as_bytes, bf, mxfp4_value, unpack_e2m1, wfp8_value


def strip_prefix(name: str) -> str:
    """Every name may carry an optional ``model.`` prefix (§10)."""
    return name.removeprefix("model.")


class Weights:
    """Raw tensors by name; each accessor converts once and keeps the result.

    The run-time dtype of §10.2 decides, not the stored one: ``bf16`` rounds, ``fp32`` goes through fp32.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._raw = {strip_prefix(name): t for name, t in tensors.items()}
        self._cache: dict[tuple[str, str], Tensor] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._raw

    def raw(self, name: str) -> Tensor:
        """The stored tensor."""
        return self._raw[name]

    def _once(self, kind: str, name: str, make: Callable[[], Tensor]) -> Tensor:
        key = (kind, name)
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    def bf16(self, name: str) -> Tensor:
        """A tensor of run-time dtype BF16."""
        return self._once("bf16", name, lambda: bf(self._raw[name].to(F64)))

    def fp32(self, name: str) -> Tensor:
        """A tensor of run-time dtype F32."""
        return self._once("fp32", name, lambda: self._raw[name].to(torch.float32).to(F64))

    def fp8(self, name: str) -> Tensor:
        """``name``.weight (E4M3) with its 32x32 block scales ``name``.scale."""
        return self._once("fp8", name, lambda: wfp8_value(self._raw[f"{name}.weight"], self._raw[f"{name}.scale"]))

    def fp4(self, name: str) -> Tensor:
        """An expert matrix: packed e2m1 [N, K/2] with E8M0 per 32 input channels [N, K/32]."""

        def make() -> Tensor:
            codes = unpack_e2m1(self._raw[f"{name}.weight"])
            return mxfp4_value(Quant(codes, as_bytes(self._raw[f"{name}.scale"])))

        return self._once("fp4", name, make)

    def table(self, name: str) -> tuple[Tensor, Tensor]:
        """Codes and scale bytes (uint8) of an Engram table, not dequantised as a whole."""
        return as_bytes(self._raw[f"{name}.weight"]), as_bytes(self._raw[f"{name}.scale"])
