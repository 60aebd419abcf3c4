"""Code generation of runtime functions, as Python text.

What comes in: lines and the names they use. What goes out: a function.
Invariant: values reach the text by name only; nothing of a call is pasted into it.
"""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from flambeau_aot.info import Boxed
from flambeau_aot.runtime.check import Checked


def display(items: Sequence[str]) -> str:
    """The text of a tuple."""
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def defined(
    name: str, lines: Sequence[str], scope: dict[str, Any], life: object = None
) -> Callable[..., Any]:
    """The function that these lines define; tracebacks through it show them.

    What it uses goes with the function, or with `life` where that is given: at once, for a scope
    is in cycles (a function's class, what settles in it) that only the collector would find.
    """
    text = "\n".join(lines) + "\n"
    file = f"<flambeau {name} {id(scope):x}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec"), scope)
    made: Callable[..., Any] = scope.pop(name)
    weakref.finalize(made if life is None else life, _end, scope, file).atexit = False
    return made


def _end(scope: dict[str, Any], file: str) -> None:
    scope.clear()
    linecache.cache.pop(file, None)


def settling(call: Boxed, scope: dict[str, Any], name: str) -> Boxed:
    """A callable that takes itself out of the way when its first call has found nothing to do.

    It must be reached as `scope[name]`, which afterwards is what it called.
    """
    if not isinstance(call, Checked):
        return call
    checked = call

    def first(args: list[Any]) -> Sequence[Any]:
        outputs = checked(args)
        if checked.transparent:
            scope[name] = checked.call
        return outputs

    return first
