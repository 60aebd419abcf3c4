"""Calls that make objects of classes in C, and functions in C of what is known.

In: known values. Out: made objects, constants. Invariant: a function is listed here if what it
answers and does rests on its arguments alone.
"""

from __future__ import annotations

import binascii
import hashlib
import random
import struct
import threading
import types
import zlib
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.functions.call_rules import RULES, Action, CallRule, describe_call
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.objects.made.made_models import MODELS
from flambeau_capture.values.objects.made.made_objects import act


def _acting(fn: Any) -> CallRule:
    def handler(tx: Tracer, called: Any, args: Args, kwargs: Kwargs) -> Value:
        if fn is random.Random and not (args and args[0].cls in (int, float, str, bytes)):
            raise Break("FB0005", "random.Random without a seed")
        return act(tx, fn, args, kwargs)

    return CallRule(Action.ANSWER, "objects of classes in C", handler, of_called=True)


def _class_methods(kind: type) -> list[Any]:
    """The methods of a class itself that rest on their arguments."""
    names = [
        name
        for owner in kind.__mro__
        for name, found in vars(owner).items()
        if isinstance(found, types.ClassMethodDescriptorType | staticmethod) and name[0] != "_"
    ]
    outside = MODELS[kind].outside if kind in MODELS else ()
    return [getattr(kind, name) for name in names if name not in outside]


_MADE_BY_FUNCTIONS = ("lock", "RLock", "HASH", "Hash")
_CLASSES = [kind for kind in MODELS if kind.__name__ not in _MADE_BY_FUNCTIONS]
_FUNCTIONS: list[Any] = [
    threading.Lock, threading.RLock, vars(threading)["_CRLock"],
    zlib.crc32, zlib.adler32, zlib.compress, zlib.decompress,
    binascii.hexlify, binascii.unhexlify, binascii.b2a_base64, binascii.a2b_base64,
    binascii.b2a_hex, binascii.a2b_hex, binascii.crc32, binascii.b2a_qp, binascii.a2b_qp,
    struct.pack, struct.unpack, struct.pack_into, struct.unpack_from, struct.iter_unpack,
    struct.calcsize, int.from_bytes, vars(hashlib)["_hashlib"].new,
    *(getattr(hashlib, name) for name in sorted(hashlib.algorithms_guaranteed)
      if type(getattr(hashlib, name)(b"")) in MODELS),
]  # fmt: skip
for _fn in (
    *_CLASSES,
    *_FUNCTIONS,
    *(method for kind in _CLASSES for method in _class_methods(kind)),
):
    RULES[_fn] = _acting(_fn)


def _of_made(fn: Any) -> CallRule:
    """A method of a class of `threading`, whose code is interpreted for objects that nobody else
    has yet."""

    def handler(tx: Tracer, called: Any, args: Args, kwargs: Kwargs) -> None:
        if not args or not isinstance(args[0], ObjectValue) or args[0].source is not None:
            raise Break("FB0017", f"call_function {describe_call(fn, args)}")

    return CallRule(Action.ANSWER, "objects of threading", handler, of_called=True)


_WAITING = ("wait", "wait_for", "__repr__", "_at_fork_reinit")
for _kind in (
    threading.Condition,
    threading.Event,
    threading.Semaphore,
    threading.BoundedSemaphore,
):
    for _name, _method in vars(_kind).items():
        if isinstance(_method, types.FunctionType) and _name not in _WAITING:
            RULES[_method] = _of_made(_method)
