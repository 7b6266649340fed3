// Matrix products of a tile: acc[i, j] = fold over groups of G along K (tile IR `Dot`).
//
// For every column j and row i, in increasing group g: chain = 0; for k in the group, increasing:
// chain = fma(A[i, k], B[k, j], chain); then acc = fma(chain, sA * sB, acc) with scales, acc + chain without. Lanes run
// over columns, so the vector width, the number of rows and how a block is staged never touch that order.
//
// Columns go in blocks of 16 (packed weights are stored so). A column source gives 16 decoded columns of one k; with
// few rows it feeds the multiply directly, with more rows a group is decoded to a small buffer once and read by all.
#ifndef DINFC_DOT_H
#define DINFC_DOT_H
#include "dinfc.h"

#define DINFC_INLINE static inline __attribute__((always_inline))

#ifdef __AVX512F__
enum { dinfc_lanes = 16 };
#else
enum { dinfc_lanes = 8 };
#endif
enum { dinfc_parts = 16 / dinfc_lanes };  // vectors of a block of 16 columns

// Vector types, named by element and number of lanes; `_u` may lie anywhere in memory.
typedef float dinfc_vec __attribute__((vector_size(4 * dinfc_lanes)));
typedef float dinfc_vec_u __attribute__((vector_size(4 * dinfc_lanes), aligned(4), may_alias));
typedef float dinfc_f32x8 __attribute__((vector_size(32)));
typedef float dinfc_f32x8_u __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t dinfc_i32x8 __attribute__((vector_size(32)));
typedef uint32_t dinfc_u32x8 __attribute__((vector_size(32)));
typedef uint64_t dinfc_u64x4 __attribute__((vector_size(32)));
typedef int16_t dinfc_i16x8 __attribute__((vector_size(16)));
typedef int16_t dinfc_i16x8_u __attribute__((vector_size(16), aligned(2), may_alias));
typedef int16_t dinfc_i16x16 __attribute__((vector_size(32)));
typedef int16_t dinfc_i16x16_u __attribute__((vector_size(32), aligned(2), may_alias));
typedef char dinfc_i8x16 __attribute__((vector_size(16)));
typedef char dinfc_i8x16_u __attribute__((vector_size(16), aligned(1), may_alias));
typedef int64_t dinfc_i64x2 __attribute__((vector_size(16)));
typedef int32_t dinfc_i32x4 __attribute__((vector_size(16)));
typedef int64_t dinfc_i64_u __attribute__((aligned(1), may_alias));
typedef int32_t dinfc_i32_u __attribute__((aligned(1), may_alias));
#ifdef __AVX512F__
typedef uint32_t dinfc_u32x16 __attribute__((vector_size(64)));
typedef int32_t dinfc_i32x16 __attribute__((vector_size(64)));
typedef uint64_t dinfc_u64x8 __attribute__((vector_size(64)));
typedef long long dinfc_i64x8 __attribute__((vector_size(64)));
#endif

// Bytes in the low half (or quarter) of a vector, for the widening instructions (spelled out: generic conversions of
// short vectors are taken apart element by element).
DINFC_INLINE dinfc_i8x16 dinfc_bytes8(const uint8_t* p) {
    return (dinfc_i8x16)dinfc_i64x2{*(const dinfc_i64_u*)p, 0};
}
DINFC_INLINE dinfc_i8x16 dinfc_bytes4(const uint8_t* p) {
    return (dinfc_i8x16)dinfc_i32x4{*(const dinfc_i32_u*)p, 0, 0, 0};
}

DINFC_INLINE dinfc_vec dinfc_splat(float x) { return x - dinfc_vec{}; }
DINFC_INLINE dinfc_vec dinfc_vec_fma(dinfc_vec a, dinfc_vec b, dinfc_vec c) {
#ifdef __AVX512F__
    return __builtin_ia32_vfmaddps512_mask(a, b, c, (uint16_t)-1, 4);
#else
    return __builtin_ia32_vfmaddps256(a, b, c);
#endif
}
DINFC_INLINE dinfc_vec dinfc_load(const float* p) { return *(const dinfc_vec_u*)p; }
DINFC_INLINE void dinfc_put(float* p, dinfc_vec x) { *(dinfc_vec_u*)p = x; }

