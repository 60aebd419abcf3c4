"""Context variables, weak references, containers of a class, dir(): one graph each."""

import contextvars
import functools
import math
import re
import weakref
from collections import OrderedDict, defaultdict, deque

import torch
from torch import nn

WITH = contextvars.ContextVar("WITH", default=2)
WITHOUT = contextvars.ContextVar("WITHOUT")


class Ring(deque):
    def __init__(self, size):
        super().__init__(maxlen=size)
        self.size = size

    def add(self, item):
        self.append(item)
        return self

    @property
    def mean(self):
        return sum(self) / len(self)


class Lists(defaultdict):
    def __init__(self):
        super().__init__(list)
        self.kind = "lists"

    def add(self, key, value):
        self[key].append(value)
        return self


class Tree(defaultdict):
    def __missing__(self, key):
        self[key] = Tree()
        return self[key]


class Names(frozenset):
    def has(self, name):
        return name in self


class Data(bytes):
    def first(self):
        return self[0]


class Count(int):
    def __add__(self, other):
        return Count(int(self) + int(other) * 10)


class Plain:
    kind = "plain"
    get_root = math.sqrt  # a built-in function does not bind

    def __init__(self):
        self.value = 2


class Loose(dict):
    __getattr__ = dict.get


class Slotted:
    __slots__ = ("a",)


class Handled:
    @functools.singledispatchmethod
    def go(self, value):
        return "any"

    @go.register
    def _(self, value: int):
        return value + 1


def test_new_containers_of_a_class(check):
    def fn(t):
        ring = Ring(2).add(t).add(t * 2).add(t * 3)
        lists = Lists().add("a", t).add("a", 2).add("b", 3)
        tree = Tree()
        tree["p"]["q"]["r"]
        made = list(ring), ring.maxlen, len(lists["b"]), lists.kind, list(tree["p"])
        return ring.mean, made, lists

    check(fn, torch.ones(3))


def test_existing_containers_of_a_class(capture, backend):
    def fn(t, ring, lists, names, data):
        ring.append(3)
        lists["z"].append(t)
        return list(ring), ring.maxlen, names.has("a"), data.first(), len(names), t + len(lists)

    ring, lists = Ring(2).add(1), Lists().add("z", 1)
    t = torch.ones(3)
    found = capture(fn)(t, ring, lists, Names("ab"), Data(b"xy"))
    assert found[:-1] == ([1, 3], 2, True, ord("x"), 2)
    assert ring == deque([1, 3], 2) and type(ring) is Ring
    assert lists["z"][1] is t and lists.default_factory is list and len(backend) == 1


def test_numbers_and_sets_of_a_class(check):
    def fn(t):
        return t + 1, Names([1, 2]), Names([1]).has(1), Data(b"ab").first(), Count(1) + 2

    check(fn, torch.ones(3))


def test_context_variables(capture, backend):
    def inner():
        return WITH.get()

    def fn(t):
        token = WITH.set(5)
        try:
            first = t * inner()
        finally:
            WITH.reset(token)
        try:
            WITHOUT.get()
        except LookupError:
            first = first + 1
        return first, WITHOUT.get("d"), t * inner()

    compiled = capture(fn)
    for number, graphs in ((2, 1), (2, 1), (3, 2)):
        context = contextvars.copy_context()
        context.run(WITH.set, number)
        first, default, second = context.run(compiled, torch.ones(1))
        assert (first.item(), default, second.item()) == (6, "d", number)
        assert context.get(WITH) == number and WITHOUT not in context
        assert len(backend) == graphs


def test_a_context_variable_that_stays_set(capture):
    def fn(t):
        WITHOUT.set("s")
        return t + 1, WITHOUT.get()

    context = contextvars.copy_context()
    assert context.run(capture(fn), torch.ones(1))[1] == "s"
    assert context.get(WITHOUT) == "s"


def test_weak_references(one_graph):
    plain = Plain()

    def fn(t):
        made = Plain()
        made.link = weakref.ref(plain)
        return t + made.link().value, made.link() is plain

    one_graph(fn)


def test_a_weak_reference_that_leaves(capture):
    plain = Plain()
    link = capture(lambda t: (weakref.ref(plain), t + 1))(torch.ones(1))[0]
    assert isinstance(link, weakref.ref) and link() is plain


def test_a_weak_reference_to_what_is_new_is_asked_in_python(capture):
    def fn(t):
        link = weakref.ref(Plain())
        return t + 1, link()

    assert capture(fn)(torch.ones(1))[1] is None


