"""Every spelling runs and does what it says, on the running Python."""

import pytest
from bytecode_meaning import function
from flambeau_capture.bytecode import Instruction, assemble, decode
from flambeau_capture.bytecode import spelling as s


def build(*parts, argnames=(), freevars=(), cellvars=(), scope=None, closure=None):
    body = decode((lambda: None).__code__)
    body.instructions = s.prefix(cellvars, freevars) + [i for part in parts for i in part]
    code = assemble(
        body,
        argcount=len(argnames),
        varnames=argnames,
        freevars=freevars,
        cellvars=cellvars,
        flags=body.code.co_flags,
    )
    return type(function)(code, {} if scope is None else scope, "built", None, closure)


def value(*parts, **how):
    return build(*parts, s.return_value(), **how)


class Box:
    def __init__(self, **items):
        self.__dict__.update(items)

    def method(self, *args, **kwargs):
        return self, args, kwargs


def test_variables():
    f = build(
        s.load_fast("a"),
        s.store_fast("b"),
        s.delete_fast("a"),
        s.load_fast("b"),
        s.return_value(),
        argnames=("a",),
    )
    assert f(3) == 3
    unbound = value(s.delete_fast("a"), s.load_fast("a"), argnames=("a",))
    with pytest.raises(UnboundLocalError):
        unbound(1)
    assert value(s.load_fast_bound("a"), argnames=("a",))(5) == 5


def test_globals():
    scope = {"g": 1}
    f = build(
        s.load_global("g"), s.store_global("h"), s.load_global("len"), s.return_value(), scope=scope
    )
    assert f() is len
    assert scope["h"] == 1


def test_cells_and_functions():
    inner = value(
        s.load_deref("c"), freevars=("c",), closure=((lambda x: lambda: x)(0)).__closure__
    )
    f = value(
        s.load_const(1),
        s.store_deref("c"),
        s.load_closure("c"),
        s.build_tuple(1),
        s.make_function(inner.__code__, s.CLOSURE),
        s.load_const(2),
        s.store_deref("c"),
        cellvars=("c",),
    )
    assert f()() == 2


def test_function_attributes():
    def plain(a, b, *, c):
        return a, b, c

    f = value(
        s.load_const((1, 2)),
        s.load_const("c"),
        s.load_const(3),
        s.build_map(1),
        s.load_const(("a", int)),
        s.make_function(plain.__code__, s.DEFAULTS | s.KWDEFAULTS | s.ANNOTATIONS),
    )
    made = f()
    assert made() == (1, 2, 3)
    assert made.__annotations__ == {"a": int}
    assert value(s.make_function(plain.__code__))()(1, 2, c=3) == (1, 2, 3)


def test_attributes_and_items():
    box = Box(x=1)
    f = build(
        s.load_const(7),
        s.load_fast("o"),
        s.store_attr("y"),
        s.load_fast("o"),
        s.load_attr("x"),
        s.return_value(),
        argnames=("o",),
    )
    assert f(box) == 1 and vars(box) == {"x": 1, "y": 7}
    items = {"k": 1, "l": 2}
    f = build(
        s.load_const(5),
        s.load_fast("o"),
        s.load_const("m"),
        s.store_subscr(),
        s.load_fast("o"),
        s.load_const("l"),
        s.binary_subscr(),
        s.return_value(),
        argnames=("o",),
    )
    assert f(items) == 2 and items == {"k": 1, "l": 2, "m": 5}


def seen(*args, **kwargs):
    return args, kwargs


@pytest.mark.parametrize(
    "ready",
    [
        s.load_global("seen", push_null=True),
        s.callable_from(s.load_global("seen")),
        [*s.load_global("seen"), *s.callable_on_top()],
    ],
    ids=["global", "from", "on_top"],
)
def test_calls(ready):
    from flambeau_capture.bytecode import clone

    def fresh():
        return clone(ready)[0]

    scope = {"seen": seen}
    one, two = s.load_const(1), s.load_const(2)
    assert value(fresh(), s.call(0), scope=scope)() == ((), {})
    assert value(fresh(), one, two, s.call(2), scope=scope)() == ((1, 2), {})
    keyword = value(fresh(), *clone(one + two)[:1], s.call(2, ("k",)), scope=scope)
    assert keyword() == ((1,), {"k": 2})
    with pytest.raises(ValueError, match="keyword"):
        s.call(0, ("k",))


def test_method_calls():
    box = Box()
    f = value(
        s.load_fast("o"),
        s.load_method("method"),
        s.load_const(1),
        s.load_const(2),
        s.call(2, ["k"]),
        argnames=("o",),
    )
    assert f(box) == (box, (1,), {"k": 2})
    box.method = seen
    assert f(box) == ((1,), {"k": 2})


def three(*after):
    loads = [s.load_const("a"), s.load_const("b"), s.load_const("c")]
    return value(*loads, *after, s.build_tuple(3))()


def test_stack_motions():
    assert three() == ("a", "b", "c")
    assert three(s.swap(3)) == ("c", "b", "a")
    assert three(s.pop_top(), s.dup_top()) == ("a", "b", "b")
    assert three(s.pop_top(), s.pop_top(), s.copy(1), s.copy(2)) == ("a", "a", "a")
    assert three(s.nop()) == ("a", "b", "c")


def test_containers():
    def loaded(*values):
        return [i for v in values for i in s.load_const(v)]

    assert value(loaded(1, 2), s.build_list(2))() == [1, 2]
    assert value(loaded("k", 2), s.build_map(1))() == {"k": 2}
    assert value(loaded((1, 2)), s.unpack_sequence(2), s.build_tuple(2))() == (2, 1)


@pytest.mark.parametrize(
    ("kind", "jumps", "stays"),
    [
        ("true", [1, "x", [0]], [0, "", None]),
        ("false", [0, "", None], [1, "x", [0]]),
        ("none", [None], [0, False]),
        ("not_none", [0, False], [None]),
    ],
)
def test_conditional_jumps_both_ways(kind, jumps, stays):
    there = s.load_const("jumped")
    forward = build(
        s.load_fast("a"),
        s.jump_if(kind, there[0]),
        s.load_const("stayed"),
        s.return_value(),
        there,
        s.return_value(),
        argnames=("a",),
    )
    back, test = s.load_const("jumped"), s.load_fast("a")
    backward = build(
        s.jump(test[0]),
        back,
        s.return_value(),
        test,
        s.jump_if(kind, back[0]),
        s.load_const("stayed"),
        s.return_value(),
        argnames=("a",),
    )
    for f in (forward, backward):
        assert [f(a) for a in jumps] == ["jumped"] * len(jumps)
        assert [f(a) for a in stays] == ["stayed"] * len(stays)


def test_a_loop():
    end = s.end_for()
    loop = [Instruction("FOR_ITER", target=end[0])]
    f = build(
        s.load_const(0),
        s.store_fast("total"),
        s.load_fast("items"),
        [Instruction("GET_ITER")],
        loop,
        s.load_fast("total"),
        [Instruction("BINARY_OP", argval="+")],
        s.store_fast("total"),
        s.jump(loop[0]),
        end,
        s.load_fast("total"),
        s.return_value(),
        argnames=("items",),
    )
    assert f([1, 2, 3]) == 6 and f([]) == 0 and f(iter(range(100))) == 4950


def test_raising():
    f = build(s.load_fast("e"), s.raise_varargs(1), argnames=("e",))
    with pytest.raises(KeyError, match="here"):
        f(KeyError("here"))
