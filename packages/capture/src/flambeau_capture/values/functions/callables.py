"""Callables that are not Python functions: built-ins, torch's operators, slots of classes.

In: callables of the program. Out: `BuiltinValue`, and the table `HANDLERS` that the `builtins`
package fills: what calling one does under capture. Invariant: a callable with no handler, no rule
and no known purity is a graph break; capture never calls what it does not know.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.identity import compares_itself
from flambeau_capture.observe.unguarded import unguarded
from flambeau_capture.source import Attr, ConstantSource, Source
from flambeau_capture.values.argument_errors import check_call, check_method
from flambeau_capture.values.base import Args, Kwargs, NotConcrete, Tracer, Value
from flambeau_capture.values.constant import Constant, evaluate
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.numpy.scalars import in_python
from flambeau_capture.values.objects.attributes import answers_for_itself, find_in_class
from flambeau_capture.values.objects.reconstruction import instance_dict
from flambeau_capture.values.stand_ins import nameless
from flambeau_capture.values.tensors.argument_names import by_place
from flambeau_capture.values.tensors.graph_calls import graph_call
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue, symbol_call

Handler = Callable[[Tracer, Args, Kwargs], Value]
H = TypeVar("H", bound=Handler)

HANDLERS: dict[Any, Handler] = {}
POLYFILLS: dict[Any, Any] = {}  # functions in C, and Python that does the same
PURE: set[Any] = set()
# asked before a function behind functools.lru_cache is interpreted
CACHED_METHODS: list[Callable[[Tracer, Any, Args, Kwargs], Value | None]] = []
BREAKS: dict[Any, str] = {}


def handles(*fns: Any) -> Callable[[H], H]:
    """Register what calling these callables does."""

    def register(handler: H) -> H:
        for fn in fns:
            HANDLERS[fn] = handler
        return handler

    return register


unguarded(
    "functions declared pure: arithmetic, text, `re`, `struct`, parts of `os.path`, `math`",
    "the result rests on the arguments alone, and these are known",
)


def pure(*fns: Any) -> None:
    """Declare callables without side effects, whose result depends on the arguments alone."""
    PURE.update(fns)


def breaks(id: str, *fns: Any) -> None:
    """Declare callables that always end the graph."""
    BREAKS.update(dict.fromkeys(fns, id))


def find(table: Any, fn: Any) -> Any:
    """A table's entry for a callable; None for one that cannot be hashed."""
    if isinstance(fn, type) and compares_itself(fn):
        return None
    try:
        return table.get(fn)
    except TypeError:
        return None


class BuiltinValue(Value):
    def __init__(self, fn: Any, source: Source | None = None) -> None:
        self.fn = fn
        self.source = source

    @property
    def cls(self) -> type:
        return type(self.fn)

    def describe(self) -> str:
        return f"BuiltinVariable({getattr(self.fn, '__name__', type(self.fn).__name__)})"

    def as_python(self) -> Any:
        return self.fn

    def truth(self, tx: Tracer) -> bool:
        return True

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if not hasattr(self.fn, name):
            tx.raise_error(
                AttributeError, f"'{type(self.fn).__name__}' object has no attribute '{name}'"
            )
        found = getattr(self.fn, name)
        if isinstance(found, types.MethodWrapperType | types.BuiltinMethodType) and (
            getattr(found, "__self__", None) is self.fn
        ):
            return BoundMethod(self, name)
        source = self.source or ConstantSource(self.fn, "callable")
        return tx.wrap(found, Attr(source, name))

    def forwards(self, tx: Tracer, args: Args, kwargs: Kwargs) -> tuple[Value, Args, Kwargs] | None:
        python = find(POLYFILLS, self.fn)
        if python is None:
            return None
        check_call(tx, self.fn, args, kwargs)
        return tx.wrap(python, ConstantSource(python, python.__name__)), args, kwargs

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return call_callable(tx, self.fn, args, kwargs)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "__call__":
            return self.call(tx, args, kwargs)
        if name == "__get__" and isinstance(self.fn, functools._lru_cache_wrapper):
            from flambeau_capture.values.functions.methods import MethodValue

            return MethodValue(args[0], self)
        raise Break("FB0005", f"call_method {name} of {self.describe()}")

    def reconstruct(self, writer: Any) -> None:
        writer.load_const(self.fn)


