"""Methods of built-in containers that make or fill an instance of a subclass.

In: an instance with a built-in part, and arguments. Out: `METHODS`, by the built-in class and the
method's name. Invariant: a subclass's own methods are called exactly where CPython calls them.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flambeau_capture.polyfills import deques
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value, unpack
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.dicts import DictValue, default_of, pairs_of
from flambeau_capture.values.containers.sets import SetValue

if TYPE_CHECKING:
    from flambeau_capture.values.objects.instances import ObjectValue

Handler = Callable[["ObjectValue", Tracer, Args, Kwargs], Value]


def _new(tx: Tracer, like: Value, *args: Value) -> Value:
    return tx.instantiate(tx.wrap_new(like.cls), args, {})


def _fill(target: Value, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    for given in args:
        for key, value in pairs_of(tx, given, ordered=True):
            target.set_item(tx, key, value)
    for name, value in kwargs.items():
        target.set_item(tx, Constant(name), value)
    return Constant(None)


def _setdefault(self: ObjectValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if self.contains(tx, args[0]):
        return self.get_item(tx, args[0])
    default = default_of(args, kwargs)
    self.set_item(tx, args[0], default)
    return default


def _copy_ordered(self: ObjectValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    made = _new(tx, self)
    for key in unpack(tx, built_in_part(self)):
        made.set_item(tx, key, self.get_item(tx, key))
    return made


def _merge_ordered(tx: Tracer, left: Value, right: Value) -> Value:
    ordered = left if issubclass(left.cls, collections.OrderedDict) else right
    made = _new(tx, ordered, left)
    _fill(made, tx, [right], {})
    return made


def _merge_dicts(tx: Tracer, left: Value, right: Value) -> Value:
    made = DictValue(pairs_of(tx, left), tx=tx)
    made.call_method(tx, "update", [right], {})
    return made


def _copy_default(self: ObjectValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _new(tx, self, tx.get_attr(self, "default_factory"), self)


def _merge_default(tx: Tracer, left: Value, right: Value) -> Value:
    default = left if issubclass(left.cls, collections.defaultdict) else right
    made = _new(tx, default, tx.get_attr(default, "default_factory"), left)
    built_in_part(made).call_method(tx, "update", [right], {})
    return made


Merge = Callable[[Tracer, Value, Value], Value]


def _operator(merge: Merge, reflected: bool = False) -> Handler:
    def run(self: ObjectValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if not issubclass(args[0].cls, dict):
            return Constant(NotImplemented)
        return merge(tx, *((args[0], self) if reflected else (self, args[0])))

    return run


def _in_python(function: Callable[..., Any]) -> Handler:
    """A method that is a function of Python, for it calls what the subclass defines."""
    return lambda self, tx, args, kwargs: tx.call(tx.wrap_new(function), [self, *args], {**kwargs})


def _compared(compare: Callable[[Any, Any], Any]) -> Handler:
    def run(self: ObjectValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if not issubclass(args[0].cls, collections.deque):
            return Constant(NotImplemented)
        given = [self, args[0], tx.wrap_new(compare)]
        return tx.call(tx.wrap_new(deques.compared), given, {})

    return run


def built_in_part(value: Value) -> Value:
    """The built-in part of an instance; what else there is has no other."""
    part: Value | None = getattr(value, "payload", None)
    return value if part is None else part


METHODS: dict[tuple[type, str], Handler] = {
    (dict, "copy"): lambda s, tx, a, k: DictValue(pairs_of(tx, s), tx=tx),
    (dict, "__or__"): _operator(_merge_dicts),
    (dict, "__ror__"): _operator(_merge_dicts, reflected=True),
    (frozenset, "copy"): lambda s, tx, a, k: SetValue([], frozenset, tx=tx).filled(tx, s),
    (collections.OrderedDict, "__init__"): _fill,
    (collections.OrderedDict, "update"): _fill,
    (collections.OrderedDict, "__ior__"): lambda s, tx, a, k: (_fill(s, tx, a, k), s)[1],
    (collections.OrderedDict, "setdefault"): _setdefault,
    (collections.OrderedDict, "copy"): _copy_ordered,
    (collections.OrderedDict, "__copy__"): _copy_ordered,
    (collections.OrderedDict, "__or__"): _operator(_merge_ordered),
    (collections.OrderedDict, "__ror__"): _operator(_merge_ordered, reflected=True),
    (collections.defaultdict, "copy"): _copy_default,
    (collections.defaultdict, "__copy__"): _copy_default,
    (collections.defaultdict, "__or__"): _operator(_merge_default),
    (collections.defaultdict, "__ror__"): _operator(_merge_default, reflected=True),
    (collections.deque, "copy"): _in_python(deques.copied),
    (collections.deque, "__copy__"): _in_python(deques.copied),
    (collections.deque, "__repr__"): _in_python(deques.text),
    (collections.deque, "__add__"): _in_python(deques.joined),
    (collections.deque, "__mul__"): _in_python(deques.repeated),
    (collections.deque, "__rmul__"): _in_python(deques.repeated),
    **{
        (collections.deque, f"__{by.__name__}__"): _compared(by)
        for by in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
    },
}
