"""Guards without torch: the native tree and the Python reference agree on every kind."""

from __future__ import annotations

import builtins
import enum
import gc
import math
import weakref
from collections import OrderedDict, defaultdict
from functools import partial
from types import CellType, SimpleNamespace

import pytest
from flambeau_capture._native import same as native_same
from flambeau_capture.guards import KINDS, GuardSet
from flambeau_capture.guards.equality import same
from flambeau_capture.source import (
    Attr,
    ClosureSource,
    DictKey,
    Global,
    InstanceAttr,
    Item,
    Local,
    load,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from .frames import CODE, FRAME, Angry, Frame, Plain, agree, holds, one, plain


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Point(tuple):
    __slots__ = ()


class Slotted:
    __slots__ = ("a",)


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(),
    st.sampled_from([0.0, -0.0, 1.0, math.nan, -math.nan, math.inf, 1e300]),
    st.sampled_from([0j, complex(0.0, -0.0), complex(math.nan, 1), 1 + 0j]),
    st.text(max_size=2),
    st.binary(max_size=2),
    st.sampled_from([Colour.RED, Colour.BLUE, int, float, len, ...]),
    st.builds(range, st.integers(0, 2), st.integers(0, 2)),
    st.builds(slice, st.integers(0, 1), st.sampled_from([1, True, 1.0, None])),
)
constants = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.lists(inner, max_size=2).map(Point),
        st.frozensets(st.one_of(st.booleans(), st.integers(0, 2), st.floats(0, 2)), max_size=3),
    ),
    max_leaves=5,
)
keys = st.one_of(st.text("ab", max_size=1), st.integers(0, 2), st.booleans(), st.just(1.0))
dicts = st.dictionaries(keys, constants, max_size=3)
objects = st.one_of(
    constants,
    dicts,
    dicts.map(OrderedDict),
    dicts.map(lambda d: defaultdict(list, d)),
    st.lists(constants, max_size=3),
    st.sets(st.integers(0, 3), max_size=3),
    st.builds(Angry),
    st.builds(Slotted),
    st.builds(plain),
    st.builds(plain, a=constants),
    st.builds(plain, training=st.booleans()),
    st.builds(lambda a: SimpleNamespace(a=a), constants),
    st.sampled_from([Plain, FRAME, math]),
)


def params_of(kind: str):
    """Parameters that make sense for a kind, drawn so that both answers occur."""
    table = {
        "CONSTANT_MATCH": st.tuples(constants),
        "ID_MATCH": st.tuples(objects),
        "FUNCTION_MATCH": st.tuples(st.sampled_from([len, FRAME, Plain])),
        "TYPE_MATCH": st.tuples(st.sampled_from([int, bool, float, dict, OrderedDict, Plain])),
        "NONE_MATCH": st.just(()),
        "EXISTS": st.just(()),
        "BOOL_MATCH": st.tuples(st.booleans()),
        "MODULE_TRAINING": st.tuples(st.booleans()),
        "LENGTH": st.tuples(st.integers(0, 3)),
        "LIST_LENGTH": st.tuples(st.integers(0, 3)),
        "TUPLE_LENGTH": st.tuples(st.integers(0, 3)),
        "DICT_KEYS": st.tuples(dicts.map(tuple), st.booleans()),
        "DICT_CONTAINS": st.tuples(keys),
        "DICT_NOT_CONTAINS": st.tuples(keys),
        "SET_CONTAINS": st.tuples(st.integers(0, 3)),
        "SET_NOT_CONTAINS": st.tuples(st.integers(0, 3)),
        "SET_ORDER": st.tuples(st.sets(st.integers(0, 3))),
        "SET_TABLE": st.tuples(st.sets(st.integers(0, 3))),
        "HASATTR": st.tuples(st.sampled_from(["a", "shared", "__len__"])),
        "NOT_HASATTR": st.tuples(st.sampled_from(["a", "shared", "__len__"])),
        "NOT_IN_INSTANCE_DICT": st.tuples(st.sampled_from(["a", "shared"])),
        "WEAKREF_MATCH": st.tuples(st.builds(plain)),
        "CLASS_HAS": st.tuples(st.sampled_from(["a", "shared", "__len__"])),
        "CLASS_LACKS": st.tuples(st.sampled_from(["a", "shared", "__len__"])),
        "CALL": st.tuples(st.sampled_from([callable, bool, len])),
    }
    return table[kind]


# of several values, or of the state and of tensors: tested by themselves
ELSEWHERE = {
    "OBJECT_ALIASING",
    "NO_ALIASING",
    "TENSOR_MATCH",
    "TENSOR_VALUES",
    "GLOBAL_STATE",
    "SIZES",
    "CLASS_SPECIALS",
    "CLASS_ENTRY",
    "SUBCLASS",
    "ANSWER",
    "FLATTENS",
}


