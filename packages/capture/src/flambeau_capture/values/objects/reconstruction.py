"""Reconstruction of instances in generated code.

In: classes, and contents as they were computed. Out: new objects. Invariant: nothing of the
program runs: neither `__new__`, nor `__init__`, nor a method that a container's class overrides.
"""

from __future__ import annotations

import collections
import types
from typing import Any

from flambeau_capture.values.objects.attributes import layout_of


def new_instance(python_class: Any, *content: Any) -> Any:
    if content:
        base: Any = layout_of(python_class)
        return base.__new__(python_class, *content)
    if issubclass(python_class, types.SimpleNamespace):
        return types.SimpleNamespace.__new__(python_class)
    bases: tuple[Any, ...] = (
        collections.defaultdict, collections.OrderedDict, dict, list, set, tuple, collections.deque
    )  # fmt: skip
    for base in bases:
        if issubclass(python_class, base):
            return base.__new__(python_class)
    return object.__new__(python_class)


def fill_payload(target: Any, content: Any) -> None:
    if isinstance(target, collections.defaultdict):
        collections.defaultdict.__init__(target, content.default_factory)
        for key, value in content.items():
            dict.__setitem__(target, key, value)
    elif isinstance(target, collections.deque):
        collections.deque.__init__(target, content, content.maxlen)
    elif isinstance(target, dict):
        kind: Any = collections.OrderedDict if isinstance(target, collections.OrderedDict) else dict
        for key, value in content.items():
            kind.__setitem__(target, key, value)
    elif isinstance(target, list):
        list.extend(target, content)
    elif isinstance(target, set):
        set.update(target, content)
    else:
        raise TypeError(f"cannot fill a {type(target).__name__}")


def instance_dict(obj: Any) -> dict[str, Any]:
    """An instance's own attributes; none where its class gives it no place for them."""
    try:
        found: dict[str, Any] = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return {}
    return found


def set_own(obj: Any, name: str, value: Any) -> None:
    """Set an instance's own attribute, where a descriptor of its class has the name."""
    instance_dict(obj)[name] = value


def del_own(obj: Any, name: str) -> None:
    """Delete an instance's own attribute, where a descriptor of its class has the name."""
    del instance_dict(obj)[name]


def share_dict(target: Any) -> None:
    """Let an instance of a dict be its own `__dict__`: attributes are items."""
    object.__setattr__(target, "__dict__", target)


def shares_dict(target: Any) -> bool:
    """Whether an instance of a dict is its own `__dict__`."""
    return instance_dict(target) is target
