"""The `__torch_function__` protocol of the program's classes.

In: a call of torch with an argument of such a class (a tensor's subclass, or any object). Out: what
the class's own Python code answers, interpreted. Invariant: which function the class receives,
and with which arguments, torch itself decides, by the same call on stand-ins.
"""

from __future__ import annotations

import types
from typing import Any

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.builtins.operations.operator_tables import declined
from flambeau_capture.builtins.tensors.operators import has_torch_function
from flambeau_capture.identity import known_in
from flambeau_capture.source import ConstantSource
from flambeau_capture.values.base import Args, Kwargs, NotConcrete, Tracer, Value, needing, unpack
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.dicts import DictValue, pairs_of
from flambeau_capture.values.containers.lists import ListValue
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.call_rules import handles, pure
from flambeau_capture.values.objects.attributes import class_attribute
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.tensors.existing_tensors import SubclassTensor, of_class
from flambeau_capture.values.tensors.methods import tensor_attribute
from flambeau_capture.values.tensors.tensor import TensorValue


def _overriding(tx: Tracer, values: Args) -> list[Value]:
    """Arguments whose class overrides torch's functions, one a class, subclasses first."""
    found: list[Value] = []
    for value in values:
        for inner in [value, *getattr(value, "parts", list)()]:
            if not _overrides(tx, inner) or any(inner.cls is other.cls for other in found):
                continue
            later = [n for n, other in enumerate(found) if issubclass(inner.cls, other.cls)]
            found.insert(later[0] if later else len(found), inner)
    return found


def _overrides(tx: Tracer, value: Value) -> bool:
    if isinstance(value, SubclassTensor):
        return not tx.as_plain and not compat.ignores_torch_function(value.python_class)
    if not isinstance(value, ObjectValue) or issubclass(value.cls, torch.nn.Module):
        return False
    return has_torch_function(tx, value)


class _OverrideCall(BaseException):
    """What torch passes to a class: function, positional and named arguments."""

    def __init__(self, function: Any, args: Any, kwargs: Any) -> None:
        super().__init__()
        self.call = (function, args, kwargs)