@pytest.mark.sweep(5)
@pytest.mark.parametrize("kind", sorted(set(KINDS) - ELSEWHERE))
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_native_and_python_agree(kind, data):
    params = data.draw(params_of(kind))
    value = data.draw(st.one_of(objects, st.just(params[0]) if params else objects))
    holds(kind, params, value)


@settings(max_examples=500, deadline=None)
@given(left=constants, right=constants)
def test_same_is_the_same_in_c(left, right):
    assert native_same(left, right) == same(left, right)
    assert native_same(left, left) and same(left, left)


def test_constants_are_compared_with_their_classes():
    assert holds("CONSTANT_MATCH", (1,), 1)
    assert not holds("CONSTANT_MATCH", (1,), True)
    assert not holds("CONSTANT_MATCH", (1,), 1.0)
    assert not holds("CONSTANT_MATCH", (0.0,), -0.0)
    assert holds("CONSTANT_MATCH", (math.nan,), float("nan"))
    assert not holds("CONSTANT_MATCH", ((1, (2, 0.0)),), (1, (2, -0.0)))
    assert not holds("CONSTANT_MATCH", (frozenset([1]),), frozenset([True]))
    assert not holds("CONSTANT_MATCH", (range(0),), range(1, 1))
    assert holds("CONSTANT_MATCH", (10**40,), 10**40)
    assert not holds("CONSTANT_MATCH", ((1,),), Point((1,)))
    with pytest.raises(TypeError, match="may change"):
        one("CONSTANT_MATCH", [1])


def test_each_kind_holds_and_fails():
    target, other = plain(a=1, training=True), plain(training=False)
    removed = {1, 2, 3}
    removed.remove(3)
    cases = [
        ("ID_MATCH", (target,), target, other),
        ("FUNCTION_MATCH", (len,), len, abs),
        ("TYPE_MATCH", (Plain,), target, 3),
        ("NONE_MATCH", (), None, 0),
        ("BOOL_MATCH", (True,), True, 1),
        ("MODULE_TRAINING", (True,), target, other),
        ("LENGTH", (2,), "ab", "abc"),
        ("LIST_LENGTH", (1,), [0], (0,)),
        ("TUPLE_LENGTH", (1,), (0,), [0]),
        ("DICT_KEYS", (("a", "b"), True), {"a": 0, "b": 0}, {"b": 0, "a": 0}),
        ("DICT_KEYS", (("a", "b"), False), {"b": 0, "a": 0}, {"b": 0}),
        ("DICT_KEYS", ((1,), True), {1: 0}, {True: 0}),
        ("DICT_CONTAINS", ("a",), {"a": 0}, {}),
        ("DICT_NOT_CONTAINS", ("a",), {}, {"a": 0}),
        ("SET_CONTAINS", (1,), {1}, set()),
        ("SET_NOT_CONTAINS", (1,), set(), {1}),
        ("SET_ORDER", ({1, 2},), {1, 2}, {1, 2, 3}),
        ("SET_ORDER", ({8, 16},), {8, 16}, {16, 8}),
        ("SET_TABLE", ({1, 2},), {1, 2}, removed),
        ("HASATTR", ("a",), target, other),
        ("NOT_HASATTR", ("a",), other, target),
        ("NOT_IN_INSTANCE_DICT", ("a",), other, target),
        ("WEAKREF_MATCH", (target,), target, other),
        ("CLASS_ENTRY", ("bit_length", int.__dict__["bit_length"]), int, list),
        ("SUBCLASS", (int, True), bool, str),
        ("CLASS_HAS", ("shared",), Plain, Slotted),
        ("CLASS_LACKS", ("a",), Plain, Slotted),
        ("ANSWER", (4.0,), partial(math.sqrt, 16.0), partial(math.sqrt, 9.0)),
        ("CALL", (callable, "callable"), len, 3),
    ]
    assert {case[0] for case in cases} | ELSEWHERE | {"CONSTANT_MATCH", "EXISTS"} == set(KINDS)
    for kind, params, good, bad in cases:
        assert holds(kind, params, good), kind
        assert not holds(kind, params, bad), kind


def test_what_is_passed_along_has_to_be_there():
    guards = one("EXISTS", source=Attr(Local("x"), "a"))
    assert agree(guards, Frame(plain(a=1))) and agree(guards, Frame(plain(a=None)))
    assert not agree(guards, Frame(plain())) and not agree(guards, Frame(3))


