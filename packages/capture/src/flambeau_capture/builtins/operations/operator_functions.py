"""Functions of the module `operator`, `divmod` and `pow`.

In: a call of one of them. Out: handlers, in the table of built-in functions. Invariant:
`operator.add(a, b)` and `a + b` are one thing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial

from flambeau_capture.builtins.argument_unpacking import spread
from flambeau_capture.builtins.operations.operator_tables import (
    IN_PLACE,
    OPERATORS,
    UNARY,
    declined,
    of_built_ins,
)
from flambeau_capture.builtins.operations.operators import binary, unary
from flambeau_capture.builtins.operations.sameness import identical
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant, evaluate, refuse
from flambeau_capture.values.containers.sequences import TupleValue, index_of
from flambeau_capture.values.functions.call_rules import handles
from flambeau_capture.values.objects.attributes import call_special, find_in_class
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.objects.made.made_objects import MadeObject, act
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue
from flambeau_capture.values.tensors.tensor import TensorValue


def _operator(by: Callable[..., Value], symbol: str, tx: Tracer, args: Args, _: Kwargs) -> Value:
    return by(tx, symbol, *args)


for _symbol, _row in (*OPERATORS.items(), *IN_PLACE.items()):
    handles(_row[0])(partial(_operator, binary, _symbol))
for _symbol, _unary_row in UNARY.items():
    handles(_unary_row[0])(partial(_operator, unary, _symbol))
# functions of `operator` of their own, which do the same
handles(operator.abs)(partial(_operator, unary, "abs"))
handles(operator.inv)(partial(_operator, unary, "~"))


spread(
    {
        operator.not_: lambda tx, value: Constant(not value.truth(tx)),
        operator.is_: lambda tx, one, other: Constant(identical(tx, one, other)),
        operator.is_not: lambda tx, one, other: Constant(not identical(tx, one, other)),
        operator.contains: lambda tx, items, item: Constant(items.contains(tx, item)),
        operator.setitem: lambda tx, items, key, value: items.set_item(tx, key, value),
        operator.delitem: lambda tx, items, key: items.del_item(tx, key),
        operator.truth: lambda tx, value: Constant(value.truth(tx)),
        operator.index: lambda tx, value: Constant(index_of(tx, value)),
    }
)


@handles(divmod)
def _divmod(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    one, two = args
    for receiver, name, other in ((one, "__divmod__", two), (two, "__rdivmod__", one)):
        if receiver.special(tx, name):
            found = call_special(tx, receiver, name, [other])
            if not declined(found):
                return found
    if all(isinstance(arg, ObjectValue) or type(arg) is Constant for arg in args):
        return tx.wrap_new(of_built_ins(tx, divmod, ("__divmod__", "__rdivmod__"), *args))
    left, right = (getattr(arg, "payload", None) or arg for arg in args)
    for side, name in ((left, "__divmod__"), (right, "__rdivmod__")):
        if find_in_class(side.cls, name) is None:
            refuse(tx, divmod, *args)
    if all(isinstance(side, MadeObject) or type(side) is Constant for side in (left, right)):
        return act(tx, divmod, [left, right])
    return TupleValue([binary(tx, "//", left, right), binary(tx, "%", left, right)])


@handles(pow)
def _pow(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 2:
        return binary(tx, "**", args[0], args[1])
    return tx.wrap_new(evaluate(tx, pow, *(arg.as_python() for arg in args)))


def _concat(
    fn: Callable[..., object], symbol: str, tx: Tracer, args: Args, kwargs: Kwargs
) -> Value:
    for arg in args:
        text = isinstance(arg, Constant) and isinstance(arg.value, str | bytes | range)
        if isinstance(arg, TensorValue | Constant | SymbolValue) and not text:
            refuse(tx, fn, *args)  # numbers, and what has subscripts
    return binary(tx, symbol, args[0], args[1])


handles(operator.concat)(partial(_concat, operator.concat, "+"))
handles(operator.iconcat)(partial(_concat, operator.iconcat, "+="))
