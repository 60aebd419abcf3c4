"""The conversion `!a`, `%a` and `ascii()`: repr with escapes, of every kind of value."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import flambeau_capture as fc
import pytest
import torch


class Accented:
    def __repr__(self) -> str:
        return "\u00e9\\"


VALUES: dict[str, Callable[[], Any]] = {
    "a text": lambda: "\u00e9",
    "a backslash": lambda: "a\\b'",
    "a tuple": lambda: ("\u00e9", "\\"),
    "a dictionary": lambda: {"\u00f1": 1},
    "bytes of a frame": lambda: bytearray(b"ab\xff"),
    "a date": lambda: datetime.date(2020, 1, 2),
    "an object": Accented,
    "a number": lambda: 1.5,
}


@pytest.mark.parametrize("kind", VALUES)
def test_ascii_is_what_eager_makes_of_it(kind: str) -> None:
    make = VALUES[kind]

    def f(x: torch.Tensor) -> Any:
        v = make()
        return x + 1, "%5a" % (v,), f"{v!a:>8}", f"{v!a}", ascii(v), "%a" % (v,)  # noqa: UP031

    compiled = fc.compile(f, backend="eager", fullgraph=True)
    assert compiled(torch.ones(1))[1:] == f(torch.ones(1))[1:]
