"""`%` of text: printf-style formatting of values.

In: a format that is known, and what it is given. Out: the text. Invariant: conversions are made in
the order of the format, each as Python makes it; one that needs a number needs it known.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator

from flambeau_capture.breaks import Break
from flambeau_capture.builtins.texts import text_of
from flambeau_capture.values.base import Tracer, Value, needing
from flambeau_capture.values.constant import Constant, evaluate
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.objects.attributes import find_in_class

_CONVERSION = re.compile(r"%(?:\(([^()]*)\))?([#0\- +]*\d*(?:\.\d*)?)[hlL]?(.)", re.DOTALL)
_KINDS = "sradiouxXeEfFgGc"
_TEXTS = {"s": "__str__", "r": "__repr__", "a": "ascii"}


def percent(tx: Tracer, text: Constant, given: Value) -> Value:
    """`text % given`."""
    form, done, made = text.value, 0, []
    several = issubclass(given.cls, tuple)
    if several and not isinstance(given, TupleValue):
        raise Break("FB0009", f"{text.describe()} % {given.describe()}")
    items = iter(given.parts() if isinstance(given, TupleValue) else [given])
    keyed = not several and _is_mapping(given)
    for found in _CONVERSION.finditer(form):
        made.append(form[done : found.start()])
        done = found.end()
        made.append(_converted(tx, text, found, given if keyed else None, items))
    made.append(form[done:])
    if any("%" in each for each in made[::2]):  # what is no conversion
        raise Break("FB0009", f"{text.describe()} % {given.describe()}")
    if not keyed and next(items, None) is not None:
        tx.raise_error(TypeError, "not all arguments converted during string formatting")
    return Constant("".join(made))


def _is_mapping(given: Value) -> bool:
    found = find_in_class(given.cls, "__getitem__")
    has_items = found is not None and found[0] is not collections.deque  # items by place alone
    return has_items and not issubclass(given.cls, (tuple, str))


def _converted(
    tx: Tracer, text: Constant, found: re.Match[str], keyed: Value | None, items: Iterator[Value]
) -> str:
    key, form, kind = found.groups()
    if found[0] == "%%":
        return "%"
    if kind not in _KINDS:
        raise Break("FB0009", f"{text.describe()} as a format")
    if key is not None:
        if keyed is None:
            tx.raise_error(TypeError, "format requires a mapping")
        value = keyed.get_item(tx, Constant(key))
    else:
        following = next(items, None)
        if following is None:
            tx.raise_error(TypeError, "not enough arguments for format string")
        value = following
    if kind in _TEXTS:
        return str(evaluate(tx, str.__mod__, f"%{form}s", (text_of(tx, value, _TEXTS[kind]),)))
    with needing("FB0009", lambda error: f"{text.describe()} % {error}"):
        plain = value.as_python()
    return str(evaluate(tx, str.__mod__, f"%{form}{kind}", (plain,)))
