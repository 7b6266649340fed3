"""The error catalogue: every raised code exists and is given the fields that its text needs."""

from __future__ import annotations

import ast
import io
import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from dinfc.catalogue import AREAS, CATALOGUE, Entry, explain, runtime_slice
from dinfc.diagnostics import DinfcError, Place, render_json, render_text, report, wants_color
from frontend_support import REPOSITORY

FOLDERS = ("frontend", "ir", "passes", "codegen", "targets", "dinfc")


def _raised() -> Iterator[tuple[Path, ast.Call]]:
    for folder in FOLDERS:
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "DinfcError" and node.args:
                    yield path, node


def test_every_raised_code_is_in_the_catalogue_with_all_its_fields() -> None:
    seen = 0
    for path, call in _raised():
        where = f"{path}:{call.lineno}"
        if not isinstance(call.args[0], ast.Constant):
            continue  # the code is computed; the tests of that rule cover it
        code = str(call.args[0].value)
        assert code in CATALOGUE, f"{where}: {code} is not in the catalogue"
        given = {keyword.arg for keyword in call.keywords}
        if None not in given:
            assert CATALOGUE[code].fields <= given, f"{where}: {code} lacks {CATALOGUE[code].fields - given}"
        seen += 1
    assert seen > 40


def test_every_entry_can_be_explained_and_has_a_mend() -> None:
    for code, entry in CATALOGUE.items():
        assert code in explain(code)
        assert entry.title and entry.message and entry.mend
        assert not entry.title.endswith("."), code


def test_the_runtime_gets_exactly_its_areas_and_they_survive_json() -> None:
    part = json.loads(json.dumps(runtime_slice()))
    assert {code.split("-")[1] for code in part} == {"RUN", "CKPT", "PLAN"}
    assert part["E-RUN-001"]["exit_code"] == 1
    assert set(part) == {code for code, e in CATALOGUE.items() if e.area in ("RUN", "CKPT", "PLAN")}


@pytest.mark.parametrize("code", ["E-NOPE-001", "E-YAML-1", "YAML-001", "E-YAML-0001"])
def test_a_malformed_code_cannot_enter_the_catalogue(code: str) -> None:
    with pytest.raises(ValueError, match="error code"):
        Entry(code, "t", "m", "f")
    assert "YAML" in AREAS


def test_text_shows_code_cause_place_and_mend() -> None:
    error = DinfcError("E-YAML-005", place=Place("m.yaml", 7, "%x = f()\n     ^"), key="limits")
    lines = render_text(error).split("\n")
    assert lines[0] == "E-YAML-005: key limits is given twice"
    assert "m.yaml:7" in lines[1]
    assert lines[2:4] == ["    %x = f()", "         ^"]
    assert "remove one of the two" in lines[4]


def test_json_holds_the_same_as_the_text() -> None:
    record = json.loads(render_json(DinfcError("E-YAML-005", place=Place("m.yaml", 7), key="limits")))
    assert (record["code"], record["area"], record["file"], record["line"]) == ("E-YAML-005", "YAML", "m.yaml", 7)
    assert record["fields"] == {"key": "limits"} and record["exit_code"] == 1 and record["mend"]


def test_no_colour_outside_a_terminal_or_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert wants_color(Terminal()) and not wants_color(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    report(DinfcError("E-YAML-005", key="x"), stream=stream)
    assert "\x1b" not in stream.getvalue()


def test_an_error_of_a_worker_process_comes_back_whole() -> None:
    error = DinfcError("E-YAML-005", place=Place("m.yaml", 7), key="limits")
    back = pickle.loads(pickle.dumps(error))
    assert render_text(back) == render_text(error)
