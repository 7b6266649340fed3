#include "dinfc.h"
#include "dinfc_checked.h"

// %h = rms_norm(%x)
// %y = contract(%h, @w)
// order lanes(16; halves)
// order fold(32; chain fma)
extern "C" __attribute__((visibility("default")))
void norm_product(const dinfc_ctx* ctx, void* const* args, int tid, int nthreads) {
    const char* const kernel = "norm_product";
    const char* statement = "";
    const dinfc_fp_mode fp_mode;
    const int T = ctx->T;
    const uint16_t* const x = (const uint16_t*)args[0];
    const int32_t* const row = (const int32_t*)args[1];
    const uint8_t* const w = (const uint8_t*)args[2];
    const uint8_t* const w_s = (const uint8_t*)args[3];
    uint16_t* const y = (uint16_t*)args[4];
    const int64_t total = (int64_t)T;
    const int64_t begin = total * tid / nthreads, end = total * (tid + 1) / nthreads;
    for (int64_t instance = begin; instance < end; ++instance) {
        if (dinfc_last_error() != nullptr) return;
        const int t = (int)(instance);
        statement = "let p: i32 = row[t]";
        const int32_t p = row[DINFC_INDEX(t, T, "row")];
        // %h
        statement = "alloc h: f32[1, 64] near";
        alignas(64) float h[1 * 64];
        uint8_t h_init_[64];
        __builtin_memset(h, 0xFF, sizeof h);
        __builtin_memset(h_init_, 0, sizeof h_init_);
        statement = "if ge(p, 0) {";
        if (p >= 0) {
            statement = "reduce sq = sum over k in 64 lanes 16 start 0.0 of f32(x[p, k]) times f32(x[p, k])";
            float sq_lane_[16];
            for (int l_ = 0; l_ < 16; ++l_) sq_lane_[l_] = 0.0f;
            for (int k = 0; k < 64; ++k) {
                sq_lane_[k % 16] = __builtin_fmaf(dinfc_load_bf16(x[(DINFC_INDEX(p, T, "x")) * 64 + DINFC_INDEX(k, 64, "x")]), dinfc_load_bf16(x[(DINFC_INDEX(p, T, "x")) * 64 + DINFC_INDEX(k, 64, "x")]), sq_lane_[k % 16]);
            }
            for (int s_ = 8; s_ > 0; s_ /= 2)
                for (int l_ = 0; l_ < s_; ++l_) sq_lane_[l_] = sq_lane_[l_] + sq_lane_[l_ + s_];
            const float sq = sq_lane_[0];
            statement = "let r: f32 = rsqrt(add(div(sq, 64.0), 1e-20))";
            const float r = dinfc_rsqrt(((sq / 64.0f) + 1e-20f));
            statement = "for j in 64 vector {";
            for (int j = 0; j < 64; ++j) {
                statement = "h[0, j] = mul(f32(x[p, j]), r)";
                h[DINFC_WRITE((DINFC_INDEX(0, 1, "h")) * 64 + DINFC_INDEX(j, 64, "h"), h_init_)] = dinfc_load_bf16(x[(DINFC_INDEX(p, T, "x")) * 64 + DINFC_INDEX(j, 64, "x")]) * r;
            }
        } else {
            statement = "fill h = 0.0";
            for (int c0_ = 0; c0_ < 1; ++c0_) {
                for (int c1_ = 0; c1_ < 64; ++c1_) {
                    h[DINFC_WRITE((DINFC_INDEX(c0_, 1, "h")) * 64 + DINFC_INDEX(c1_, 64, "h"), h_init_)] = 0.0f;
                }
            }
        }
        // %y
        statement = "alloc acc: f32[1, 40] accumulator";
        alignas(64) float acc[1 * 40];
        uint8_t acc_init_[40];
        __builtin_memset(acc, 0xFF, sizeof acc);
        __builtin_memset(acc_init_, 0, sizeof acc_init_);
        statement = "fill acc = 0.0";
        for (int c0_ = 0; c0_ < 1; ++c0_) {
            for (int c1_ = 0; c1_ < 40; ++c1_) {
                acc[DINFC_WRITE((DINFC_INDEX(c0_, 1, "acc")) * 40 + DINFC_INDEX(c1_, 40, "acc"), acc_init_)] = 0.0f;
            }
        }
        statement = "dot acc += h[0, 0] * w[0, 0, 0] m 1 n 40 k 64 group 32 layout n16k b_codec e4m3 b_scale w_s[0, 0] b_scale_rows 32 order \"fold(32; chain fma)\"";
        for (int i_ = 0; i_ < 1; ++i_) {
            for (int j_ = 0; j_ < 40; ++j_) {
                for (int g_ = 0; g_ < 2; ++g_) {
                    float chain_ = 0.0f;
                    for (int k_ = g_ * 32; k_ < (g_ + 1) * 32; ++k_) {
                        const float a_ = h[DINFC_READ((DINFC_INDEX(0 + i_, 1, "h")) * 64 + DINFC_INDEX(0 + k_, 64, "h"), h_init_, "h")];
                        const float b_ = dinfc_e4m3_decode(w[((DINFC_INDEX(0 + j_ / 16, 3, "w")) * 64 + DINFC_INDEX(0 + k_, 64, "w")) * 16 + DINFC_INDEX(0 + j_ % 16, 16, "w")]);
                        chain_ = __builtin_fmaf(a_, b_, chain_);
                    }
                    const float sum_ = acc[DINFC_READ((DINFC_INDEX(i_, 1, "acc")) * 40 + DINFC_INDEX(j_, 40, "acc"), acc_init_, "acc")];
                    const float scale_ = dinfc_e8m0_decode(w_s[(DINFC_INDEX(0 + j_ / 32, 2, "w_s")) * 2 + DINFC_INDEX(0 + g_, 2, "w_s")]);
                    acc[DINFC_WRITE((DINFC_INDEX(i_, 1, "acc")) * 40 + DINFC_INDEX(j_, 40, "acc"), acc_init_)] = __builtin_fmaf(chain_, scale_, sum_);
                }
            }
        }
        statement = "for j in 40 vector {";
        for (int j = 0; j < 40; ++j) {
            statement = "y[t, j] = bf16(acc[0, j])";
            y[(DINFC_INDEX(t, T, "y")) * 40 + DINFC_INDEX(j, 40, "y")] = dinfc_store_bf16(dinfc_round_bf16(acc[DINFC_READ((DINFC_INDEX(0, 1, "acc")) * 40 + DINFC_INDEX(j, 40, "acc"), acc_init_, "acc")]));
        }
    }
}
