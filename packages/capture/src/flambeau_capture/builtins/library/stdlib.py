"""Functions of the standard library in programs around models.

In: values. Out: values. Invariant: what is evaluated at capture time depends on nothing that can
change without a guard failing.
"""

from __future__ import annotations

import ast
import builtins
import collections
import dataclasses
import functools
import importlib
import importlib.util
import inspect
import json
import os
import pickle
import re
import reprlib
import statistics
import string
import sys
import time
import types
import typing
import warnings
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.builtins.argument_unpacking import spread
from flambeau_capture.observe.unguarded import name_of, of_arguments, unguarded
from flambeau_capture.polyfills import calling
from flambeau_capture.polyfills.calling import replacing
from flambeau_capture.source import ConstantSource, Item, Source
from flambeau_capture.values.base import (
    Args,
    Kwargs,
    NotConcrete,
    Tracer,
    Value,
    needing,
    objects_of,
    suppressed,
)
from flambeau_capture.values.constant import LITERALS, Constant, constant_of, evaluate
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.builtin_functions import BuiltinValue, PartialValue
from flambeau_capture.values.functions.call_rules import (
    CODES,
    NAMES,
    Action,
    CallRule,
    answers,
    breaks,
    constant,
    describe_call,
    evaluate_call,
    handles,
    knowing,
    pure,
)
from flambeau_capture.values.functions.functions import FunctionValue
from flambeau_capture.values.functions.methods import MethodValue
from flambeau_capture.values.iterators.builtin import SequenceIterator
from flambeau_capture.values.objects.attributes import find_in_class
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.exceptions import TracebackValue
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.objects.opaque import FrozenValue
from flambeau_capture.values.registry import itself, trusted_name, wraps_type


def _inner_codes(code: types.CodeType) -> list[types.CodeType]:
    inner = [one for one in code.co_consts if isinstance(one, types.CodeType)]
    return [*inner, *(deeper for one in inner for deeper in _inner_codes(one))]


