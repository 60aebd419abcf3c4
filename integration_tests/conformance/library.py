"""Modules of the standard library: what programs around models call of each.

In: each module's names. Out: a construct a name: by the table, else by drawn calls. Invariant: a
name of a module of `DRAWN` has a row; of other modules, those that the table lists.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator

from integration_tests.conformance import drawing
from integration_tests.conformance.construct import Construct
from integration_tests.conformance.library_classes import CLASSES
from integration_tests.conformance.library_functions import FUNCTIONS
from integration_tests.conformance.library_system import SYSTEM

#: modules all of whose names are called, with drawn arguments where the table has no row
DRAWN = ("functools", "itertools", "operator", "math", "cmath", "copy", "heapq", "bisect", "string",
         "textwrap", "statistics", "collections", "re", "json", "struct", "numbers",
         "fractions")  # fmt: skip
IMPORTS = (
    "import abc, array, bisect, cmath, collections, contextlib, contextvars, copy, dataclasses, "
    "datetime, decimal, enum, fractions, functools, gc, hashlib, heapq, inspect, io, itertools, "
    "json, "
    "logging, math, numbers, operator, os, pathlib, pickle, queue, random, re, statistics, string, "
    "struct, sys, textwrap, threading, time, traceback, types, typing, uuid, warnings, weakref"
)
STREAM = "stream = io.StringIO()\nlog = logging.getLogger('conformance')\n" \
    "log.handlers[:] = [logging.StreamHandler(stream)]\nlog.propagate = False\n"  # fmt: skip
TABLE: dict[str, dict[str, tuple[str, ...]]] = {**FUNCTIONS, **CLASSES, **SYSTEM}
#: what rows of the table have besides, made before the calls
HELD = f"""{IMPORTS}
{STREAM}
class Plain0: pass
class Abstract(abc.ABC):
    @abc.abstractmethod
    def m(self): ...
class Concrete(Abstract):
    def m(self): return 4
class Registered(abc.ABC): pass
Registered.register(float)
mine, lock, rlock = threading.local(), threading.Lock(), threading.RLock()
held, path = random.Random(5), pathlib.Path('a/b.txt')
variable = contextvars.ContextVar('v', default=3)
o = Vec(torch.ones(2))
held_ref, held_proxy = weakref.ref(o), weakref.proxy(o)
weak_values = weakref.WeakValueDictionary(o=o)
o.__class__.__hash__ = object.__hash__
weak_keys = weakref.WeakKeyDictionary()
weak_keys[o] = 7"""
#: names that a module shows and that are no part of it, or that ask or end
LEFT_OUT = frozenset(
    "GenericAlias RLock namedtuple_ recursive_repr get_cache_token purge template dump load "
    "RegexFlag error TypeVar".split()
)


def constructs() -> Iterator[Construct]:
    """Every row, a chapter a module."""
    for module, table in TABLE.items():
        rows = dict(table)
        if module in DRAWN:
            loaded = importlib.import_module(module)
            if module == "itertools":
                rows = {name: texts for name, texts in rows.items() if hasattr(loaded, name)}
            public = getattr(loaded, "__all__", None) or library_names(loaded)
            rows |= dict.fromkeys((n for n in public if n not in rows and n not in LEFT_OUT), ())
        for name, texts in rows.items():
            bodies = texts or functools.partial(_drawn, module, name)
            yield Construct(f"Module {module}", name, bodies, HELD)


def library_names(module: object) -> list[str]:
    """Names that a module without a list of them has itself."""
    return [
        name for name in dir(module)
        if not name.startswith("_") and not hasattr(getattr(module, name), "__path__")
        and type(getattr(module, name)).__name__ != "module"
    ]  # fmt: skip


def _drawn(module: str, name: str) -> tuple[str, ...]:
    found = getattr(importlib.import_module(module), name)
    if not callable(found) or (isinstance(found, type) and issubclass(found, BaseException)):
        return (f"R.append(shown({module}.{name}))",)
    return tuple(drawing.calls(f"{module}.{name}({{}})", found, False, setup=IMPORTS))
