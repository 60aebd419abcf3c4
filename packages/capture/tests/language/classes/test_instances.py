"""Instances whose attributes are slots, properties, fields of named tuples; protocols; caches."""

import collections
import functools
import itertools
import typing

import pytest
import torch


class Slotted:
    __slots__ = ("a", "b", "c")

    def __init__(self):
        self.a = 1


class Level:
    def __init__(self):
        self.log = []
        self._v = 1

    @property
    def v(self):
        return self._v

    @v.setter
    def v(self, value):
        self._v = value

    @v.deleter
    def v(self):
        self.log.append("deleted")
        self._v = 0

    @property
    def fixed(self):
        return 1


class Stored:
    def __get__(self, owner, kind=None):
        return owner.__dict__.get("_stored", 0)

    def __set__(self, owner, value):
        owner.__dict__["_stored"] = value * 2

    def __delete__(self, owner):
        del owner.__dict__["_stored"]


class Owner:
    stored = Stored()


class Pair(collections.namedtuple("Pair", "x y")):
    def __new__(cls, x, y=0):
        return super().__new__(cls, x, y)

    def total(self):
        return self.x + self.y


class Tagged(Pair):
    __slots__ = ()  # but its base has a dict

    def __init__(self, *args):
        self.tag = 3


class Row(typing.NamedTuple):
    x: torch.Tensor
    y: int = 2


class Wide(Row):
    def double(self):
        return self._replace(y=self.y * 2)


@typing.runtime_checkable
class Growing(typing.Protocol):
    size: int

    def grow(self, n): ...


class Plant:
    def __init__(self):
        self.size = 1

    def grow(self, n):
        return self.size + n


def test_a_slot_that_is_empty_in_the_first_call_only(capture, backend):
    def fn(t, one):
        one.b = t * one.a
        if not hasattr(one, "c"):
            one.c = 0
        one.c += 1
        return one.b + one.c

    one, compiled = Slotted(), capture(fn)
    for count in (1, 2, 3):
        assert torch.equal(compiled(torch.ones(2), one), torch.ones(2) + count)
        assert one.c == count
    assert len(backend) == 3


def test_a_slot_is_deleted(capture, backend):
    def fn(t, one):
        if hasattr(one, "a"):
            del one.a
        else:
            one.a = 3
        return t + hasattr(one, "a")

    one, compiled = Slotted(), capture(fn)
    for there in (False, True, False):
        assert compiled(torch.zeros(1), one).item() == there
        assert hasattr(one, "a") is there
    assert len(backend) == 2


def test_deleters_run(capture, backend):
    def fn(t, level, owner):
        del level.v
        try:
            del level.fixed
        except AttributeError as error:
            level.log.append(str(error))
        try:
            level.fixed = 2
        except AttributeError as error:
            level.log.append(str(error))
        owner.stored = 3
        t = t + owner.stored
        del owner.stored
        return t + level.v + owner.stored

    found = []
    for run in (fn, capture(fn)):
        level, owner = Level(), Owner()
        found.append((run(torch.ones(2), level, owner).tolist(), level.log, level._v, vars(owner)))
    assert found[0] == found[1] and found[0][0] == [7.0, 7.0]
    assert len(backend) == 1


def test_a_property_that_is_replaced_is_noticed(capture):
    class Mine(Level):
        v = property(lambda self: self._v, lambda self, value: setattr(self, "_v", value))

    def fn(t, level):
        level.v = 5
        return t + 1

    compiled, level = capture(fn), Mine()
    compiled(torch.ones(1), level)
    assert level._v == 5
    Mine.v = property(lambda self: 0, lambda self, value: setattr(self, "_v", value * 10))
    compiled(torch.ones(1), level)
    assert level._v == 50


def named_tuples(t, given=None):
    pair, tagged, wide = Pair(t), Tagged(t, 1), Wide(t, 3)
    tagged.more = t
    found = [pair, tagged, wide, pair.total(), tagged.total() + tagged.tag, wide.double().y]
    found += [pair._replace(y=1), wide._asdict(), len(pair), [*tagged], vars(tagged), pair._fields]
    if given is not None:
        first, second = given
        found += [first * second, given.x, given[1], given._replace(y=7), isinstance(given, Pair)]
    return found


@pytest.mark.parametrize(
    "given",
    [None, Pair(torch.ones(3), 2), Tagged(torch.ones(3), 4), Row(torch.ones(3)),
     Wide(torch.ones(3), 5)],
)  # fmt: skip
def test_named_tuples_with_code_of_their_own(check, given):
    check(named_tuples, torch.ones(3), given)


def test_a_protocol_with_data(capture):
    def fn(t, one):
        return t * one.grow(2) if isinstance(one, Growing) else t - 1

    compiled, plant, other = capture(fn), Plant(), Plant()
    del other.size
    for one in (plant, other, plant, object(), 3):
        assert torch.equal(compiled(torch.ones(2), one), fn(torch.ones(2), one))
    other.size = 4
    assert torch.equal(compiled(torch.ones(2), other), fn(torch.ones(2), other))


