"""Every symbolic operation has one meaning: in guards, in graphs, as text, as C++, as data."""

from __future__ import annotations

import ctypes
import json
import os
import random
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import flambeau_aot.sizes
import flambeau_capture.guards.sizes
import flambeau_inductor.runtime
import flambeau_prims.sizes
import pytest
import torch
from flambeau_capture._native import ACCESS, CHECK, SIZE_OP, GuardTree
from flambeau_capture.graph.size_expressions import python_text
from flambeau_capture.guards.sizes import Relation, SizeSource, size_program
from flambeau_capture.source import Local
from flambeau_inductor.indexing import Expr, as_expr, hint, to_c, to_python
from flambeau_inductor.ir.program import SymbolSource
from flambeau_inductor.lowering.sizes import GraphSizes
from flambeau_prims import NotYetSymbolic
from flambeau_prims._torch_compat import expression_of, symbol_from, symbolic_mode
from torch import fx

from flambeau import _torch_compat as compat
from flambeau.cache.open_sizes import GraphSymbols
from flambeau.packaging.guard_expressions import evaluated, written

CAPTURE = flambeau_capture.guards.sizes.OPERATIONS
AOT = flambeau_aot.sizes.OPERATIONS
PRIMS = flambeau_prims.sizes.OPERATIONS
INCLUDE = Path(flambeau_inductor.runtime.__file__).parent / "include"
#: sizes, and what may be known of them: at least two
SIZES = [(2, 3), (7, 5), (64, 9), (1024, 1000), (12, 12)]
WHOLE = ("Add", "Mul", "FloorDiv", "CleanDiv", "Mod", "PythonMod", "Max", "Min", "PowByNatural")
CONDITIONS = (
    "Equality", "Unequality", "StrictLessThan", "LessThan", "StrictGreaterThan", "GreaterThan",
)  # fmt: skip


