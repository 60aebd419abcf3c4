"""Numeric and string built-ins: int, float, bool, str, round, min, max, sum, `math`.

In: values. Out: values. Invariant: a number read from a tensor's data is a graph break; the
computation on known numbers is Python's own.
"""

from __future__ import annotations

import cmath
import functools
import itertools
import math
import operator
import types
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch

from flambeau_capture.breaks import Break
from flambeau_capture.builtins.argument_unpacking import spread
from flambeau_capture.builtins.operations.operators import binary, unary
from flambeau_capture.builtins.texts import text_value
from flambeau_capture.bytecode.opcodes import VERSION
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value, needing, unpack
from flambeau_capture.values.constant import Constant, evaluate, is_none, refuse
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.call_rules import evaluate_call, handles, pure
from flambeau_capture.values.numpy.arrays import ArrayNumber
from flambeau_capture.values.objects.answers import ask
from flambeau_capture.values.objects.attributes import call_special, class_attribute, find_in_class
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.tensors.graph_calls import graph_call
from flambeau_capture.values.tensors.numbers import open_choices
from flambeau_capture.values.tensors.numbers.data_numbers import is_as_in_general, selected
from flambeau_capture.values.tensors.numbers.open_text import open_text
from flambeau_capture.values.tensors.numbers.ranges import note_computation
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue, is_known
from flambeau_capture.values.tensors.tensor import TensorValue, is_whole, known_number

_FALSE, _TRUE, _NONE, _ONE = Constant(False), Constant(True), Constant(None), Constant(1)
_NUMBERED_BY: dict[type, tuple[str, ...]] = {
    int: ("__int__", "__index__"),
    float: ("__float__", "__index__"),
    complex: ("__complex__", "__float__", "__index__"),
}
"""The special methods that convert an object to a number, in the order of their calls."""


