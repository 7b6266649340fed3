"""Errors of the command line, and the one entry for defects of dinfc itself."""

from __future__ import annotations

from typing import Final

from dinfc.catalogue.entry import EXIT_INTERNAL, Entry

ENTRIES: Final[tuple[Entry, ...]] = (
    Entry("E-CLI-001", "bad command line", "{reason}", "see `dinfc {command}--help`"),
    Entry("E-CLI-002", "unknown error code", "there is no error code {code}", "{hint}"),
    Entry(
        "E-CLI-003",
        "bad size",
        "{option} is {value}; it must be a size such as 4096, 64MiB or 2GiB",
        "correct {option}",
    ),
    Entry("E-CLI-004", "file exists", "{path} exists already", "choose another name, or remove it first"),
    Entry("E-CLI-005", "file not found", "there is no file {path}", "correct the path"),
    Entry(
        "E-CLI-020",
        "pipeline text malformed",
        "{reason}",
        "write passes as NAME or NAME{{option=value,...}}, separated by commas",
    ),
    Entry("E-CLI-021", "unknown pass", "there is no pass {name}", "{hint}"),
    Entry("E-CLI-022", "bad pass option", "bad option of pass {name}: {reason}", "{hint}"),
    Entry(
        "E-INTERNAL-001",
        "internal error",
        "internal error: {reason}",
        "this is a defect of dinfc, not of your input; please report it with the folder {repro}",
        "The folder holds the command line, the files it named and the Python traceback.",
        exit_code=EXIT_INTERNAL,
    ),
)