@handles(dataclasses.fields)
def _fields(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    kind = _class_of(args[0])
    if not dataclasses.is_dataclass(kind):
        tx.raise_error(TypeError, "must be called with a dataclass type or instance")
    return TupleValue(
        [tx.wrap(f, ConstantSource(f, f"field {f.name}")) for f in dataclasses.fields(kind)]
    )


def _class_of(value: Value) -> type:
    return value.python_class if isinstance(value, ClassValue) else value.cls


spread(
    {
        typing.cast: lambda tx, typ, val: val,
        sys.intern: lambda tx, text: Constant(constant_of(text)),
        inspect.isclass: lambda tx, object: Constant(isinstance(object, ClassValue)),
        inspect.ismethod: lambda tx, object: Constant(isinstance(object, MethodValue)),
        inspect.isfunction: lambda tx, object: Constant(issubclass(object.cls, types.FunctionType)),
        dataclasses.is_dataclass: lambda tx, obj: Constant(
            dataclasses.is_dataclass(_class_of(obj))
        ),
    }
)


#: attributes of functions by which a signature is another's than the code's
_OTHER_SIGNATURES = ("__wrapped__", "__signature__")


def _new_signature(tx: Tracer, target: Value) -> inspect.Signature:
    """The signature of a function that the frame has made or changed."""
    fn = target.function if isinstance(target, MethodValue) else target
    if not isinstance(fn, FunctionValue) or any(
        name in fn.attributes or hasattr(fn.real, name) for name in _OTHER_SIGNATURES
    ):
        raise Break("FB0005", f"inspect.signature of {target.describe()}")
    shown = tx.get_attr(fn, "__annotations__")
    with needing("FB0005", lambda _: f"inspect.signature of {target.describe()}"):
        defaults = tuple(value.as_python() for value in fn.defaults())
        named = {name: value.as_python() for name, value in fn.kwdefaults().items()}
        annotations = shown.as_python()
    cells = tuple(types.CellType() for _ in fn.code.co_freevars)
    made = types.FunctionType(fn.code, {}, fn.name, defaults or None, cells or None)
    made.__kwdefaults__ = named or None
    made.__annotations__ = annotations
    return inspect.signature(made)


@dataclasses.dataclass(frozen=True, eq=False)
class _HasSignature:
    """A guard's question: the same parameters, the same objects as defaults and annotations."""

    known: list[Any]

    def __call__(self, called: Any) -> bool:
        try:
            found = _flat(inspect.signature(called))
        except (TypeError, ValueError):
            return False
        return len(found) == len(self.known) and all(map(_alike, self.known, found))


def _flat(signature: inspect.Signature) -> list[Any]:
    parameters = signature.parameters.values()
    parts = [part for p in parameters for part in (p.name, p.kind, p.default, p.annotation)]
    parts.append(signature.return_annotation)
    return [repr(part) if isinstance(part, list | dict | set) else part for part in parts]


def _alike(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and type(one) in LITERALS and one == other)


@handles(inspect.signature)
def _signature(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1 or kwargs:
        raise Break("FB0005", describe_call(inspect.signature, args))
    target = args[0]
    fn: Any = target.function if isinstance(target, MethodValue) else target
    try:
        plain = fn.as_python()
        found = inspect.signature(plain)
    except NotConcrete:
        found = _new_signature(tx, target)
    else:
        if not trusted_name(getattr(plain, "__module__", None) or ""):
            where = fn.base() if isinstance(fn, FunctionValue) else fn.source
            tx.guard(
                where or itself(plain, "what has a signature"),
                "CALL",
                _HasSignature(_flat(found)),
                f"has the signature {found}",
            )
    if isinstance(target, MethodValue):
        found = found.replace(parameters=list(found.parameters.values())[1:])
    return tx.wrap(found, ConstantSource(found, "signature"))


def _has_variable(name: str, value: str | None, environment: Any) -> bool:
    """A guard's question: an environment variable is as it was."""
    return bool(environment.get(name) == value)


@handles(os.environ.get, os.getenv, os.environ.__getitem__)
def _getenv(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    name = constant_of(args[0])
    found = os.environ.get(name)
    question = functools.partial(_has_variable, name, found)
    where = ConstantSource(os.environ, "os.environ")
    tx.guard(where, "CALL", question, f".get({name!r}) == {found!r}")
    if found is not None:
        return Constant(found)
    return args[1] if len(args) > 1 else kwargs.get("default", Constant(None))


@handles(functools.wraps)
def _wraps(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    fn = functools.update_wrapper
    update = tx.wrap(fn, ConstantSource(fn, fn.__name__))
    return PartialValue(update, list(args[1:]), {"wrapped": args[0], **kwargs})


@handles(functools.update_wrapper)
def _update_wrapper(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    made, wrapped = (*args, *kwargs.values())[:2]
    if not isinstance(made, FunctionValue) or made.real is not None:
        return tx.call_python(calling.update_wrapper, args, kwargs)
    inner = wrapped.function if isinstance(wrapped, MethodValue) else wrapped
    if isinstance(inner, FunctionValue):
        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            made.set_attr(tx, name, inner.get_attr(tx, name))
        if inner.real is not None:
            for name in inner.real.__dict__:
                made.set_attr(tx, name, inner.get_attr(tx, name))
    elif isinstance(inner, ObjectValue | BuiltinValue):
        for name in functools.WRAPPER_ASSIGNMENTS:
            with suppressed(AttributeError):
                made.set_attr(tx, name, tx.get_attr(inner, name))
        for name, value in inner.own_entries(tx) if isinstance(inner, ObjectValue) else ():
            made.set_attr(tx, name, value)
    else:
        raise Break("FB0005", f"functools.update_wrapper with {inner.describe()}")
    made.set_attr(tx, "__wrapped__", wrapped)
    return made


def _handles_nothing(module: Any) -> bool:
    """A guard's question: no caller of the frame is in a handler."""
    return bool(module.exc_info()[1] is None)


@handles(sys.exc_info)
def _exc_info(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    error = tx.current_error()
    if error is None:
        if not _handles_nothing(sys):
            raise Break("FB0009", "the exception that a caller handles")
        tx.guard(ConstantSource(sys, "sys"), "CALL", _handles_nothing, "handles no exception")
        return TupleValue([Constant(None)] * 3)
    return TupleValue([tx.wrap_new(error.cls), error, TracebackValue(error)])


def _without_repr_guard(tx: Tracer, fn: FunctionValue, args: Args, kwargs: Kwargs) -> Value:
    """`__repr__` under reprlib.recursive_repr, which checks whether it is running already."""
    place = fn.code.co_freevars.index("user_function")  # before 3.13 nothing else names it
    wrapped = fn.closure()[place].content
    return tx.call(fn.get_attr(tx, "__wrapped__") if wrapped is None else wrapped, args, kwargs)


def _is_registered(known: dict[type, Any], registry: Any) -> bool:
    """A guard's question: nothing was registered with a singledispatch function since."""
    return len(registry) == len(known) and all(
        registry.get(kind) is function for kind, function in known.items()
    )


def _dispatch(tx: Tracer, fn: FunctionValue, args: Args, kwargs: Kwargs) -> Value | None:
    """A call of a functools.singledispatch function: of what is registered for the class."""
    real: Any = fn.real
    if not args or real is None:
        return None
    chooses = fn.code.co_name == "dispatch"
    if chooses:  # `f.dispatch(cls)`, as functools.singledispatchmethod does
        assert isinstance(args[0], ClassValue)
        cells = dict(zip(fn.code.co_freevars, real.__closure__))
        registry, kind = cells["registry"].cell_contents, args[0].python_class
        chosen = real(kind)
    else:
        registry = real.registry
        chosen = real.dispatch(args[0].cls)
    where = ConstantSource(registry, f"{fn.name}.registry")
    question = functools.partial(_is_registered, dict(registry))
    tx.guard(where, "CALL", question, "is as it was")
    found = tx.wrap(chosen, ConstantSource(chosen, fn.name))
    return found if chooses else tx.call(found, args, kwargs)


def _made_inside(makers: Sequence[Any], names: Sequence[str], handler: Any) -> None:
    """A rule for functions that are made anew by each call of a library's function."""
    for maker in makers:
        for code in _inner_codes(maker.__code__):
            if code.co_name in names:
                row = f"functions of {maker.__qualname__}"
                CODES[code] = CallRule(Action.ANSWER, row, handler, of_called=True)


_REPR_GUARDS = (reprlib.recursive_repr, getattr(dataclasses, "_recursive_repr", None))
_made_inside([each for each in _REPR_GUARDS if each], ("wrapper",), _without_repr_guard)
_made_inside([functools.singledispatch], ("wrapper", "dispatch"), _dispatch)


# what is installed stays for a process
for _name in ("version", "packages_distributions"):
    NAMES["importlib.metadata", _name] = CallRule(Action.EVALUATE, "importlib.metadata")
# torch imports its exporter at first use
NAMES["torch.onnx", "is_in_onnx_export"] = constant(False, "torch.onnx")
NAMES[compat.SYMBOLIC_SHAPES, "expect_true"] = CallRule(
    Action.ANSWER, compat.SYMBOLIC_SHAPES, lambda tx, args, kwargs: Constant(args[0].truth(tx))
)


@handles(re.sub)
def _re_sub(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Evaluated, unless the replacement is a function of the program."""
    given = dict(zip(("pattern", "repl", "string", "count", "flags"), args)) | dict(kwargs)
    function = find_in_class(given["repl"].cls, "__call__") if "repl" in given else None
    if function is None or set(given) < {"pattern", "repl", "string"}:
        return evaluate_call(tx, re.sub, args, kwargs)
    return tx.call_python(replacing, [], given)


@handles(pickle.dumps)
def _pickled(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Plain data in which nothing is twice: `pickle` notes what is one object."""
    with knowing(pickle.dumps, args):
        plain, _ = objects_of(args, kwargs)
    parts = [*_parts(plain[0])] if plain else []
    if len({(type(each), repr(each)) for each in parts}) < len(parts) or not all(
        type(each) in _PLAIN for each in parts
    ):
        raise Break("FB0005", f"call_function {describe_call(pickle.dumps, args)}")
    return evaluate_call(tx, pickle.dumps, args, kwargs)


def _parts(plain: Any) -> Iterator[Any]:
    """What `pickle` may note of data: all but numbers and their like."""
    if type(plain) in (int, float, bool, type(None)):
        return
    yield plain
    held = [*plain, *plain.values()] if type(plain) is dict else plain
    for each in held if type(plain) in (dict, list, tuple) else ():
        yield from _parts(each)


_PLAIN = frozenset({dict, list, tuple, str, bytes})


def _scans(fn: Any, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Evaluated, unless the text is of a class of its own, which the pattern's method takes."""
    given = dict(zip(fn.__code__.co_varnames, args)) | dict(kwargs)
    if not isinstance(given.get("string"), ObjectValue):
        return evaluate_call(tx, fn, args, kwargs)
    flags = given.pop("flags", Constant(0))
    compiled = tx.call(tx.wrap_new(re.compile), [given.pop("pattern"), flags], {})
    return compiled.call_method(tx, fn.__name__, [*given.values()], {})


_SCANNING: tuple[Any, ...] = (
    re.match, re.search, re.fullmatch, re.split, re.findall, re.finditer,
)  # fmt: skip
answers({fn: functools.partial(_scans, fn) for fn in _SCANNING})
of_arguments(*_SCANNING)
of_arguments(inspect.isclass, inspect.isfunction, inspect.ismethod, sys.intern)
for _fn in (dataclasses.fields, dataclasses.is_dataclass):
    unguarded(name_of(_fn), "a class is made a dataclass where it is made, and stays one")
unguarded(name_of(sys.exc_info), "what is handled is captured code's own, and known")
unguarded(name_of(importlib.util.find_spec), "what is installed is a fact of the process")
unguarded(
    name_of(collections.namedtuple),
    "the class is made once, for all calls: nothing but its identity differs",
)


@handles(importlib.util.find_spec)
def _find_spec(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    found = importlib.util.find_spec(*(arg.as_python() for arg in args))
    return Constant(None) if found is None else tx.wrap(found, ConstantSource(found, "spec"))


@handles(collections.namedtuple)
def _namedtuple(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """The class is made once, for all calls: nothing but its identity differs."""
    frame = tx.caller(1)
    named = dict(kwargs)
    if frame is not None:
        named.setdefault("module", Constant(frame.namespace.get("__name__", "__main__")))
    return evaluate_call(tx, collections.namedtuple, args, named)


def _typed_class(fn: Any, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """The same of what `typing` makes, which looks for its module in the frame that calls it."""
    frame = tx.caller(1)
    with knowing(fn, args):
        plain, named = objects_of(args, kwargs)
    made = evaluate(tx, fn, *plain, **named)
    if frame is not None:
        made.__module__ = frame.namespace.get("__name__", "__main__")
    return tx.wrap_new(made)


_MADE_BY_TYPING: tuple[Any, ...] = (
    typing.NamedTuple, typing.TypedDict, typing.TypeVar, typing.ParamSpec, typing.TypeVarTuple,
)  # fmt: skip
answers({fn: functools.partial(_typed_class, fn) for fn in _MADE_BY_TYPING})
unguarded(
    ", ".join(map(name_of, _MADE_BY_TYPING)),
    "the class or the variable is made once, for all calls: nothing but its identity differs",
)


_SAME: Any = typing.NewType.__call__  # a function in C that answers its argument


@handles(_SAME)
def _same(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1 or kwargs:
        evaluate(tx, _SAME, *(None for _ in args), **dict.fromkeys(kwargs))
    return args[0]


class NewTypeValue(FrozenValue):
    """A type that `typing.NewType` has made, which is called as a function."""

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return _same(tx, args, kwargs)


@wraps_type(typing.NewType)
def wrap_new_type(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "ID_MATCH", obj)
    return tx.heap.value_of(obj, lambda: NewTypeValue(obj, ConstantSource(obj, "NewType")))


def _looks_at_frames(module: types.ModuleType) -> list[types.FunctionType]:
    """The functions of a module that come to frames, or to the lines of files that are cached."""
    functions = {
        name: fn
        for name, fn in vars(module).items()
        if isinstance(fn, types.FunctionType) and fn.__module__ == module.__name__
    }
    found = {"_getframe", "linecache", "f_back", "tb_next", "f_lineno", "tb_lineno"}
    while True:
        more = {n for n, fn in functions.items() if found.intersection(fn.__code__.co_names)}
        if more <= found:
            return [fn for name, fn in functions.items() if name in found]
        found |= more


def _import_module(whole: bool, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """A module that is there, as an `import` finds it; `whole`: the one that its name begins
    with."""
    name = constant_of((*args, *kwargs.values())[0])
    if len(args) + len(kwargs) > 1 or name[:1] == "." or sys.modules.get(name) is None:
        raise Break("FB0005", f"first import of {name}, or one within a package")
    name = name.partition(".")[0] if whole else name
    return tx.wrap(
        sys.modules[name], Item(ConstantSource(sys.modules, "sys.modules"), name, "dict")
    )


answers(
    {
        importlib.import_module: functools.partial(_import_module, False),
        builtins.__import__: functools.partial(_import_module, True),
    }
)
_STRING: Any = vars(string)["_string"]  # what `string.Formatter` calls


of_arguments(_STRING.formatter_field_name_split)


@handles(_STRING.formatter_field_name_split)
def _field_name(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    first, rest = evaluate(tx, _STRING.formatter_field_name_split, constant_of(args[0]))
    items = [tx.wrap_new(item) for item in rest]
    return TupleValue([Constant(first), SequenceIterator(TupleValue(items))])


breaks("FB0026", *_looks_at_frames(inspect))
breaks("FB0023", warnings.warn_explicit)
_members = [getattr(m, "fget", m) for m in vars(weakref.finalize).values()]
breaks("FB0026", *filter(inspect.isfunction, _members))
breaks("FB0005", time.sleep)
pure(
    vars(re)["_compile"], re.compile, re.escape,
    os.path.join, os.path.basename, os.path.dirname, os.path.splitext, os.fspath,
    typing.get_origin, typing.get_args,
    _STRING.formatter_parser,
    json.dumps, json.loads, ast.literal_eval, os.path.normpath,
    vars(statistics)["_normal_dist_inv_cdf"],
)  # fmt: skip
