// The checked build: indices, reads of scratch elements, bounds of stored integers, divisors and casts are tested.
#ifndef DINFC_CHECKED_H
#define DINFC_CHECKED_H
#include "dinfc.h"

// Records the first failure of the library (dinfc_last_error); the kernel then returns.
extern "C" void dinfc_fail(const char* kernel, const char* statement, const char* what, int64_t index, int64_t extent);
extern "C" const char* dinfc_last_error();

// All are used inside a kernel only: `kernel` and `statement` are its variables, `return` leaves it.
#define DINFC_INDEX(index, extent, buffer) ({ \
        const int64_t dinfc_i = (index), dinfc_n = (extent); \
        if (dinfc_i < 0 || dinfc_i >= dinfc_n) { \
            dinfc_fail(kernel, statement, "index of " buffer " is out of range:", dinfc_i, dinfc_n); \
            return; \
        } \
        dinfc_i; })
#define DINFC_READ(at, written, buffer) ({ \
        const int64_t dinfc_o = (at); \
        if (written[dinfc_o] == 0) { \
            dinfc_fail(kernel, statement, "uninitialised read of " buffer ": element", dinfc_o, sizeof written); \
            return; \
        } \
        dinfc_o; })
#define DINFC_WRITE(at, written) ({ const int64_t dinfc_o = (at); written[dinfc_o] = 1; dinfc_o; })

// A stored integer within the bounds that its buffer declares.
#define DINFC_BOUND(value, low, high, buffer) ({ \
        const auto dinfc_v = (value); \
        if ((int64_t)dinfc_v < (int64_t)(low) || (int64_t)dinfc_v >= (int64_t)(high)) { \
            dinfc_fail(kernel, statement, "value out of the bounds of " buffer ":", (int64_t)dinfc_v, (int64_t)(high)); \
            return; \
        } \
        dinfc_v; })
#define DINFC_DIVISOR(value) ({ \
        const auto dinfc_v = (value); \
        if (dinfc_v == 0) { \
            dinfc_fail(kernel, statement, "division by zero:", 0, 0); \
            return; \
        } \
        dinfc_v; })
// Casts to an integer keep the value; of a float, its integral part.
#define DINFC_CONVERT(type, value) ({ \
        const auto dinfc_v = (value); \
        if ((int64_t)(type)dinfc_v != (int64_t)dinfc_v) { \
            dinfc_fail(kernel, statement, "cast to " #type " loses", (int64_t)dinfc_v, (int64_t)(type)dinfc_v); \
            return; \
        } \
        (type)dinfc_v; })
#define DINFC_TRUNCATE(type, value) ({ \
        const float dinfc_v = (value); \
        if (!(dinfc_v > -9.2e18f && dinfc_v < 9.2e18f) || (int64_t)(type)(int64_t)dinfc_v != (int64_t)dinfc_v) { \
            dinfc_fail(kernel, statement, "cast of a float to " #type " overflows, bits", \
                       __builtin_bit_cast(int32_t, dinfc_v), 0); \
            return; \
        } \
        (type)(int64_t)dinfc_v; })

#endif
