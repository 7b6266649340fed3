"""All source files of a kernel library: headers, kernels in a fixed number of translation units, the error record."""
from __future__ import annotations

from collections.abc import Sequence

from dinfc.ir.tile.program import Program

from .cpu import emit_kernel, emit_source, uses_products
from .cpu_preamble import PREAMBLE, support_files

# Kernels are dealt to so many files, whatever machine compiles them: bytes must not depend on its cores. More files
# than cores let few cores share the work evenly and keep a change of one kernel from recompiling all.
UNITS = 8

ERROR_UNIT = f"""// The first failed check of a checked build (none in a fast build).
#include "{PREAMBLE}"

static char message[512];
static int taken;

extern "C" void dinfc_fail(const char* kernel, const char* statement, const char* what, int64_t index,
                           int64_t extent) {{
    if (__atomic_exchange_n(&taken, 1, __ATOMIC_SEQ_CST) != 0) return;
    char* out = message;
    char* const end = message + sizeof message - 48;
    const char* const parts[] = {{kernel, ": ", what, " ", nullptr, " of ", nullptr, " in: ", statement}};
    int64_t numbers[] = {{index, extent}};
    int number = 0;
    for (const char* part : parts) {{
        if (part != nullptr) {{
            while (*part != 0 && out < end) *out++ = *part++;
            continue;
        }}
        int64_t value = numbers[number++];
        if (value < 0) *out++ = '-';
        uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
        char digits[24];
        int count = 0;
        do digits[count++] = (char)('0' + size % 10); while ((size /= 10) != 0);
        while (count > 0) *out++ = digits[--count];
    }}
    *out = 0;
}}

extern "C" __attribute__((visibility("default"))) const char* dinfc_last_error() {{ return taken ? message : nullptr; }}
extern "C" __attribute__((visibility("default"))) void dinfc_clear_error() {{ taken = 0; }}
"""


def library_sources(programs: Sequence[Program], checked: bool = False) -> dict[str, str]:
    """File name -> text. Kernels are dealt by falling length to the unit with the least text so far."""
    texts = {p.name: emit_kernel(p, checked) for p in programs}
    if len(texts) != len(programs):
        raise ValueError("two kernels of one library have the same name")
    count = max(1, min(UNITS, len(programs)))
    groups: list[list[Program]] = [[] for _ in range(count)]
    sizes = [0] * count
    for p in sorted(programs, key=lambda p: (-len(texts[p.name]), p.name)):
        least = sizes.index(min(sizes))
        groups[least].append(p)
        sizes[least] += len(texts[p.name]) + 2000 * uses_products(p)  # product templates are longer than they look
    files = {f"kernels_{i}.cc": emit_source(g, checked) for i, g in enumerate(groups) if g}
    return {**support_files(), **files, "errors.cc": ERROR_UNIT}