def _override(cls: type, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    raise _OverrideCall(function, args, kwargs or {})


class _StandIn:
    """In the place of an object whose class overrides torch's functions."""

    __torch_function__: Any = classmethod(_override)


class _TensorStandIn(torch.Tensor):
    """In the place of a tensor of a subclass."""

    __torch_function__: Any = classmethod(_override)


class _Places:
    """Values and what stands for them in a call that is made for the asking."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Value]] = {}

    def of(self, value: Value) -> Any:
        made = self._make(value)
        if not isinstance(value, Constant):
            self._known[id(made)] = (made, value)
        return made

    def _make(self, value: Value) -> Any:
        if isinstance(value, SubclassTensor):
            return torch.empty(()).as_subclass(_TensorStandIn)
        if isinstance(value, TensorValue):
            return torch.empty(())
        if isinstance(value, ListValue):
            return [self.of(part) for part in value.parts()]
        if isinstance(value, TupleValue) and value.cls is tuple:
            return tuple(self.of(part) for part in value.parts())
        if isinstance(value, ObjectValue):
            return _StandIn()
        with needing("FB0012", lambda error: f"__torch_function__ with {error}"):
            return value.as_python()

    def back(self, tx: Tracer, obj: Any) -> Value:
        known = self._known.get(id(obj))
        if known is not None and known[0] is obj:
            return known[1]
        if known_in(type(obj), (tuple, list)):
            parts = [self.back(tx, item) for item in obj]
            return TupleValue(parts) if type(obj) is tuple else ListValue(parts)
        if type(obj) is dict:
            return DictValue([(tx.wrap_new(k), self.back(tx, v)) for k, v in obj.items()], tx=tx)
        return tx.wrap_new(obj)


def _ask(op: str, target: Any, args: list[Any], kwargs: dict[str, Any]) -> _OverrideCall | None:
    """The call as torch hands it to `__torch_function__`."""
    try:
        if op == "get":
            getattr(args[0], target)
        elif op == "call_method":
            getattr(args[0], target)(*args[1:], **kwargs)
        else:
            target(*args, **kwargs)
    except _OverrideCall as told:
        return told
    except (TypeError, ValueError, RuntimeError, IndexError):
        return None  # it is refused before a class sees it: so it will be in the graph
    return None


def overridden(tx: Tracer, op: str, target: Any, args: Args, kwargs: Kwargs) -> Value | None:
    """The answer of a class that overrides the call."""
    chosen = _overriding(tx, [*args, *kwargs.values()])
    if not chosen:
        return None
    places = _Places()
    plain = [places.of(arg) for arg in args]
    told = _ask(op, target, plain, {key: places.of(arg) for key, arg in kwargs.items()})
    if told is None:
        raise Break("FB0012", f"{target} on {chosen[0].describe()}")
    function, given, named = told.call
    kinds = TupleValue([tx.wrap_new(value.cls) for value in chosen])
    for value in chosen:
        method = class_attribute(tx, value, value.cls, "__torch_function__")
        parts = [
            tx.wrap(function, ConstantSource(function, getattr(function, "__name__", "function"))),
            kinds,
            places.back(tx, tuple(given)),
            places.back(tx, named),
        ]
        found = tx.call(method, parts, {})
        if not declined(found):
            return found
    names = ", ".join(repr(value.cls) for value in chosen)
    tx.raise_error(
        TypeError,
        f"Multiple dispatch failed for '{torch.overrides.resolve_name(function)}'; "
        f"all __torch_function__ handlers returned NotImplemented:\n\n  - {names}",
    )


@handles(compat.default_torch_function())
def _default(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`Tensor.__torch_function__(cls, func, types, args=(), kwargs=None)`."""
    given = dict(zip(("cls", "func", "types", "args", "kwargs"), args)) | dict(kwargs)
    kind, function = given["cls"], given["func"]
    assert isinstance(kind, ClassValue)
    kinds = [one.as_python() for one in unpack(tx, given["types"])]
    if not all(issubclass(kind.python_class, one) for one in kinds):
        return Constant(NotImplemented)
    result = _as_plain(tx, given)
    with needing("FB0012", lambda _: f"__torch_function__ of {function.describe()}"):
        if function.as_python() in compat.results_left_plain():
            return result
    return _converted(tx, result, kind.python_class)


@handles(compat.disabled_torch_function)
def _disabled(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`_disabled_torch_function_impl(func, types, args=(), kwargs={})`, which parameters have."""
    if kwargs or not 2 <= len(args) <= 4:
        raise Break("FB0012", "_disabled_torch_function_impl with other arguments")
    return _as_plain(tx, dict(zip(("func", "types", "args", "kwargs"), args)))


def _as_plain(tx: Tracer, given: dict[str, Value]) -> Value:
    """The call that `func`, `args` and `kwargs` are, in which subclasses are plain tensors."""
    positional = unpack(tx, given["args"]) if "args" in given else []
    named: dict[str, Value] = {}
    if "kwargs" in given and not isinstance(given["kwargs"], Constant):
        named = {key.as_python(): value for key, value in pairs_of(tx, given["kwargs"])}
    tx.as_plain += 1
    try:
        return _call(tx, given["func"], positional, named)
    finally:
        tx.as_plain -= 1


def _call(tx: Tracer, function: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
    try:
        real = function.as_python()
    except NotConcrete:
        real = None
    descriptor = getattr(real, "__self__", None)
    if isinstance(real, types.MethodWrapperType) and isinstance(args[0], TensorValue):
        if real.__name__ == "__get__":
            return tensor_attribute(args[0], tx, str(getattr(descriptor, "__name__", "")))
        raise Break("FB0012", f"{real.__name__} of {descriptor!r}")
    return tx.call(function, args, kwargs)


def _converted(tx: Tracer, value: Value, kind: type) -> Value:
    if kind is torch.Tensor:
        return value
    if isinstance(value, TensorValue):
        return value if issubclass(value.cls, kind) else of_class(tx, value, kind)
    if isinstance(value, ListValue):
        return ListValue([_converted(tx, part, kind) for part in value.parts()])
    if isinstance(value, TupleValue) and value.cls is not torch.Size:
        return TupleValue([_converted(tx, part, kind) for part in value.parts()], value.cls)
    return value


@handles(torch.Tensor.as_subclass)
def _as_subclass(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) + len(kwargs) != 2 or not {"cls"} >= set(kwargs):
        raise Break("FB0011", "as_subclass with other arguments")
    tensor, kind = (*args, *kwargs.values())
    if not isinstance(tensor, TensorValue) or not isinstance(kind, ClassValue):
        raise Break("FB0012", "as_subclass")
    if compat.has_own_dispatch(kind.python_class):
        raise Break("FB0012", f"as_subclass of {kind.describe()}")
    return of_class(tx, tensor, kind.python_class)


@handles(compat.make_subclass)
def _make_subclass(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`Tensor._make_subclass(cls, data, require_grad=False)`: detached data."""
    kind, tensor = args[:2]
    wanted = [*args[2:], *kwargs.values()]
    if not isinstance(tensor, TensorValue) or any(value.truth(tx) for value in wanted):
        raise Break("FB0012", "_make_subclass with require_grad")
    return _as_subclass(tx, [tensor.call_method(tx, "detach", [], {}), kind], {})


pure(torch.overrides.is_tensor_method_or_property)
