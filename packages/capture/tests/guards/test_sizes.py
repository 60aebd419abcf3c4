"""Size programs: the native machine and the plain-Python one answer alike."""

from __future__ import annotations

import math
from types import FunctionType
from typing import Any

import pytest
from flambeau_capture._native import SIZE_OP, GuardTree, set_functions
from flambeau_capture.guards import GuardSet, SizeProgram, SizeSource, Term
from flambeau_capture.guards.sizes import FUNCTIONS, Calling
from flambeau_capture.source import Local, Scope
from hypothesis import given, settings
from hypothesis import strategies as st


class Shaped:
    """What programs ask of a tensor."""

    def __init__(self, sizes: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self.sizes, self.strides = sizes, strides

    def size(self, dim: int) -> int:
        return self.sizes[dim]

    def stride(self, dim: int) -> int:
        return self.strides[dim]


def frame(x: Any, y: Any) -> None:
    return None


assert isinstance(frame, FunctionType)
set_functions(FUNCTIONS)
X, Y = Local("x"), Local("y")
PLACES = [
    SizeSource(X, "SIZE", 0),
    SizeSource(X, "SIZE", 1),
    SizeSource(X, "STRIDE", 0),
    SizeSource(Y, "VALUE"),
]
FLOATS = ("FADD", "FSUB", "FMUL", "FDIV")
COMPARED = ("FEQ", "FNE", "FLT", "FLE")
TO_INTEGER = ("FLOOR", "CEIL", "TRUNC", "ROUND")
UNARY = {"NOT", "TOF", "SQRT", *TO_INTEGER}
CALLS = ("CALL1", "CALL2")
BINARY = sorted(
    set(SIZE_OP) - {"CONST", "SIZE", "STRIDE", "VALUE", "FLOAT", *UNARY, *FLOATS, *COMPARED, *CALLS}
)
FLOAT = SizeSource(Y, "FLOAT")


def both(program: SizeProgram, x: Any, y: Any) -> tuple[bool, bool]:
    guards = GuardSet(frame.__code__)
    guards.add_sizes(program)
    finished = guards.finish()
    slots = {source: i for i, source in enumerate(program.sources())}
    nodes: list[tuple[int, int, Any]] = [(-1, 0, None)]
    checks: list[tuple[int, int, Any]] = []
    from flambeau_capture._native import ACCESS, CHECK

    for source in program.sources():
        place = ("x", "y").index(source.variable)  # type: ignore[attr-defined]
        nodes.append((0, ACCESS["LOCAL"], place))
        checks.append((len(nodes) - 1, CHECK["PIN"], slots[source]))
    numbers = program.numbers(slots, SIZE_OP)
    tree = GuardTree(tuple(nodes), tuple(checks), len(slots), (), (), (numbers,), None)
    native = tree.check((x, y), None, {}, {})
    return native, finished.check(Scope({"x": x, "y": y}, {}, {}, {}))


@st.composite
def programs(draw: Any) -> SizeProgram:
    code: list[Any] = []
    depth = 0
    for _ in range(draw(st.integers(1, 12))):
        if depth < 2 or draw(st.booleans()):
            code.append(draw(st.sampled_from(PLACES) | st.integers(-4, 9)))
            depth += 1
        elif draw(st.integers(0, 4)) == 0:
            code.append("NOT")
        else:
            code.append(draw(st.sampled_from(BINARY)))
            depth -= 1
    code += ["ADD"] * (depth - 1)
    if not any(isinstance(item, SizeSource) for item in code):
        code += [PLACES[3], "ADD"]
    return SizeProgram(tuple(code), "drawn")


numbers = st.integers(0, 40) | st.sampled_from([2**31, 2**62, 2**63 - 1])


@settings(max_examples=400, deadline=None)
@given(programs(), st.tuples(numbers, numbers), numbers, st.integers() | st.booleans() | st.none())
def test_native_and_python_agree(program, sizes, stride, y):
    native, reference = both(program, Shaped(sizes, (stride, 1)), y)
    assert native == reference


@st.composite
def conditions_on_floats(draw: Any) -> SizeProgram:
    def term(depth: int) -> Term:
        kind = draw(st.integers(0, 6 if depth < 4 else 2))
        if kind == 0:
            return Term.of_float(FLOAT, 1.0)
        if kind == 1:
            value = draw(st.floats(allow_nan=True))
            return Term.of_float(value, value)
        if kind == 2:
            return Term((PLACES[0], "TOF"), "size", 1.0)
        if kind == 4:
            return Term((*term(depth + 1).code, draw(st.sampled_from(TO_INTEGER)), "TOF"), "", 1.0)
        if kind == 5:
            return Term((*term(depth + 1).code, "SQRT"), "", 1.0)
        if kind == 6:
            place = draw(st.integers(0, len(FUNCTIONS) - 1))
            count = 1 if place >= FUNCTIONS.index(math.log) else 2
            parts = [item for _ in range(count) for item in term(depth + 1).code]
            return Term((*parts, Calling(place, count)), "", 1.0)
        op = draw(st.sampled_from(FLOATS))
        one, other = term(depth + 1), term(depth + 1)
        return Term((*one.code, *other.code, op), "drawn", 1.0)

    code = (*term(0).code, *term(0).code, draw(st.sampled_from(COMPARED)))
    if not any(isinstance(item, SizeSource) for item in code):
        code = (FLOAT, FLOAT, "FEQ")
    return SizeProgram((*code, "NOT") if draw(st.booleans()) else code, "drawn")


@settings(max_examples=400, deadline=None)
@given(conditions_on_floats(), numbers, st.floats(allow_nan=True) | st.integers() | st.none())
def test_native_and_python_agree_on_floats(program, size, y):
    native, reference = both(program, Shaped((size, 1), (1, 1)), y)
    assert native == reference


@given(st.floats(), st.floats(), st.sampled_from(FLOATS), st.sampled_from(COMPARED))
@settings(max_examples=200, deadline=None)
def test_a_condition_on_floats_is_what_python_says(left, right, op, compared):
    if op == "FDIV" and not right:
        return
    one = Term.of_float(FLOAT, left)
    answer, program = one.combine(op, Term.of_float(right, right)).compare(compared, one)
    value = {
        "FADD": left + right,
        "FSUB": left - right,
        "FMUL": left * right,
        "FDIV": left / (right or 1.0),
    }[op]
    assert (
        answer
        == {"FEQ": value == left, "FNE": value != left, "FLT": value < left, "FLE": value <= left}[
            compared
        ]
    )
    assert both(program, Shaped((1, 1), (1, 1)), left) == (True, True)


@pytest.mark.parametrize(
    ("code", "x", "expected"),
    [
        ((PLACES[0], 4, "EQ"), (4, 1), True),
        ((PLACES[0], 4, "EQ"), (5, 1), False),
        ((PLACES[0], PLACES[1], "MOD", 0, "EQ"), (6, 3), True),
        ((PLACES[0], PLACES[1], "MOD", 0, "EQ"), (6, 0), False),
        ((PLACES[0], PLACES[1], "MUL", 0, "LE"), (2**62, 4), False),
        ((PLACES[0], 0, "LT", "NOT"), (0, 1), True),
        ((PLACES[0], "TOF", 2.0**53, "FEQ"), (2**53, 1), True),
        ((PLACES[0], "TOF", 2.0**53, "FEQ"), (2**53 + 1, 1), False),
    ],
)
def test_cases(code, x, expected):
    assert both(SizeProgram(code, ""), Shaped(x, (1, 1)), 0) == (expected, expected)


@pytest.mark.parametrize("numbers", [(99,), (0,), (1, 0), (1, 5, 0), (-1, 2)])
def test_what_is_no_program_is_refused(numbers):
    with pytest.raises(ValueError, match="no size program"):
        GuardTree(((-1, 0, None),), (), 1, (), (), (numbers,), None)


@pytest.mark.parametrize("depth", [1, 31, 63, 64, 65, 200, 3000])
@pytest.mark.parametrize("wanted", [True, False])
def test_programs_of_any_depth(depth: int, wanted: bool) -> None:
    """As an expression that a loop nests has it: all operands come first."""
    total = 7 + sum(range(depth)) + (not wanted)
    code = (total, *range(depth), PLACES[3], *["ADD"] * depth, "EQ")
    assert both(SizeProgram(code, ""), Shaped((1, 1), (1, 1)), 7) == (wanted, wanted)


def test_real_tensors_are_read_by_their_layout():
    torch = pytest.importorskip("torch")
    program = SizeProgram((PLACES[0], PLACES[1], "MUL", PLACES[2], "LE"), "")
    for x in (torch.empty(2, 3), torch.empty(3, 2).t(), torch.empty(2, 3, 1, 1, 1, 1, 1)):
        guards = GuardSet(frame.__code__)
        guards.add_tensor(X, x)
        guards.add_sizes(program)
        finished = guards.finish()
        scope = Scope({"x": x, "y": 0}, {}, {}, {})
        expected = x.size(0) * x.size(1) <= x.stride(0)
        assert finished.check(scope) == expected
        assert finished.native.check((x, 0), None, {}, {}) == expected
