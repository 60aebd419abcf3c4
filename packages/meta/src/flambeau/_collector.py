"""Imports without garbage collection.

In: nothing. Out: a block in which the collector is off. Invariant: what was on before is on again.

A program that has loaded its libraries and built its model holds a million objects, and the next
few ten thousand that are made start a collection of all of them: 0.2 s in which nothing is found,
for what an import makes stays.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """No garbage collection inside."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
