"""Operators that take functions, inside programs: `cond` and `while_loop`."""

from collections.abc import Callable
from typing import Any

from flambeau_aot.higher_order.cond import cond
from flambeau_aot.higher_order.while_loop import while_loop

HIGHER_ORDER: dict[str, Callable[..., Any]] = {"cond": cond, "while_loop": while_loop}
"""By the operator's name, what is called in its place."""

__all__ = ["HIGHER_ORDER"]
