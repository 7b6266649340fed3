"""Backbone layers as functions of tensor IR (spec 1.1, 2, 3, 4). A kind is (own traits, entry, tail).

Edge values (design section 4): after a `mix` tail (X, pre, post, C, x, xq), all made with the next attention
sub-layer's weights; after a `raw` tail (X, pre), where the next layer opens with Engram; after `final` the hidden rows.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dinfc.frontend.attention import attention
from dinfc.frontend.experts import moe
from dinfc.frontend.model_config import LayerTraits, ModelConfig
from dinfc.frontend.slots import Slot
from dinfc.ir.build import contract, gather_rows, quantize, view
from dinfc.ir.graph import Builder, Value
from dinfc.ir.types import StateType, TensorType, Type, symbol

T = symbol("T")


@dataclass(frozen=True)
class Kind:
    """What makes two layers the same function."""

    traits: LayerTraits
    raw: bool  # opens with (X, pre)
    tail: str  # mix | raw | final
    engram_rows: int = 0

    def name(self) -> str:
        """e.g. `source2_engram.mix`."""
        t = self.traits
        role = ("boundary" if t.is_candidate_source else "source" if t.is_kv_source else
                "consumer" if t.is_candidate_consumer else "index" if t.is_index_source else
                "reuser" if t.ratio else "window")
        parts = f"{role}{t.ratio}" if t.ratio else role
        parts += "_engram" if t.has_engram else ""
        parts += "_open" if self.raw and not t.has_engram else ""
        return f"{parts}_{self.tail}"


@dataclass
class LayerScope:
    """What the parts of a layer ask of their function: operands by name, added as parameters on first use."""

    b: Builder
    config: ModelConfig
    kind: Kind
    slots: Mapping[str, Slot]
    next_slots: Mapping[str, Slot]
    types: Mapping[str, Type]  # metadata and edge values
    states: Mapping[str, StateType]
    params: dict[str, Value] = field(default_factory=dict)
    written: dict[str, Value] = field(default_factory=dict)

    def param(self, name: str, type_: Type) -> Value:
        if name not in self.params:
            self.params[name] = Value(name, type_)
            self.b.names.add(name)
        return self.params[name]

    def weight(self, name: str) -> Value:
        """A weight slot of this layer, or of the next one (`next.NAME`)."""
        slots = self.next_slots if name.startswith("next.") else self.slots
        return self.param(name, slots[name.removeprefix("next.")].type)

    def data(self, name: str) -> Value:
        """Metadata or an edge value."""
        return self.param(name, self.types[name])

    def state(self, role: str) -> Value:
        """The current version of a state by role: window, latent, main, index."""
        return self.written.get(role) or self.param(role, self.states[role])

    def store(self, role: str, value: Value) -> None:
        self.written[role] = value


def open_sublayer(s: LayerScope, x: Value, pre: Value, part: str, prefix: str = "") -> dict[str, Value]:
    """Sub-layer input and the mix computed from the same X: pre, post, C, x (normed) and xq."""
    b, c = s.b, s.config
    h = b.one("hc_apply", [x, pre], "h")
    weights = [s.weight(f"{prefix}hc_{part}_{n}") for n in ("fn", "scale", "base")]
    pre2, post, comb = b.op("hc_mix", [x, *weights], ("pre", "post", "C"), eps=c.hc_eps, norm_eps=c.rms_norm_eps,
                            iters=c.hc_sinkhorn_iters)
    normed = b.one("rms_norm", [h, s.weight(f"{prefix}{part}_norm")], "x", eps=c.rms_norm_eps)
    return {"pre": pre2, "post": post, "C": comb, "x": normed, "xq": quantize(b, normed, "mxfp8<32>", "xq")}


def engram(s: LayerScope, x: Value) -> Value:
    """X plus the gated memory (spec 4.4)."""
    b, c = s.b, s.config
    rows = s.data("engram_rows")
    found = gather_rows(b, rows, s.weight("engram.embed"), hint="e_rows")
    entries = rows.tensor.shape[1]
    assert isinstance(entries, int)
    flat = view(b, found, (T, entries * (c.engram_head_dim or 0)), hint="e")
    kv = contract(b, flat, s.weight("engram.wkv"), "G8", hint="ekv")
    return b.one("engram_gate", [x, kv, s.weight("engram.q_weight"), s.weight("engram.k_weight"), rows], "X_engram",
                 eps=c.rms_norm_eps)


def edge_types(config: ModelConfig) -> dict[str, Type]:
    """Types of the edge values and of the index lists that later layers reuse."""
    c = config
    m, width = c.hc_mult, c.hidden_size
    out: dict[str, Type] = {
        "X": TensorType("bf16", (T, m, width)), "pre": TensorType("f32", (T, m)), "post": TensorType("f32", (T, m)),
        "C": TensorType("f32", (T, m, m)), "x": TensorType("bf16", (T, width)),
        "xq": TensorType("mxfp8<32>", (T, width)),
        "attend_index": TensorType("i32", (T, c.sliding_window + c.index_topk)),
    }
    if c.engram_layer_ids:
        out["engram_rows"] = TensorType("i32", (T, len(c.engram_orders) * (c.engram_n_heads or 0)))
    return out


RESULTS = {"mix": ("X", "pre", "post", "C", "x", "xq"), "raw": ("X", "pre"), "final": ("hidden",)}


def build_layer(config: ModelConfig, kind: Kind, scope: LayerScope) -> tuple[str, ...]:
    """Fills the function of one kind and gives the roles of its results: the tail's edge values, then attend_index and
    cand if the layer makes them, then the states it wrote."""
    s, b = scope, scope.b
    function = b.function
    edge = {"X": s.data("X"), "pre": s.data("pre")}
    if kind.traits.has_engram:
        edge["X"] = engram(s, edge["X"])
    if kind.raw:
        edge |= open_sublayer(s, edge["X"], edge["pre"], "attn")
    else:
        edge |= {n: s.data(n) for n in ("post", "C", "x", "xq")}
    made = attention(s, edge["x"], edge["xq"])
    x_mid = b.one("hc_post", [edge["X"], made.y, edge["post"], edge["C"]], "X_mid")
    ffn = open_sublayer(s, x_mid, edge["pre"], "ffn")
    y = moe(s, ffn["x"], ffn["xq"])
    out = {"X": b.one("hc_post", [x_mid, y, ffn["post"], ffn["C"]], "X_out"), "pre": ffn["pre"]}
    if kind.tail == "mix":
        out |= open_sublayer(s, out["X"], out["pre"], "attn", "next.")
    elif kind.tail == "final":
        h = b.one("hc_apply", [out["X"], out["pre"]], "h_final")
        out["hidden"] = b.one("rms_norm", [h, s.param("final.norm", TensorType("bf16", (config.hidden_size,)))],
                              "hidden", eps=config.rms_norm_eps)
    results = {n: out[n] for n in RESULTS[kind.tail]}
    if made.attend_index is not None:
        results["attend_index"] = made.attend_index
    if made.candidates is not None:
        results["cand"] = made.candidates
    results |= s.written
    function.results = list(results.values())
    function.params = list(s.params.values())
    return tuple(results)
