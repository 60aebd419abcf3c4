"""Symbolic sizes as graph nodes and as Python.

In: `torch.SymInt`s of one shape environment. Out: nodes that compute the same number when the graph
runs; functions from the symbols' values to a structure with numbers in it.
Invariant: an expression that neither can say raises `NotYetSymbolic`; a symbol is never replaced by
the value it has in this compile.

Symbolic operations: what expressions over sizes are made of. In: the name that sympy or torch has
for a class of expressions. Out: what it computes, what a node of a graph calls for it, how Python
spells it. Invariant: plain Python, so that conditions on sizes can be checked without torch and
without sympy.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from typing import Any

import torch
from torch import fx

from flambeau_aot._torch_compat import (
    FakeTensor,
    data_symbols,
    expression_of,
    symbolic_integer,
    symbolic_number,
)
from flambeau_aot.refusals import refusal


@dataclass(frozen=True, slots=True)
class SizeOperation:
    """One operation.

    compute: exact, of two numbers (of one where `unary`); of more, from the left. sign: between
    operands; or, a name of letters, before them. in_graphs: whether nodes may compute it, which
    conditions and what is spelled otherwise are not by any.
    """

    compute: Callable[..., Any]
    sign: str
    in_graphs: bool = True
    unary: bool = False

    def of(self, parts: Sequence[Any]) -> Any:
        """The number that it is of these."""
        return self.compute(*parts) if self.unary else reduce(self.compute, parts)

    @property
    def takes_arguments(self) -> bool:
        """Whether Python spells it as a call."""
        return self.unary or self.compute in (max, min)

    def text(self, parts: Sequence[str]) -> str:
        """Python, of operands that need no parentheses."""
        if self.takes_arguments:
            return f"{self.sign}({', '.join(parts)})"
        return f" {self.sign} ".join(parts)


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and exponent < 0:
        return Fraction(1, base**-exponent)
    return base**exponent


OPERATIONS: Mapping[str, SizeOperation] = {
    "Add": SizeOperation(operator.add, "+"),
    "Mul": SizeOperation(operator.mul, "*"),
    "FloorDiv": SizeOperation(operator.floordiv, "//"),
    "CleanDiv": SizeOperation(operator.floordiv, "//"),
    "Mod": SizeOperation(operator.mod, "%"),
    "PythonMod": SizeOperation(operator.mod, "%"),
    "Max": SizeOperation(max, "max"),
    "Min": SizeOperation(min, "min"),
    "FloatTrueDiv": SizeOperation(operator.truediv, "/"),
    "IntTrueDiv": SizeOperation(operator.truediv, "/"),
    "FloatPow": SizeOperation(operator.pow, "**"),
    "PowByNatural": SizeOperation(operator.pow, "**"),
    "Pow": SizeOperation(_power, "**", in_graphs=False),
    "Rational": SizeOperation(Fraction, "/", in_graphs=False),
    "Equality": SizeOperation(operator.eq, "=="),
    "Unequality": SizeOperation(operator.ne, "!="),
    "StrictLessThan": SizeOperation(operator.lt, "<"),
    "LessThan": SizeOperation(operator.le, "<="),
    "StrictGreaterThan": SizeOperation(operator.gt, ">"),
    "GreaterThan": SizeOperation(operator.ge, ">="),
    "And": SizeOperation(lambda a, b: a and b, "and", in_graphs=False),
    "Or": SizeOperation(lambda a, b: a or b, "or", in_graphs=False),
    "Not": SizeOperation(operator.not_, "not ", in_graphs=False, unary=True),
    "ToFloat": SizeOperation(float, "float", unary=True),
}
"""By the name of the class of expressions: the one table of this package."""


SymbolicNumber = torch.SymInt | torch.SymFloat | torch.SymBool

ARITHMETIC = frozenset(
    each.compute for each in OPERATIONS.values() if each.in_graphs and not each.unary
)
"""What nodes that compute sizes call."""


def is_symbolic(value: object) -> bool:
    """Whether a value is a symbolic number."""
    return isinstance(value, SymbolicNumber)


def has_symbols(value: object) -> bool:
    """Whether a tensor has a symbolic size or stride, or a number is symbolic."""
    if isinstance(value, torch.Tensor):
        return any(map(is_symbolic, (*value.shape, *value.stride())))
    return is_symbolic(value)


def same_sizes(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether two lists of sizes are equal whatever the symbols are; nothing is assumed."""
    return len(one) == len(other) and all(map(_same, one, other))


