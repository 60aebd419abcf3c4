"""Global names of compiled graphs and resume functions.

In: a globals dict and an object. Out: a name that nobody used, taken for the object. Invariant: a
name goes away with the cache that took it, and never replaces a name of the program. Objects of the
program end at any time, while it iterates over its globals too: then what a name stood for goes,
and the name itself when the next one is taken.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Collection, Iterator
from types import CodeType
from typing import Any

from flambeau_capture.bytecode.decode import CodeBody
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.emit.resume import Resumption
from flambeau_capture.identity import IdentityMap

_Row = tuple[dict[str, Any], str, Any]  # a namespace, a name in it, what it stands for


class EntryNames:
    """The names that one compiled callable has taken, and the resume functions it has made."""

    def __init__(self, owner: object) -> None:
        self._numbers: Iterator[int] = itertools.count()
        self._lock = threading.RLock()  # objects end while it is locked, too
        self._taken: list[_Row] = []
        self._retired: list[_Row] = []
        self._vacant: list[_Row] = []
        self.resumptions: IdentityMap[CodeType, dict[Any, Resumption]] = IdentityMap()
        self.user_names: IdentityMap[CodeType, str] = IdentityMap()
        self._adopted: IdentityMap[CodeType, Resumption] = IdentityMap()
        self._native: IdentityMap[CodeType, bool] = IdentityMap()
        self.latest: list[Resumption] = []  # made since a conversion began to write its code
        for rows in (self._taken, self._retired, self._vacant):
            weakref.finalize(owner, _release, rows)

    def reserve(self) -> int:
        """The next number of `__compiled_fn_<n>` and `__resume_at_<offset>_<n>`."""
        return next(self._numbers)

    def install(self, namespace: dict[str, Any], name: str, obj: Any) -> str:
        """Bind `name`, or `name` with a suffix where that is taken."""
        with self._lock:
            _release(self._vacant)  # which hold nothing
            self._vacant.clear()
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
            found = self.resumptions[code] = {}
        return found

    def adopt(self, made: Resumption) -> None:
        """Know a resume function by its code."""
        self._adopted[made.code] = made
        self.latest.append(made)
        self.user_names[made.code] = self.origin(made.code).co_name

    def is_resumption(self, code: CodeType) -> bool:
        return code in self._adopted

    def run_natively(self, code: CodeType) -> None:
        """Generated code that is not to be captured itself."""
        self._native[code] = True

    def runs_natively(self, code: CodeType) -> bool:
        return code in self._native

    def origin(self, code: CodeType) -> CodeType:
        """The user's code that a resume function continues."""
        made = self._adopted.find(code)
        return code if made is None else self.origin(made.origin.code)

    def home(self, body: CodeBody, instruction: Instruction) -> tuple[CodeBody, Instruction] | None:
        """Where an instruction of a resume function comes from, in the body that was written first;
        None where it stands only there. A resume function may be made from another one."""
        made = self._adopted.find(body.code)
        if made is None or len(made.sources) != len(body.instructions):
            return None
        place = body.instructions.index(instruction)
        source = made.sources[place]
        if source is not None:
            return self.home(made.origin, source) or (made.origin, source)
        if instruction.opname == "JUMP" and instruction.target is not None:
            return self.home(body, instruction.target)
        return None

    def release(self, in_use: bool, named: Collection[str] | None = None) -> None:
        """Take every name back, or those `named`; at a later release if calls under way may still
        look it up."""
        with self._lock:
            if named is None:
                self._retired += self._taken
                self._taken.clear()
                self.resumptions.clear()
            else:
                self._retired += [row for row in self._taken if row[1] in named]
                self._taken[:] = [row for row in self._taken if row[1] not in named]
            free = [] if in_use else self._retired[:]
            del self._retired[: len(free)]
            if named is not None:
                self._vacant += [(space, name, None) for space, name, _ in _vacate(free)]
        if named is None:
            _release(free)  # what dies then is the program's: no lock is taken


def _vacate(taken: list[_Row]) -> list[_Row]:
    """Let names stand for nothing; those that stood for what was taken."""
    own = [row for row in taken if row[0].get(row[1]) is row[2]]
    for namespace, name, _ in own:
        namespace[name] = None
    return own


def _release(taken: list[_Row]) -> None:
    for namespace, name, obj in taken:
        if namespace.get(name) is obj:
            del namespace[name]
