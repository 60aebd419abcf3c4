"""Callables that are not Python functions: built-ins, torch's operators, slots, partials.

In: callables of the program. Out: `BuiltinValue`, `PartialValue`. Invariant: what a call does is
what the table of rules says; what it refuses is refused in Python's words.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Iterable
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.bytecode.decode import decode
from flambeau_capture.bytecode.flow import live_at
from flambeau_capture.frame.function_marks import MARK, REST
from flambeau_capture.polyfills.calling import KEY
from flambeau_capture.resume_runtime import Continue
from flambeau_capture.source import Attr, ConstantSource, InstanceAttr, Source
from flambeau_capture.values.argument_errors import check_call, check_method
from flambeau_capture.values.base import (
    Args,
    Kwargs,
    MadeBy,
    NotConcrete,
    Tracer,
    Value,
    needing,
    objects_of,
)
from flambeau_capture.values.constant import Constant, KnownObject, evaluate, nameless
from flambeau_capture.values.containers.dicts import DictValue, named_dict
from flambeau_capture.values.containers.sequences import (
    Pending,
    TupleValue,
    existing_sequence,
    given_before,
)
from flambeau_capture.values.functions.call_rules import (
    Action,
    describe_call,
    evaluate_call,
    is_bound,
    knowing,
)
from flambeau_capture.values.functions.methods import BoundMethod, MethodValue
from flambeau_capture.values.functions.taken_arguments import taken
from flambeau_capture.values.objects.attributes import Instance, find_in_class, instance_dict
from flambeau_capture.values.objects.opaque import FrozenValue
from flambeau_capture.values.registry import itself, tracked, wrap_known, wraps_type
from flambeau_capture.values.tensors.argument_names import by_place
from flambeau_capture.values.tensors.graph_calls import graph_call


class BuiltinValue(Value):
    cls: type

    def __init__(self, fn: Any, source: Source | None = None) -> None:
        self.fn = fn
        self.cls = type(fn)
        self.source = source

    def describe(self) -> str:
        return f"BuiltinValue({getattr(self.fn, '__name__', type(self.fn).__name__)})"

    def as_python(self) -> Any:
        return self.fn

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if not hasattr(self.fn, name):
            self.lacks(tx, name)
        found = getattr(self.fn, name)
        if isinstance(found, types.MethodWrapperType | types.BuiltinMethodType) and (
            getattr(found, "__self__", None) is self.fn
        ):
            return BoundMethod(self, name)
        source = self.source or ConstantSource(self.fn, "callable")
        return tx.wrap(found, Attr(source, name))

    def forwards(self, tx: Tracer, args: Args, kwargs: Kwargs) -> tuple[Value, Args, Kwargs] | None:
        python = tx.rule_of(self.fn).python
        if python is None:
            return None
        check_call(tx, self.fn, args, kwargs)
        return wrap_known(tx, python), *taken(tx, python, args, kwargs)

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        fn = self.fn
        rule = tx.rule_of(fn)
        if rule.handler is not None and not rule.of_called:
            check_call(tx, fn, args, kwargs)
            args, kwargs = by_place(fn, args, kwargs)
            with knowing(fn, args):
                found: Value = rule.handler(tx, args, kwargs) or Constant(None)
            return found
        if rule.handler is not None:
            found = rule.handler(tx, self, args, kwargs)
            return found
        if rule.action is Action.GRAPH:
            return graph_call(tx, "call_function", fn, args, kwargs)
        if rule.action is Action.EVALUATE:
            return evaluate_call(tx, fn, args, kwargs)
        if rule.action is Action.METHOD:
            method = _method_call(tx, fn, args, kwargs)
            if method is not None:
                return method
        raise Break(rule.reason or "FB0005", f"call_function {describe_call(fn, args)}")

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "__call__":
            return self.call(tx, args, kwargs)
        if name == "__get__" and isinstance(self.fn, functools._lru_cache_wrapper):
            return MethodValue(args[0], self)
        raise Break("FB0005", f"call_method {name} of {self.describe()}")

    def reconstruct(self, writer: Any) -> None:
        writer.load_const(self.fn)


def _method_call(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> Value | None:
    """The call of a method by its name; None where that would be another one."""
    if hasattr(fn, "__objclass__") and args:
        if not issubclass(args[0].cls, fn.__objclass__):
            evaluate(tx, fn, nameless(args[0]))
        check_method(tx, args[0], fn.__name__, args[1:], kwargs)
        if _has_another(args[0], fn):
            return _of_base(tx, fn, args, kwargs)
        return args[0].call_method(tx, fn.__name__, args[1:], kwargs)
    if not is_bound(fn):
        return None
    receiver = fn.__self__
    value = wrap_known(tx, receiver, "receiver")
    # whether asking a class for the function's name gives the function again
    again = isinstance(receiver, type) and bool(getattr(receiver, fn.__name__, None) == fn)
    if not isinstance(value, BuiltinValue) and not again and is_found_by_name(fn):
        return value.call_method(tx, fn.__name__, args, kwargs)
    return None


#: what `object` itself says of an instance, where capture takes what its class says
_SHOWN = frozenset({"__repr__", "__str__", "__format__", "__hash__", "__dir__", "__sizeof__"})


def _has_another(receiver: Value, fn: Any) -> bool:
    """Whether the receiver's class, or the built-in one that it derives from, has another method of
    this name than the one called, which is a base class's: `dict.__eq__` of an OrderedDict."""
    payload: Value | None = getattr(receiver, "payload", None)
    found = find_in_class(receiver.cls if payload is None else payload.cls, fn.__name__)
    if found is None or found[1] is fn:
        return False
    if not isinstance(found[1], types.FunctionType) or not isinstance(receiver, Instance):
        return True
    return payload is None and fn.__objclass__ is object and fn.__name__ in _SHOWN


