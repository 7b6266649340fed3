#include "dinfc.h"
#include "dinfc_dot.h"

// %h = rms_norm(%x)
// %y = contract(%h, @w)
// order lanes(16; halves)
// order fold(32; chain fma)
extern "C" __attribute__((visibility("default")))
void norm_product(const dinfc_ctx* ctx, void* const* args, int tid, int nthreads) {
    const dinfc_fp_mode fp_mode;
    const int T = ctx->T;
    const uint16_t* const __restrict__ x = (const uint16_t*)args[0];
    const int32_t* const __restrict__ row = (const int32_t*)args[1];
    const uint8_t* const __restrict__ w = (const uint8_t*)args[2];
    const uint8_t* const __restrict__ w_s = (const uint8_t*)args[3];
    uint16_t* const __restrict__ y = (uint16_t*)args[4];
    const int64_t total = (int64_t)T;
    const int64_t begin = total * tid / nthreads, end = total * (tid + 1) / nthreads;
    for (int64_t instance = begin; instance < end; ++instance) {
        const int t = (int)(instance);
        const int32_t p = row[t];
        // %h
        alignas(64) float h[1 * 64];
        if (p >= 0) {
            alignas(64) float sq_lane_[16];
            for (int l_ = 0; l_ < 16; ++l_) sq_lane_[l_] = 0.0f;
            for (int k_first_ = 0; k_first_ < 64; k_first_ += 16) {
#pragma omp simd
                for (int l_ = 0; l_ < 16; ++l_) {
                    const int k = k_first_ + l_;
                    sq_lane_[l_] = __builtin_fmaf(dinfc_load_bf16(x[(int64_t)p * 64 + k]), dinfc_load_bf16(x[(int64_t)p * 64 + k]), sq_lane_[l_]);
                }
            }
            for (int l_ = 0; l_ < 8; ++l_) sq_lane_[l_] = sq_lane_[l_] + sq_lane_[l_ + 8];
            for (int l_ = 0; l_ < 4; ++l_) sq_lane_[l_] = sq_lane_[l_] + sq_lane_[l_ + 4];
            for (int l_ = 0; l_ < 2; ++l_) sq_lane_[l_] = sq_lane_[l_] + sq_lane_[l_ + 2];
            for (int l_ = 0; l_ < 1; ++l_) sq_lane_[l_] = sq_lane_[l_] + sq_lane_[l_ + 1];
            const float sq = sq_lane_[0];
            const float r = dinfc_rsqrt(((sq / 64.0f) + 1e-20f));
#pragma omp simd
            for (int j = 0; j < 64; ++j) {
                h[j] = dinfc_load_bf16(x[(int64_t)p * 64 + j]) * r;
            }
        } else {
            for (int i_ = 0; i_ < 1 * 64; ++i_) h[i_] = 0.0f;
        }
        // %y
        alignas(64) float acc[1 * 40];
        for (int i_ = 0; i_ < 1 * 40; ++i_) acc[i_] = 0.0f;
        dinfc_dot<1, 40, 64, 32>(
            acc, 40,
            dinfc_rows<dinfc_f32>{h, 64},
            dinfc_n16k<dinfc_e4m3>{w, 64 * 16},
            dinfc_no_scale{},
            dinfc_scale<uint8_t, 32>{w_s, 2}, 1);
#pragma omp simd
        for (int j = 0; j < 40; ++j) {
            y[(int64_t)t * 40 + j] = dinfc_store_bf16(dinfc_round_bf16(acc[j]));
        }
    }
}