def _same(one: Any, other: Any) -> bool:
    if is_symbolic(one) and is_symbolic(other):
        return bool(expression_of(one) == expression_of(other))
    return not is_symbolic(one) and not is_symbolic(other) and bool(one == other)


def symbols_of(values: Iterable[object]) -> list[Any]:
    """The symbols in sizes and strides of tensors and in numbers, in the order of their names."""
    found: dict[Any, None] = {}
    for part in _parts(values):
        found.update(dict.fromkeys(expression_of(part).free_symbols))
    return sorted(found, key=lambda symbol: (len(symbol.name), symbol.name))


def numbers_of(values: Iterable[object], symbols: Sequence[Any]) -> list[Any]:
    """The symbols as numbers of the environment that those in `values` belong to."""
    parts = list(_parts(values))
    floats = {expression_of(part): part for part in parts if isinstance(part, torch.SymFloat)}
    return [
        floats[symbol] if symbol in floats else symbolic_integer(symbol, parts[0])
        for symbol in symbols
    ]


def symbolic_parts(value: object) -> Iterator[Any]:
    """The symbolic sizes, strides and numbers in a nested structure of values."""
    if isinstance(value, torch.Tensor):
        if value.layout == torch.strided:
            yield from filter(is_symbolic, (*value.shape, *value.stride()))
    elif is_symbolic(value):
        yield value
    elif isinstance(value, Iterable) and not isinstance(value, str):
        for item in value:
            yield from symbolic_parts(item)


def own_symbols(value: Any) -> Iterator[tuple[Any, int]]:
    """The symbols that are sizes of a tensor, each with its dimension."""
    for dim, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
        if is_symbolic(size) and expression_of(size).is_Symbol:
            yield expression_of(size), dim


def data_extents(value: Any) -> Iterator[tuple[Any, int, bool]]:
    """The sizes and strides of a tensor that depend on data, as expressions, each with its
    dimension and whether it is a stride."""
    if isinstance(value, torch.Tensor):
        for is_stride, numbers in enumerate((value.shape, value.stride())):
            for dim, number in enumerate(numbers):
                if is_symbolic(number) and data_symbols([number]):
                    yield expression_of(number), dim, bool(is_stride)


def own_data_symbols(value: Any) -> Iterator[tuple[Any, int]]:
    """Those of them that depend on data."""
    return ((s, dim) for s, dim in own_symbols(value) if data_symbols([value.shape[dim]]))


def _parts(values: Iterable[object]) -> Iterator[Any]:
    for value in values:
        parts = (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)
        for part in parts:
            if isinstance(part, torch.SymBool):
                raise refusal("AO0017", part=part)
            if is_symbolic(part):
                yield part