class Drawn:
    """A graph over a tensor of two open sizes, and expressions of them."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)
        fake = symbolic_mode().from_tensor(torch.empty(12, 7))
        self.numbers = tuple(fake.shape)
        self.symbols = tuple(map(expression_of, self.numbers))
        graph = fx.Graph()
        node = graph.placeholder("x")
        node.meta["val"] = fake
        graph.output((node,))
        self.graph = GraphSymbols(fx.GraphModule(torch.nn.Module(), graph))

    def of(self, name: str, *parts: Any) -> Any:
        """An expression as torch or sympy makes it."""
        return compat.symbolic(name)(*parts)

    def leaf(self) -> Any:
        return self.pick.choice((*self.symbols, self.of("Integer", self.pick.randint(2, 9))))

    def whole(self, name: str, depth: int) -> Any:
        """`name` of integers that are not negative; what divides is positive."""
        below = [n for n in WHOLE if n != "PowByNatural"]
        first, second = (
            self.whole(self.pick.choice(below), depth - 1) if depth else self.leaf()
            for _ in range(2)
        )
        if name == "PowByNatural":
            return self.of(name, self.pick.choice(self.symbols), self.of("Integer", 3))
        if name == "CleanDiv":
            divisor = self.pick.randint(2, 5)
            return self.of(name, first * divisor, self.of("Integer", divisor))
        if name in ("FloorDiv", "Mod", "PythonMod"):
            second = self.of("Max", second, self.of("Integer", 1)) if depth else self.leaf()
        return self.of(name, first, second)

    def open(self, name: str, depth: int) -> Any:
        """One that depends on a size."""
        while not (found := self.whole(name, depth)).free_symbols:
            pass
        return found

    def value(self, expression: Any, sizes: Sequence[int]) -> Any:
        """What sympy makes of an expression."""
        of = dict(zip(self.symbols, map(compat.symbolic("Integer"), sizes), strict=True))
        return expression.xreplace(of)


def holds(condition: Any, symbols: Sequence[Any], sizes: Sequence[int]) -> set[bool]:
    """By a size program in Python, and on the native machine."""
    names = [Local("x"), Local("y")]
    places = {
        symbol: SizeSource(name, "VALUE") for symbol, name in zip(symbols, names, strict=True)
    }
    program = size_program(condition, places)
    slots = {source: i for i, source in enumerate(program.sources())}
    where = [names.index(source) for source in slots]
    nodes = [(-1, 0, None), *((0, ACCESS["LOCAL"], at) for at in where)]
    checks = [(i + 1, CHECK["PIN"], i) for i in range(len(slots))]
    rows = (program.numbers(slots, SIZE_OP),)
    tree = GuardTree(tuple(nodes), tuple(checks), len(slots), (), (), rows, None)
    return {program.holds([sizes[at] for at in where]), tree.check(tuple(sizes), None, {}, {})}


def run_in_graph(made: Any, graph: fx.Graph, sizes: Sequence[int]) -> Any:
    graph.output(made)
    return fx.GraphModule(torch.nn.Module(), graph)(*sizes)


def answers(drawn: Drawn, expression: Any, sizes: Sequence[int]) -> Iterator[tuple[str, Any]]:
    """What each evaluator but C++ makes of an integer expression."""
    symbols, number = drawn.symbols, symbol_from(expression, drawn.numbers[0])
    wanted = compat.symbolic("Integer")(int(drawn.value(expression, sizes)))
    assert holds(Relation("EQ", expression, wanted), symbols, sizes) == {True}
    assert holds(Relation("EQ", expression, wanted + 1), symbols, sizes) == {False}
    names = dict(zip(symbols, ("n", "m"), strict=True))
    given = dict(zip(("n", "m"), sizes, strict=True))
    yield "capture: Python", eval(python_text(expression, names), dict(given))

    function = flambeau_aot.sizes.sized(number, symbols)
    assert flambeau_aot.sizes.only_arithmetic(function.text)
    yield "aot: Python", function(sizes)
    graph = fx.Graph()
    nodes = flambeau_aot.sizes.SizeNodes(graph)
    for symbol, name in names.items():
        nodes.given(graph.placeholder(name), symbol)
    yield "aot: FX", run_in_graph(nodes.node(number), graph, sizes)

    tree = json.loads(json.dumps(drawn.graph.tree(expression)))
    yield "meta: the same expression again", int(drawn.value(drawn.graph.expression(tree), sizes))
    yield "meta: data", evaluated(tree, sizes)
    yield "meta: text", eval(written(tree, ("n", "m")), dict(given))


def by_prims(drawn: Drawn, expression: Any, sizes: Sequence[int]) -> Any:
    graph = fx.Graph()
    nodes = flambeau_prims.sizes.SizeNodes(graph)
    for name, number in zip(("n", "m"), drawn.numbers, strict=True):
        nodes.given(graph.placeholder(name), number)
    number = symbol_from(expression, drawn.numbers[0])
    made = nodes.node_of(number) if isinstance(number, torch.SymInt) else number
    return run_in_graph(made, graph, sizes)


def in_kernels(drawn: Drawn, expression: Any) -> tuple[Expr, dict[str, int], list[tuple[str, str]]]:
    """As the inductor has it, which of the two sizes each of its names is, and what Python computes
    of them before a kernel is given both."""
    known = GraphSizes()
    for dim, number in enumerate(drawn.numbers):
        known.given(known.size(number), SymbolSource(0, dim))
    names = {str(known.size(number)): at for at, number in enumerate(drawn.numbers)}
    number = symbol_from(expression, drawn.numbers[0])
    made = as_expr(known.size(number))
    return made, names, [(name, source.text) for name, source in known.sources() if source.text]


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_an_integer_is_the_same_everywhere(name: str, depth: int) -> None:
    drawn = Drawn(depth * 100 + len(name))
    for _ in range(3):
        expression = drawn.open(name, depth)
        for sizes in SIZES:
            wanted = int(drawn.value(expression, sizes))
            for who, found in answers(drawn, expression, sizes):
                assert found == wanted, (who, expression, sizes)
            assert _or_refused(lambda: by_prims(drawn, expression, sizes)) in (wanted, None)  # noqa: B023


def _or_refused(compute: Callable[[], Any]) -> Any:
    try:
        return compute()
    except NotYetSymbolic:
        return None


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_condition_is_the_same_everywhere(name: str) -> None:
    drawn = Drawn(len(name))
    for _ in range(8):
        sides = [drawn.open(drawn.pick.choice(WHOLE), 1) for _ in range(2)]
        condition = drawn.of(name, *sides)
        joined = drawn.of("Or", condition, drawn.of("Not", drawn.of("Equality", *drawn.symbols)))
        for each in (condition, joined, drawn.of("And", condition, joined)):
            if not each.free_symbols:
                continue
            tree = json.loads(json.dumps(drawn.graph.tree(each)))
            for sizes in SIZES:
                wanted = bool(drawn.value(each, sizes))
                assert holds(each, drawn.symbols, sizes) == {wanted}, (each, sizes)
                assert evaluated(tree, sizes) == wanted
                assert eval(written(tree, ("n", "m")), {"n": sizes[0], "m": sizes[1]}) == wanted


def test_a_kernel_computes_the_same_integers(tmp_path: Path) -> None:
    """In Python and in C++, compiled once for all."""
    drawn = Drawn(7)
    cases = []
    for name in WHOLE:
        for _ in range(8):
            expression = drawn.open(name, drawn.pick.choice((0, 1, 1, 2)))
            made = _or_refused(lambda: in_kernels(drawn, expression))  # noqa: B023
            if made is not None:
                cases.append((name, expression, *made))
    assert {case[0] for case in cases} >= {*WHOLE} - {"PowByNatural"}
    lines = [
        f'extern "C" long f{i}({", ".join(f"long {name}" for name in (*names, *dict(before)))}) '
        f"{{ return {to_c(made)}; }}"
        for i, (_, _, made, names, before) in enumerate(cases)
    ]
    library = _compiled("\n".join(lines), tmp_path)
    for i, (_, expression, made, names, before) in enumerate(cases):
        compiled = library[f"f{i}"]
        compiled.restype = ctypes.c_long
        compiled.argtypes = (ctypes.c_long,) * (len(names) + len(before))
        for sizes in SIZES:
            wanted = int(drawn.value(expression, sizes))
            given = {name: sizes[at] for name, at in names.items()}
            for name, text in before:
                given[name] = eval(text, dict(given))
            assert hint(made.substitute(given)) == wanted
            assert eval(to_python(made), dict(given)) == wanted
            assert compiled(*given.values()) == wanted, (expression, sizes)


def _compiled(text: str, folder: Path) -> ctypes.CDLL:
    text = f'#include "flambeau/vec.h"\nusing namespace fl;\n{text}'
    (folder / "sizes.cpp").write_text(text, encoding="utf-8")
    compiler = [os.environ.get("CXX", "g++"), "-march=native", "-I", str(INCLUDE)]
    command = [*compiler, "-shared", "-fPIC", "-o", "sizes.so", "sizes.cpp"]
    subprocess.run(command, cwd=folder, check=True, timeout=60)
    return ctypes.CDLL(str(folder / "sizes.so"))


def test_operations_of_one_name_are_one_operation() -> None:
    """What the tables of two packages have in common, they compute alike."""
    pick = random.Random(0)
    for name in sorted({*CAPTURE, *AOT, *PRIMS}):
        for _ in range(20):
            operands = 1 if name in AOT and AOT[name].unary else 2
            parts = [pick.randint(1, 9) for _ in range(operands)]
            made = [t[name].call(*parts) for t in (CAPTURE, PRIMS) if _calls(t, name)]
            if name in AOT:
                made.append(AOT[name].of(parts))
            assert len(set(made)) == 1, (name, made)


def _calls(table: Any, name: str) -> bool:
    return name in table and table[name].call is not None
