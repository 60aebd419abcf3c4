"""A compiled function, or method, answers what libraries ask of one as the original does.

Generated: every question of `inspect`, every attribute of a function, what else the standard
library asks, of each kind of function that the language has. A compiled object that is neither a
function nor a method (a partial, an instance) answers what `functools.update_wrapper` gives it.
"""

import asyncio
import copy
import dis
import functools
import inspect
import pickle
import types
import typing

import pytest
import torch

import flambeau


def plain(x, /, a: int = 2, *args, k=3, **rest) -> "torch.Tensor":
    """Of a function."""
    return x + a + k


def generator(x):
    yield x


async def coroutine(x):
    return x


async def both(x):
    yield x


class Holder:
    def method(self, x, a=1):
        return x + a

    @classmethod
    def of_class(cls, x):
        return x

    @staticmethod
    def static(x):
        return x

    @flambeau.compile(backend="eager")
    def compiled(self, x):
        return x + 1


def enclosed():
    v = 2

    def inner(x):
        return x + v

    return inner


HOLDER = Holder()
KINDS = {
    "plain": plain, "generator": generator, "coroutine": coroutine, "both": both,
    "method": HOLDER.method, "of_class": Holder.of_class, "static": Holder.static,
    "unbound": Holder.method, "enclosed": enclosed(), "lambda": lambda x: x,
    "wrapping": functools.wraps(plain)(lambda *a: plain(*a)),
}  # fmt: skip
QUESTIONS = {
    name: getattr(inspect, name)
    for name in dir(inspect)
    if name.startswith("is") and not name.startswith("iskey")
} | {
    "signature": inspect.signature,
    "own signature": lambda f: inspect.signature(f, follow_wrapped=False),
    "argument names": inspect.getfullargspec,
    "source": inspect.getsource,
    "lines": inspect.getsourcelines,
    "file": inspect.getfile,
    "documentation": inspect.getdoc,
    "comments": inspect.getcomments,
    "module": inspect.getmodule,
    "closure": inspect.getclosurevars,
    "annotations": inspect.get_annotations,
    "hints": typing.get_type_hints,
    "unwrapped": lambda f: inspect.unwrap(f).__code__,
    "callable": callable,
    "coroutine": asyncio.iscoroutinefunction,
    "class": lambda f: f.__class__,
    "instance": lambda f: isinstance(f, types.FunctionType | types.MethodType),
    "instructions": lambda f: [(i.opname, i.argval) for i in dis.get_instructions(f)],
}  # fmt: skip
ATTRIBUTES = sorted(
    {
        name
        for name in (*dir(plain), *dir(HOLDER.method))
        if isinstance(
            getattr(types.FunctionType, name, getattr(types.MethodType, name, None)),
            types.GetSetDescriptorType | types.MemberDescriptorType | str,
        )
    }
    - {"__dict__"}  # has what belongs to the compiled function
)


def answer(question, target):
    try:
        return question(target)
    except (TypeError, ValueError, AttributeError, OSError) as error:
        return type(error)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_asked_of_a_function(kind):
    original = KINDS[kind]
    compiled = flambeau.compile(original, backend="eager")
    asked = dict(QUESTIONS)
    asked |= {name: functools.partial(lambda n, f: getattr(f, n), name) for name in ATTRIBUTES}
    differ = {
        name: (answer(question, original), answer(question, compiled))
        for name, question in asked.items()
        if answer(question, original) != answer(question, compiled)
    }
    assert not differ
    assert {"__code__", "__defaults__", "__name__", "__doc__"} <= {*ATTRIBUTES}


def test_what_is_written_to_a_function():
    """Its parts are the original's; what names it is its own, as with `functools.wraps`."""

    def f(x, a=1, *, k=2):
        return x + a + k

    compiled, x = flambeau.compile(f, backend="eager"), torch.zeros(1)
    assert compiled(x).item() == 3
    compiled.__defaults__, compiled.__kwdefaults__ = (10,), {"k": 20}
    assert compiled(x).item() == f(x).item() == 30
    compiled.__code__ = (lambda x, a=1, *, k=2: x - a - k).__code__
    assert compiled(x).item() == f(x).item() == -30
    del compiled.__defaults__
    assert f.__defaults__ is None
    compiled.__name__, compiled.__doc__ = "other", "Other."
    assert (f.__name__, f.__doc__) == ("f", None)


def test_members_of_a_class():
    assert dict(inspect.getmembers(Holder, inspect.isfunction)).keys() >= {"method", "compiled"}
    assert inspect.ismethod(HOLDER.compiled) and HOLDER.compiled.__self__ is HOLDER


def test_copies_are_compiled():
    compiled = flambeau.compile(plain, backend="eager")
    for made in (copy.copy, copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))):
        twin = made(compiled)
        assert type(twin) is type(compiled) and twin.__code__ is plain.__code__


def test_inside_of_a_compiled_function():
    """A compiled function is a function there too, and is called as one."""
    inner, holder = flambeau.compile(enclosed(), backend="eager"), Holder()

    def f(x):
        if inspect.isfunction(inner) and isinstance(inner, types.FunctionType):
            x = x * 2
        return inner(x) + holder.compiled(x)

    x = torch.ones(2)
    assert torch.equal(flambeau.compile(f, backend="eager")(x), f(x))


def test_torch_fx_and_script_take_one():
    def f(x, n: int = 2):
        return x.sin() + n

    for trace in (torch.fx.symbolic_trace, torch.jit.script):
        x = torch.ones(2)
        assert torch.equal(trace(flambeau.compile(f, backend="eager"))(x), f(x))
