"""Loader of wrapper text.

In: a wrapper's text, the kernels it calls, the constants it reads. Out: its `call`. Invariant:
tracebacks through it show its lines for as long as it lives.
"""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Callable, Mapping
from typing import Any


def load_wrapper(
    text: str, name: str, known: Mapping[str, object]
) -> Callable[[list[Any]], tuple[Any, ...]]:
    """Run the module's text with the names `known` to it; `name` is shown in tracebacks."""
    namespace: dict[str, Any] = dict(known)
    filename = f"<flambeau wrapper {name} {id(namespace):x}>"
    namespace["__name__"] = filename
    exec(compile(text, filename, "exec"), namespace)
    call: Callable[[list[Any]], tuple[Any, ...]] = namespace["call"]
    lines = text.splitlines(keepends=True)
    linecache.cache[filename] = (len(text), None, lines, filename)
    weakref.finalize(call, linecache.cache.pop, filename, None)
    return call
