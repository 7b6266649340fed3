"""One row of the error catalogue, and the areas that codes belong to."""

from __future__ import annotations

import re
import string
from dataclasses import dataclass

AREAS = {
    "YAML": "model.yaml: syntax, schema, combinations of keys",
    "CONFIG": "config.json: fields, required values, validity rules of the model",
    "CKPT": "checkpoint: tensors, shards, tokenizer files",
    "IR": "tensor IR: text, types, verifier",
    "TILE": "tile IR: text, bounds, races, capacity",
    "PLAN": "plan and package: version, hashes, memory",
    "BUILD": "writing and building a package",
    "TARGET": "what a target cannot do",
    "RUN": "running a package",
    "CLI": "command line",
    "INTERNAL": "defects of dinfc itself",
}
EXIT_USER, EXIT_INTERNAL, EXIT_UNSUPPORTED = 1, 2, 3

_CODE = re.compile(r"E-([A-Z]+)-(\d{3})")


@dataclass(frozen=True)
class Entry:
    """One kind of error.

    `message` and `mend` are `str.format` templates in the user's terms; their replacement fields are the keyword
    arguments of `DinfcError`. `why` is the longer explanation that `dinfc explain CODE` prints. `exit_code` is
    1 (the user's input), 2 (a defect of dinfc) or 3 (not supported on this target).

    Raises ValueError for a malformed code, an unknown area or an unknown exit code.
    """

    code: str
    title: str
    message: str
    mend: str
    why: str = ""
    exit_code: int = EXIT_USER

    def __post_init__(self) -> None:
        match = _CODE.fullmatch(self.code)
        if match is None or match[1] not in AREAS:
            raise ValueError(f"bad error code {self.code!r}: E-AREA-NNN with AREA one of {', '.join(AREAS)}")
        if self.exit_code not in (EXIT_USER, EXIT_INTERNAL, EXIT_UNSUPPORTED):
            raise ValueError(f"{self.code}: exit code {self.exit_code} is not 1, 2 or 3")

    @property
    def area(self) -> str:
        """The AREA part of the code."""
        return self.code.split("-")[1]

    @property
    def fields(self) -> frozenset[str]:
        """Names that `DinfcError` must be given for this entry."""
        names = {name for text in (self.message, self.mend) for _, name, _, _ in string.Formatter().parse(text) if name}
        return frozenset(names)
