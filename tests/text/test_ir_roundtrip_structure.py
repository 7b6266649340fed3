"""Text carries the whole module: what is parsed has the same ops, attributes, types and places as what was printed."""
from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import pytest

from dinfc.frontend.deepseek_v41 import build_model
from dinfc.ir.graph import Attr, Function, IRError, Module
from dinfc.ir.parse import parse_function, parse_module
from dinfc.ir.text import print_function, print_module
from dinfc.ir.types import Limits
from dinfc.ir.verify import verify_module
from frontend_support import REPOSITORY, example_config

EXAMPLES = ("tiny", "tiny-test", "production-shape", "v41-flash")


@lru_cache(maxsize=4)
def model(example: str) -> Module:
    return build_model(example_config(example), Limits(8, 256, 4096, 2**20, (8, 256)), "fp4").module


def facts(function: Function) -> Iterator[tuple[object, ...]]:
    """Everything that a function holds, regions included, without the identity of its objects."""
    yield function.name, [(p.name, p.type) for p in function.params]
    for op in function.ops:
        attrs: list[tuple[str, Attr]] = sorted(op.attrs.items(), key=lambda item: item[0])
        yield (op.kind, [v.name for v in op.operands], attrs, [(r.name, r.type) for r in op.results], op.loc,
               all(r.producer is op for r in op.results))
        for region in op.regions:
            yield from facts(region)
    yield tuple(r.name for r in function.results)


@pytest.mark.parametrize("example", EXAMPLES)
def test_nothing_is_lost_with_locations(example: str) -> None:
    module = model(example)
    again = parse_module(print_module(module, locations=True))
    assert (again.symbols, again.info) == (module.symbols, module.info)
    assert {n: c.type for n, c in again.constants.items()} == {n: c.type for n, c in module.constants.items()}
    assert list(again.functions) == list(module.functions)
    for name, function in module.functions.items():
        for have, want in zip(facts(again.functions[name]), facts(function), strict=True):
            assert have == want


@pytest.mark.parametrize("example", EXAMPLES)
def test_each_function_stands_alone(example: str) -> None:
    for function in model(example).functions.values():
        text = print_function(function)
        assert print_function(parse_function(text)) == text


def test_a_table_is_not_part_of_the_text() -> None:
    module = parse_module(print_module(model("tiny-test")))
    with pytest.raises(IRError, match="pass its values to parse_module"):
        module.constants["rope_window"].make()


def test_the_text_shown_in_the_documentation_is_what_the_printer_gives() -> None:
    document = (REPOSITORY / "docs" / "ir.md").read_text(encoding="utf-8")
    shown = [block for block in re.findall(r"```\n(.*?)```", document, re.DOTALL) if block.startswith("symbol")]
    assert shown
    for text in shown:
        module = parse_module(text)
        verify_module(module)
        assert print_module(module) == text
