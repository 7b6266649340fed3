// Helpers of the scalar expression language that are no functions of the function set.

template <class V> static inline __attribute__((always_inline)) V dinfc_min(V a, V b) { return a < b ? a : b; }
template <class V> static inline __attribute__((always_inline)) V dinfc_max(V a, V b) { return a > b ? a : b; }
template <class V> static inline __attribute__((always_inline)) V dinfc_abs(V a) { return a < 0 ? -a : a; }

// Floored division and remainder (C++ truncates).
template <class V> static inline __attribute__((always_inline)) V dinfc_idiv(V a, V b) {
    const V quotient = a / b;
    return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}
template <class V> static inline __attribute__((always_inline)) V dinfc_mod(V a, V b) {
    const V rest = a % b;
    return (rest != 0 && (rest < 0) != (b < 0)) ? rest + b : rest;
}

// bf16 in memory is the upper half of a float; dinfc_store_bf16 takes a value that is already rounded.
static inline __attribute__((always_inline)) float dinfc_load_bf16(uint16_t half) {
    return __builtin_bit_cast(float, (uint32_t)half << 16);
}
static inline __attribute__((always_inline)) uint16_t dinfc_store_bf16(float x) {
    return (uint16_t)(__builtin_bit_cast(uint32_t, x) >> 16);
}

// Round to nearest, denormals kept, whatever the host program has set on this thread; restored afterwards.
struct dinfc_fp_mode {
    unsigned saved;
    dinfc_fp_mode() : saved(__builtin_ia32_stmxcsr()) {
        if ((saved & 0xE040u) != 0) __builtin_ia32_ldmxcsr(saved & ~0xE040u);
    }
    ~dinfc_fp_mode() {
        if ((saved & 0xE040u) != 0) __builtin_ia32_ldmxcsr(saved);
    }
};
