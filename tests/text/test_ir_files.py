"""Every IR file beside this one: its passes must give the text that it expects, or refuse it as it says."""
from __future__ import annotations

from pathlib import Path

import pytest

from dinfc.diagnostics import DinfcError
from dinfc.ir.graph import IRError
from dinfc.ir.parse import parse_module
from dinfc.ir.text import print_module
from support.ir_cases import SYMBOLS, read_case, run_case

FILES = sorted(Path(__file__).parent.glob("*.ir"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_passes_give_the_expected_text(path: Path) -> None:
    case = read_case(path)
    if not case.errors:
        assert run_case(case) == case.expected, "if this is right, run python tests/text/accept.py"
        return
    with pytest.raises((DinfcError, IRError)) as raised:
        run_case(case)
    for text in case.errors:
        assert text in str(raised.value)


@pytest.mark.parametrize("path", [p for p in FILES if not read_case(p).errors], ids=lambda p: p.stem)
def test_output_can_be_read_back(path: Path) -> None:
    text = SYMBOLS + read_case(path).expected
    assert print_module(parse_module(text)).replace("\n\n", "\n") == text.replace("\n\n", "\n")
