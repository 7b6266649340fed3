"""The slice that every device is proved on: norm and quantise, a scaled product, sparse attention.

The shapes are those of V4.1-Flash: the hidden row into the low rank of the queries (spec 2.1), and 64 heads of 512 over
a window of 128 and 512 selected records of FP4 pages (spec 2.9).
"""
from __future__ import annotations

SLICE = """\
symbol T in [1, 4096]

func @slice(%x: bf16[T, 5120], %attn_norm.weight: bf16[5120], %attn.wq_a: wfp8<32x32>[1280, 5120], \
%q: bf16[T, 64, 512], %index: i32[T, 640], %current: mxfp8<32>[T, 512], %ring: ring<mxfp8<32>[512], 134>, \
%attn.sink: f32[64], %main: pages<fp4e4m3<16>[512], 64, 114048, 4352, 20736>) -> (bf16[T, 1280], bf16[T, 64, 512]) {
  %h  = rms_norm(%x, %attn_norm.weight) {eps = 1e-20} : bf16[T, 5120]
  %hq = quantize(%h) {codec = "mxfp8<32>"} : mxfp8<32>[T, 5120]
  %qa = contract(%hq, %attn.wq_a) {cls = "G8"} : bf16[T, 1280]
  %o  = sparse_attend(%q, %index, %current, %ring, %attn.sink, %main) {scale = 0.04419417382415922} : bf16[T, 64, 512]
  return %qa, %o
}
"""
