"""Wrapper subclasses: what their code does besides computing, what is guarded, what is refused."""

import itertools
import logging

import flambeau_capture as fc
import pytest
import torch
from flambeau_capture.values.tensors.subclasses.dispatch_code import examine

LOG, TABLE, NUMBER, COUNT = [], {}, 1.0, itertools.count()
log = logging.getLogger(__name__)


class Statistics:
    n = 0


statistics = Statistics()


def note(func):
    LOG.append(func)


def bump():
    global NUMBER
    NUMBER += 1


def factor():
    return NUMBER


SOURCE = """
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing


class Box(torch.Tensor):
    seen = {{}}
    n = 0

    @staticmethod
    def __new__(cls, inner, context=None):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype
        )

    def __init__(self, inner, context=None):
        self.inner, self.context = inner, context

    def __tensor_flatten__(self):
        return ["inner"], self.context

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Box(inner["inner"], context)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        {body}
        kwargs = kwargs or {{}}
        plain, named = pytree.tree_map_only(Box, lambda x: x.inner, (args, kwargs))
        context = next(x.context for x in pytree.tree_leaves(args) if isinstance(x, Box))
        out = pytree.tree_map_only(torch.Tensor, lambda x: Box(x, context), func(*plain, **named))
        return return_and_correct_aliasing(func, args, kwargs, out)
"""


def box_class(body="pass"):
    """A wrapper subclass with a line of its own in `__torch_dispatch__`."""
    names = globals()
    exec(SOURCE.format(body=body), names)
    return names["Box"]


EFFECTS = (
    "print(func)",
    "cls.n += 1",
    "Statistics.n += 1",
    "statistics.n += 1",
    "LOG.append(func)",
    "note(func)",
    "bump()",
    "log.info('x')",
    "cls.seen[func] = 1",
    "s = cls.seen; s[func] = 1",
    "cls.seen.setdefault(func, 0)",
    "args[0].context = 3",
    "import time; time.time()",
    "from time import time; time()",
    "setattr(cls, 'n', 1)",
    "object.__setattr__(args[0], 'n', 2)",
    "next(COUNT)",
    "[LOG.append(a) for a in args]",
    "(lambda: LOG.append(1))()",
    "list.append(LOG, 1)",
    "getattr(LOG, 'append')(1)",
    "put = LOG.append; put(1)",
    "args[0].context.record(func)",
    "out = LOG if types else []; out.append(1)",
    "out = []\n        for _ in args:\n            out.append(1)\n            out = LOG",
)
NONE = (
    "pass",
    "kwargs = dict(kwargs or {}); kwargs['a'] = 1; del kwargs['a']",
    "out = []; out.append(1)",
    "out = {}; out.update(a=1)",
    "size = list(args[0].shape); size[0] = 1",
    "out = [1] * 3; out[0] //= 2",
    "out = []\n        for _ in args:\n            out.append(1)",
    "assert func is not None, 'no operator'",
    "aten = torch.ops.aten; same = func is aten.slice.Tensor",
)


@pytest.mark.parametrize("body", EFFECTS)
def test_an_effect_is_found_and_nothing_runs(body) -> None:
    LOG.clear()
    kind = box_class(body)
    assert examine(kind).effect is not None
    x = kind(torch.ones(2))
    with pytest.raises(fc.Unsupported, match=r"(?s)FB00.*Box, whose"):
        fc.compile(lambda x: x * 2, backend="eager", fullgraph=True)(x)
    assert not LOG and kind.n == 0 and not kind.seen


@pytest.mark.parametrize("body", NONE)
def test_no_effect(body) -> None:
    kind = box_class(body)
    assert examine(kind).effect is None
    made = fc.compile(lambda x: x * 2, backend="eager", fullgraph=True)(kind(torch.ones(2)))
    assert type(made) is kind and made.inner.tolist() == [2, 2]


@pytest.mark.parametrize("body", ["cls.n += 1", "LOG.append(func)", "cls.seen[len(cls.seen)] = 1"])
def test_effects_happen_as_in_eager(body) -> None:
    kind = box_class(body)
    LOG.clear()
    fn = lambda x: (x * 2).sin() + x  # noqa: E731

    def effects(call):
        before = kind.n, len(LOG), len(kind.seen)
        call(kind(torch.ones(2)))
        return [now - then for now, then in zip((kind.n, len(LOG), len(kind.seen)), before)]

    compiled = fc.compile(fn, backend="eager")
    expected = effects(fn)
    assert any(expected)
    assert [effects(compiled) for _ in range(3)] == [expected] * 3


