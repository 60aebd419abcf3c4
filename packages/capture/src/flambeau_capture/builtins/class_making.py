"""Calls that make classes, and what class statements are made of.

In: names, bases, namespaces, functions of the program. Out: values of `made_classes`. Invariant:
what is not sure to be the class that Python would make is a graph break.
"""

from __future__ import annotations

import dataclasses

from flambeau_capture.breaks import Break
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.dicts import DictValue, pairs_of
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.call_rules import (
    RULES,
    Action,
    CallRule,
    describe_call,
    handles,
)
from flambeau_capture.values.objects.made_classes import (
    PARTS,
    DataclassDecorator,
    MadeClass,
    made_part,
    make_class,
)
from flambeau_capture.values.registry import wrap_known


def make_by_statement(tx: Tracer, args: Args, kwargs: Kwargs, body: DictValue) -> Value:
    """A class whose body has run and has left a namespace."""
    if kwargs:
        raise Break("FB0020", f"a class statement with {', '.join(kwargs)}")
    return make_class(tx, args[1], args[2:], body)


def make_by_type(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`type(name, bases, namespace)`."""
    if len(args) != 3 or kwargs:
        raise Break("FB0020", describe_call(type, args))
    name, bases, given = args
    plain = isinstance(name, Constant) and name.cls is str
    if not plain or not isinstance(bases, TupleValue) or given.cls is not dict:
        raise Break("FB0020", describe_call(type, args))
    namespace = DictValue(list(pairs_of(tx, given)), tx=tx)
    frame = tx.caller(1)
    if frame is not None and "__name__" in frame.namespace:
        if not namespace.contains(tx, Constant("__module__")):
            here = tx.scope_of(frame.namespace).load(tx, "__name__")
            assert here is not None
            namespace.store(tx, Constant("__module__"), here)
    made = make_class(tx, name, bases.parts(), namespace)
    if made.cls is not type:  # whose own code is what calls `type`, which looks at its caller
        raise Break("FB0020", describe_call(type, args))
    return made


for _part in PARTS:
    RULES[_part] = CallRule(Action.ANSWER, handler=made_part(_part))


@handles(dataclasses.dataclass)
def _dataclass(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not args:
        return DataclassDecorator(wrap_known(tx, dataclasses.dataclass), [], dict(kwargs))
    if len(args) != 1 or not isinstance(args[0], MadeClass):
        raise Break("FB0020", describe_call(dataclasses.dataclass, args))
    args[0].decorate(tx, kwargs)
    return args[0]