def test_ordered_dict_has_its_own_order():
    moved = OrderedDict(a=1, b=2)
    moved.move_to_end("a")
    assert holds("DICT_KEYS", (("b", "a"), True), moved)
    assert not holds("DICT_KEYS", (("a", "b"), True), moved)
    source = DictKey(Local("x"), 0)
    assert agree(one("CONSTANT_MATCH", "b", source=source), Frame(moved))


def test_weak_references_do_not_keep_and_do_not_match_the_dead():
    target = plain()
    guards = one("WEAKREF_MATCH", target)
    dead = weakref.ref(target)
    assert agree(guards, Frame(target))
    del target
    gc.collect()
    assert dead() is None
    assert not agree(guards, Frame(None))
    assert not agree(guards, Frame(plain()))


def test_identity_guards_let_their_object_go():
    """One at the same address is another object."""
    target = plain()
    alive, place = weakref.ref(target), id(target)
    guards = one("ID_MATCH", target)
    assert agree(guards, Frame(target)) and guards.native is not None
    del target
    assert alive() is None
    made = [plain() for _ in range(100)]
    again = next((one for one in made if id(one) == place), made[0])
    assert not agree(guards, Frame(again)) and not agree(guards, Frame(None))


def test_identity_guards_keep_what_cannot_be_referred_to_weakly():
    target = Slotted()
    guards = one("ID_MATCH", target)
    place = id(target)
    del target
    assert all(id(made) != place for made in [Slotted() for _ in range(100)])
    assert not agree(guards, Frame(Slotted()))


def test_guards_are_not_repeated():
    guards = GuardSet(CODE)
    for _ in range(3):
        guards.add(Local("x"), "CONSTANT_MATCH", 1)
        guards.add(Local("x"), "CONSTANT_MATCH", True)
    assert len(guards) == 2


def test_a_failing_guard_is_explained_with_both_values():
    guards = GuardSet(CODE)
    guards.add(Local("x"), "TYPE_MATCH", dict)
    guards.add(
        Item(Local("x"), "k", "dict"), "CONSTANT_MATCH", 3, user_line='  File "m.py", line 4, in f'
    )
    failure = guards.finish().explain(Frame({"k": 4}).scope())
    text = 'local "x[\'k\']" CONSTANT_MATCH: expected 3, got 4\n  File "m.py", line 4, in f'
    assert str(failure) == text
    missing = guards.finish().explain(Frame({}).scope())
    assert "nothing there (LookupError" in str(missing)
    angry = one("CONSTANT_MATCH", "k").explain(Frame(Angry()).scope())
    assert str(angry).endswith(f"got {Angry.__module__}.Angry object")  # none of its code is run


def test_listing():
    guards = GuardSet(CODE)
    guards.add(Local("x"), "NONE_MATCH")
    guards.add(Global("math"), "FUNCTION_MATCH", math)
    guards.add(Attr(ClosureSource("captured"), "bias"), "LENGTH", 3)
    assert str(guards.finish()).splitlines() == [
        "- local 'x' NONE_MATCH",
        "- global 'math' FUNCTION_MATCH",
        "- free 'captured.bias' LENGTH",
    ]


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_whole_sets_agree_on_mutated_frames(data):
    def draw_frame():
        inner = data.draw(objects)
        x = data.draw(st.sampled_from([inner, [inner], {"k": inner}, plain(k=inner)]))
        return Frame(x, data.draw(constants), free=data.draw(constants))

    base = draw_frame()
    guards = GuardSet(CODE)
    paths = [
        Local("x"),
        Local("y"),
        ClosureSource("captured"),
        Item(Local("x"), 0, "list"),
        Item(Local("x"), "k", "dict"),
        InstanceAttr(Local("x"), "k"),
        Attr(Local("x"), "k"),
        Item(Local("x"), 0),
    ]
    for path in data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=5)):
        try:
            value = load(path, base.scope())
        except (LookupError, AttributeError, TypeError, RuntimeError):
            continue
        guards.add(path, "TYPE_MATCH", type(value))
        if not isinstance(value, list | dict | set):
            guards.add(path, "CONSTANT_MATCH", value)
    finished = guards.finish()
    assert agree(finished, base)
    for _ in range(3):
        agree(finished, draw_frame())


def test_errors_are_failures_and_none_is_left_behind():
    for kind, params in (("LENGTH", (1,)), ("HASATTR", ("a",)), ("NOT_HASATTR", ("a",))):
        assert not holds(kind, params, Angry())
    assert not agree(one("NONE_MATCH", source=ClosureSource("captured")), Frame(free=0))
    empty = CellType()
    guards = one("NONE_MATCH", source=ClosureSource("captured"))
    assert not guards.native.check((1, 2, 3, (), {}), (empty,), {}, vars(builtins))
