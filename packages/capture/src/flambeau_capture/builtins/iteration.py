"""Iteration built-ins: iter, next, range, zip, map, enumerate, filter, reversed, sorted, itertools.

In: values. Out: iterators and lists. Invariant: nothing is iterated further than the program does.
"""

from __future__ import annotations

import bisect
import collections
import functools
import heapq
import itertools
import operator
import types
from collections.abc import Iterator
from typing import Any

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.builtins.argument_unpacking import spread
from flambeau_capture.bytecode.opcodes import VERSION
from flambeau_capture.identity import known_in
from flambeau_capture.observe.unguarded import name_of, unguarded
from flambeau_capture.polyfills import caching, calling, iterating
from flambeau_capture.values.argument_errors import check_call
from flambeau_capture.values.base import (
    TEE,
    Args,
    IteratorValue,
    Kwargs,
    MadeBy,
    SharedItems,
    Tracer,
    Value,
    unpack,
)
from flambeau_capture.values.constant import Constant, constant_of, evaluate, refuse
from flambeau_capture.values.containers.dict_views import DictView
from flambeau_capture.values.containers.dicts import DictValue
from flambeau_capture.values.containers.lists import ListValue, sort_values
from flambeau_capture.values.containers.sequences import TupleValue, index_of
from flambeau_capture.values.functions.builtin_functions import CALLED_WITH_ONE, MadeGetter
from flambeau_capture.values.functions.call_rules import Action, evaluate_call, handles, pure
from flambeau_capture.values.functions.functions import FunctionValue
from flambeau_capture.values.functions.taken_arguments import taken
from flambeau_capture.values.iterators.builtin import (
    RangeIterator,
    ReversedIterator,
    SequenceIterator,
)
from flambeau_capture.values.iterators.combined import (
    ChainIterator,
    CountIterator,
    EnumerateIterator,
    FilterIterator,
    MapIterator,
    UntilIterator,
    ZipIterator,
)
from flambeau_capture.values.iterators.existing_iterators import CallIterator
from flambeau_capture.values.iterators.generators import GeneratorValue
from flambeau_capture.values.objects.attributes import call_special, find_in_class
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.objects.made.made_objects import MadeObject
from flambeau_capture.values.special_methods import SpecialMethods
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue
from flambeau_capture.values.tensors.tensor import TensorValue

#: what the generators of a function inside a polyfill stand for, by its code
MADE_INSIDE = {
    code: SharedItems(calling.GROUP, (), {})
    for code in calling.groupby.__code__.co_consts
    if isinstance(code, types.CodeType)
}
_ZERO, _ONE = Constant(0), Constant(1)


#: what makes objects of a state that no call makes again: none leaves the frame
_STAY = (caching.singledispatch, caching.Cached)