class SizeNodes:
    """Nodes for symbolic sizes, made in `graph` when they are first needed."""

    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph
        self._known: dict[Any, fx.Node] = {}
        #: symbols of sizes that depend on data, by the node and the dimension that have them
        self._owners: dict[Any, tuple[fx.Node, int]] = {}

    def given(self, node: fx.Node, symbol: Any) -> None:
        """Note that `node` is the value of a symbol."""
        self._known[symbol] = node

    def made(self, node: fx.Node, value: Any) -> None:
        """Note the symbols that depend on data and that `node` has: as a number, or as sizes."""
        for symbol, dim in own_data_symbols(value):
            self._owners.setdefault(symbol, (node, dim))
        if is_symbolic(value) and expression_of(value).is_Symbol:
            self._known.setdefault(expression_of(value), node)

    def node(self, number: Any) -> fx.Node | int | float:
        """The node that computes a number or a condition, or what it is known to be."""
        expression = expression_of(number)
        if isinstance(number, torch.SymBool):
            if expression.is_Boolean and not expression.free_symbols:
                return bool(expression)
            if not expression.is_Relational:
                raise refusal("AO0017", part=number)
        return self._node(expression, number)

    def _node(self, expression: Any, like: Any) -> fx.Node | int | float:
        if expression.is_Integer:
            return int(expression)
        if expression.is_Float:
            return float(expression)
        if (known := self._known.get(expression)) is not None:
            return known
        if expression in self._owners:
            return self._size(expression, *self._owners[expression])
        operation, parts = parts_of(expression)
        made = self._node(parts[0], like)
        if operation.unary:  # that is the float of a number
            made = self._graph.call_function(operator.mul, (made, 1.0))
            made.meta["val"] = symbolic_number(expression, like)
        whole = parts[0]
        for part in parts[1:]:
            whole = expression if part is parts[-1] else expression.func(whole, part)
            made = self._graph.call_function(operation.compute, (made, self._node(part, like)))
            is_condition = getattr(whole, "is_Relational", False)
            made.meta["val"] = like if is_condition else symbolic_number(whole, like)
        assert isinstance(made, fx.Node)
        self._known[expression] = made
        return made

    def _size(self, symbol: Any, owner: fx.Node, dim: int) -> fx.Node:
        """The size of a value, read once it is there: the value need not live for it."""
        with self._graph.inserting_after(owner):
            made = self._graph.call_function(torch.ops.aten.sym_size.int, (owner, dim))
        made.meta["val"] = owner.meta["val"].shape[dim]
        made.meta.update({key: owner.meta[key] for key in _OF_OWNERS if key in owner.meta})
        self._known[symbol] = made
        return made


_OF_OWNERS = ("stack_trace",)


def as_tensor(number: fx.Node) -> fx.Node:
    """A number as a tensor of no dimension: tensors alone are saved, and leave a graph."""
    source = number
    while not isinstance(source.meta["val"], torch.Tensor):
        source = source.all_input_nodes[0]
    is_float = isinstance(number.meta["val"], torch.SymFloat)
    named: dict[str, Any] = {
        "dtype": torch.float64 if is_float else torch.int64, "device": torch.device("cpu"),
    }  # fmt: skip
    with number.graph.inserting_after(number):
        made = number.graph.call_function(torch.ops.aten.scalar_tensor.default, (number,), named)
    made.meta["val"] = source.meta["val"].new_empty((), **named)
    return made


def parts_of(expression: Any) -> tuple[SizeOperation, list[Any]]:
    """What a node calls for an expression, and its operands; a power is a product."""
    name = type(expression).__name__
    if name == "Pow" and expression.args[1].is_Integer and int(expression.args[1]) > 1:
        return OPERATIONS["Mul"], [expression.args[0]] * int(expression.args[1])
    operation = OPERATIONS.get(name)
    if operation is None or not operation.in_graphs:
        raise refusal("AO0018", expression=expression)
    return operation, list(expression.args)


def text_of(expression: Any, names: Mapping[Any, str]) -> str:
    """An expression as Python, over the names of its symbols, and of expressions whose value is
    known as a whole."""
    if expression in names:
        return names[expression]
    if expression.is_Integer:
        return str(int(expression))
    if expression.is_Float:
        return repr(float(expression))
    if expression.is_Symbol:
        raise refusal("AO0019", expression=expression)
    operation, parts = parts_of(expression)
    texts = [text_of(part, names) for part in parts]
    if operation.unary:
        return operation.text(texts)
    return reduce(lambda left, right: f"({operation.text((left, right))})", texts)


