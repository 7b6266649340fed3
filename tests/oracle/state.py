"""The oracle's sequence state: the whole history, no rings, pages or codes (so independent of any cache design)."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from oracle.codecs import F64
from oracle.config import Dims


def _empty(width: int) -> Tensor:
    return torch.zeros((0, width), dtype=F64)


@dataclass
class LayerState:
    """One layer's history, fp64; row i belongs to position i, or to compressed token i.

    ``window`` [n, d]: dequantised kvw (§2.1). ``latent``/``gate`` [n, d]: ratio-2 sources, unrounded (§2.3).
    ``main`` [floor(n/r), d] and ``index`` [floor(n/r), d_I]: dequantised compressed keys and index keys of the sources.
    """

    window: Tensor
    latent: Tensor
    gate: Tensor
    main: Tensor
    index: Tensor

    def truncated(self, n: int, ratio: int) -> "LayerState":
        """The history of the first n positions."""
        groups = n // ratio if ratio else 0
        return LayerState(self.window[:n], self.latent[:n], self.gate[:n], self.main[:groups], self.index[:groups])


@dataclass
class State:
    """One sequence: its raw token ids so far and every layer's history. Tensors are replaced, never written to."""

    dims: Dims
    ids: list[int] = field(default_factory=list)
    layers: list[LayerState] = field(default_factory=list)

    @staticmethod
    def empty(dims: Dims) -> "State":
        """State of a sequence without tokens."""
        d, d_i = dims.head_dim, dims.index_dim
        layers = [LayerState(_empty(d), _empty(d), _empty(d), _empty(d), _empty(d_i)) for _ in range(dims.layers)]
        return State(dims, [], layers)

    def __len__(self) -> int:
        return len(self.ids)

    def clone(self) -> "State":
        """An independent copy (a fork of the sequence)."""
        return self.truncated(len(self.ids))

    def truncated(self, n: int) -> "State":
        """The state after the first n tokens only: what a rollback of rejected tokens must amount to."""
        if not 0 <= n <= len(self.ids):
            raise ValueError(f"cannot keep {n} of {len(self.ids)} tokens")
        layers = [layer.truncated(n, r) for layer, r in zip(self.layers, self.dims.ratios, strict=True)]
        return State(self.dims, self.ids[:n], layers)
