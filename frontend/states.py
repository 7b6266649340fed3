"""Persistent state of a deployment: window rings, compression rings, token history, the page layout (spec 2.11)."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import lcm

from dinfc.frontend.model_config import PAGE_TOKENS, ModelConfig
from dinfc.ir.types import CODECS, StateType

SECTION_ALIGN = 32
PAGE_ALIGN = 128
MAIN_CODECS = {"fp4": "fp4e4m3<16>", "mxfp8": "mxfp8<32>"}


@dataclass(frozen=True)
class CacheLayout:
    """Bytes of the caches. `page_payload`: records only; `page_bytes`: with padding; `ring_slot_bytes`: all rings of
    one sequence, those of the draft layers included (they are allocated when drafts are compiled)."""

    states: Mapping[str, StateType]
    page_bytes: int
    page_payload: int
    ring_slot_bytes: int

    @property
    def payload_per_token(self) -> float:
        """Payload bytes of the paged caches per original token."""
        return self.page_payload / PAGE_TOKENS


def page_records(config: ModelConfig, layer: int) -> int:
    """Records of a page in the section of a source layer: one per completed group of `ratio` tokens."""
    return PAGE_TOKENS // config.ratio(layer)


def cache_layout(config: ModelConfig, main: str) -> CacheLayout:
    """The states of the backbone by name: `window_L`, `latent_L` (ratio 2), `main_L`, `index_L`, `history`.

    `main` is the format of the main cache, a key of MAIN_CODECS. Sections lie in layer order, index before main, each
    padded to 32 bytes; the page is padded to a common multiple of 128 and the main record.
    """
    codec = CODECS[MAIN_CODECS[main]]
    index_codec = CODECS["mxfp4<32>"]
    d, d_i = config.head_dim, config.index_head_dim
    places: list[tuple[str, str, int, int, int]] = []  # name, codec, width, records, offset
    at, payload = 0, 0
    for layer in config.kv_source_layer_ids:
        records = page_records(config, layer)
        sections = [("main", codec, d)]
        if config.is_index_k_source(layer):
            sections.insert(0, ("index", index_codec, d_i))
        for kind, c, width in sections:
            places.append((f"{kind}_{layer}", c.name, width, records, at))
            size = records * c.record_bytes(width)
            payload += size
            at = -(-(at + size) // SECTION_ALIGN) * SECTION_ALIGN
    unit = lcm(PAGE_ALIGN, codec.record_bytes(d))
    page_bytes = -(-at // unit) * unit
    states: dict[str, StateType] = {}
    for name, codec_name, width, records, offset in places:
        scales = records * CODECS[codec_name].code_bytes(width)
        states[name] = StateType("pages", codec_name, width, records, page_bytes, offset, scales)
    window = StateType("ring", "mxfp8<32>", d, config.window_ring)
    rings = 0
    for layer in range(config.num_hidden_layers):
        states[f"window_{layer}"] = window
    rings += (config.num_hidden_layers + config.num_nextn_predict_layers) * window.capacity * window.record_bytes
    for layer in config.kv_source_layer_ids:
        if config.ratio(layer) == 2:
            latent = StateType("ring", "f32", 2 * d, config.compress_ring)
            states[f"latent_{layer}"] = latent
            rings += latent.capacity * latent.record_bytes
    if config.engram_layer_ids:
        states["history"] = StateType("ring", "i32", 1, history_entries(config))
    return CacheLayout(states, page_bytes, payload, rings)


def history_entries(config: ModelConfig) -> int:
    """Ids in a token history ring: n_max - 1 + B_max (design section 4a)."""
    return (config.engram_max_ngram_size or 1) - 1 + config.backtrack