def call_callable(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> Value:
    """Call something that has no Python code to interpret."""
    handler = find(HANDLERS, fn)
    if handler is not None:
        check_call(tx, fn, args, kwargs)
        args, kwargs = by_place(fn, args, kwargs)
        try:
            found: Value = handler(tx, args, kwargs)
        except NotConcrete as error:
            raise Break("FB0005", f"{describe_call(fn, args)}: {error} is not known") from None
        return found
    reason = find(BREAKS, fn)
    if reason is not None:
        raise Break(reason, f"call_function {describe_call(fn, args)}")
    if is_operator(fn):
        return graph_call(tx, "call_function", fn, args, kwargs)
    if isinstance(fn, functools._lru_cache_wrapper):
        for rule in CACHED_METHODS:
            answer = rule(tx, fn, args, kwargs)
            if answer is not None:
                return answer
        known = all(isinstance(arg, Constant) for arg in [*args, *kwargs.values()])
        if not known:
            return _uncached(tx, fn, args, kwargs)
        given = tuple((type(arg.value), arg.value) for arg in args)  # type: ignore[attr-defined]
        named = tuple((n, type(a.value), a.value) for n, a in kwargs.items())  # type: ignore[attr-defined]
        answers = tx.heap.answers
        if (fn, given, named) not in answers:
            answered = _uncached(tx, fn, args, kwargs)
            tx.heap.changed()
            answers[fn, given, named] = answered
        remembered: Value = answers[fn, given, named]
        return remembered
    owner = getattr(fn, "__objclass__", None)
    if owner is not None and args:
        if not issubclass(args[0].cls, owner):
            evaluate(tx, fn, nameless(args[0]))
        check_method(tx, args[0], fn.__name__, args[1:], kwargs)
        return args[0].call_method(tx, fn.__name__, args[1:], kwargs)
    if is_pure(fn):
        return evaluate_call(tx, fn, args, kwargs)
    receiver = getattr(fn, "__self__", None)
    if isinstance(fn, types.MethodWrapperType | types.BuiltinMethodType) and not isinstance(
        receiver, types.ModuleType | type(None)
    ):
        value = tx.wrap(receiver, ConstantSource(receiver, "receiver"))
        again = isinstance(receiver, type) and _is_attribute(receiver, fn)
        if not isinstance(value, BuiltinValue) and not again and is_found_by_name(fn):
            return value.call_method(tx, fn.__name__, args, kwargs)
    raise Break("FB0005", f"call_function {describe_call(fn, args)}")


def is_found_by_name(method: Any) -> bool:
    """Whether a bound method made in C is what its object answers to the method's name: neither
    the object nor its class has put something else in its place."""
    receiver, name = method.__self__, method.__name__
    if isinstance(receiver, type):
        return True
    found = find_in_class(type(receiver), name)
    if found is None or name in instance_dict(receiver):
        return found is None and name not in instance_dict(receiver)
    if isinstance(found[1], types.FunctionType):
        return False
    bind = getattr(type(found[1]), "__get__", None)
    if isinstance(bind, types.FunctionType):
        return False  # code of the program answers
    return bind is None or bool(bind(found[1], receiver, type(receiver)) == method)


def _is_attribute(owner: type, fn: Any) -> bool:
    """Whether asking a class for the function's name gives the function again."""
    return bool(getattr(owner, fn.__name__, None) == fn)


def _uncached(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> Value:
    """What the function behind functools.lru_cache answers, which runs in every call of the graph:
    one that writes to what outlives it would do so again, where the cache does not."""
    wrapped = fn.__wrapped__
    before = tx.heap.writes()
    answer = tx.call(tx.wrap(wrapped, ConstantSource(wrapped, wrapped.__name__)), args, kwargs)
    if tx.heap.writes() != before:
        raise Break("FB0019", f"{describe_call(fn, args)}: a cached function that writes")
    return answer


def is_pure(fn: Any) -> bool:
    if isinstance(fn, type) and compares_itself(fn):
        return False
    try:
        return fn in PURE
    except TypeError:
        return False


def describe_call(fn: Any, args: Args) -> str:
    """A call as break reasons show it."""
    name = getattr(fn, "__qualname__", None) or type(fn).__name__
    module = getattr(fn, "__module__", None)
    full = name if module in (None, "builtins") else f"{module}.{name}"
    return f"BuiltinVariable({full}) [{', '.join(arg.describe() for arg in args)}]"


def evaluate_call(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> Value:
    """Run a pure callable now, on arguments that are all known."""
    if not kwargs:
        numbers = in_python(fn, args)
        if any(isinstance(arg, SymbolValue) for arg in numbers):
            computed = symbol_call(tx, fn, numbers)
            if computed is not None:
                return computed
    try:
        plain = [arg.as_python() for arg in args]
        named = {key: arg.as_python() for key, arg in kwargs.items()}
    except NotConcrete as error:
        raise Break("FB0005", f"{describe_call(fn, args)}: {error} is not known") from None
    if any(isinstance(arg, type) and answers_for_itself(type(arg)) for arg in plain):
        raise Break("FB0005", f"{describe_call(fn, args)}, which may ask the class's metaclass")
    return wrap_evaluated(tx, evaluate(tx, fn, *plain, **named))


def wrap_evaluated(tx: Tracer, made: Any) -> Value:
    """What an evaluation has made; an iterator becomes one of the program's, over its items."""
    if hasattr(type(made), "__next__"):
        from flambeau_capture.values.containers.tuples import TupleValue
        from flambeau_capture.values.iterators.builtin import SequenceIterator

        return SequenceIterator(TupleValue([tx.wrap_new(item) for item in made]))
    return tx.wrap_new(made)


@functools.cache
def _operator_builtins() -> frozenset[Any]:
    """They are kept themselves: the `id` of a method that nobody keeps goes to another object."""
    found = set()
    for namespace in compat.operator_namespaces():
        for name in dir(namespace):
            member = getattr(namespace, name, None)
            if name.startswith("__"):
                continue  # of the namespace itself
            if isinstance(member, types.BuiltinFunctionType | types.BuiltinMethodType):
                found.add(member)
    return frozenset(found)


def is_operator(fn: Any) -> bool:
    """Whether a callable is an operator on tensors, recorded as one call of the graph."""
    if isinstance(fn, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return True
    if isinstance(fn, types.BuiltinFunctionType | types.BuiltinMethodType):
        return fn in _operator_builtins() or fn is torch.Tensor._make_subclass
    return False


def is_graph_function(fn: types.FunctionType) -> bool:
    """Python functions of torch that are one call of the graph, not interpreted."""
    return fn.__module__ in GRAPH_MODULES and fn.__name__ not in NOT_IN_GRAPH


GRAPH_MODULES = frozenset({"torch.nn.functional", "torch.functional", "torch._VF"})
NOT_IN_GRAPH = frozenset(
    {"triplet_margin_with_distance_loss", "is_scripting", "broadcast_shapes", "boolean_dispatch"}
)


def known_callable(fn: Any) -> bool:
    """Whether a callable has a handler of its own, whatever it is bound to."""
    return find(HANDLERS, fn) is not None


def none() -> Constant:
    return Constant(None)
