"""Calls that make classes, and what class statements are made of.

In: names, bases, namespaces, functions of the program. Out: values of `made_classes`. Invariant:
what is not sure to be the class that Python would make is a graph break.
"""

from __future__ import annotations

import dataclasses

from flambeau_capture.breaks import Break
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.functions.call_rules import (
    RULES,
    Action,
    CallRule,
    describe_call,
    handles,
)
from flambeau_capture.values.objects.made.class_parts import PARTS, made_part
from flambeau_capture.values.objects.made.made_classes import DataclassDecorator, MadeClass
from flambeau_capture.values.registry import wrap_known

for _part in PARTS:
    RULES[_part] = CallRule(Action.ANSWER, handler=made_part(_part))


@handles(dataclasses.dataclass)
def _dataclass(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not args:
        return DataclassDecorator(wrap_known(tx, dataclasses.dataclass), [], dict(kwargs))
    if len(args) != 1 or not isinstance(args[0], MadeClass):
        raise Break("FB0020", describe_call(dataclasses.dataclass, args))
    return args[0].decorate(tx, kwargs)
