"""Construction: calls of classes.

In: a class value and arguments. Out: `instantiate`. Invariant: `__new__` and `__init__` of the
program run under capture; the built-in part of the instance is a value of the built-in kind.
"""

from __future__ import annotations

import collections
import enum
import functools
import inspect
import threading
import types
import typing
from collections.abc import Callable
from typing import Any

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break, SkipFrame
from flambeau_capture.builtins.introspection import python_method
from flambeau_capture.identity import known_in
from flambeau_capture.resume_runtime import is_empty
from flambeau_capture.source import ConstantSource
from flambeau_capture.values.argument_errors import check_call, check_making, check_method
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value, needing, objects_of, unpack
from flambeau_capture.values.constant import Constant, evaluate, is_none
from flambeau_capture.values.containers.dicts import DictValue
from flambeau_capture.values.containers.existing_containers import is_plain_tuple
from flambeau_capture.values.containers.lists import DequeValue, ListValue
from flambeau_capture.values.containers.sequences import TupleValue, make_tuple
from flambeau_capture.values.containers.sets import SetValue
from flambeau_capture.values.functions.builtin_functions import PartialValue
from flambeau_capture.values.functions.call_rules import (
    NAMES,
    TYPES,
    Action,
    CallRule,
    answers,
    evaluate_call,
    handles,
    makes,
    own_rule,
    pure,
)
from flambeau_capture.values.functions.methods import MethodValue
from flambeau_capture.values.functions.variables import CellValue
from flambeau_capture.values.higher_order.context_managers import INDEXING_MODES, IndexingMode
from flambeau_capture.values.numpy.wrapping import rules
from flambeau_capture.values.objects.attributes import (
    assume_making,
    assume_special_methods,
    class_attribute,
    find_in_class,
    is_of_thread,
    layout_of,
)
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.exceptions import ExceptionValue, StandIns
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.objects.nn_modules import ModuleValue
from flambeau_capture.values.registry import trusted_class
from flambeau_capture.values.stand_ins import name_in_errors
from flambeau_capture.values.tensors.graph_calls import graph_call
from flambeau_capture.values.tensors.subclasses.wrapper_subclasses import constructed

_NOT_MADE = 1 << 7  # of a class that only C makes instances of


