// The checked build: every index, and every read of a scratch element, is tested before memory is touched.
#ifndef DINFC_CHECKED_H
#define DINFC_CHECKED_H
#include "dinfc.h"

// Records the first failure of the library (dinfc_last_error); the kernel then returns.
extern "C" void dinfc_fail(const char* kernel, const char* statement, const char* what, int64_t index, int64_t extent);
extern "C" const char* dinfc_last_error();

// Both are used inside a kernel only: `kernel` and `statement` are its variables, `return` leaves it.
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

#endif