@dataclass(frozen=True)
class Sized:
    """From the values of the symbols, in a fixed order, to a structure of plain values.

    text: Python over `s`, the values, and `c0, c1, ...`, the constants.
    """

    text: str
    constants: tuple[Any, ...]
    call: Callable[[Sequence[Any]], Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        scope = {f"c{place}": value for place, value in enumerate(self.constants)}
        object.__setattr__(self, "call", eval(f"lambda s: {self.text}", scope))

    def __call__(self, symbols: Sequence[Any]) -> Any:
        """The structure for these values."""
        return self.call(symbols)


def sized(value: Any, symbols: Sequence[Any]) -> Sized:
    """The function that puts numbers in the place of the symbolic sizes of a nested structure.
    symbols: None for what is a constant."""
    constants: list[Any] = []
    names = {symbol: f"s[{place}]" for place, symbol in enumerate(symbols)}
    for symbol, name in [(symbol, name) for symbol, name in names.items() if symbol is not None]:
        more, rest = symbol.as_coeff_Add()
        if more.is_Integer and rest.is_Symbol:  # a size of n + 1 says n
            names.setdefault(rest, f"({name} - {int(more)})")
    text = _spelled(value, names, constants)
    return Sized(text, tuple(constants))


def _spelled(part: Any, names: Mapping[Any, str], constants: list[Any]) -> str:
    if isinstance(part, torch.SymInt | torch.SymFloat):
        return text_of(expression_of(part), names)
    if is_symbolic(part):
        raise refusal("AO0017", part=part)
    if isinstance(part, (tuple, torch.Size)) and not hasattr(part, "_fields"):
        return f"({''.join(f'{_spelled(item, names, constants)}, ' for item in part)})"
    if type(part) is list:
        return f"[{', '.join(_spelled(item, names, constants) for item in part)}]"
    if type(part) is dict:
        items = (f"{key!r}: {_spelled(item, names, constants)}" for key, item in part.items())
        return f"{{{', '.join(items)}}}"
    constants.append(part)
    return f"c{len(constants) - 1}"


@dataclass(frozen=True)
class TensorLayout:
    """Sizes, strides, dtype and device of a tensor.

    sized: for symbolic sizes, from the symbols' values to shape and stride.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    sized: Sized | None = None

    @classmethod
    def of(cls, value: torch.Tensor, symbols: Sequence[Any] = ()) -> TensorLayout:
        """The layout of a tensor; symbols: those of its sizes, in the order of their values."""
        shape, stride = tuple(value.shape), tuple(value.stride())
        device = value.fake_device if isinstance(value, FakeTensor) else value.device
        at = sized((shape, stride), symbols) if has_symbols(value) else None
        return cls(shape, stride, value.dtype, device, at)

    def at(self, symbols: Sequence[int]) -> TensorLayout:
        """The layout for these values of the symbols."""
        if self.sized is None:
            return self
        shape, stride = self.sized(symbols)
        return TensorLayout(shape, stride, self.dtype, self.device)

    def empty(self) -> torch.Tensor:
        """A new tensor of this layout."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)


_PARTS = (
    ast.Expression, ast.Tuple, ast.List, ast.Dict, ast.BinOp, ast.operator, ast.UnaryOp, ast.USub,
    ast.Constant, ast.Load, ast.Name, ast.Subscript, ast.Call,
)  # fmt: skip


def only_arithmetic(text: str) -> bool:
    """Whether the text of a `Sized` holds arithmetic on sizes, constants and nothing else: what was
    read from a file may be evaluated then."""
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return False
    return all(map(_is_arithmetic, ast.walk(tree)))


def _is_arithmetic(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return re.fullmatch(r"s|c\d+|max|min", node.id) is not None
    if isinstance(node, ast.Call):
        called = isinstance(node.func, ast.Name) and node.func.id in ("max", "min")
        return called and not node.keywords
    if isinstance(node, ast.Subscript):
        of_sizes = isinstance(node.value, ast.Name) and node.value.id == "s"
        return of_sizes and isinstance(node.slice, ast.Constant)
    return isinstance(node, _PARTS)


def mentions_symbols(value: Any) -> bool:
    """Whether a nested structure holds a symbolic number."""
    if isinstance(value, (tuple, list)):
        return any(map(mentions_symbols, value))
    if isinstance(value, dict):
        return any(map(mentions_symbols, value.values()))
    return is_symbolic(value)