def _convert(kind: type) -> None:
    @handles(kind)
    def convert(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if args and isinstance(args[0], TensorValue):
            dtype = args[0].fake.dtype
            read = is_whole(dtype) or (kind is float and dtype.is_floating_point)
            if (
                kind is not complex
                and read
                and len(args) == 1
                and (tx.data_sizes() or tx.reads_early())
            ):
                item = args[0].call_method(tx, "item", [], {})
                return evaluate_call(tx, kind, [item], {}) if item.cls is not kind else item
            number = known_number(tx, args[0]) if len(args) == 1 else None
            if number is not None:
                return Constant(kind(number))
            raise Break("FB0002", f"{kind.__name__}({args[0].describe()})")
        text = kind is complex and args and issubclass(args[0].cls, str)  # which is read first
        for name in _NUMBERED_BY[kind] if len(args) == 1 and not text else ():
            if args[0].special(tx, name):
                return ask(tx, args[0], name, by=kind)
            if find_in_class(args[0].cls, name) is not None:
                break  # the built-in class that it derives from has the word
        if kind is complex and len(args) == 2:  # the imaginary part's `__complex__` is not called
            args = [_as_number(tx, args[0], complex), _as_number(tx, args[1], float)]
        plain = [_payload(arg) for arg in args]
        derived = any(one is not arg for one, arg in zip(plain, args))
        if derived and all(isinstance(one, Constant) for one in plain):
            evaluate(tx, kind, *(_namesake(arg) for arg in args))
        return evaluate_call(tx, kind, plain, kwargs)


def _namesake(value: Value) -> Any:
    """The number or text that an instance of a subclass is, in a class of that name: a refusal says
    the name."""
    inner = _payload(value)
    plain = inner.as_python()
    return plain if inner is value else type(value.cls.__name__, (type(plain),), {})(plain)


def _payload(value: Value) -> Value:
    inner = value.payload if isinstance(value, ObjectValue) else None
    return inner if isinstance(inner, Constant) else value


for _kind in _NUMBERED_BY:
    _convert(_kind)


spread(
    {
        bool: lambda tx, value=_FALSE: Constant(value.truth(tx)),
        abs: lambda tx, value: unary(tx, "abs", value),
        any: lambda tx, items: Constant(any(_truths(tx, items))),
        all: lambda tx, items: Constant(all(_truths(tx, items))),
        math.prod: lambda tx, items, *, start=_ONE: _total(tx, "*", unpack(tx, items), start),
        math.fsum: lambda tx, items: evaluate_call(
            tx, math.fsum, [TupleValue(unpack(tx, items))], {}
        ),
    }
)


def _truths(tx: Tracer, items: Value) -> Iterator[bool]:
    return (item.truth(tx) for item in items.iterate(tx).drain(tx))


def _total(tx: Tracer, symbol: str, items: Sequence[Value], start: Value) -> Value:
    return functools.reduce(partial(binary, tx, symbol), items, start)


@handles(str)
def _str(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1 and not kwargs:
        if isinstance(args[0], SymbolValue):
            return open_text(tx, args[0], "") or Constant(str(args[0].value))
        if isinstance(args[0], Constant):
            return Constant(evaluate(tx, str, args[0].value))
        return text_value(tx, args[0], "__str__")
    return evaluate_call(tx, str, args, kwargs)


@handles(round)
def _round(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], TensorValue):
        if not hasattr(torch.Tensor, "__round__"):
            tx.raise_error(TypeError, "type Tensor doesn't define __round__ method")
        return graph_call(tx, "call_function", torch.round, list(args), kwargs)
    if (
        isinstance(args[0], ArrayNumber)
        and args[0].number.cls is int
        and len(args) == 1 > len(kwargs)
    ):
        return args[0].number if type(round(args[0].cls(1))) is int else args[0]
    if args[0].special(tx, "__round__"):
        return tx.call(class_attribute(tx, args[0], args[0].cls, "__round__"), args[1:], kwargs)
    return evaluate_call(tx, round, args, kwargs)


def _extreme(fn: Any, symbol: str) -> None:
    @handles(fn)
    def extreme(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        items = unpack(tx, args[0]) if len(args) == 1 else list(args)
        if not items:
            if "default" in kwargs:
                return kwargs["default"]
            evaluate(tx, fn, ())  # raises, in the words of the running Python
        key = kwargs.get("key", _NONE)
        best, best_key = None, None
        for item in items:
            item_key = item if is_none(key) else tx.call(key, [item], {})
            if best is not None and is_none(key):
                chosen = open_choices.extreme(tx, symbol, item, best)
                if chosen is not None:
                    best = best_key = chosen
                    continue
            better = _TRUE if best_key is None else binary(tx, symbol, item_key, best_key)
            if best is not None and is_none(key) and not is_known(better):
                chosen = selected(tx, better, item, best)
                if chosen is not None:
                    note_computation(tx, chosen, fn.__name__, item, best)
                    best = best_key = chosen
                    continue
            if (
                best is not None
                and is_none(key)
                and is_as_in_general(tx, symbol, item, best, better)
            ):
                best = best_key = item if isinstance(item, TensorValue) else best
                continue
            if better.truth(tx):
                best, best_key = item, item_key
        assert best is not None
        return best


_extreme(min, "<")
_extreme(max, ">")


CARRIES_ERROR = VERSION >= (3, 12)


@handles(sum)
def _sum(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """From 3.12 on Python adds the leading numbers itself: it carries the error of floats along."""
    given = args[1] if len(args) > 1 else kwargs.get("start")
    total = Constant(0) if given is None else given
    items = unpack(tx, args[0])
    plain = [*itertools.takewhile(_is_plain, (total, *items))]
    several = len(plain) > (3 if given is None else 2)
    if CARRIES_ERROR and several and any(item.cls is float for item in plain):
        start, *numbers = [item.value for item in plain if isinstance(item, Constant)]
        total, items = Constant(sum(numbers, start)), items[len(numbers) :]
    return _total(tx, "+", items, total)


def _is_plain(value: Value) -> bool:
    return isinstance(value, Constant) and value.cls in (int, bool, float)


#: functions of `math` that take what can be iterated over
_OF_ITEMS = (math.prod, math.fsum)


def _module_functions(module: types.ModuleType) -> list[Any]:
    found = [getattr(module, name) for name in dir(module)]
    return [f for f in found if isinstance(f, types.BuiltinFunctionType) and f not in _OF_ITEMS]


#: those that take integers
_OF_INTEGERS = (math.factorial, math.comb, math.perm, math.gcd, math.lcm, math.isqrt)
_OWN = ("__floor__", "__ceil__", "__trunc__")


def _as_number(tx: Tracer, value: Value, kind: type) -> Value:
    """An argument of `math` or `cmath`: an object of the program says which number it is."""
    if issubclass(value.cls, kind):
        return _payload(value)
    for special in ("__index__",) if kind is int else _NUMBERED_BY[kind]:
        if value.special(tx, special):
            return ask(tx, value, special, by=operator.index if kind is int else kind)
        if find_in_class(value.cls, special) is not None:
            return _payload(value)
    return value


for _fn in (*_module_functions(math), *_module_functions(cmath)):

    def _math(tx: Tracer, args: Args, kwargs: Kwargs, _fn: Any = _fn) -> Value:
        kind = complex if _fn.__module__ == "cmath" else int if _fn in _OF_INTEGERS else float
        for arg in args:
            if isinstance(arg, TensorValue):
                raise Break("FB0002", f"math.{_fn.__name__}({arg.describe()})")
        special = f"__{_fn.__name__}__"
        if special in _OWN and args[0].special(tx, special):
            return call_special(tx, args[0], special, [])
        if _fn is math.trunc and len(args) == 1:  # which calls nothing else
            if find_in_class(args[0].cls, special) is None:
                refuse(tx, _fn, args[0])
            return evaluate_call(tx, _fn, [_payload(args[0])], kwargs)
        with needing("FB0005", lambda error: f"math.{_fn.__name__}: {error}"):
            return evaluate_call(tx, _fn, [_as_number(tx, arg, kind) for arg in args], kwargs)

    handles(_fn)(_math)

pure(bin, hex, oct, chr, ord, str.maketrans, float.fromhex, bytes.fromhex,
     bytes.maketrans)  # fmt: skip
