"""Pipeline text, `fuse{max_ops=4},verify`: parsed to pass objects, mistakes shown under the text with a caret."""
from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping

from dinfc.diagnostics import DinfcError, Place

from .base import Pass

_NAME = re.compile(r"[A-Za-z_]\w*")
_VALUE = re.compile(r"[^,{}=\s]+")
_SPACE = re.compile(r"\s*")


def parse_pipeline(text: str, known: Mapping[str, type[Pass]]) -> tuple[Pass, ...]:
    """The passes that `text` names, with their options. Raises DinfcError E-CLI-020 to E-CLI-022 with a caret."""
    return _Reader(text, known).pipeline()


def print_pipeline(passes: tuple[Pass, ...]) -> str:
    """Text that `parse_pipeline` reads back to equal passes."""
    return ",".join(str(p) for p in passes)


def closest(name: str, names: Mapping[str, object]) -> str:
    """A mend for an unknown name: the nearest one, or all of them."""
    near = difflib.get_close_matches(name, names, 1)
    return f"did you mean {near[0]}?" if near else f"use one of: {', '.join(sorted(names)) or '(none)'}"


class _Reader:
    def __init__(self, text: str, known: Mapping[str, type[Pass]]) -> None:
        self.text, self.known, self.at = text, known, 0

    def pipeline(self) -> tuple[Pass, ...]:
        passes = [self.one_pass()]
        while self.eat(","):
            passes.append(self.one_pass())
        if self.at < len(self.text):
            raise self.error("E-CLI-020", self.at, reason=f"unexpected {self.text[self.at]!r}")
        return tuple(passes)

    def one_pass(self) -> Pass:
        name, at = self.token(_NAME, "a pass name")
        if name not in self.known:
            raise self.error("E-CLI-021", at, name=name, hint=closest(name, self.known))
        cls = self.known[name]
        options: dict[str, int | bool | str] = {}
        if self.eat("{"):
            while not self.eat("}"):
                if options and not self.eat(","):
                    raise self.error("E-CLI-020", self.at, reason="expected ',' or '}'")
                key, value = self.option(cls)
                options[key] = value
        return cls(**options)

    def option(self, cls: type[Pass]) -> tuple[str, int | bool | str]:
        """One `name=value`; the field's default says whether it is an integer, a truth value or text."""
        name, at = self.token(_NAME, "an option name")
        fields: dict[str, dataclasses.Field[object]] = {f.name: f for f in dataclasses.fields(cls)}
        if name not in fields:
            raise self.error("E-CLI-022", at, name=cls.name, reason=f"there is no option {name}",
                             hint=closest(name, fields))
        if not self.eat("="):
            raise self.error("E-CLI-020", self.at, reason=f"expected '=' after option {name}")
        value, at = self.token(_VALUE, f"a value for {name}")
        default = fields[name].default
        if isinstance(default, bool):
            if value not in ("true", "false"):
                raise self.error("E-CLI-022", at, name=cls.name, reason=f"{name} is {value}", hint="use true or false")
            return name, value == "true"
        if isinstance(default, int):
            if not re.fullmatch(r"-?\d+", value):
                raise self.error("E-CLI-022", at, name=cls.name, reason=f"{name} is {value}", hint="use an integer")
            return name, int(value)
        return name, value

    def token(self, pattern: re.Pattern[str], wanted: str) -> tuple[str, int]:
        self.skip()
        match = pattern.match(self.text, self.at)
        if match is None:
            raise self.error("E-CLI-020", self.at, reason=f"expected {wanted}")
        self.at = match.end()
        self.skip()
        return match[0], match.start()

    def eat(self, symbol: str) -> bool:
        self.skip()
        found = self.text.startswith(symbol, self.at)
        if found:
            self.at += len(symbol)
            self.skip()
        return found

    def skip(self) -> None:
        match = _SPACE.match(self.text, self.at)
        assert match is not None
        self.at = match.end()

    def error(self, code: str, at: int, **fields: object) -> DinfcError:
        return DinfcError(code, place=Place("--pipeline", None, f"{self.text}\n{' ' * at}^"), **fields)