def _stand_in(original: Any, python: Any) -> None:
    def handler(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        check_call(tx, original, args, kwargs)
        args, kwargs = taken(tx, python, args, kwargs)
        made = tx.call_python(python, args, kwargs)
        if original is itertools.tee:
            for branch in made.parts():  # type: ignore[attr-defined]
                branch.made_by = SharedItems(TEE, (), {})
        if original in CALLED_WITH_ONE:
            return MadeGetter(made, MadeBy(original, tuple(args), dict(kwargs)))
        if isinstance(made, GeneratorValue | FunctionValue):
            made.made_by = MadeBy(original, tuple(args), dict(kwargs))
        if python in _STAY:
            made.stays_since = tx.step()
        return made

    told_apart = original in (functools.cmp_to_key, itertools.tee)  # what they make
    action = Action.ANSWER if told_apart else Action.POLYFILL
    handles(original, action=action, python=None if told_apart else python)(handler)


@handles(iter)
def _iter(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 2:
        if find_in_class(args[0].cls, "__call__") is None:
            tx.raise_error(TypeError, "iter(v, w): v must be callable")
        return UntilIterator(*args)
    return args[0].iterate(tx)


@handles(next)
def _next(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    target = args[0]
    if isinstance(target, GeneratorValue) and len(args) == 1:
        return target.call_method(tx, "__next__", [], {})
    by_class = isinstance(target, ObjectValue | MadeObject)
    if by_class and find_in_class(target.cls, "__next__") is not None:
        if len(args) == 1:  # what it raises at its end is its own
            return call_special(tx, target, "__next__", [])
        target = CallIterator(target)
    if not isinstance(target, IteratorValue):
        if find_in_class(target.cls, "__next__") is not None:
            target.unknown("the next item")
        refuse(tx, next, target)
        raise AssertionError(target.describe())
    item = target.advance(tx)
    if item is not None:
        return item
    if len(args) > 1:
        return args[1]
    tx.raise_error(StopIteration)


@handles(range)
def _range(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    bounds = [*args]
    for place, bound in enumerate(args):
        if isinstance(bound, TensorValue):
            break  # by which the call ends the graph
        if not isinstance(bound, SymbolValue):
            bounds[place] = Constant(index_of(tx, bound))
    try:
        return evaluate_call(tx, range, bounds, kwargs)
    except Break as error:
        if error.reason.id != "FB0002":
            raise
        said = "range() of a number that data decides, and with it how many rounds a loop has"
        raise Break("FB0002", said) from None


@handles(zip)
def _zip(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    strict = "strict" in kwargs and kwargs["strict"].truth(tx)
    return ZipIterator([arg.iterate(tx) for arg in args], strict)


def _enumerate(tx: Tracer, iterable: Value, start: Value) -> Value:
    first = index_of(tx, start)
    return EnumerateIterator(iterable.iterate(tx), first)


spread(
    {
        map: lambda tx, fn, *items: MapIterator(fn, [each.iterate(tx) for each in items]),
        filter: lambda tx, fn, items: FilterIterator(fn, items.iterate(tx)),
        enumerate: lambda tx, iterable, start=_ZERO: _enumerate(tx, iterable, start),
        sorted: lambda tx, items, **how: ListValue(sort_values(tx, unpack(tx, items, True), how)),
        itertools.chain: lambda tx, *items: ChainIterator(list(items)),
        itertools.chain.from_iterable: lambda tx, items: ChainIterator(unpack(tx, items)),
        itertools.count: lambda tx, start=_ZERO, step=_ONE: CountIterator(start, step),
        itertools.repeat: lambda tx, object, times=None: CountIterator(
            object, None, None if times is None else constant_of(times)
        ),
    }
)


_REVERSED = (tuple, dict, collections.deque)


@handles(reversed)
def _reversed(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    target = args[0]
    own = find_in_class(target.cls, "__reversed__")
    if own is not None and own[1] is None:
        refuse(tx, reversed, target, __reversed__=None)
    if isinstance(target, TensorValue):
        return target.call_method(tx, "__reversed__", [], {})
    if isinstance(target, MadeObject):
        return target.reversed(tx)
    if target.special(tx, "__reversed__"):
        return call_special(tx, target, "__reversed__", [])
    if isinstance(target, SpecialMethods) and own is None:
        if find_in_class(target.cls, "__getitem__") is None:
            refuse(tx, reversed, target)
        return ReversedIterator(target, target.length(tx))
    if target.cls is range:
        return RangeIterator(constant_of(target)[::-1])
    if isinstance(target, Constant):
        items = evaluate(tx, reversed, target.value)
        return tx.wrap_evaluated(items, MadeBy(reversed, (target,), {}))
    if own is None and find_in_class(target.cls, "__getitem__") is None:
        refuse(tx, reversed, target)
    inner = getattr(target, "payload", None) or target  # whatever its class iterates over
    if isinstance(inner, ListValue | DictValue | DictView):
        return inner.call_method(tx, "__reversed__", [], {})
    made = SequenceIterator(TupleValue(unpack(tx, inner)[::-1]))
    if known_in(inner.cls, _REVERSED):
        made.made_by = MadeBy(reversed, (inner,), {})
    return made


if VERSION[:2] == (3, 13):  # which keeps what it has made by weak references

    @handles(functools.singledispatchmethod.__get__)
    def _dispatched(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        made, key = tx.heap.answers, ("dispatched", id(args[0]), id(args[1]))
        if key not in made:
            made[key] = tx.call_python(calling.dispatched_method, args, kwargs), args
        found: Value = made[key][0]
        return found


COUNT_ELEMENTS: Any = vars(collections)["_count_elements"]  # Counter's own, in C where there is one


def _alike(module: Any, prefix: str, polyfills: Any, names: str) -> Iterator[tuple[Any, Any]]:
    """Polyfills by what they are for, which has their name after a prefix, if this Python has."""
    for name in names.split():
        if hasattr(module, prefix + name):
            yield getattr(module, prefix + name), getattr(polyfills, name)


for _original, _python in (
    *_alike(
        itertools,
        "",
        iterating,
        "islice product accumulate starmap takewhile dropwhile zip_longest pairwise combinations "
        "permutations compress filterfalse combinations_with_replacement cycle tee",
    ),
    *_alike(heapq, "", iterating, "heapify heappush heappop heapreplace heappushpop"),
    # private, and named otherwise since Python 3.14
    *_alike(heapq, "_", iterating, "heapify_max heappop_max heapreplace_max"),
    *_alike(bisect, "", iterating, "insort_left insort_right"),
    *_alike(bisect, "", calling, "bisect_left bisect_right"),
    *_alike(operator, "", calling, "call itemgetter attrgetter methodcaller"),
    (operator.length_hint, calling.length_hint),
    (operator.countOf, iterating.count_of),
    (operator.indexOf, iterating.index_of),
    (functools.singledispatch, caching.singledispatch),
    (caching.CACHED, caching.Cached),
    (functools.cmp_to_key, calling.cmp_to_key),
    (functools.reduce, iterating.reduce),
    (itertools.groupby, calling.groupby),
    (COUNT_ELEMENTS, calling.count_elements),
    (compat.GROUP_TENSORS, iterating.group_tensors),
):
    _stand_in(_original, _python)


pure(caching.best_class)
unguarded(
    name_of(caching.best_class), "the bases of the class, and whose it is, are asked before it"
)
