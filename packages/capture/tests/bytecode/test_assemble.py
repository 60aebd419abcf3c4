"""Assembling: overrides, pools, wide operands, and what is refused."""

import inspect
import math
import traceback

import pytest
from bytecode_meaning import function
from flambeau_capture.bytecode import (
    AssembleError,
    Instruction,
    Region,
    SourcePositions,
    StackError,
    assemble,
    decode,
)
from flambeau_capture.bytecode import spelling as s
from flambeau_capture.bytecode.opcodes import VERSION
from flambeau_capture.bytecode.pools import ConstantPool


def at(body, opname, nth=0):
    return [i for i, one in enumerate(body.instructions) if one.opname == opname][nth]


def test_overrides_reach_the_code_object():
    def f(a, b):
        return a - b

    code = assemble(
        decode(f.__code__),
        name="g",
        qualname="Q.g",
        filename="there.py",
        firstlineno=7,
        argcount=1,
        kwonlyargcount=1,
    )
    made = function(code)
    assert (code.co_name, code.co_qualname, code.co_filename) == ("g", "Q.g", "there.py")
    assert code.co_firstlineno == 7
    assert str(inspect.signature(made)) == "(a, *, b)"
    assert made(5, b=3) == 2


def test_positions_survive_another_first_line():
    def f(a):
        return a / 0

    code = assemble(decode(f.__code__), firstlineno=100_000)
    assert list(code.co_positions())[-1] == list(f.__code__.co_positions())[-1]


def test_new_variables_are_declared_and_cells_must_be():
    body = decode((lambda a: a).__code__)
    where = at(body, "RETURN_VALUE")
    body.instructions[where:where] = [*s.store_fast("fresh"), *s.load_fast("fresh")]
    code = assemble(body)
    assert code.co_varnames == ("a", "fresh")
    assert function(code)(4) == 4
    body.instructions[where:where] = s.store_deref("unknown") + s.load_deref("unknown")
    with pytest.raises(AssembleError, match="unknown"):
        assemble(body)


def test_cells_need_their_prefix():
    body = decode((lambda a: a).__code__)
    body.instructions[1:] = [*s.load_deref("a"), *s.return_value()]
    with pytest.raises(AssembleError, match="MAKE_CELL"):
        assemble(body, cellvars=("a",))
    with pytest.raises(AssembleError, match="COPY_FREE_VARS"):
        assemble(body, varnames=("b",), freevars=("a",))
    body.instructions[0:1] = s.prefix(cellvars=("a",))
    assert function(assemble(body, cellvars=("a",)))(4) == 4


def test_a_jump_past_the_prefix_is_refused():
    def f(a):
        return lambda: a

    body = decode(f.__code__)
    body.instructions[:0] = s.jump(body.instructions[at(body, "LOAD_CLOSURE")])
    with pytest.raises(AssembleError, match="before the cell of 'a'"):
        assemble(body)


def test_a_parameter_can_become_a_free_variable():
    def f(x, y):
        return x * y

    body = decode(f.__code__)
    body.instructions[0:1] = s.prefix(freevars=("y",))
    for i in body.instructions:
        if i.opname.startswith("LOAD_FAST") and i.argval == "y":
            i.opname = "LOAD_DEREF"
    code = assemble(body, argcount=1, varnames=("x",), freevars=("y",), flags=f.__code__.co_flags)
    (cell,) = (lambda y: lambda: y)(6).__closure__
    made = type(f)(code, {}, "f", None, (cell,))
    assert made(7) == 42


def test_constants_that_differ_are_kept_apart():
    values = [1, True, 1.0, 0.0, -0.0, 0, False, (1,), (1.0,), (True,), "1", b"1", 1 + 0j, 0j, -0j]
    values += [
        complex(0.0, -0.0),
        (0.0,),
        (-0.0,),
        None,
        Ellipsis,
        frozenset({1}),
        frozenset({True}),
    ]
    pool = ConstantPool()
    for value in values:
        pool.index(value)
    kept = pool.values()
    assert [repr(v) for v in kept if not isinstance(v, frozenset)] == list(
        dict.fromkeys(repr(v) for v in values if not isinstance(v, frozenset))
    )
    first, second = [1], [1]
    assert pool.index(first) != pool.index(second) == pool.index(second)
    nan = math.nan
    assert pool.index(nan) == pool.index(nan)


def test_any_object_can_be_a_constant():
    marker = object()
    body = decode((lambda: None).__code__)
    body.instructions[1:] = [*s.load_const(marker), *s.return_value()]
    assert function(assemble(body))() is marker


def test_docstring_stays():
    def f(a):
        """What it does."""
        return a

    body = decode(f.__code__)
    body.instructions[1:1] = [*s.load_const("another"), *s.pop_top()]
    assert function(assemble(body)).__doc__ == "What it does."


@pytest.mark.parametrize("count", [255, 256, 257, 66_000])
def test_wide_operands(count):
    body = decode((lambda: None).__code__)
    loads = [i for n in range(count) for i in (*s.load_const(f"c{n}"), *s.pop_top())]
    body.instructions[1:] = [*loads, *s.load_const("last"), *s.return_value()]
    code = assemble(body)
    assert len(code.co_consts) >= count + 1
    assert function(code)() == "last"
    assert decode(code).instructions[-3].opname == "POP_TOP"


