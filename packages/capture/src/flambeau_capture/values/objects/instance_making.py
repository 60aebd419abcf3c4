"""Making of instances by compiled code.

In: a class, what its instance holds. Out: the instance, filled. Invariant: nothing of the program
runs: neither `__new__`, nor `__init__`, nor a method that a class of a container overrides.
"""

from __future__ import annotations

import collections
import contextlib
import threading
import types
from typing import Any

from flambeau_capture._native import fill_like
from flambeau_capture.values.containers.dicts import fill_dict
from flambeau_capture.values.objects.attributes import instance_dict, is_of_thread, layout_of

_BASES: tuple[Any, ...] = (
    types.SimpleNamespace, collections.defaultdict, collections.OrderedDict, dict, list, set, tuple,
    collections.deque, threading.local, object,
)  # fmt: skip


def new_instance(python_class: Any, *content: Any) -> Any:
    known = next(base for base in _BASES if issubclass(python_class, base))
    base: Any = layout_of(python_class) if content else known
    return base.__new__(python_class, *content)


def fill_payload(target: Any, content: Any) -> None:
    if isinstance(target, collections.defaultdict):
        collections.defaultdict.__init__(target, content.default_factory)
    if isinstance(target, dict):
        fill_dict(target, content)
    elif isinstance(target, collections.deque):
        collections.deque.__init__(target, content, content.maxlen)
    elif isinstance(target, list):
        list.extend(target, content)
    elif isinstance(target, set):
        fill_like(target, content)
    else:
        raise TypeError(f"cannot fill a {type(target).__name__}")


def set_own(obj: Any, name: str, value: Any) -> None:
    """Set an instance's own attribute, where a descriptor of its class has the name."""
    instance_dict(obj)[name] = value


def del_own(obj: Any, name: str) -> None:
    """Delete an instance's own attribute, where a descriptor of its class has the name."""
    instance_dict(obj).pop(name, None)


def del_attribute(obj: Any, name: str) -> None:
    """Delete an attribute that the program has set or seen: before, it may not have been there."""
    with contextlib.suppress(AttributeError):
        plain_base(type(obj)).__delattr__(obj, name)


def plain_base(python_class: type) -> Any:
    """The base whose `__setattr__` sets an attribute, whatever a class of the program says."""
    return threading.local if is_of_thread(python_class) else object


def share_dict(target: Any) -> None:
    """Let an instance of a dict be its own `__dict__`: attributes are items."""
    object.__setattr__(target, "__dict__", target)


def shares_dict(target: Any) -> bool:
    """Whether an instance of a dict is its own `__dict__`."""
    return instance_dict(target) is target
