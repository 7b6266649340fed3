"""The slice that every device is proved on: norm and quantise, a scaled product, sparse attention.

The default shapes are those of V4.1-Flash: the hidden row into the low rank of the queries (spec 2.1), and 64 heads of
512 over a window of 128 and 512 selected records of FP4 pages (spec 2.9).
"""
from __future__ import annotations

RING = 134  # entries of a window ring
RECORDS = 64  # of a page, after the index section
INDEX_SECTION = 4352


def slice_text(hidden: int = 5120, rank: int = 1280, heads: int = 64, channels: int = 512, listed: int = 640) -> str:
    """Tensor IR of the slice: `hidden` and `rank` are K and N of the product, `listed` the keys of a row's list."""
    codes = RECORDS * channels // 2
    page = -(-(INDEX_SECTION + codes + RECORDS * channels // 16) // 128) * 128
    return f"""\
symbol T in [1, 4096]

func @slice(%x: bf16[T, {hidden}], %attn_norm.weight: bf16[{hidden}], %attn.wq_a: wfp8<32x32>[{rank}, {hidden}], \
%q: bf16[T, {heads}, {channels}], %index: i32[T, {listed}], %current: mxfp8<32>[T, {channels}], \
%ring: ring<mxfp8<32>[{channels}], {RING}>, %attn.sink: f32[{heads}], \
%main: pages<fp4e4m3<16>[{channels}], {RECORDS}, {page}, {INDEX_SECTION}, {codes}>) \
-> (mxfp8<32>[T, {hidden}], bf16[T, {rank}], bf16[T, {heads}, {channels}]) {{
  %h  = rms_norm(%x, %attn_norm.weight) {{eps = 1e-20}} : bf16[T, {hidden}]
  %hq = quantize(%h) {{codec = "mxfp8<32>"}} : mxfp8<32>[T, {hidden}]
  %qa = contract(%hq, %attn.wq_a) {{cls = "G8"}} : bf16[T, {rank}]
  %o  = sparse_attend(%q, %index, %current, %ring, %attn.sink, %main) {{scale = {channels ** -0.5!r}}} \
: bf16[T, {heads}, {channels}]
  return %hq, %qa, %o
}}
"""
