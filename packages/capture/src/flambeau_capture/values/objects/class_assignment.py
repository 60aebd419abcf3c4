"""Assignment to `__class__` of an instance.

In: an instance's class and what it is to be. Out: the class, or what Python raises. Invariant: only
instances of classes that keep everything in a `__dict__` change their class under capture: what
they hold is found where it was.
"""

from __future__ import annotations

import types
from collections.abc import Sequence

from flambeau_capture.breaks import Break
from flambeau_capture.source import answers_attributes
from flambeau_capture.values.base import Tracer, Value, needing
from flambeau_capture.values.constant import evaluate
from flambeau_capture.values.objects.attributes import find_in_class, sets_attribute


def class_to_be(tx: Tracer, now: type, given: Value, names: Sequence[str]) -> type:
    """The class that `o.__class__ = given` gives an instance of `now`; raises what Python does.
    names: of the instance's own attributes, before which no descriptor of a class may stand."""
    with needing("FB0019", lambda error: f"attribute '__class__' is set to {error}"):
        kind = given.as_python()
    if isinstance(kind, type) and not (_is_plain(now, names) and _is_plain(kind, names)):
        raise Break("FB0019", f"attribute '__class__' of a {now.__name__} is set")
    evaluate(tx, _assign, now, kind)
    assert isinstance(kind, type)  # else Python has refused it
    return kind


def _is_plain(kind: type, names: Sequence[str]) -> bool:
    """Whether its instances can be made without its code, and have nothing but a `__dict__`."""
    members = [vars(base) for base in kind.__mro__ if base is not object]
    found = [member for name in names if (member := find_in_class(kind, name)) is not None]
    slots = types.MemberDescriptorType
    return (
        (made := find_in_class(kind, "__new__")) is not None
        and made[0] is object
        and kind.__dictoffset__ != 0
        and type(kind) is type
        and not answers_attributes(kind)
        and not any("__del__" in own for own in members)
        and not any(isinstance(each, slots) for own in members for each in own.values())
        and not any(sets_attribute(member) for _, member in found)
    )


def _assign(now: type, kind: type) -> None:
    object.__setattr__(object.__new__(now), "__class__", kind)  # a class may have its own