def test_a_class_is_asked_about_a_protocol_with_data(check):
    class Never(typing.Protocol):
        size: int

    def fn(t):
        try:
            return t, isinstance(t, Never)
        except TypeError as error:
            return t + 1, type(error)

    check(fn, torch.ones(2))


def test_a_cached_function_with_side_effects_has_them_once(capture):
    def run(decorate):
        calls = []

        class Table:
            @functools.lru_cache(maxsize=4)  # noqa: B019 - what the test is about
            def rows(self, n):
                calls.append(n)
                return torch.arange(n)

        @functools.cache
        def shift(n):
            calls.append(("shift", n))
            return n * 2

        table = Table()
        compiled = decorate(lambda t: t + table.rows(t.shape[0]) + shift(t.shape[0]))
        results = [compiled(torch.ones(n)).tolist() for n in (3, 3, 4, 3)]
        return results, calls

    assert run(capture) == run(lambda fn: fn)


class Titles(typing.TypedDict, total=False):
    x: torch.Tensor
    k: int


def test_a_typed_dict_is_a_dict(check):
    def fn(t):
        made = Titles(x=t, k=2)
        return made["x"] * made["k"], made, type(made)

    check(fn, torch.ones(2))


def test_keywords_are_strings(check):
    def fn(t, given):
        try:
            return t - 1, dict(**given)
        except TypeError as error:
            return t + 1, str(error)

    check(fn, torch.ones(2), {"a": 1})
    check(fn, torch.ones(2), {1: 2})


def test_a_buffer_is_deleted_and_registered_again(capture, backend, same):
    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("a", torch.zeros(2))

        def forward(self, t):
            del self.a
            missing = hasattr(self, "a")
            self.register_buffer("a", t + 1)
            return t + self.a, missing

    module = Module()
    compiled = capture(module)
    for _ in range(2):
        same(compiled(torch.ones(2)), (torch.ones(2) * 3, False))
        same(module.a, torch.ones(2) * 2)
    assert len(backend) >= 1


def tree_map(fn, tree, *others):
    if isinstance(tree, dict):
        return type(tree)((k, tree_map(fn, tree[k], *[o[k] for o in others])) for k in tree)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(tree_map(fn, *parts) for parts in zip(tree, *others)))
    if isinstance(tree, (list, tuple)):
        return type(tree)(tree_map(fn, *parts) for parts in zip(tree, *others))
    return fn(tree, *others) if torch.is_tensor(tree) else tree


def test_only_named_tuples_have_fields(check):
    def fn(tree):
        mapped = tree_map(lambda a, b: a + b, tree, tree_map(lambda a: a * 2, tree))
        return mapped, hasattr(tree, "_fields"), hasattr(torch.ones(2, 2).max(0), "_fields")

    t = torch.ones(2)
    check(fn, (t, 3))
    check(fn, Row(t, None))
    check(fn, {"a": t, "b": [t, (t, 3)], "c": Row(t, None)})


def test_containers_of_two_things(check):
    def fn(t):
        found = []
        for kind in (tuple, list, set, frozenset):
            try:
                found.append(kind(t, t))
            except TypeError as error:
                found.append(str(error))
        return t + 1, found

    check(fn, torch.ones(2))


def descriptor_of(*ways):
    """A descriptor with these special methods, which keep the attribute in the instance's dict."""
    methods = {
        "__get__": lambda self, owner, kind=None: ("got", owner.__dict__.get("a")),
        "__set__": lambda self, owner, value: owner.__dict__.update(a=("set", value)),
        "__delete__": lambda self, owner: owner.__dict__.update(a="deleted"),
    }
    return type("Descriptor", (), {way: methods[way] for way in ways})()


def read(owner):
    found = owner.a
    return found if isinstance(found, tuple | str | int) else type(found).__name__


def write(owner):
    try:
        owner.a = 5
    except AttributeError as error:
        return str(error), owner.__dict__
    return read(owner), owner.__dict__


def delete(owner):
    try:
        del owner.a
    except AttributeError as error:
        return str(error), owner.__dict__
    return owner.__dict__


WAYS = ("__get__", "__set__", "__delete__")


@pytest.mark.parametrize("made", [False, True])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("use", [read, write, delete])
@pytest.mark.parametrize(
    "ways", [c for n in range(4) for c in itertools.combinations(WAYS, n)], ids="".join
)
def test_which_comes_first_the_descriptor_or_the_instance(capture, same, ways, use, own, made):
    """One that sets and does not get is not asked where the instance has the attribute."""
    kind = type("Owner", (), {"a": descriptor_of(*ways)})

    def owner():
        found = kind()
        if own:
            found.__dict__["a"] = 3
        return found

    def run(x, owner=owner):
        return x + 1, use(owner() if made else owner)

    x = torch.ones(2)
    given = () if made else (owner(),)
    expected = run(x, *given)
    given = () if made else (owner(),)
    same(capture(run)(x, *given), expected)
