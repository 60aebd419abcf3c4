"""The wrapper's text as a function.

In: a wrapper, the kernels it calls, the constants it reads. Out: its `call`. Invariant: tracebacks
through it show its lines for as long as it lives.
"""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from flambeau_inductor.wrapper.source import Wrapper


def load_wrapper(
    wrapper: Wrapper, name: str, known: Mapping[str, object]
) -> Callable[[list[Any]], tuple[Any, ...]]:
    """Run the module's text with the names `known` to it; `name` is shown in tracebacks."""
    namespace: dict[str, Any] = dict(known)
    filename = f"<flambeau wrapper {name} {id(namespace):x}>"
    namespace["__name__"] = filename
    exec(compile(wrapper.text, filename, "exec"), namespace)
    call: Callable[[list[Any]], tuple[Any, ...]] = namespace["call"]
    lines = wrapper.text.splitlines(keepends=True)
    linecache.cache[filename] = (len(wrapper.text), None, lines, filename)
    weakref.finalize(call, linecache.cache.pop, filename, None)
    return call
