"""Random backbone checkpoints in memory, in the names, shapes and dtypes of spec §10.2 and §10.3.

Weights N(0, 1/K) through their codecs, norms 1 + 0.1 N, mHC fn N(0, 1/(mD)), base as in §1.3, scale 1, sinks and
router biases N(0, 0.1) (standard deviation), embedding and Engram table N(0, 1). No draft or vision tensors.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from oracle.codecs import E4M3, F64, Quant, mxfp4, mxfp8, pack_e2m1, wfp8
from oracle.config import Dims
from oracle.engram_hash import table_primes


class _Maker:
    """Draws tensors in a fixed order from one generator."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.tensors: dict[str, Tensor] = {}

    def normal(self, *shape: int, std: float = 1.0, mean: float = 0.0) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=F64) * std + mean

    def bf16(self, name: str, n: int, k: int, std: float | None = None) -> None:
        self.tensors[name] = self.normal(n, k, std=k**-0.5 if std is None else std).to(torch.bfloat16)

    def norm(self, name: str, *shape: int) -> None:
        self.tensors[name] = self.normal(*shape, std=0.1, mean=1.0).to(torch.bfloat16)

    def small(self, name: str, n: int) -> None:
        self.tensors[name] = self.normal(n, std=0.1).to(torch.float32)

    def _store8(self, name: str, q: Quant) -> None:
        self.tensors[f"{name}.weight"] = q.codes.view(E4M3)
        self.tensors[f"{name}.scale"] = q.scales.view(torch.float8_e8m0fnu)

    def fp8(self, name: str, n: int, k: int) -> None:
        self._store8(name, wfp8(self.normal(n, k, std=k**-0.5)))

    def table(self, name: str, n: int, k: int) -> None:
        self._store8(name, mxfp8(self.normal(n, k)))

    def fp4(self, name: str, n: int, k: int) -> None:
        q = mxfp4(self.normal(n, k, std=k**-0.5))
        self.tensors[f"{name}.weight"] = pack_e2m1(q.codes).view(torch.int8)
        self.tensors[f"{name}.scale"] = q.scales.view(torch.float8_e8m0fnu)


def hc_base(layer: int, m: int) -> Tensor:
    """Initial base of §1.3: pre -3 (+3 at stream layer mod m), post 0, comb 6*I - 3."""
    pre = torch.full((m,), -3.0)
    pre[layer % m] = 3.0
    return torch.cat((pre, torch.zeros(m), (6.0 * torch.eye(m) - 3.0).flatten()))


def _attention(make: _Maker, dims: Dims, layer: int) -> None:
    name, hidden, d = f"layers.{layer}.attn", dims.hidden, dims.head_dim
    make.fp8(f"{name}.wq_a", dims.q_rank, hidden)
    make.norm(f"{name}.q_norm.weight", dims.q_rank)
    make.fp8(f"{name}.wq_b", dims.heads * d, dims.q_rank)
    make.fp8(f"{name}.wkv", d, hidden)
    make.norm(f"{name}.kv_norm.weight", d)
    make.small(f"{name}.attn_sink", dims.heads)
    make.fp8(f"{name}.wo_a", dims.groups * dims.o_rank, dims.heads // dims.groups * d)
    make.fp8(f"{name}.wo_b", hidden, dims.groups * dims.o_rank)
    if layer in dims.kv_sources:
        make.bf16(f"{name}.compressor.wkv.weight", d, hidden)
        if dims.ratios[layer] == 2:
            make.bf16(f"{name}.compressor.wgate.weight", d, hidden)
        make.norm(f"{name}.compressor.norm.weight", d)
    if layer in dims.index_sources:
        make.fp8(f"{name}.indexer.wq_b", dims.index_heads * dims.index_dim, dims.q_rank)
        make.bf16(f"{name}.indexer.weights_proj.weight", dims.index_heads, hidden)
    if layer in dims.index_k_sources:
        make.bf16(f"{name}.indexer.wk.weight", dims.index_dim, d)
        make.norm(f"{name}.indexer.k_norm.weight", dims.index_dim)


def _experts(make: _Maker, dims: Dims, layer: int) -> None:
    name, hidden, width = f"layers.{layer}.ffn", dims.hidden, dims.expert_width
    make.bf16(f"{name}.gate.weight", dims.experts, hidden)
    make.small(f"{name}.gate.bias", dims.experts)
    make.small(f"{name}.gate.bias_vl", dims.experts)
    shared = width * dims.shared_experts
    for part, n, k in (("w1", shared, hidden), ("w3", shared, hidden), ("w2", hidden, shared)):
        make.fp8(f"{name}.shared_experts.{part}", n, k)
    for e in range(dims.experts):
        for part, n, k in (("w1", width, hidden), ("w3", width, hidden), ("w2", hidden, width)):
            make.fp4(f"{name}.experts.{e}.{part}", n, k)


def random_tensors(config: Mapping[str, Any], seed: int) -> dict[str, Tensor]:
    """The backbone tensors of a configuration, the same for the same (config, seed)."""
    dims = Dims.parse(config)
    make = _Maker(seed)
    m, hidden = dims.streams, dims.hidden
    make.bf16("embed.weight", dims.vocab, hidden, std=1.0)
    make.bf16("head.weight", dims.vocab, hidden)
    make.norm("norm.weight", hidden)
    primes = table_primes(dims.engram_layers, dims.engram_ngram - 1, dims.engram_heads, dims.engram_vocab)
    for layer in range(dims.layers):
        name = f"layers.{layer}"
        for sub in ("attn", "ffn"):
            fn = make.normal(m * (m + 2), m * hidden, std=(m * hidden) ** -0.5)
            make.tensors[f"{name}.hc_{sub}_fn"] = fn.to(torch.float32)
            make.tensors[f"{name}.hc_{sub}_base"] = hc_base(layer, m)
            make.tensors[f"{name}.hc_{sub}_scale"] = torch.ones(3)
            make.norm(f"{name}.{sub}_norm.weight", hidden)
        _attention(make, dims, layer)
        if layer in dims.engram_layers:
            make.norm(f"{name}.engram.q_weight", m, hidden)
            make.norm(f"{name}.engram.k_weight", m, hidden)
            make.table(f"{name}.engram.embed", sum(map(sum, primes[layer])), dims.engram_dim)
            make.fp8(f"{name}.engram.wkv", (m + 1) * hidden, dims.engram_tables * dims.engram_dim)
        _experts(make, dims, layer)
    return make.tensors
