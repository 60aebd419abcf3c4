"""Functions of the module `operator`, `divmod` and `pow`.

In: a call of one of them. Out: handlers, in the table of built-in functions. Invariant:
`operator.add(a, b)` and `a + b` are one thing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from flambeau_capture.builtins.operator_tables import IN_PLACE, OPERATORS, UNARY, of_built_ins
from flambeau_capture.builtins.operators import binary, identical, unary
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant, evaluate, refuse
from flambeau_capture.values.containers.sequences import TupleValue, index_of
from flambeau_capture.values.functions.callables import answers, handles, pure
from flambeau_capture.values.objects.attributes import call_special, find_in_class
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.tensors.tensor import TensorValue


def _register() -> None:
    for symbol, (fn, _, _) in OPERATORS.items():
        handles(fn)(_binary_handler(symbol))
    for symbol, (fn, _) in IN_PLACE.items():
        handles(fn)(_binary_handler(symbol))
    for symbol, (fn, _) in UNARY.items():
        handles(fn)(_unary_handler(symbol))


def _binary_handler(symbol: str) -> Callable[[Tracer, Args, Kwargs], Value]:
    def handler(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return binary(tx, symbol, args[0], args[1])

    return handler


def _unary_handler(symbol: str) -> Callable[[Tracer, Args, Kwargs], Value]:
    def handler(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return unary(tx, symbol, args[0])

    return handler


_register()


answers(
    {
        operator.not_: lambda tx, args, kwargs: Constant(not args[0].truth(tx)),
        operator.is_: lambda tx, args, kwargs: Constant(identical(tx, args[0], args[1])),
        operator.is_not: lambda tx, args, kwargs: Constant(not identical(tx, args[0], args[1])),
        operator.contains: lambda tx, args, kwargs: Constant(args[0].contains(tx, args[1])),
        operator.setitem: lambda tx, args, kwargs: args[0].set_item(tx, args[1], args[2]),
        operator.delitem: lambda tx, args, kwargs: args[0].del_item(tx, args[1]),
        operator.truth: lambda tx, args, kwargs: Constant(args[0].truth(tx)),
        operator.index: lambda tx, args, kwargs: Constant(index_of(tx, args[0])),
    }
)


@handles(divmod)
def _divmod(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    for receiver, name, other in (
        (args[0], "__divmod__", args[1]),
        (args[1], "__rdivmod__", args[0]),
    ):
        if receiver.special(tx, name):
            found = call_special(tx, receiver, name, [other])
            if not (isinstance(found, Constant) and found.value is NotImplemented):
                return found
    if all(isinstance(arg, ObjectValue) or type(arg) is Constant for arg in args):
        return tx.wrap_new(of_built_ins(tx, divmod, ("__divmod__", "__rdivmod__"), *args))
    left, right = (getattr(arg, "payload", None) or arg for arg in args)
    for side, name in ((left, "__divmod__"), (right, "__rdivmod__")):
        if find_in_class(side.cls, name) is None and not isinstance(side, TensorValue):
            refuse(tx, divmod, *args)
    return TupleValue([binary(tx, "//", left, right), binary(tx, "%", left, right)])


@handles(pow)
def _pow(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 2:
        return binary(tx, "**", args[0], args[1])
    return tx.wrap_new(evaluate(tx, pow, *(arg.as_python() for arg in args)))


pure(operator.length_hint)
