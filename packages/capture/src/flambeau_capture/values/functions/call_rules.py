"""The table of rules: what capture does with a call.

In: callables of the program. Out: `rule_of`, the rule that holds for one; `handles`, `pure`,
`breaks` and the tables by code, type, class and name, which the `builtins` package fills. Modules
are in `frame.skip_rules`. Invariant: a callable with no rule and no known purity is a graph break;
capture never calls what it does not know.
"""

from __future__ import annotations

import enum
import functools
import inspect
import os
import types
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import REASONS, Break
from flambeau_capture.frame.function_marks import BREAK, DISABLED, IN_GRAPH, MARK, REST
from flambeau_capture.frame.skip_rules import GRAPH, library_rule
from flambeau_capture.identity import compares_itself, known_in
from flambeau_capture.observe.unguarded import unguarded
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
from flambeau_capture.values.constant import Constant, evaluate, refuse_unknown
from flambeau_capture.values.numpy.arrays import in_python
from flambeau_capture.values.objects.answers import ask
from flambeau_capture.values.objects.made.made_objects import MadeObject, act
from flambeau_capture.values.registry import answers_for_itself, wrap_known
from flambeau_capture.values.tensors.numbers.data_numbers import float_call
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue, symbol_call

Handler = Callable[[Tracer, Args, Kwargs], Value | None]  # nothing: None to the program
CalledHandler = Callable[[Tracer, Any, Args, Kwargs], Value]  # is given what is called, too
H = TypeVar("H", bound=Handler)
C = TypeVar("C", bound=CalledHandler)


class Action(enum.StrEnum):
    """What capture does with a call."""

    INLINE = "inline"  # its Python code is interpreted
    MAKE = "make"  # an instance is made; what its class says of that in Python is interpreted
    ANSWER = "answer"  # a handler knows what it does
    GRAPH = "graph"  # one call of the graph
    EVALUATE = "evaluate"  # made at capture, on known arguments
    READ = "read"  # made in each call, where its result leaves
    POLYFILL = "polyfill"  # Python that does the same is interpreted
    CONSTANT = "constant"  # the same answer always
    METHOD = "method"  # what its receiver answers to its name
    BREAK = "break"  # the graph ends


OWN = "its own"


@dataclass(frozen=True)
class CallRule:
    """A rule: a handler (`of_called`: given the callable, too), or Python code to interpret."""

    action: Action
    row: str = OWN
    handler: Any = None
    python: Any = None
    reason: str = ""
    of_called: bool = False

    def __str__(self) -> str:
        instead = getattr(self.python, "__qualname__", "")
        why = f" {self.reason} ({REASONS[self.reason].title})" if self.reason else ""
        return f"{self.action}{why}{instead and f' {instead}'}, by {self.row}"


INLINE = CallRule(Action.INLINE, "default")

RULES: dict[Any, CallRule] = {}  # by callable
CODES: dict[types.CodeType, CallRule] = {}  # by the code of functions that a library makes
TYPES: dict[type, CallRule] = {}  # by the type of what is called: metaclasses among them
CLASSES: dict[type, CallRule] = {}  # by a class that the one which is called derives from
NAMES: dict[tuple[str, str], CallRule] = {}  # by module and name: what may not be imported here


def handles(*fns: Any, action: Action = Action.ANSWER, python: Any = None) -> Callable[[H], H]:
    """Register what calling these callables does."""

    def register(handler: H) -> H:
        for fn in fns:
            RULES[fn] = CallRule(action, handler=handler, python=python)
        return handler

    return register


def answers(handlers: Mapping[Any, Handler]) -> None:
    """Register handlers that are one expression each."""
    RULES.update({fn: CallRule(Action.ANSWER, handler=handlers[fn]) for fn in handlers})


unguarded(
    "functions declared pure: arithmetic, text, `re`, `struct`, parts of `os.path`, `math`",
    "the result rests on the arguments alone, and these are known",
)


def pure(*fns: Any) -> None:
    """Declare callables without side effects, whose result depends on the arguments alone."""
    RULES.update(dict.fromkeys(fns, CallRule(Action.EVALUATE)))


