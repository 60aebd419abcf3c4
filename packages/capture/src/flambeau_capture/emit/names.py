"""Global names for what generated code calls: compiled graphs and resume functions.

In: a globals dict and an object. Out: a name that nobody used, taken for the object. Invariant: a
name goes away with the cache that took it, and never replaces a name of the program.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Iterator
from types import CodeType
from typing import Any

from flambeau_capture.emit.resume import Resumption
from flambeau_capture.identity import IdentityMap


class Names:
    """The names that one compiled callable has taken, and the resume functions it has made."""

    def __init__(self, owner: object) -> None:
        self._numbers: Iterator[int] = itertools.count()
        self._lock = threading.Lock()
        self._taken: list[tuple[dict[str, Any], str, Any]] = []
        self.resumptions: IdentityMap[CodeType, dict[Any, Resumption]] = IdentityMap()
        self.origins: IdentityMap[CodeType, CodeType] = IdentityMap()
        weakref.finalize(owner, _release, self._taken)

    def reserve(self) -> int:
        """The next number of `__compiled_fn_<n>` and `__resume_at_<offset>_<n>`."""
        return next(self._numbers)

    def install(self, namespace: dict[str, Any], name: str, obj: Any) -> str:
        """Bind `name`, or `name` with a suffix where that is taken."""
        with self._lock:
            candidate = name
            for attempt in itertools.count(1):
                if namespace.setdefault(candidate, obj) is obj:
                    break
                candidate = f"{name}_{attempt}"
            self._taken.append((namespace, candidate, obj))
        return candidate

    def made_from(self, code: CodeType) -> dict[Any, Resumption]:
        """The resume functions of a code object, by where and with what they go on."""
        found = self.resumptions.find(code)
        if found is None:
            found = {}
            self.resumptions[code] = found
        return found

    def origin(self, code: CodeType) -> CodeType:
        """The user's code that a resume function continues."""
        return self.origins.get(code, code)

    def release(self) -> None:
        """Take every name back."""
        _release(self._taken)
        self._taken.clear()
        self.resumptions.clear()


def _release(taken: list[tuple[dict[str, Any], str, Any]]) -> None:
    for namespace, name, obj in taken:
        if namespace.get(name) is obj:
            del namespace[name]
