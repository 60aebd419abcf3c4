"""Buffer addresses, each read once.

In: a program, and which buffers its launches take by address. Out: expressions of addresses, and
lines that give a name to those that are taken several times. Invariant: a buffer that took over
another one's memory begins where that did, so that both have one name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from flambeau_inductor.ir.program import Program, Reuse


@dataclass
class Addresses:
    """`owner`: the buffer from which one has its memory; `taken`: how many times launches take the
    address of each piece of memory."""

    owner: Mapping[str, str]
    taken: Mapping[str, int]
    known: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, program: Program, launched: Iterable[Iterable[str]]) -> Addresses:
        """For what each of the launches takes by address."""
        owner: dict[str, str] = {}
        for step in program.steps:
            if isinstance(step, Reuse):
                owner[step.buffer] = owner.get(step.old, step.old)
        taken = Counter(owner.get(name, name) for buffers in launched for name in buffers)
        return cls(owner, taken)

    def __call__(self, buffer: str, offset: int, write: Callable[[str], None]) -> str:
        """The address so many bytes behind the start of a buffer that is there now."""
        behind = f" + {offset}" if offset else ""
        owner = self.owner.get(buffer, buffer)
        if self.taken[owner] == 1:
            return f"{buffer}.data_ptr(){behind}"
        if owner not in self.known:
            self.known.add(owner)
            write(f"{owner}_at = {buffer}.data_ptr()")
        return f"{owner}_at{behind}"
