"""Instances that existed before the frame.

In: an object that no other kind takes, and its source. Out: its value, the built-in part included;
an opaque one where capture cannot look into its class. Invariant: its class is guarded.
"""

from __future__ import annotations

import types
from typing import Any

from flambeau_capture.source import Source
from flambeau_capture.values.base import Tracer, Value
from flambeau_capture.values.containers.existing_containers import wrap_payload
from flambeau_capture.values.existing import already_tracked
from flambeau_capture.values.objects.attributes import assume_special_methods
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.objects.opaque import OpaqueValue
from flambeau_capture.values.objects.reconstruction import instance_dict, shares_dict
from flambeau_capture.values.registry import wraps_if


@wraps_if(lambda obj: True, 1000)
def wrap_instance(tx: Tracer, obj: Any, source: Source) -> Value:
    """Whatever no other kind takes: an instance of a class."""
    known = already_tracked(tx, obj, source)
    if known is not None:
        return known
    tx.guard(source, "TYPE_MATCH", type(obj))
    assume_special_methods(tx, type(obj))
    made: Value
    python_made = type(obj).__flags__ & (1 << 9)  # a heap type: made by a class statement
    if (python_made or type(obj) is types.SimpleNamespace) and not isinstance(obj, type):
        made = make_instance(tx, obj, source)
    else:
        made = OpaqueValue(obj, source)
    tx.heap.know(obj, made)
    return made


def make_instance(tx: Tracer, obj: Any, source: Source) -> Value:
    """The value of an existing instance, its built-in part included."""
    payload = wrap_payload(tx, obj, source)
    if payload is NotImplemented:
        return OpaqueValue(obj, source)
    attributes = instance_dict(obj)
    if attributes is not obj and not tx.heap.take_attributes(attributes, obj):
        return OpaqueValue(obj, source)  # another value stands for the same attributes
    made = ObjectValue(type(obj), real=obj, source=source, payload=payload)
    if isinstance(obj, dict) and shares_dict(obj):
        tx.guard(source, "CALL", shares_dict, "is its own __dict__")
        made.shared = True
    return made
