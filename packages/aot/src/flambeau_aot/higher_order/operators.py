"""The operators of control flow that are taken, by name.

In: nothing. Out: a table. Invariant: each is called with the tracer and the operator's arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau_aot.higher_order.control_flow import cond, while_loop
from flambeau_aot.higher_order.scan import map_slices, scan

HIGHER_ORDER: dict[str, Callable[..., Any]] = {
    "cond": cond,
    "while_loop": while_loop,
    "scan": scan,
    "map_impl": map_slices,
}
"""By the operator's name, what is called in its place."""
