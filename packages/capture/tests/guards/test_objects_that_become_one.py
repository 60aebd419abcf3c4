"""Two objects that differ where a function is compiled, and are one in a later call."""

from __future__ import annotations

import array
import collections
import contextvars
import functools
import io
import random
import re
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import flambeau_capture as capture
import pytest
import torch
from torch import Tensor


class Plain:
    pass


class Equal:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


class Less:
    def __lt__(self, other: object) -> bool:
        return True


class Local(threading.local):
    def __lt__(self, other: object) -> bool:
        raise AttributeError("no")


MAKERS: dict[str, Callable[[], Any]] = {
    "plain": Plain, "equal": Equal, "less": Less, "local": Local, "object": object,
    "list": list, "dict": dict, "set": set, "deque": collections.deque,
    "namespace": types.SimpleNamespace, "function": lambda: lambda: 1,
    "exception": lambda: ValueError("x"), "partial": lambda: functools.partial(min, 1),
    "module": lambda: torch.nn.Linear(1, 1), "random": lambda: random.Random(1),
    "generator": torch.Generator, "lock": threading.Lock, "event": threading.Event,
    "class": lambda: type("Made", (), {}), "text file": io.StringIO,
    "tensor": lambda: torch.ones(()),
    "array": lambda: array.array("i"), "reference": lambda: weakref.ref(Plain),
    "iterator": lambda: iter([1]), "proxy": lambda: types.MappingProxyType({}),
    "pattern": lambda: re.compile("a"), "variable": lambda: contextvars.ContextVar("v"),
    "number": lambda: float("nan"), "tuple": lambda: (1, [2]),
}  # fmt: skip

QUESTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "is": lambda a, b: a is b,
    "==": lambda a, b: a == b,
    "lists equal": lambda a, b: [a] == [b],
    "lists less": lambda a, b: [a] < [b],
    "tuples differ": lambda a, b: (1, a) != (1, b),
    "dicts equal": lambda a, b: {"k": a} == {"k": b},
    "deques equal": lambda a, b: collections.deque([a]) == collections.deque([b]),
    "in": lambda a, b: a in [b],
    "count": lambda a, b: [b].count(a),
    "index": lambda a, b: [b].index(a),
    "id": lambda a, b: len({id(a), id(b)}),
    "set": lambda a, b: len({a, b}),
}


PAIRS = [(kind, question) for kind in MAKERS for question in QUESTIONS]
PAIRS.remove(("number", "set"))  # a set keeps one NaN twice, and capture compares numbers by value


@pytest.mark.sweep(6)
@pytest.mark.parametrize(("kind", "question"), PAIRS)
def test_later_calls_answer_as_eager_does(kind: str, question: str) -> None:
    asked = QUESTIONS[question]

    def program(x: Tensor, a: Any, b: Any) -> Any:
        try:
            return x + 1, asked(a, b)
        except (TypeError, ValueError, AttributeError) as error:
            return x + 1, type(error).__name__

    compiled = capture.compile(program, backend="eager")
    one, other = MAKERS[kind](), MAKERS[kind]()
    x = torch.ones(2)
    for a, b in ((one, other), (one, one), (one, other), (other, other)):
        assert repr(compiled(x, a, b)[1]) == repr(program(x, a, b)[1])