def test_names_of_an_object(capture, backend):
    plain = Plain()

    def fn(t):
        return t + 1, [name for name in dir(plain) if name[0] != "_"], "value" in dir(Plain)

    compiled = capture(fn)
    assert compiled(torch.ones(1))[1:] == (["get_root", "kind", "value"], False)
    plain.later = 1
    assert "later" in compiled(torch.ones(1))[1]
    try:
        Plain.value = 3
        assert compiled(torch.ones(1))[2] is True
    finally:
        del Plain.value
    assert len(backend) == 3


def test_replacing_by_a_function(one_graph):
    digits = re.compile(r"(\d+)")

    def fn(t):
        one = re.sub(r"\d+", lambda found: str(int(found.group()) * 2), "a1b22c3", count=2)
        other = digits.sub(lambda found: f"<{found.group(1)}>", "7x8")
        return t + 1, one, other, digits.sub("q", "a1"), re.sub("a*", lambda found: "-", "baac")

    one_graph(fn)


def test_dispatch_in_a_method(one_graph):
    one_graph(lambda t: (t + Handled().go(3), Handled().go("a")))


def test_attributes_of_classes_in_c(check):
    def fn(t, loose):
        slotted = Slotted()
        try:
            slotted.a  # noqa: B018
        except AttributeError as error:
            text = str(error)
        return t * loose.a, loose.missing, text, Plain().get_root(16.0)

    check(fn, torch.ones(3), Loose(a=2))


class Wrapped(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.module, name)

    def forward(self, value):
        return self.module(value) * self.in_features


def test_attributes_that_a_wrapper_hands_on(one_graph):
    module = Wrapped(nn.Linear(3, 3))
    one_graph(lambda t: module(t) + module.weight.sum())


def test_a_compiled_module_inside_of_compiled_code(capture, backend, same):
    module = nn.Linear(3, 2)
    inner = capture(module)
    outer = capture(lambda t: inner(t).sum() + inner.weight.sum())
    t = torch.ones(3)
    same(outer(t), module(t).sum() + module.weight.sum(), "result")
    assert len(backend) == 1


def test_an_init_that_another_compiler_has_wrapped(capture, backend, monkeypatch):
    """As that compiler leaves `nn.Module.__init__` for the rest of the process."""
    original, tagged = nn.Module.__init__, []

    def install_generation_tagging_init():
        init = original

        def patched_init(self, *args, **kwargs):
            init(self, *args, **kwargs)
            tagged.append(type(self))

        return patched_init

    patched = install_generation_tagging_init()
    patched.__module__ = "torch._dynamo.mutation_guard"
    patched.__qualname__ = "install_generation_tagging_init.<locals>.patched_init"
    layers = nn.ModuleList([nn.ReLU(), nn.Tanh(), nn.ReLU()])
    monkeypatch.setattr(nn.Module, "__init__", patched)

    def fn(t):
        for layer in layers[:2]:
            t = layer(t)
        return t

    compiled = capture(fn)
    for _ in range(2):
        compiled(torch.ones(3))
    assert len(backend) == 1


def test_another_init_concerns_who_makes_instances(capture, backend):
    class Scale:
        def __init__(self, by):
            self.by = by

        def __call__(self, value):
            return value * self.by

    def replaced(self, by):
        self.by = by + 10

    made_before = Scale(2.0)
    uses = capture(lambda t: made_before(t))
    makes = capture(lambda t: Scale(3.0)(t))
    t = torch.ones(3)
    assert uses(t)[0] == 2 and makes(t)[0] == 3
    Scale.__init__ = replaced
    assert uses(t)[0] == 2 and len(backend) == 2
    assert makes(t)[0] == 13 and len(backend) == 3


def test_classes_that_gain_what_makes_their_instances(capture):
    class Plain:
        by = 2.0

    class Failure(ValueError):
        by = 2.0

    def makes(t):
        return t * Plain().by

    def fails(t):
        try:
            raise Failure
        except Failure as error:
            return t * error.by

    def further(self):
        self.by = 5.0

    def instead(kind):
        made = object.__new__(kind)
        made.by = 7.0
        return made

    t = torch.ones(3)
    compiled = capture(makes), capture(fails)
    assert [fn(t)[0] for fn in compiled] == [2, 2]
    Plain.__init__ = Failure.__init__ = further
    assert [fn(t)[0] for fn in compiled] == [5, 5]
    del Plain.__init__
    Plain.__new__ = instead
    assert compiled[0](t)[0] == 7


def test_the_message_of_an_attribute_that_is_not_there(check):
    def fn(t):
        try:
            return OrderedDict(a=1).nothing, t
        except AttributeError as error:
            return t + 1, str(error)

    check(fn, torch.ones(3))