def _of_base(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> Value:
    """What a base class's method gives for an object that never changes."""
    if not isinstance(args[0], Constant | KnownObject):
        described = f"{fn.__qualname__} of {args[0].describe()}, whose class has its own"
        raise Break("FB0005", described)
    with needing("FB0009", lambda error: f"{fn.__qualname__} with {error}"):
        plain, named = objects_of(args, kwargs)
    return tx.wrap_evaluated(evaluate(tx, fn, *plain, **named), MadeBy(fn, (*args,), {**kwargs}))


def is_found_by_name(method: Any) -> bool:
    """Whether nothing has replaced a bound method made in C, in its object or its class."""
    receiver, name = method.__self__, method.__name__
    if isinstance(receiver, type):
        return True
    found = find_in_class(type(receiver), name)
    if found is None or name in instance_dict(receiver):
        return found is None and name not in instance_dict(receiver)
    bind = getattr(type(found[1]), "__get__", None)
    if isinstance(found[1], types.FunctionType) or isinstance(bind, types.FunctionType):
        return False  # code of the program answers
    return bind is None or bool(bind(found[1], receiver, type(receiver)) == method)


class PartialValue(Value):
    """functools.partial."""

    described = "partial({0.fn})"
    cls: type = functools.partial
    built_once = True

    def __init__(
        self,
        fn: Value,
        args: list[Value],
        kwargs: dict[str, Value],
        source: Source | None = None,
        real: functools.partial[Any] | None = None,
    ) -> None:
        self.fn = fn
        self.args = args
        self.kwargs = kwargs
        self.source = source
        self.real = real

    def as_python(self) -> Any:
        plain, named = objects_of(self.args, self.kwargs)
        return functools.partial(self.fn.as_python(), *plain, **named)

    def as_key(self) -> Any:
        raise NotConcrete("an object that is made by asking is no key")

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name == "func":
            return self.fn
        if name == "args":
            return TupleValue(self.args)
        if name == "keywords":
            return named_dict(self.kwargs, tx)
        if name not in ("__class__", "__dict__") and self.real is not None:
            assert self.source is not None
            own = instance_dict(self.real)  # as `functools.update_wrapper` fills it
            if name in own:
                return tx.wrap(own[name], InstanceAttr(self.source, name))
            tx.guard(self.source, "NOT_IN_INSTANCE_DICT", name)
        found = find_in_class(functools.partial, name)
        if found is None:
            self.lacks(tx, name, "functools.partial")
        if name == "__call__":
            return BoundMethod(self, name)
        if isinstance(found[1], str):  # `__doc__`
            return Constant(found[1])
        self.unknown(f"attribute {name!r}")

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "__call__":
            return self.call(tx, args, kwargs)
        return super().call_method(tx, name, args, kwargs)

    def forwards(self, tx: Tracer, args: Args, kwargs: Kwargs) -> tuple[Value, Args, Kwargs]:
        given_before(tx, [*self.args, *self.kwargs.values()])
        return self.fn, [*self.args, *args], {**self.kwargs, **kwargs}

    def rebuild(self, writer: Any) -> None:
        writer.call(functools.partial, [self.fn, *self.args], self.kwargs)


@wraps_type(functools.partial)
@tracked
def wrap_partial(tx: Tracer, obj: functools.partial[Any], source: Source) -> Value:
    tx.guard(source, "TYPE_MATCH", functools.partial)
    args = tx.wrap(obj.args, Attr(source, "args"))
    keywords = tx.wrap(obj.keywords, Attr(source, "keywords"))
    assert isinstance(args, TupleValue) and isinstance(keywords, DictValue)
    named = {key.as_python(): value for key, value in keywords.entries()}
    return PartialValue(tx.wrap(obj.func, Attr(source, "func")), args.parts(), named, source, obj)


class UnreadValue(Value):
    """What the rest of a frame holds and does not read."""

    cls: type

    def __init__(self, real: Any, source: Source) -> None:
        self.real, self.cls = real, type(real)
        self.source = source


@wraps_type(Continue)
def wrap_rest_of_frame(tx: Tracer, obj: Continue, source: Source) -> Value:
    tx.guard(source, "TYPE_MATCH", Continue)
    obj.func.__dict__[MARK] = REST  # its name and module are those of the function it continues
    function = tx.wrap(obj.func, Attr(source, "func"))
    body = decode(obj.func.__code__)
    names = body.code.co_varnames[: len(obj.args)]
    read = {*live_at(body, body.instructions[0], names), *body.code.co_cellvars}
    given: list[Value] = []
    for name, item in zip(names, existing_sequence(obj.args, Attr(source, "args"), tuple)):
        assert isinstance(item, Pending)
        wrap = tx.wrap if name in read else UnreadValue
        given.append(wrap(item.real, item.source))
    return PartialValue(function, given, {}, source)


GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
#: the class of what a function of the library makes, which takes one object
CALLED_WITH_ONE: dict[Any, type] = {**{kind: kind for kind in GETTERS}, functools.cmp_to_key: KEY}


class GetterValue(FrozenValue):
    """A getter that the program holds."""

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        made, parts = self.real.__reduce__()
        if isinstance(made, functools.partial):  # a methodcaller with named arguments
            parts = (*made.args, *parts)
        named = {name: tx.wrap_new(part) for name, part in getattr(made, "keywords", {}).items()}
        given = [tx.wrap_new(part) for part in parts]
        getter = tx.call_python(tx.rule_of(type(self.real)).python, given, named)
        return MadeGetter(getter, MadeBy(type(self.real), (), {})).call(tx, args, kwargs)


class MadeGetter(Value):
    """A getter, or a maker of keys, that the frame makes. does: the polyfill of a call of it."""

    described = "a {0.cls.__name__}"
    cls: type

    def __init__(self, does: Value, made_by: MadeBy) -> None:
        self.does, self.made_by = does, made_by
        self.cls = CALLED_WITH_ONE[made_by.original]

    def holds(self) -> Iterable[Value]:
        return (*self.made_by.args, *self.made_by.kwargs.values())

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if len(args) != 1 or kwargs:
            evaluate(tx, self.made_by.original("_"), *args, **kwargs)
        return self.does.call(tx, args, kwargs)

    def rebuild(self, writer: Any) -> None:
        self.made_by.write(self, writer)


@wraps_type(*GETTERS)
def wrap_getter(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "ID_MATCH", obj)
    return GetterValue(obj, itself(obj))
