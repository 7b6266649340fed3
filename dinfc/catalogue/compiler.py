"""Errors of the compiler: IR, TILE, PLAN, BUILD, TARGET."""

from __future__ import annotations

from typing import Final

from dinfc.catalogue.entry import EXIT_INTERNAL, EXIT_UNSUPPORTED, Entry

ENTRIES: Final[tuple[Entry, ...]] = (
    Entry(
        "E-PLAN-001",
        "plan of another version",
        "this package's plan has version {found}; the runtime reads {expected}",
        "compile the package again with the dinfc that belongs to this runtime",
    ),
    Entry(
        "E-PLAN-002",
        "package damaged",
        "{path} does not match the hash in plan.json",
        "compile the package again, or copy it again",
        "Every kernel library and table is hashed when it is written, so a package runs as compiled or not at all.",
    ),
    Entry(
        "E-PLAN-003",
        "not a package",
        "{path} is no dinfc package: {reason}",
        "give the folder that `dinfc compile -o` wrote",
    ),
    Entry(
        "E-PLAN-004",
        "kernels not built",
        "this package holds sources but no kernel library",
        "run build.sh in {path} on a machine with g++, then start it again",
    ),
    Entry(
        "E-BUILD-001",
        "no C++ compiler",
        "no C++ compiler found (looked for: {looked})",
        "install g++, or give --no-build to write the sources and build.sh only",
    ),
    Entry(
        "E-BUILD-002",
        "output directory not empty",
        "{path} exists and is not empty",
        "choose another directory with -o, or remove it first",
    ),
    Entry(
        "E-BUILD-003", "output is no directory", "{path} exists and is not a directory", "choose another path with -o"
    ),
    Entry("E-BUILD-004", "output not writable", "cannot write {path}: {reason}", "choose another path with -o"),
    Entry(
        "E-BUILD-005",
        "kernels do not compile",
        "the generated kernels were refused ({kind}): {reason}",
        "this is a defect of the compiler or of the C++ compiler; report it with the message",
        exit_code=EXIT_INTERNAL,
    ),
    Entry("E-TARGET-001", "unknown target", "there is no target {target}; known: {known}", "{hint}"),
    Entry(
        "E-TARGET-002", "unknown CPU instruction set", "--cpu-isa is {value}; known: avx2, avx512", "use avx2 or avx512"
    ),
    Entry(
        "E-TARGET-003",
        "CPU too old",
        "this machine has neither AVX2 with FMA nor AVX-512",
        "compile for another machine with --cpu-isa",
        exit_code=EXIT_UNSUPPORTED,
    ),
    Entry(
        "E-TILE-001",
        "tile program refused",
        "kernel {kernel}: {reason}",
        "this is a defect of a schedule: what the caret points at is wrong, or cannot be proven",
        "Every kernel is checked before it is emitted: indices, initialisation, races and the capacity of memory.",
        exit_code=EXIT_INTERNAL,
    ),
    Entry("E-IR-001", "IR text malformed", "{reason}", "correct the text; docs/ir.md shows the grammar by example"),
    Entry("E-IR-002", "IR refused", "{reason}", "correct the op that the caret points at"),
    Entry(
        "E-IR-020",
        "module is not lowered far enough",
        "pass {name} needs a module that is {level}: {reason}",
        "run the passes before it first: {before}",
    ),
    Entry(
        "E-IR-021",
        "state used in a circle",
        "%{state} would have to be read after it was overwritten: {op} depends on its own successor",
        "read the version of the state that the write returned, or make the write depend on the reader",
        "A state is one buffer; every reader of a version runs before the write that makes the next one.",
    ),
    Entry(
        "E-IR-022",
        "a pass broke its promise",
        "after pass {name} the module is not {level}: {reason}",
        "this is a defect of the pass; look at its output with --print-after {name}",
        exit_code=EXIT_INTERNAL,
    ),
    Entry(
        "E-IR-023",
        "reduction order changed",
        "pass {name} changed the order of a reduction: {reason}",
        "this is a defect of the pass: orders are set by pin_reductions alone",
        "A request's bits are the same in every batch only if nothing but the target fixes the order of its sums.",
        exit_code=EXIT_INTERNAL,
    ),
    Entry(
        "E-PLAN-010",
        "kernels of a chunk loop are not together",
        "%{value} holds the scores of a few rows only, but other kernels must run between those that use it",
        "make what the scores' consumers need before index_score, and use their results after the topk",
        "Scores are computed, reduced and selected in chunks of rows within limits.score_bytes (design section 4a).",
    ),
    Entry(
        "E-PLAN-011",
        "chunked value leaves its loop",
        "%{value} holds the scores of a few rows only, but {op} uses it: {reason}",
        "let index scores reach a topk through row-wise ops of the same rows only",
    ),
    Entry(
        "E-PLAN-012",
        "entry parameter has no source",
        "nothing provides %{param}",
        "a parameter of an entry is a state, a weight (a name with a dot), a step input, or a result of prepare",
    ),
    Entry(
        "E-PLAN-013",
        "two storage layouts for one weight",
        "weight {weight} is wanted as {first} by {first_use} and as {second} by {second_use}",
        "name the weight twice in the model, once for each use",
    ),
    Entry(
        "E-PLAN-014",
        "weight recipe does not fit",
        "weight {weight}: {reason}",
        "correct the recipe: its parts fill the slot's rows in order, each on whole storage blocks",
    ),
    Entry(
        "E-TARGET-009",
        "target not usable here",
        "target {target} has no schedules for whole models",
        "use one of: {known}",
        exit_code=EXIT_UNSUPPORTED,
    ),
    Entry(
        "E-TARGET-010",
        "no schedule for a kernel class",
        "target {target} has no schedule of class {anchor} (wanted by {region}); it has: {known}",
        "compile for another target",
        exit_code=EXIT_UNSUPPORTED,
    ),
    Entry(
        "E-TARGET-011",
        "target cannot run a kernel",
        "target {target} cannot run {region}: {reason}",
        "compile for another target, or change the sizes that the message names",
        exit_code=EXIT_UNSUPPORTED,
    ),
)