// ---- Element formats. `one`, `eight`, `sixteen`: elements [i, i + n) of a row of stored elements. ----

struct dinfc_f32 {
    typedef float stored;
    static constexpr long per_element = 1;
    DINFC_INLINE float one(const float* p, long i) { return p[i]; }
    DINFC_INLINE dinfc_f32x8 eight(const float* p, long i) { return *(const dinfc_f32x8_u*)(p + i); }
    DINFC_INLINE void sixteen(const float* p, long i, dinfc_vec* out) {
        for (int v = 0; v < dinfc_parts; ++v) out[v] = dinfc_load(p + i + v * dinfc_lanes);
    }
};

struct dinfc_bf16 {
    typedef uint16_t stored;
    static constexpr long per_element = 1;
    DINFC_INLINE float one(const uint16_t* p, long i) { return dinfc_load_bf16(p[i]); }
    DINFC_INLINE dinfc_f32x8 eight(const uint16_t* p, long i) {
        return (dinfc_f32x8)((dinfc_u32x8)__builtin_ia32_pmovzxwd256(*(const dinfc_i16x8_u*)(p + i)) << 16);
    }
    DINFC_INLINE void sixteen(const uint16_t* p, long i, dinfc_vec* out) {
#ifdef __AVX512F__
        out[0] = (dinfc_vec)((dinfc_u32x16)__builtin_ia32_pmovzxwd512_mask(
            *(const dinfc_i16x16_u*)(p + i), dinfc_i32x16{}, (uint16_t)-1) << 16);
#else
        out[0] = eight(p, i);
        out[1] = eight(p, i + 8);
#endif
    }
};

// e4m3: the code becomes a half float of 2^-8 times its value (the conversion to float is exact, subnormals included);
// a NaN code becomes a half float NaN.
struct dinfc_e4m3 {
    typedef uint8_t stored;
    static constexpr long per_element = 1;
    DINFC_INLINE float one(const uint8_t* p, long i) { return dinfc_e4m3_decode(p[i]); }
    DINFC_INLINE dinfc_f32x8 eight(const uint8_t* p, long i) {
        const dinfc_i16x8 wide = __builtin_ia32_pmovzxbw128(dinfc_bytes8(p + i));
        dinfc_i16x8 half = ((wide << 8) >> 1) & (short)0xBF80;
        half |= (half & 0x3F80) == 0x3F80;
        return __builtin_ia32_vcvtph2ps256(half) * 256.0f;
    }
    DINFC_INLINE void sixteen(const uint8_t* p, long i, dinfc_vec* out) {
        const dinfc_i16x16 wide = __builtin_ia32_pmovzxbw256(*(const dinfc_i8x16_u*)(p + i));
        dinfc_i16x16 half = ((wide << 8) >> 1) & (short)0xBF80;
        half |= (half & 0x3F80) == 0x3F80;
#ifdef __AVX512F__
        out[0] = __builtin_ia32_vcvtph2ps512_mask(half, dinfc_vec{}, (uint16_t)-1, 4) * 256.0f;
#else
        out[0] = __builtin_ia32_vcvtph2ps256(__builtin_shufflevector(half, half, 0, 1, 2, 3, 4, 5, 6, 7)) * 256.0f;
        out[1] = __builtin_ia32_vcvtph2ps256(__builtin_shufflevector(half, half, 8, 9, 10, 11, 12, 13, 14, 15)) * 256.0f;
#endif
    }
};