@pytest.mark.parametrize("padding", [100, 254, 255, 256, 257, 40_000, 70_000])
def test_wide_jumps_both_ways(padding):
    def f(n):
        total = 0
        while n > 0:
            if n % 2:
                total += n
            n -= 1
        return total

    body = decode(f.__code__)
    middle = at(body, "STORE_FAST", 1) + 1
    body.instructions[middle:middle] = [i for _ in range(padding) for i in s.nop()]
    code = assemble(body)
    assert len(code.co_code) > 2 * padding
    assert function(code)(9) == f(9) == 25


def test_new_instructions_take_their_neighbours_line():
    def f(a):
        b = a
        return b

    body = decode(f.__code__)
    where = at(body, "RETURN_VALUE")
    body.instructions[where:where] = [*s.pop_top(), *s.raise_varargs(0)]
    made = function(assemble(body))
    with pytest.raises(RuntimeError) as caught:
        made(1)
    assert (
        traceback.extract_tb(caught.value.__traceback__)[-1].lineno == f.__code__.co_firstlineno + 2
    )


@pytest.mark.parametrize(
    "positions",
    [
        SourcePositions(),
        SourcePositions(10, 10, 3, 9),
        SourcePositions(10, 10, 90, 127),
        SourcePositions(11, 14, 2, 1),
        SourcePositions(12, 12, 300, 4000),
        SourcePositions(1, 1, 0, 0),
        SourcePositions(10, 10, None, None),
        SourcePositions(99_999, 99_999, 1, 2),
    ],
)
def test_every_form_of_position(positions):
    body = decode((lambda a: a).__code__)
    for instruction in body.instructions:
        instruction.positions = positions
    again = decode(assemble(body, firstlineno=10))
    assert {i.positions for i in again.instructions} == {positions}


def test_regions_may_nest_and_the_inner_one_holds():
    def f(a):
        return a.x

    body = decode(f.__code__)
    where = at(body, "LOAD_ATTR")
    attr, ret = body.instructions[where], body.instructions[where + 1]
    load = body.instructions[where - 1]
    answers = {}
    for name in ("outer", "inner"):
        answers[name] = [
            *[Instruction("PUSH_EXC_INFO")],
            *s.pop_top(),
            *[Instruction("POP_EXCEPT")],
            *s.load_const(name),
            *s.return_value(),
        ]
        body.instructions += answers[name]
    body.regions = [
        Region(load, ret, answers["outer"][0], 0, False),
        Region(attr, attr, answers["inner"][0], 0, False),
    ]
    made = function(assemble(body))
    assert made(object()) == "inner"
    body.regions.pop()
    assert function(assemble(body))(object()) == "outer"


def test_an_edit_cannot_read_an_empty_slot():
    """3.12's LOAD_FAST does not check; entered in the middle it would crash the process."""

    def f(a):
        b = a
        return b + 1

    body = decode(f.__code__)
    target = body.instructions[at(body, "STORE_FAST") + 1]
    body.instructions[1:1] = s.jump(target)
    code = assemble(body)
    with pytest.raises(UnboundLocalError):
        function(code)(1)
    after = {i.opname for i in decode(code).instructions if i.argval == "b"}
    assert ("LOAD_FAST_CHECK" in after) == (VERSION >= (3, 12))


def body_of(*instructions):
    body = decode((lambda a: a).__code__)
    body.instructions = [*s.resume(), *instructions]
    return body


@pytest.mark.parametrize(
    ("build", "error"),
    [
        (lambda: [*s.pop_top(), *s.load_const(1), *s.return_value()], StackError),
        (lambda: s.load_const(1), StackError),
        (lambda: [Instruction("LOAD_GLOBAL", argval=3), *s.return_value()], AssembleError),
        (lambda: [Instruction("BINARY_OP", argval="<>"), *s.return_value()], AssembleError),
        (lambda: [Instruction("JUMP")], AssembleError),
        (lambda: [Instruction("JUMP", target=Instruction("NOP"))], AssembleError),
        (lambda: [Instruction("NO_SUCH_THING")], ValueError),
        (lambda: [Instruction("BUILD_LIST"), *s.return_value()], ValueError),
        (lambda: [Instruction("YIELD_VALUE", 0), *s.return_value()], AssembleError),
        (lambda: 2 * s.load_const(1), ValueError),
    ],
)
def test_nonsense_is_refused(build, error):
    with pytest.raises(error):
        assemble(body_of(*build()))


def test_a_loop_must_end_where_the_interpreter_skips():
    def f(items):
        for _ in items:
            pass
        return 1

    body = decode(f.__code__)
    loop = body.instructions[at(body, "FOR_ITER")]
    where = body.instructions.index(loop.target)
    replaced = s.nop()[0]
    body.instructions.insert(where, replaced)
    loop.target = replaced
    if VERSION >= (3, 12):
        with pytest.raises(AssembleError, match="END_FOR"):
            assemble(body)
    else:
        assert function(assemble(body))([1, 2]) == 1