def breaks(id: str, *fns: Any) -> None:
    """Declare callables that always end the graph."""
    RULES.update(dict.fromkeys(fns, CallRule(Action.BREAK, reason=id)))


def makes(*classes: type) -> Callable[[C], C]:
    """Register how an instance of a class that derives from one of these is made."""

    def register(handler: C) -> C:
        for kind in classes:
            row = f"class {kind.__qualname__}"
            CLASSES[kind] = CallRule(Action.MAKE, row, handler, of_called=True)
        return handler

    return register


def constant(value: Any, row: str = OWN) -> CallRule:
    """The rule of what answers the same whatever it is given."""
    return CallRule(Action.CONSTANT, row, handler=lambda tx, args, kwargs: Constant(value))


def own_rule(fn: Any) -> CallRule | None:
    """The rule of a callable itself; None too for one that cannot be hashed."""
    if isinstance(fn, type) and compares_itself(fn):
        return None
    try:
        return RULES.get(fn)
    except TypeError:
        return None


def call_at_capture(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> Value:
    """The result of a call whose arguments the program has already, else a break."""
    with knowing(fn, args, " at capture"):
        plain = [arg.own_object() for arg in args]
        named = {name: arg.own_object() for name, arg in kwargs.items()}
    return wrap_known(tx, fn(*plain, **named), f"{getattr(fn, '__name__', 'constant')}()")


unguarded(
    "results of functions marked by `assume_constant_result`",
    "that they stay is the program's word",
)


def describe_call(fn: Any, args: Args) -> str:
    """A call as break reasons show it."""
    name = getattr(fn, "__qualname__", None) or type(fn).__name__
    module = getattr(fn, "__module__", None)
    full = name if module in (None, "builtins") else f"{module}.{name}"
    return f"BuiltinValue({full}) [{', '.join(arg.describe() for arg in args)}]"


def knowing(fn: Any, args: Args, when: str = "") -> AbstractContextManager[None]:
    """A break where an argument of a call is not known."""
    return needing("FB0005", lambda what: f"{describe_call(fn, args)}: {what} is not known{when}")


#: functions whose answer is that of a special method of their one argument, which they do not
#: ask if it is of these classes
_ASKS: tuple[tuple[Any, str, tuple[type, ...]], ...] = (
    *((fn, "__index__", (int,)) for fn in (bin, hex, oct, chr)),
    (bytes, "__bytes__", ()),
    (os.fspath, "__fspath__", (str, bytes)),
)


def evaluate_call(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> Value:
    """Run a pure callable now, on arguments that are all known."""
    if any(isinstance(arg, MadeObject) for arg in (*args, *kwargs.values())):
        return act(tx, fn, args, kwargs)
    if not kwargs:
        numbers = in_python(fn, args)
        if any(isinstance(arg, SymbolValue) for arg in numbers):
            computed = float_call(tx, fn, numbers[0]) if len(numbers) == 1 else None
            if computed is None:
                computed = symbol_call(tx, fn, numbers)
            if computed is not None:
                return computed
    with knowing(fn, args):
        try:
            plain, named = objects_of(args, kwargs)
        except NotConcrete:
            name, kinds = next((row[1:] for row in _ASKS if row[0] is fn), ("", ()))
            if len(args) == 1 and not kwargs and name and not issubclass(args[0].cls, kinds):
                if args[0].special(tx, name):
                    return ask(tx, args[0], name, by=fn)
            refuse_unknown(tx, fn, args, kwargs)
            raise
    if any(isinstance(arg, type) and answers_for_itself(type(arg)) for arg in plain):
        raise Break("FB0005", f"{describe_call(fn, args)}, which may ask the class's metaclass")
    by = MadeBy(fn, (*args,), {**kwargs})
    return tx.wrap_evaluated(evaluate(tx, fn, *plain, **named), by)


@functools.cache
def _operator_builtins() -> frozenset[Any]:
    """They are kept themselves: the `id` of a method that nobody keeps goes to another object."""
    return frozenset(
        member
        for namespace in compat.operator_namespaces()
        for name in dir(namespace)
        if not name.startswith("__")  # of the namespace itself
        and isinstance(member := getattr(namespace, name, None), types.BuiltinFunctionType)
    )


def is_operator(fn: Any) -> bool:
    """Whether a callable is an operator on tensors, recorded as one call of the graph."""
    if isinstance(fn, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return True
    if isinstance(fn, types.BuiltinFunctionType | types.BuiltinMethodType):
        return fn in _operator_builtins() or fn is torch.Tensor._make_subclass
    return False


def is_bound(fn: Any) -> bool:
    """Whether a function in C is a method of an object."""
    if not isinstance(fn, types.MethodWrapperType | types.BuiltinMethodType):
        return False
    return not isinstance(getattr(fn, "__self__", None), types.ModuleType | type(None))


def is_graph_function(fn: types.FunctionType) -> bool:
    """Python functions of torch that are one call of the graph, not interpreted."""
    return library_rule(fn.__module__ or "")[1].called == GRAPH and fn.__name__ not in NOT_IN_GRAPH


NOT_IN_GRAPH = frozenset(
    {"triplet_margin_with_distance_loss", "is_scripting", "broadcast_shapes", "boolean_dispatch"}
)


def known_callable(fn: Any) -> bool:
    """Whether a callable has a rule of its own, whatever it is bound to."""
    rule = own_rule(fn)
    return rule is not None and rule.action is not Action.BREAK


def rule_of(fn: Any) -> CallRule:
    """What capture does with a call of a function, a class, or anything else that is called."""
    if isinstance(fn, types.MethodType):
        fn = fn.__func__
    if isinstance(fn, types.FunctionType):
        return _of_function(fn)
    own = own_rule(fn)
    if own is not None:
        return own
    of_type = next((TYPES[kind] for kind in type(fn).__mro__ if kind in TYPES), None)
    if of_type is not None:
        return of_type
    if isinstance(fn, type):
        named = NAMES.get((getattr(fn, "__module__", ""), "*"))
        return named or next(CLASSES[kind] for kind in fn.__mro__ if known_in(kind, CLASSES))
    if is_operator(fn):
        return CallRule(Action.GRAPH, "operators")
    if hasattr(fn, "__objclass__") or is_bound(fn):
        return CallRule(Action.METHOD, f"methods of {type(fn).__name__}")
    if isinstance(fn, types.BuiltinFunctionType):
        return CallRule(Action.BREAK, "functions in C", reason="FB0005")
    called = inspect.getattr_static(type(fn), "__call__", None)
    if not isinstance(called, types.FunctionType):
        return CallRule(Action.BREAK, "objects", reason="FB0005")
    return rule_of(called)


def _of_function(fn: types.FunctionType) -> CallRule:
    mark = fn.__dict__.get(MARK)
    if mark in (DISABLED, BREAK):
        return CallRule(Action.BREAK, f"mark {mark!r}", reason="FB0006")
    if mark == IN_GRAPH:
        return CallRule(Action.GRAPH, f"mark {mark!r}")
    if mark == REST:
        return INLINE
    own = own_rule(fn)
    if own is not None:
        return own
    if compat.marked_constant(fn):
        return CallRule(Action.CONSTANT, "a mark of torch.compiler")
    if is_graph_function(fn):
        return CallRule(Action.GRAPH, f"module {fn.__module__}")
    if compat.is_foreign_mark(fn):
        return constant(None, "marks for other compilers")
    if compat.is_foreign_question(fn):
        return constant(True, "questions to other compilers")
    if compat.switches_errors(fn):
        return INLINE
    hidden = compat.hidden_from_others(fn)
    if hidden is not None:
        return CallRule(Action.POLYFILL, "wrappers for other compilers", python=hidden)
    if compat.is_disabled(fn) or compat.requests_break(fn):
        return CallRule(Action.BREAK, "a mark of torch.compiler", reason="FB0006")
    if compat.compiled_by_torch(fn):
        return CallRule(Action.BREAK, "compiled by torch", reason="FB0006")
    by_code = CODES.get(fn.__code__)
    if by_code is not None:
        return by_code
    module = fn.__module__ or ""
    named = NAMES.get((module, fn.__name__)) or NAMES.get((module, "*"))
    if named is not None:
        return named
    prefix, library = library_rule(module)
    if library.called in ("", GRAPH):
        return INLINE
    return CallRule(Action.BREAK, f"module {prefix}", reason=library.called)