def _enumeration(tx: Tracer, kind: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    """`Enum(name, members)`: made once, for all calls, as nothing but its identity differs."""
    python_class, frame = kind.python_class, tx.caller(1)
    if not trusted_class(python_class) or frame is None:
        raise Break("FB0020", f"call of {kind.describe()}")
    with needing("FB0020", lambda error: f"call of {kind.describe()} with {error}"):
        plain, named = objects_of(args, kwargs)
    made = evaluate(tx, python_class, *plain, **named)
    if named.get("module") is None:  # it has looked for it in capture's own frames
        made.__module__ = frame.namespace.get("__name__", "__main__")
    return tx.wrap_new(made)


def instantiate(
    tx: Tracer, kind: ClassValue, args: Args, kwargs: Kwargs, plain: bool = False
) -> Value:
    """`kind(*args, **kwargs)`; `plain`: by `type.__call__`, past the metaclass's own."""
    python_class = kind.python_class
    rule = tx.rule_of(python_class)
    if rule.action is Action.BREAK:
        raise Break(rule.reason, f"call of {kind.describe()}")
    if rule.action is Action.EVALUATE:
        more = len(args) + len(kwargs) > 1
        if more and isinstance(python_class, enum.EnumMeta) and not len(python_class):
            return _enumeration(tx, kind, args, kwargs)
        return evaluate_call(tx, python_class, args, kwargs)
    if rule.action is Action.GRAPH:
        return graph_call(tx, "call_function", python_class, args, kwargs)
    made: Value
    if rule.action is not Action.MAKE and not rule.of_called:
        check_call(tx, python_class, args, kwargs)
        made = rule.handler(tx, args, kwargs) or Constant(None)
        return made
    if rule.action is Action.MAKE:
        fn = None if plain else python_method(type(python_class), "__call__")
        if fn is not None:
            called = MethodValue(kind, tx.wrap(fn, ConstantSource(fn, "__call__")))
            return tx.call(called, args, kwargs)
        assume_making(tx, python_class)
        if python_class.__flags__ & _NOT_MADE:
            tx.raise_error(TypeError, f"cannot create '{name_in_errors(python_class)}' instances")
    made = rule.handler(tx, kind, args, kwargs)
    return made


TYPES[enum.EnumMeta] = CallRule(Action.EVALUATE, "enumerations")


class _AnyDict(typing.TypedDict):
    """Shows the metaclass that typed dicts have."""


TYPES[type(_AnyDict)] = CallRule(  # a dict, whatever it is called
    Action.ANSWER,
    "typed dicts",
    lambda tx, _, args, kwargs: instantiate(tx, ClassValue(dict), args, kwargs),
    of_called=True,
)


def _of_numpy(tx: Tracer, called: Any, args: Args, kwargs: Kwargs) -> Value:
    """A scalar of NumPy's, made from what is known; a function that NumPy has in Python."""
    if not isinstance(called, ClassValue):
        found: Value = rules().call(tx, called.real, args, kwargs)
        return found
    python_class = called.python_class
    if not issubclass(python_class, rules().np.generic):
        raise Break("FB0005", f"call of class {python_class.__name__}")
    return evaluate_call(tx, python_class, args, kwargs)


NAMES["numpy", "*"] = CallRule(Action.ANSWER, "module numpy", _of_numpy, of_called=True)


@makes(torch.overrides.TorchFunctionMode)
def _mode(tx: Tracer, kind: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    if kind.python_class.__name__ in INDEXING_MODES and not args and not kwargs:
        return IndexingMode(kind.python_class)
    raise Break("FB0013", f"call of {kind.describe()}")


@makes(torch.Tensor)
def _tensor(tx: Tracer, kind: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    python_class = kind.python_class
    if python_class is torch.Tensor:
        return _legacy_tensor(tx, kind, args, kwargs)
    if compat.has_own_dispatch(python_class):
        return constructed(tx, kind, args, kwargs)
    new = find_in_class(python_class, "__new__")
    if new is None or not _in_python(new[1]) or python_class.__module__.startswith("torch."):
        raise Break("FB0012", f"call of {kind.describe()}")
    return _instance(tx, kind, args, kwargs)


def _legacy_tensor(tx: Tracer, kind: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    """`torch.IntTensor([1, 2])`, `torch.Tensor(2, 3)`: of numbers, or of sizes."""
    python_class: Any = kind.python_class
    plain = python_class is torch.Tensor
    dtype = torch.get_default_dtype() if plain else python_class.dtype
    on_cpu = plain or not (python_class.is_cuda or python_class.is_sparse)
    device = tx.graph.outermost.device or torch.get_default_device()
    if kwargs or not on_cpu or device.type != "cpu":
        raise Break("FB0012", f"call of {kind.describe()}")
    named = {"dtype": tx.wrap_new(dtype)}
    with needing("FB0012", lambda _: f"call of {kind.describe()} with tensors"):
        given = [arg.as_python() for arg in args]
    if len(given) == 1 and isinstance(given[0], list | tuple):
        by: Any = torch.empty if isinstance(given[0], torch.Size) else torch.tensor
        return graph_call(tx, "call_function", by, list(args), named)
    if all(type(size) is int for size in given):
        sizes = [tx.wrap_new(tuple(given) or (0,))]
        return graph_call(tx, "call_function", torch.empty, sizes, named)
    raise Break("FB0012", f"call of {kind.describe()}")


@makes(*compat.result_types())
def _result_of_torch(tx: Tracer, kind: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    """`torch.return_types.max((values, indices))`."""
    python_class: Any = kind.python_class
    items = unpack(tx, args[0]) if len(args) == 1 and not kwargs else []
    if len(items) != python_class.n_sequence_fields:
        raise Break("FB0005", f"call of {kind.describe()}")
    return TupleValue(items, python_class)


TYPES[type(torch.FloatTensor)] = CallRule(
    Action.MAKE, "legacy classes of tensors", _legacy_tensor, of_called=True
)


def made_by_init(python_class: type) -> bool:
    """Whether calling a class is `object.__new__`, then an `__init__` of the program."""
    new = find_in_class(python_class, "__new__")
    return (
        layout_of(python_class) is object
        and find_in_class(python_class, "__del__") is None
        and type(python_class).__call__ is type.__call__
        and new is not None
        and new[0] is object
        and python_method(python_class, "__init__") is not None
        and own_rule(python_class) is None
        and not inspect.isabstract(python_class)
        and not issubclass(python_class, torch.overrides.TorchFunctionMode)
    )


@makes(object)
def _instance(tx: Tracer, kind: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    python_class = kind.python_class
    new = find_in_class(python_class, "__new__")
    assert new is not None
    if inspect.isabstract(python_class) and new[0] is object:
        given = [None] if args or kwargs else []
        evaluate(tx, object.__new__, python_class, *given)  # raises: of these, or what is missing
    if is_of_thread(python_class) and (args or kwargs):  # kept for other threads' `__init__`
        raise Break("FB0005", f"call of {kind.describe()} with arguments")
    maker = new[1].__func__ if isinstance(new[1], staticmethod) else new[1]
    made: Value
    if isinstance(maker, types.FunctionType):
        if new[0].__module__ == "typing" and new[0].__name__ in ("Generic", "Protocol"):
            made = new_object(tx, kind)
        else:
            made = tx.call(tx.wrap(maker, ConstantSource(maker, "__new__")), [kind, *args], kwargs)
    else:
        check_making(tx, python_class, "__new__", args, kwargs)
        made = new_immutable(tx, kind, args, kwargs) or new_object(tx, kind)
    if not issubclass(made.cls, python_class):
        return made
    init = find_in_class(python_class, "__init__")
    for slot in (new, init):
        if slot is not None and slot[0] not in _KNOWN_MAKERS and not _in_python(slot[1]):
            raise Break("FB0005", f"call of {kind.describe()}")
    if python_method(python_class, "__init__") is not None:
        initialize(tx, made, args, kwargs)
    elif isinstance(made, ObjectValue) and _filled_by_new(made.payload):
        pass  # its `__new__` has filled it
    elif isinstance(made, ObjectValue) and (
        made.payload is not None or (init is not None and init[0] is types.SimpleNamespace)
    ):
        check_method(tx, made, "__init__", args, kwargs)
        made.call_method(tx, "__init__", args, kwargs)
    return made


_IMMUTABLE = (str, int, float, complex, bytes, tuple, frozenset)
IMMUTABLE_PARTS = (Constant, TupleValue)  # and frozen sets: see `_filled_by_new`
#: what is empty at first, by the built-in class that it is of
_EMPTY: dict[type, Callable[[], Value]] = {
    dict: DictValue,
    collections.OrderedDict: lambda: DictValue(python_class=collections.OrderedDict),
    collections.defaultdict: lambda: DictValue(
        python_class=collections.defaultdict, factory=Constant(None)
    ),
    list: lambda: ListValue([]),
    set: lambda: SetValue([]),
    collections.deque: lambda: DequeValue([]),
}
_KNOWN_MAKERS = frozenset({object, threading.local, types.SimpleNamespace, *_IMMUTABLE, *_EMPTY})


def _filled_by_new(payload: Value | None) -> bool:
    frozen = isinstance(payload, SetValue) and payload.cls is frozenset
    return frozen or isinstance(payload, IMMUTABLE_PARTS)


def _in_python(found: Any) -> bool:
    return isinstance(found, types.FunctionType | staticmethod)


def new_immutable(tx: Tracer, kind: ClassValue, args: Args, kwargs: Kwargs) -> Value | None:
    """An instance of a class that derives from a number, a string or a tuple; else None."""
    python_class = kind.python_class
    base = layout_of(python_class)
    if base not in _IMMUTABLE or issubclass(python_class, enum.Enum):
        return None
    if kwargs and base in (tuple, frozenset, float):
        raise Break("FB0005", f"{kind.describe()} called with {', '.join(kwargs)}")
    refuse_del(python_class)
    payload: Value
    if base is frozenset:
        payload = SetValue([], frozenset, tx=tx)
        if args:
            payload.filled(tx, args[0])
    elif base is tuple:
        payload = TupleValue(unpack(tx, args[0], hint=True) if args else [])
    else:
        payload = tx.instantiate(tx.wrap_new(base), args, kwargs)
        if not isinstance(payload, Constant):
            raise Break("FB0005", f"call of {kind.describe()}")
    assume_special_methods(tx, python_class)
    return ObjectValue(python_class, payload=payload)


def refuse_del(python_class: type) -> None:
    """No object is made whose end would be noticed: capture keeps it for longer."""
    if find_in_class(python_class, "__del__") is not None:
        if python_method(python_class, "__del__") is None:
            raise Break("FB0005", f"call of class {python_class.__name__}")
        raise SkipFrame(f"objects of {python_class.__name__} run code of their own when they end")


def new_object(tx: Tracer, kind: ClassValue) -> Value:
    """`object.__new__`, with the built-in part that the class derives from."""
    python_class = kind.python_class
    refuse_del(python_class)
    assume_special_methods(tx, python_class)
    layout = layout_of(python_class)
    if layout in (object, types.SimpleNamespace, threading.local):
        if issubclass(python_class, torch.nn.Module):
            return ModuleValue(python_class)
        return ObjectValue(python_class)
    if layout in _EMPTY:
        return ObjectValue(python_class, payload=_EMPTY[layout]())
    raise Break("FB0005", f"call of {kind.describe()}")


def initialize(tx: Tracer, made: Value, args: Args, kwargs: Kwargs) -> None:
    """Call the `__init__` of an object's class, which answers None."""
    nothing_answered(tx, tx.call(class_attribute(tx, made, made.cls, "__init__"), args, kwargs))


def nothing_answered(tx: Tracer, found: Value) -> None:
    """An `__init__` answers None."""
    if not is_none(found):
        words = f"__init__() should return None, not '{found.cls.__name__}'"
        tx.raise_error(TypeError, words)


def _new_exception(tx: Tracer, python_class: Any, args: Args, kwargs: Kwargs) -> ExceptionValue:
    """An exception as CPython makes it, where its class in C has fields: of the class it chooses.

    OSError chooses by its number, a group by what is in it; both take some arguments only.
    """
    layout = layout_of(python_class)
    made = ExceptionValue(python_class, list(args))
    in_python = any(python_method(python_class, name) for name in ("__new__", "__init__"))
    if in_python or (layout.__basicsize__ == BaseException.__basicsize__ and not kwargs):
        return made
    stands = StandIns()
    plain, named = [stands.of(arg) for arg in args], {n: stands.of(a) for n, a in kwargs.items()}
    try:
        real = python_class(*plain, **named)
    except Exception as error:
        with needing("FB0005", lambda error: f"{python_class.__name__} of {error}"):
            for arg in (*args, *kwargs.values()):
                arg.as_python()
        tx.raise_as_python(error)
    made = ExceptionValue(type(real), list(args))
    if len(real.args) != len(args):
        made.args = [stands.value(tx, arg) for arg in real.args]
    return made


@makes(BaseException)
def _exception(tx: Tracer, kind: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    python_class: Any = kind.python_class
    assume_special_methods(tx, python_class)
    made = _new_exception(tx, python_class, args, kwargs)
    if python_method(python_class, "__init__") is not None:
        initialize(tx, made, args, kwargs)
    else:
        made.fields.update(kwargs)
    return made


def _is_plain_named_tuple(python_class: type) -> bool:
    """A named tuple whose instances are made as namedtuple() wrote it, and are items alone."""
    if find_in_class(python_class, "_fields") is None:
        return False
    new, init = (find_in_class(python_class, name) for name in ("__new__", "__init__"))
    assert new is not None and init is not None
    made_by = getattr(new[1], "__func__", new[1])
    generated = getattr(made_by, "__module__", "").startswith("namedtuple_")
    return generated and init[0] is object and is_plain_tuple(python_class)


@makes(tuple)
def _named_tuple(tx: Tracer, kind: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    python_class: Any = kind.python_class
    if not _is_plain_named_tuple(python_class):
        return _instance(tx, kind, args, kwargs)
    fields: tuple[str, ...] = python_class._fields
    defaults: dict[str, Any] = getattr(python_class, "_field_defaults", {})
    values: dict[str, Value] = dict(zip(fields, args))
    refused = len(args) > len(fields) or set(kwargs) & set(values) or set(kwargs) - set(fields)
    if refused or set(fields) - {*values, *kwargs, *defaults}:  # in the class's own words
        evaluate(tx, python_class, *[None for _ in args], **dict.fromkeys(kwargs))
    values.update(kwargs)
    assume_special_methods(tx, python_class)
    found = [values.get(name) or tx.wrap_new(defaults[name]) for name in fields]
    return TupleValue(found, python_class)


@handles(
    object.__new__, dict.__new__, collections.OrderedDict.__new__, list.__new__, set.__new__,
    collections.deque.__new__,
)  # fmt: skip
def _new(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    kind = args[0]
    assert isinstance(kind, ClassValue)
    plain = known_in(kind.python_class, (dict, list, set))
    check_making(tx, kind.python_class, "__new__", args[1:], kwargs)
    return _EMPTY[kind.python_class]() if plain else new_object(tx, kind)


@handles(*(base.__new__ for base in _IMMUTABLE))
def _immutable_new(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    kind = args[0]
    assert isinstance(kind, ClassValue)
    if issubclass(kind.python_class, tuple) and is_plain_tuple(kind.python_class):
        assume_special_methods(tx, kind.python_class)
        return TupleValue(unpack(tx, args[1]) if len(args) > 1 else [], kind.python_class)
    if known_in(kind.python_class, _IMMUTABLE) and kind.python_class is not tuple:
        return tx.instantiate(kind, args[1:], kwargs)
    check_making(tx, kind.python_class, "__new__", args[1:], kwargs)
    return new_immutable(tx, kind, args[1:], kwargs) or new_object(tx, kind)


answers(
    {
        object: lambda tx, args, kwargs: ObjectValue(object),
        types.MethodType: lambda tx, args, kwargs: MethodValue(args[1], args[0]),
        types.CellType: lambda tx, args, kwargs: CellValue(args[0] if args else None, tx=tx),
        is_empty: lambda tx, args, kwargs: Constant(_content(tx, args[0]) is None),
    }
)


def _content(tx: Tracer, cell: Value) -> Value | None:
    assert isinstance(cell, CellValue)
    content = cell.content
    if content is not None and content.source is not None:
        tx.guard(content.source, "EXISTS")
    return content


@handles(functools.partial)
def _partial(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    fn = args[0]
    if isinstance(fn, PartialValue):
        return PartialValue(fn.fn, [*fn.args, *args[1:]], {**fn.kwargs, **kwargs})
    return PartialValue(fn, list(args[1:]), dict(kwargs))


@handles(torch.Size)
def _size(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1 or kwargs:
        return evaluate_call(tx, torch.Size, args, kwargs)
    with needing("FB0002", lambda error: f"a size of {error}"):
        sizes = [v.as_python() for v in unpack(tx, args[0])]
    return tx.wrap_new(evaluate(tx, make_tuple, torch.Size, sizes))


@handles(types.SimpleNamespace)
def _namespace(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if args:
        raise Break("FB0005", "types.SimpleNamespace of a mapping")
    made = ObjectValue(types.SimpleNamespace)
    made.call_method(tx, "__init__", args, kwargs)
    return made


pure(
    torch.device, torch.finfo, torch.iinfo, inspect.Signature, range, complex, bytes, frozenset,
)  # fmt: skip
