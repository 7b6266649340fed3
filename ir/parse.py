"""Parser of tensor IR text (grammar by example in `ir/text.py`): print -> parse gives an equal module.

Types are taken as written: whether they are right is the verifier's business, so that it can show a mistake in its
place.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .graph import Attr, Constant, Function, IRError, Module, Op, Value
from .parse_reader import NAME, ParseError, Reader
from .scalar import Expr
from .scalar_text import ScalarEnv, ScalarSyntaxError, parse_prefix
from .types import Symbol, TensorType, Type

__all__ = ["ParseError", "parse_function", "parse_module", "parse_type"]

Table = Callable[[], Sequence[float] | Sequence[int]]
Scope = dict[str, Value]


def parse_module(text: str, tables: Mapping[str, Table] | None = None) -> Module:
    """The module that a text describes.

    `tables`: makers of the constants' values by name, since tables are derived from the configuration and not part of
    the text; using a constant without one raises IRError when its values are asked for. Raises ParseError.
    """
    reader, module = Reader(text), Module()
    while not reader.done():
        if reader.accept("symbol"):
            _symbol(reader, module)
        elif reader.accept("constant"):
            _constant(reader, module, tables or {})
        elif reader.accept("info"):
            key = reader.match(NAME, "a name")
            reader.expect("=")
            value = reader.attr()
            if isinstance(value, bool) or not isinstance(value, int | str):
                reader.fail("an info is an integer or a text")
            module.info[key] = value
        elif reader.accept("func"):
            start = reader.at
            function = _function(reader)
            if function.name in module.functions:
                reader.fail(f"function @{function.name} is defined twice", start)
            module.functions[function.name] = function
        else:
            reader.fail("expected 'symbol', 'constant', 'info' or 'func'")
    return module


def parse_function(text: str) -> Function:
    """The one function of a text. Raises ParseError."""
    reader = Reader(text)
    reader.expect("func")
    function = _function(reader)
    if not reader.done():
        reader.fail("unexpected text after the function")
    return function


def parse_type(text: str) -> Type:
    """A tensor or state type from its text. Raises ParseError."""
    reader = Reader(text)
    result = reader.type()
    if not reader.done():
        reader.fail("unexpected text after the type")
    return result


def _symbol(reader: Reader, module: Module) -> None:
    start = reader.at
    name = reader.match(NAME, "a symbol name")
    reader.expect("in")
    reader.expect("[")
    low = reader.integer()
    reader.expect(",")
    high = reader.integer()
    reader.expect("]")
    divisor = reader.integer() if reader.accept("divisor") else 1
    if name in module.symbols:
        reader.fail(f"symbol {name} is declared twice", start)
    module.symbols[name] = Symbol(name, low, high, divisor)


def _constant(reader: Reader, module: Module, tables: Mapping[str, Table]) -> None:
    start = reader.at
    name = reader.function_name()
    reader.expect(":")
    type_ = reader.type()
    if not isinstance(type_, TensorType):
        reader.fail("a constant is a tensor", start)
    if name in module.constants:
        reader.fail(f"constant @{name} is declared twice", start)
    module.constants[name] = Constant(name, type_, tables.get(name, _missing(name)))


def _missing(name: str) -> Table:
    def make() -> Sequence[float]:
        raise IRError(f"constant @{name} was read from text without a table: pass its values to parse_module")

    return make


def _function(reader: Reader) -> Function:
    """Behind `func`."""
    name = reader.function_name()
    params, scope = _params(reader)
    reader.expect("->")
    reader.expect("(")
    types = _types(reader) if not reader.peek(")") else []
    at = reader.at
    reader.expect(")")
    function = Function(name, params)
    _body(reader, function, scope)
    have = [r.type for r in function.results]
    if have != types:
        reader.fail(f"@{name} declares results ({', '.join(map(str, types))}) and returns "
                    f"({', '.join(map(str, have))})", at)
    return function


def _params(reader: Reader) -> tuple[list[Value], Scope]:
    scope: Scope = {}
    params: list[Value] = []
    reader.expect("(")
    while not reader.accept(")"):
        start = reader.at
        name = reader.value_name()
        reader.expect(":")
        params.append(_define(reader, scope, name, reader.type(), start))
        if not reader.accept(","):
            reader.expect(")")
            break
    return params, scope


def _define(reader: Reader, scope: Scope, name: str, type_: Type, at: int) -> Value:
    if name in scope:
        reader.fail(f"%{name} is defined twice", at)
    scope[name] = Value(name, type_)
    return scope[name]


def _types(reader: Reader) -> list[Type]:
    out = [reader.type()]
    while reader.accept(","):
        out.append(reader.type())
    return out


def _use(reader: Reader, scope: Scope) -> Value:
    start = reader.at
    name = reader.value_name()
    if name not in scope:
        reader.fail(f"%{name} is not defined here", start)
    return scope[name]


def _body(reader: Reader, function: Function, scope: Scope) -> None:
    """`{ statements return values }`."""
    reader.expect("{")
    while not reader.accept("return"):
        if reader.done() or reader.peek("}"):
            reader.fail("expected 'return'")
        function.ops.append(_statement(reader, scope))
    while reader.peek("%"):
        function.results.append(_use(reader, scope))
        if not reader.accept(","):
            break
    reader.expect("}")


def _statement(reader: Reader, scope: Scope) -> Op:
    names: list[tuple[str, int]] = []
    while reader.peek("%"):
        start = reader.at
        names.append((reader.value_name(), start))
        if not reader.accept(","):
            break
    if names:
        reader.expect("=")
    kind = reader.match(NAME, "an op")
    operands: list[Value] = []
    reader.expect("(")
    while not reader.accept(")"):
        operands.append(_use(reader, scope))
        if not reader.accept(","):
            reader.expect(")")
            break
    op = Op(kind, operands, _attrs(reader, operands))
    if names:
        at = reader.at
        reader.expect(":")
        types = _types(reader)
        if len(types) != len(names):
            reader.fail(f"{len(names)} results, but {len(types)} types", at)
        op.results = [_define(reader, scope, n, t, at) for (n, at), t in zip(names, types, strict=True)]
    for result in op.results:
        result.producer = op
    if reader.accept("loc"):
        op.loc = reader.string()
    while reader.accept("do"):
        body = Function(reader.function_name(), [])
        body.params, inner = _params(reader)
        _body(reader, body, inner)
        op.regions.append(body)
    return op


def _attrs(reader: Reader, operands: list[Value]) -> dict[str, Attr]:
    attrs: dict[str, Attr] = {}
    if not reader.accept("{"):
        return attrs
    while not reader.accept("}"):
        start = reader.at
        name = reader.match(NAME, "an attribute")
        if name in attrs:
            reader.fail(f"attribute '{name}' is given twice", start)
        if reader.accept(":="):
            attrs[name] = _expression(reader, operands)
        else:
            reader.expect("=")
            attrs[name] = reader.attr()
        if not reader.accept(","):
            reader.expect("}")
            break
    return attrs


def _expression(reader: Reader, operands: list[Value]) -> Expr:
    dtypes = {n: v.type.elem for n, v in enumerate(operands) if isinstance(v.type, TensorType)}
    try:
        node, end = parse_prefix(reader.text, reader.at, ScalarEnv(args=dtypes))
    except ScalarSyntaxError as error:
        reader.fail(error.message, error.position)
    reader.at = end
    reader.skip()
    return node
