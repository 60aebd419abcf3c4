"""Kernels in the place of a library call.

In: a program, a call of it, kernels and the loops that represent them. Out: the program with the
loops where the call was (`Selected`). Invariant: a replaced call computes the same; a workspace is
there from the first kernel that touches it to the last, and a result from the first that writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch

from flambeau_inductor.codegen.triton.kernel import TritonKernel
from flambeau_inductor.indexing import Var
from flambeau_inductor.ir.loops import Axis, Instr, Load, Loop, Store
from flambeau_inductor.ir.program import (
    Alloc,
    Buffer,
    Extern,
    FreeBuffer,
    Layout,
    Program,
    RunLoop,
    Step,
)
from flambeau_inductor.ir.steps import storage_bytes
from flambeau_inductor.runtime.gpu.launch import Library
from flambeau_inductor.tuning import MEASURED, Tuning

Buffers = tuple[dict[str, torch.dtype], dict[str, int]]
"""The dtypes of all buffers, and how many elements an index of theirs may span."""


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

    def after(self, buffer: Buffer, loop: Loop, kernel: TritonKernel) -> Several:
        """The same with another loop before it, which fills `buffer` for the first of these."""
        moved = (Kept(k.buffer, k.first + 1, k.last + 1) for k in self.kept)
        kept, loops = (Kept(buffer, 0, 1), *moved), (loop, *self.loops)
        return Several(kept, loops, (kernel, *self.kernels), self.templates)

    def steps(self, results: Sequence[str] = ()) -> tuple[Step, ...]:
        """The loops, with memory for what they keep and, before the first that writes one of them,
        for `results`."""
        made: list[Step] = []
        for number, loop in enumerate(self.loops):
            made += (Alloc(k.buffer.name) for k in self.kept if k.first == number)
            if any(isinstance(i, Store) and i.buffer in results for i in loop.body):
                made, results = [*made, *map(Alloc, results)], ()
            made.append(RunLoop(loop))
            made += (FreeBuffer(k.buffer.name) for k in self.kept if k.last == number)
        return tuple(made)

    def within(self, program: Program, call: int, results: Sequence[str]) -> Program:
        """The program with the loops in place of the call at a position, which makes `results`."""
        steps = (*program.steps[:call], *self.steps(results), *program.steps[call + 1 :])
        return replace(program, steps=steps, buffers=self.with_kept(program))

    def with_kept(self, program: Program) -> tuple[Buffer, ...]:
        """The program's buffers, and those that are kept between the loops."""
        return (*program.buffers, *(each.buffer for each in self.kept))


class FoundCall:
    """A library call at the position `call` of a program, which makes `results`."""

    call: int

    @property
    def results(self) -> Sequence[str]:
        raise NotImplementedError

    @property
    def result(self) -> str:
        """The first of them, by which the call is known."""
        return self.results[0]

    def within(self, program: Program, way: Several) -> Program:
        """The program with the loops of `way` in place of the call."""
        return way.within(program, self.call, self.results)


def templates_of(
    kernels: Sequence[tuple[TritonKernel, Container[str], int]],
    dtype: torch.dtype,
    workspace: Sequence[Buffer] = (),
) -> Several:
    """Templates' kernels, each with the buffers that it writes and its points, in the order to run
    them in; `workspace` is freed after the last."""
    loops = tuple(touching(*each, dtype) for each in kernels)
    kept = tuple(Kept(buffer, 0, len(loops) - 1) for buffer in workspace)
    made = tuple(kernel for kernel, _, _ in kernels)
    return Several(kept, loops, made, tuple(kernel.name for kernel in made))


def touching(
    kernel: TritonKernel, written: Container[str], points: int, dtype: torch.dtype
) -> Loop:
    """A loop that represents a template's kernel by what that reads and writes."""
    at = Var("x0")
    stored = [buffer for buffer in kernel.arguments if buffer in written]
    read = [buffer for buffer in kernel.arguments if buffer not in written] or stored
    body: list[Instr] = [Load(buffer, at, dtype) for buffer in read]
    body += [Store(buffer, at, 0) for buffer in stored]
    return Loop(kernel.name, (Axis("x0", points),), (), tuple(body))


def on_processor(program: Program) -> frozenset[str]:
    """Buffers on the processor of a program that has others on a GPU: no kernel of that takes
    them."""
    kinds = {b.name: b.layout.device.type for b in program.buffers}
    mixed = len(set(kinds.values())) > 1
    return frozenset(name for name, kind in kinds.items() if mixed and kind == "cpu")


Match = TypeVar("Match")


def matched(
    program: Program,
    targets: Container[str],
    read: Callable[[Extern, int, Mapping[str, Layout]], Match | None],
) -> list[Match]:
    """What `read` makes of the library calls of such targets and their positions, in order."""
    layouts = {b.name: b.layout for b in program.buffers}
    elsewhere = on_processor(program)
    found = (
        read(step, position, layouts)
        for position, step in enumerate(program.steps)
        if isinstance(step, Extern) and step.target in targets
        if elsewhere.isdisjoint(filter(None, step.results))
    )
    return [each for each in found if each is not None]


@dataclass(slots=True)
class Selected:
    """`kernels` by the names of the loops that they compute; `trusted`, `tuning`: see `select`."""

    program: Program
    library: Library | None = None
    trusted: bool = False
    tuning: Tuning = MEASURED
    kernels: dict[str, TritonKernel] = field(default_factory=dict)
    chosen: dict[str, str] = field(default_factory=dict)

    def take(self, found: Any, name: str, way: Several) -> None:
        """Put the kernels of the way `name` in the place of a call, and of the loop that reads
        it."""
        self.program = found.within(self.program, way)
        self.kernels |= {k.name: k for k in way.kernels if k.name in way.templates}
        self.chosen[found.result] = name


def facts(program: Program) -> Buffers:
    """Dtypes of all buffers, and how many elements an index of theirs may span."""
    dtypes = {b.name: b.layout.dtype for b in program.buffers}
    numels: dict[str, int] = {}
    for buffer in program.buffers:
        size = storage_bytes(buffer.layout)
        if isinstance(size, int):  # no product and no tiling here takes a buffer of an open size
            numels[buffer.name] = size // buffer.layout.dtype.itemsize
    return dtypes, numels
