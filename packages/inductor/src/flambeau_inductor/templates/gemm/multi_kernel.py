"""Multi-kernel templates with workspace between them.

In: what each of a product's kernels is. Out: `Several`, and a program that runs it. Invariant:
memory between kernels is there from the first that touches it to the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from flambeau_inductor.codegen.triton.kernel import TritonKernel
from flambeau_inductor.ir.loops import Loop
from flambeau_inductor.ir.program import Alloc, Buffer, FreeBuffer, Program, RunLoop, Step


@dataclass(frozen=True, slots=True)
class Kept:
    """Memory between the loops `first` and `last`, by position."""

    buffer: Buffer
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Several:
    """`loops` in the order in which they run, with their `kernels`; `templates` are the names of
    those whose kernels are not what is generated of the loop."""

    kept: tuple[Kept, ...]
    loops: tuple[Loop, ...]
    kernels: tuple[TritonKernel, ...]
    templates: tuple[str, ...]

    def within(self, program: Program) -> Program:
        """The program, which runs the loops, with their memory around them."""
        buffers = (*program.buffers, *(each.buffer for each in self.kept))
        steps = tuple(made for step in program.steps for made in self._around(step))
        return replace(program, steps=steps, buffers=buffers)

    def after(self, buffer: Buffer, loop: Loop, kernel: TritonKernel, last: int) -> Several:
        """The same with another loop before it, which fills `buffer` for the loops up to `last`."""
        moved = (Kept(k.buffer, k.first + 1, k.last + 1) for k in self.kept)
        return Several(
            (Kept(buffer, 0, last + 1), *moved),
            (loop, *self.loops),
            (kernel, *self.kernels),
            self.templates,
        )

    def _around(self, step: Step) -> Iterator[Step]:
        mine = [
            n
            for n, loop in enumerate(self.loops)
            if isinstance(step, RunLoop) and step.loop is loop
        ]
        yield from (Alloc(k.buffer.name) for k in self.kept if k.first in mine)
        yield step
        yield from (FreeBuffer(k.buffer.name) for k in self.kept if k.last in mine)
