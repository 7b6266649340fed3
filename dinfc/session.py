"""What the global options of the command line set, and how commands tell of their progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal


@dataclass
class Session:
    """One run of the command line; commands get it by `@click.pass_obj`.

    `verbosity` is -1 (-q), 0 or 1 (-v). Results go to stdout; progress goes to stderr, and unless -v is given only
    when that is a terminal.
    """

    verbosity: int = 0
    diagnostics: Literal["text", "json"] = "text"

    @property
    def shows_progress(self) -> bool:
        """Whether `say` and `phase` print."""
        return self.verbosity > 0 or (self.verbosity == 0 and sys.stderr.isatty())

    def say(self, text: str) -> None:
        """A line of progress."""
        if self.shows_progress:
            print(text, file=sys.stderr, flush=True)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Names a phase of work and tells its time when it is done; silent about one that raises."""
        start = time.perf_counter()
        yield
        self.say(f"{name:<24} {time.perf_counter() - start:8.2f} s")