// e2m1, two codes a byte. The low three bits of a code choose from a table; the sign is xor-ed in by a shift that also
// brings the low three bits to 28..30, which the table undoes beforehand.
DINFC_INLINE dinfc_f32x8 dinfc_e2m1_table() {
    const dinfc_u32x8 grid = {0x00000000, 0x3F000000, 0x3F800000, 0x3FC00000, 0x40000000, 0x40400000, 0x40800000, 0x40C00000};
    const dinfc_u32x8 number = {0, 1, 2, 3, 4, 5, 6, 7};
    return (dinfc_f32x8)(grid ^ (number << 28));
}
DINFC_INLINE dinfc_f32x8 dinfc_e2m1_eight(dinfc_u32x8 codes) {
    return (dinfc_f32x8)((dinfc_u32x8)__builtin_ia32_permvarsf256(dinfc_e2m1_table(), (dinfc_i32x8)codes) ^ (codes << 28));
}
struct dinfc_e2m1 {
    typedef uint8_t stored;
    static constexpr long per_element = 2;  // elements in a stored element
    DINFC_INLINE float one(const uint8_t* p, long i) { return dinfc_e2m1_decode((uint8_t)(p[i >> 1] >> (4 * (i & 1)))); }
    DINFC_INLINE dinfc_f32x8 eight(const uint8_t* p, long i) {  // i is even
        const dinfc_u64x4 bytes = (dinfc_u64x4)__builtin_ia32_pmovzxbq256(dinfc_bytes4(p + (i >> 1)));
        return dinfc_e2m1_eight((dinfc_u32x8)(bytes | bytes << 28));
    }
    DINFC_INLINE void sixteen(const uint8_t* p, long i, dinfc_vec* out) {
#ifdef __AVX512F__
        const dinfc_u64x8 bytes = (dinfc_u64x8)__builtin_ia32_pmovzxbq512_mask(
            dinfc_bytes8(p + (i >> 1)), dinfc_i64x8{}, (uint8_t)-1);
        const dinfc_vec grid = {0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -.5f, -1, -1.5f, -2, -3, -4, -6};
        out[0] = __builtin_ia32_permvarsf512_mask(grid, (dinfc_i32x16)(bytes | bytes << 28), dinfc_vec{}, (uint16_t)-1);
#else
        out[0] = eight(p, i);
        out[1] = eight(p, i + 8);
#endif
    }
    // Columns 0 2 4 .. 14, then 1 3 5 .. 15: cheaper where lanes are 8 (the sum is put in order once per product).
    DINFC_INLINE void sixteen_split(const uint8_t* p, long i, dinfc_vec* out) {
#ifdef __AVX512F__
        sixteen(p, i, out);
#else
        const dinfc_u32x8 bytes = (dinfc_u32x8)__builtin_ia32_pmovzxbd256(dinfc_bytes8(p + (i >> 1)));
        out[0] = dinfc_e2m1_eight(bytes);
        out[1] = dinfc_e2m1_eight(bytes >> 4);
#endif
    }
};

// ---- Column sources: B[k, j] for j in a block of 16. Strides count stored elements. ----

// n16k and n16k4: [n/16, K, 16].
template <class F> struct dinfc_n16k {
    typedef F format;
    const typename F::stored* base;
    long block;  // from one block of 16 columns to the next
    static constexpr bool direct = true, split = false;
    inline __attribute__((always_inline)) void load(long k, int j, dinfc_vec* out) const {
        F::sixteen(base + (j >> 4) * block, k * 16, out);
    }
};
struct dinfc_n16k4 {
    typedef dinfc_e2m1 format;
    const uint8_t* base;
    long block;
    static constexpr bool direct = true, split = dinfc_lanes == 8;
    inline __attribute__((always_inline)) void load(long k, int j, dinfc_vec* out) const {
        dinfc_e2m1::sixteen_split(base + (j >> 4) * block, k * 16, out);
    }
};
// kn: rows along n. Direct where every block of 16 columns is whole.
template <class F, int N> struct dinfc_kn {
    typedef F format;
    const typename F::stored* base;
    long stride;  // from one k to the next
    static constexpr bool direct = N % 16 == 0, split = false;
    inline __attribute__((always_inline)) void load(long k, int j, dinfc_vec* out) const {
        F::sixteen(base + k * stride, j, out);
    }
    template <int G> void stage(long k0, int j0, float* out) const {
        const int width = N - j0 < 16 ? N - j0 : 16;
        for (int k = 0; k < G; ++k)
            for (int j = 0; j < 16; ++j) out[k * 16 + j] = j < width ? F::one(base + (k0 + k) * stride, j0 + j) : 0.0f;
    }
};
// nk: rows along k; a group of 16 columns is transposed while it is decoded.
template <class F, int N> struct dinfc_nk {
    typedef F format;
    const typename F::stored* base;
    long stride;  // from one n to the next
    static constexpr bool direct = false, split = false;
    template <int G> void stage(long k0, int j0, float* out) const;
};