def test_a_class_that_does_not_flatten_is_refused_by_name() -> None:
    kind = box_class()
    del kind.__tensor_flatten__
    x = kind(torch.ones(2))
    with pytest.raises(fc.Unsupported, match=r"(?s)Box, whose class has no __tensor_flatten__"):
        fc.compile(lambda x: x * 2, backend="eager", fullgraph=True)(x)
    assert fc.compile(lambda x: x * 2, backend="eager")(x).inner.tolist() == [2, 2]


def replace_dispatch(kind):
    before = kind.__torch_dispatch__
    kind.__torch_dispatch__ = classmethod(
        lambda cls, func, types, args=(), kwargs=None: before(func, types, args, kwargs).inner
    )


def replace_helper(kind):
    globals()["factor"] = lambda: 5.0


def replace_number(kind):
    globals()["NUMBER"] = 3.0


def replace_in_table(kind):
    TABLE[torch.ops.aten.mul.Tensor] = "other"


def replace_member(kind):
    kind.n = 7


BODIES = {
    replace_dispatch: "pass",
    replace_helper: "args = (args[0], args[1] * factor()) if len(args) == 2 else args",
    replace_number: "args = (args[0], args[1] * NUMBER) if len(args) == 2 else args",
    replace_in_table: "args = (args[0], 9) if func in TABLE else args",
    replace_member: "args = (args[0], args[1] + cls.n) if len(args) == 2 else args",
}


@pytest.mark.parametrize("change", BODIES, ids=lambda fn: fn.__name__)
def test_what_dispatch_code_reads_is_guarded(change, monkeypatch) -> None:
    monkeypatch.setitem(globals(), "NUMBER", 1.0)
    monkeypatch.setitem(globals(), "factor", factor)
    monkeypatch.setitem(globals(), "TABLE", {})
    kind = box_class(BODIES[change])
    fn = lambda x: x * 2.0  # noqa: E731
    backend = known_at_capture()
    compiled = fc.compile(fn, backend=backend, fullgraph=True)
    x = kind(torch.ones(2))
    for _ in range(2):
        assert compiled(x).inner.tolist() == fn(x).inner.tolist()
    assert backend.count == 1
    change(kind)
    expected, given = fn(x), compiled(x)
    assert type(given) is type(expected) and backend.count == 2
    plain = lambda y: y.inner.tolist() if isinstance(y, kind) else y.tolist()  # noqa: E731
    assert plain(given) == plain(expected)


def known_at_capture():
    """A backend that runs graphs as they are, and counts them."""

    def backend(gm, inputs):
        backend.count += 1
        return gm.forward

    backend.count = 0
    return backend


CHANGES = {
    "context": lambda kind: kind(torch.ones(2), "other"),
    "inner dtype": lambda kind: kind(torch.ones(2, dtype=torch.float64)),
    "inner class": lambda kind: kind(kind(torch.ones(2))),
    "size": lambda kind: kind(torch.ones(3)),
    "stride": lambda kind: kind(torch.ones(4)[::2]),
    "requires_grad": lambda kind: kind(torch.ones(2)).requires_grad_(),
    "inner requires_grad": lambda kind: kind(torch.ones(2, requires_grad=True)),
    "plain": lambda kind: torch.ones(2),
}


@pytest.mark.parametrize("name", CHANGES)
def test_metadata_is_guarded(name) -> None:
    kind, backend = box_class(), known_at_capture()
    compiled = fc.compile(lambda x: x * 2, backend=backend, fullgraph=True)
    for expected, x in (
        (1, kind(torch.ones(2))),
        (1, kind(torch.zeros(2))),
        (2, CHANGES[name](kind)),
        (2, CHANGES[name](kind)),
        (2, kind(torch.ones(2))),
    ):
        assert type(compiled(x)) is type(x)
        assert backend.count == expected


def test_attributes_and_parts_are_the_programs_own() -> None:
    kind = box_class()

    def fn(x, plain):
        made = kind(plain, 3)
        return x.inner, x.context, made.inner is plain, made.context, (made * 2).context

    x, plain = kind(torch.ones(2), "mine"), torch.zeros(2)
    found = fc.compile(fn, backend="eager", fullgraph=True)(x, plain)
    assert found[0] is x.inner and found[1:] == fn(x, plain)[1:]
