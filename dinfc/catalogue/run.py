"""Errors of a running package. The package carries them as JSON (`runtime_slice`)."""

from __future__ import annotations

from typing import Final

from dinfc.catalogue.entry import EXIT_INTERNAL, EXIT_UNSUPPORTED, Entry

ENTRIES: Final[tuple[Entry, ...]] = (
    Entry("E-RUN-001", "prompt empty", "the prompt{which} has no tokens", "give at least one character or one id"),
    Entry(
        "E-RUN-002",
        "prompt too long",
        "the prompt{which} has {length} tokens and {new} more are wanted; the package was compiled for {limit}",
        "shorten the prompt, lower --max-tokens, or compile with a larger limits.max_len",
    ),
    Entry(
        "E-RUN-003",
        "id outside the vocabulary",
        "token id {id} at position {position}{which} is not in [0, {vocab})",
        "use ids of this model's tokenizer",
    ),
    Entry(
        "E-RUN-004",
        "no tokenizer",
        "{path} has no tokenizer.json, so text cannot be read",
        "give token ids with --ids, or put the model's tokenizer.json into the checkpoint folder",
    ),
    Entry(
        "E-RUN-005",
        "CPU features lacking",
        "this machine lacks {features}, which the package was compiled for",
        "compile again with --cpu-isa {hint}, or use another machine",
        exit_code=EXIT_UNSUPPORTED,
    ),
    Entry(
        "E-RUN-006",
        "bad ids file",
        "{path} is no list of token id lists: {reason}",
        "the file must be JSON such as [[1, 5, 7], [2, 9]]",
    ),
    Entry("E-RUN-007", "output exists", "{path} exists already", "choose another name, or remove it first"),
    Entry("E-RUN-008", "file not found", "there is no file {path}", "correct the path"),
    Entry("E-RUN-009", "bad option value", "{option} is {value}; it must be {expected}", "correct {option}"),
    Entry(
        "E-RUN-010",
        "options exclude one another",
        "{first} and {second} cannot be given together",
        "leave one of them out",
    ),
    Entry("E-RUN-011", "option missing", "{option} is missing", "give {option}: {expected}"),
    Entry(
        "E-RUN-012",
        "not enough memory",
        "{what} needs {needed}; {available} are available",
        "compile with smaller limits or a smaller cache.memory_fraction",
    ),
    Entry(
        "E-RUN-013",
        "kernel library does not load",
        "{path} cannot be loaded: {reason}",
        "compile the package again on this machine, or run build.sh in kernels/src",
    ),
    Entry(
        "E-RUN-014",
        "a check of the checked build failed",
        "kernel {kernel} ({origin}): {reason}",
        "this is a defect of the compiler; report it with the message and the input",
        exit_code=EXIT_INTERNAL,
    ),
    Entry(
        "E-RUN-015",
        "logits are not numbers",
        "the logits behind position {position} hold NaN",
        "the weights hold NaN or infinities, or are not those of this model",
    ),
    Entry("E-RUN-016", "cannot write", "cannot write {path}: {reason}", "give another place with {option}"),
    Entry("E-RUN-017", "bad command line", "{reason}", "see `python PACKAGE {command}--help`"),
    Entry(
        "E-RUN-018",
        "no checked build",
        "{path} has no checked kernel library",
        "compile with --checked, or leave out --checked here",
    ),
    Entry(
        "E-RUN-019",
        "launcher refused the step",
        "the kernel library refused a step of {rows} rows: {reason}",
        "this is a defect of the package; report it",
        exit_code=EXIT_INTERNAL,
    ),
    Entry(
        "E-RUN-020",
        "self test failed",
        "{what} gave other bits than {reference}: {detail}",
        "do not use this package on this machine; report it",
        exit_code=EXIT_INTERNAL,
    ),
)