DINFC_INLINE void dinfc_transpose(dinfc_f32x8 (&r)[8]) {
    dinfc_f32x8 t[8], u[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; i += 4) {
        u[i] = __builtin_shufflevector(t[i], t[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        u[i + 1] = __builtin_shufflevector(t[i], t[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        u[i + 2] = __builtin_shufflevector(t[i + 1], t[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
        u[i + 3] = __builtin_shufflevector(t[i + 1], t[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
    }
    for (int i = 0; i < 4; ++i) {
        r[i] = __builtin_shufflevector(u[i], u[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        r[i + 4] = __builtin_shufflevector(u[i], u[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

template <class F, int N> template <int G> void dinfc_nk<F, N>::stage(long k0, int j0, float* out) const {
    for (int half = 0; half < 16; half += 8) {
        const int width = N - j0 - half;
        if (G % 8 == 0 && width >= 8) {
            for (int k = 0; k < G; k += 8) {
                dinfc_f32x8 rows[8];
                for (int j = 0; j < 8; ++j) rows[j] = F::eight(base + (j0 + half + j) * stride, k0 + k);
                dinfc_transpose(rows);
                for (int j = 0; j < 8; ++j) *(dinfc_f32x8_u*)(out + (k + j) * 16 + half) = rows[j];
            }
        } else {
            for (int k = 0; k < G; ++k)
                for (int j = 0; j < 8; ++j)
                    out[k * 16 + half + j] = j < width ? F::one(base + (j0 + half + j) * stride, k0 + k) : 0.0f;
        }
    }
}

// A decoded group of one block of 16 columns: [G][16].
struct dinfc_staged {
    const float* base;
    inline __attribute__((always_inline)) void load(long k, int, dinfc_vec* out) const {
        dinfc_f32::sixteen(base, k * 16, out);
    }
};

// ---- Rows of A, and scales. ----

template <class F> struct dinfc_rows {
    typedef F format;
    const typename F::stored* base;
    long stride;
};
struct dinfc_no_scale {
    static constexpr bool present = false;
    DINFC_INLINE float at(long, long) { return 1.0f; }
};
// Scale of row (or column) i and group g; `PER` rows share one.
template <class E, int PER> struct dinfc_scale {
    static constexpr bool present = true;
    const E* base;
    long stride;
    inline __attribute__((always_inline)) float at(long i, long g) const { return value(base[i / PER * stride + g]); }
    DINFC_INLINE float value(float x) { return x; }
    DINFC_INLINE float value(uint8_t x) { return dinfc_e8m0_decode(x); }
};

// ---- The product. ----

// Where column j of a block of 16 lies when even columns come first.
template <bool SPLIT> DINFC_INLINE int dinfc_place(int j) {
    return SPLIT ? (j & ~15) | (j & 1) << 3 | (j & 15) >> 1 : j;
}

// R rows times U blocks of columns over one group, folded into acc. `sa`, `sb`: scales of this group.
template <int R, int U, int G, bool SCALED, class B>
DINFC_INLINE void dinfc_group(float* acc, long acc_stride, const float* a, long a_stride, const B& b, long k0, int j0,
                              const float* sa, long sa_stride, const float* sb) {
    constexpr int V = U * dinfc_parts;
    dinfc_vec chain[R][V];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) chain[r][v] = dinfc_vec{};
#pragma GCC unroll 2
    for (int k = 0; k < G; ++k) {
        dinfc_vec column[V];
#pragma GCC unroll 16
        for (int u = 0; u < U; ++u) b.load(k0 + k, j0 + 16 * u, column + u * dinfc_parts);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            const dinfc_vec x = dinfc_splat(a[r * a_stride + k]);
#pragma GCC unroll 16
            for (int v = 0; v < V; ++v) chain[r][v] = dinfc_vec_fma(x, column[v], chain[r][v]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) {
            float* const at = acc + r * acc_stride + v * dinfc_lanes;
            const dinfc_vec sum = dinfc_load(at);
            dinfc_put(at, SCALED ? dinfc_vec_fma(chain[r][v],
                                                 dinfc_splat(sa[r * sa_stride]) * dinfc_load(sb + v * dinfc_lanes), sum)
                                 : sum + chain[r][v]);
        }
}

// `rows` rows, in blocks of at most R.
template <int R, int U, int G, bool SCALED, class B>
DINFC_INLINE void dinfc_rows_of(int rows, float* acc, long acc_stride, const float* a, long a_stride, const B& b, long k0,
                                int j0, const float* sa, long sa_stride, const float* sb) {
    if constexpr (R > 0) {
        while (rows >= R) {
            dinfc_group<R, U, G, SCALED>(acc, acc_stride, a, a_stride, b, k0, j0, sa, sa_stride, sb);
            rows -= R;
            acc += R * acc_stride;
            a += R * a_stride;
            sa += R * sa_stride;
        }
        dinfc_rows_of<R - 1, U, G, SCALED>(rows, acc, acc_stride, a, a_stride, b, k0, j0, sa, sa_stride, sb);
    }
}

enum {
    dinfc_row_block = 4,  // rows that share decoded columns in registers
    dinfc_row_block_wide = dinfc_lanes == 16 ? 8 : 6,  // the same where it divides the rows
    dinfc_direct_rows = 2,  // up to so many rows, columns are decoded where they are used
    dinfc_direct_blocks = 2,  // then so many blocks of 16 columns at a time
};

// Is reading a column from its source no dearer than from a staged copy?
template <class B> constexpr bool dinfc_plain = B::direct && sizeof(typename B::format::stored) == 4;

// One stretch of K: `groups` groups from k = k0 of B and 0 of the others; U blocks of columns from j0.
template <int U, int M, int G, bool SCALED, class B>
static void dinfc_columns(float* acc, long acc_stride, const float* a, long a_stride, const B& b, long k0, int groups,
                          int j0, const float* sa, long sa_stride, const float* sb, long sb_stride, int rows) {
    constexpr int few = M < dinfc_direct_rows ? M : dinfc_direct_rows;
    constexpr int block = M < dinfc_row_block || M % dinfc_row_block_wide == 0
        ? (M < dinfc_row_block_wide ? M : dinfc_row_block_wide) : dinfc_row_block;
    for (int g = 0; g < groups; ++g) {
        const long k = k0 + (long)g * G;
        if constexpr (B::direct) {
            if (rows <= few) {
                dinfc_rows_of<few, U, G, SCALED>(rows, acc + j0, acc_stride, a + g * G, a_stride, b, k, j0, sa + g,
                                                 sa_stride, sb + g * sb_stride + j0);
                continue;
            }
        }
        if constexpr (!B::direct || (M > dinfc_direct_rows)) {
            for (int u = 0; u < U; ++u) {
                const int j = j0 + 16 * u;
                if constexpr (dinfc_plain<B>) {
                    dinfc_rows_of<block, 1, G, SCALED>(rows, acc + j, acc_stride, a + g * G, a_stride, b, k, j, sa + g,
                                                       sa_stride, sb + g * sb_stride + j);
                } else {
                    alignas(64) float staged[G * 16];
                    if constexpr (B::direct) {
                        for (int i = 0; i < G; ++i) {
                            dinfc_vec column[dinfc_parts];
                            b.load(k + i, j, column);
                            for (int v = 0; v < dinfc_parts; ++v)
                                *(dinfc_vec*)(staged + i * 16 + v * dinfc_lanes) = column[v];
                        }
                    } else {
                        b.template stage<G>(k, j, staged);
                    }
                    dinfc_rows_of<block, 1, G, SCALED>(rows, acc + j, acc_stride, a + g * G, a_stride,
                                                       dinfc_staged{staged}, 0, 0, sa + g, sa_stride,
                                                       sb + g * sb_stride + j);
                }
            }
        }
    }
}

// acc[0:rows, 0:N] over the whole of K. Operands that are not fp32 are decoded a stretch of K at a time.
template <int M, int N, int K, int G, class A, class B, class SA, class SB>
static void dinfc_dot(float* acc, long acc_stride, A a, B b, SA sa, SB sb, int rows) {
    constexpr int padded = (N + 15) / 16 * 16;
    constexpr int stretch = K <= 1024 ? K : G * (1024 / G > 0 ? 1024 / G : 1);
    constexpr int scale_groups = stretch / G;
    constexpr bool scaled = SA::present || SB::present;
    constexpr bool own_sum = padded != N || B::split;
    constexpr bool decode_a = sizeof(typename A::format::stored) != 4;
    constexpr int blocks = padded % (16 * dinfc_direct_blocks) == 0 ? dinfc_direct_blocks : 1;
    alignas(64) float sum[own_sum ? M * padded : 1];
    alignas(64) float rows_a[decode_a ? M * stretch : 1];
    alignas(64) float scale_a[scaled ? M * scale_groups : 1];
    alignas(64) float scale_b[scaled ? scale_groups * padded : 1];
    float* const total = own_sum ? sum : acc;
    const long total_stride = own_sum ? padded : acc_stride;
    if (own_sum)
        for (int i = 0; i < rows; ++i)
            for (int j = 0; j < padded; ++j)
                sum[i * padded + dinfc_place<B::split>(j)] = j < N ? acc[i * acc_stride + j] : 0.0f;
    for (int k0 = 0; k0 < K; k0 += stretch) {
        const int length = K - k0 < stretch ? K - k0 : stretch;
        const int groups = length / G;
        const float* a_rows;
        long a_stride = stretch;
        if constexpr (decode_a) {
            for (int i = 0; i < rows; ++i)
                for (int k = 0; k < length; ++k)
                    rows_a[i * stretch + k] = A::format::one(a.base + i * a.stride, k0 + k);
            a_rows = rows_a;
        } else {
            a_rows = a.base + k0;
            a_stride = a.stride;
        }
        if constexpr (scaled) {
            for (int i = 0; i < rows; ++i)
                for (int g = 0; g < groups; ++g) scale_a[i * scale_groups + g] = sa.at(i, k0 / G + g);
            for (int g = 0; g < groups; ++g)
                for (int j = 0; j < padded; ++j)
                    scale_b[g * padded + dinfc_place<B::split>(j)] = j < N ? sb.at(j, k0 / G + g) : 0.0f;
        }
        for (int j0 = 0; j0 < padded; j0 += 16 * blocks)
            dinfc_columns<blocks, M, G, scaled>(total, total_stride, a_rows, a_stride, b, k0, groups, j0, scale_a,
                                                scale_groups, scale_b, padded, rows);
    }
    if (own_sum)
        for (int i = 0; i < rows; ++i)
            for (int j = 0; j < N; ++j) acc[i * acc_stride + j] = sum[i * padded + dinfc_place<B::split>(j)];
}

#endif
