"""Joint launches: independent kernels that follow each other, as one kernel.

In: a program on a GPU with its kernels chosen. Out: the same with some of its loops in one launch,
whose first programs are those of the first kernel, the next those of the second, and so on.
Invariant: no kernel of a launch touches memory that another one of it writes; memory that was
given between them is given before the first, memory that was freed is freed after the last.

Small kernels take as long as their launch: the projections of one vector by three matrices, writes
to several caches. A kernel that keeps the device busy by itself gains nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from flambeau_inductor.codegen.triton.kernel import (
    DEPENDENT,
    RELEASE,
    WAIT,
    TritonKernel,
    generate,
    kernel_of,
)
from flambeau_inductor.codegen.triton.tiling import Tiling, choose
from flambeau_inductor.errors import TritonUnsupported
from flambeau_inductor.indexing import as_expr
from flambeau_inductor.ir.loops import Axis, Const, Instr, Load, Loop, Store
from flambeau_inductor.ir.program import Alloc, FreeBuffer, Program, Reuse, RunLoop, Step, Touched
from flambeau_inductor.ir.steps import bytes_touched, known_bytes, touched
from flambeau_inductor.templates.call_replacement import Buffers, Selected, facts, on_processor

JIT = "@triton.jit"
MOST = 8
"""Kernels of one launch."""


@dataclass(slots=True)
class _Launch:
    """Loops that may be launched at once, by their places in the program, and what they touch: the
    buffers that they read and write, each by the memory in which it lies, and bytes in all."""

    places: list[int] = field(default_factory=list)
    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    moved: int = 0

    def takes(self, reads: set[str], writes: set[str]) -> bool:
        """Whether such a loop touches nothing that these write, and writes nothing they touch."""
        return not (writes & (self.reads | self.writes) or reads & self.writes)


def join_small(selected: Selected) -> int:
    """Launch at once what follows each other, is independent and together moves no more than memory
    does in the time of a few launches; how many kernels are part of another now."""
    before = len(selected.program.steps)
    for places in reversed(_launches(selected)):
        _join(selected, places)
    return before - len(selected.program.steps)


def _launches(selected: Selected) -> list[list[int]]:
    """Places of loops to launch at once."""
    program, tuning = selected.program, selected.tuning
    elsewhere = on_processor(program)
    known = known_bytes(program.buffers)
    sizes = {name: size for name, size in known.items() if name not in elsewhere}
    items = {b.name: b.layout.dtype.itemsize for b in program.buffers}
    most = int(tuning.joined_launches * tuning.launch * tuning.memory_rate)
    found: list[list[int]] = []
    memory = {b.name: b.name for b in program.buffers} | dict(program.owned.updated)
    launch = _Launch()
    for place, step in enumerate(program.steps):
        if isinstance(step, Reuse):
            memory[step.buffer] = memory[step.old]
        if isinstance(step, Alloc | FreeBuffer | Reuse):
            continue
        moved, reads, writes = most + 1, set[str](), set[str]()
        if isinstance(step, RunLoop):
            given = selected.kernels.get(step.loop.name)
            read, written = _touched(step.loop, given)
            if read | written <= sizes.keys():
                reads, writes = ({memory[name] for name in names} for names in (read, written))
                moved = bytes_touched(step, sizes, items)
                if given is not None:
                    moved = sum(sizes[name] for name in given.arguments)
        full = launch.moved + moved > most or len(launch.places) == MOST
        if full or not launch.takes(reads, writes):
            found.append(launch.places)
            launch = _Launch()
        if moved <= most:
            launch.places.append(place)
            launch.reads |= reads
            launch.writes |= writes
            launch.moved += moved
    return [places for places in (*found, launch.places) if len(places) > 1]


def _join(selected: Selected, places: Sequence[int]) -> None:
    """The loops at these places as one, if their kernels can be."""
    program, buffers = selected.program, facts(selected.program)
    loops = [step.loop for p in places if isinstance(step := program.steps[p], RunLoop)]
    try:
        kernels = _kernels(loops, selected.kernels, buffers, selected)
    except TritonUnsupported:  # whoever generates the loop's kernel says why it has none
        return
    if len({_how(kernel) for kernel in kernels}) > 1 or not all(map(_is_plain, kernels)):
        return
    joint = joined(kernels, loops[0].name)
    between = program.steps[places[0] + 1 : places[-1]]
    memory = [step for step in between if isinstance(step, Alloc | FreeBuffer | Reuse)]
    given = [s for s in memory if not isinstance(s, FreeBuffer) and s.buffer in joint.arguments]
    after = [step for step in memory if step not in given]
    loop = _touching(loops, program, joint, selected.kernels)
    steps: tuple[Step, ...] = (*given, RunLoop(loop), *after)
    steps = (*program.steps[: places[0]], *steps, *program.steps[places[-1] + 1 :])
    for each in loops:
        selected.kernels.pop(each.name, None)
    selected.kernels[loop.name] = joint
    selected.program = replace(program, steps=steps)


def _is_plain(kernel: TritonKernel) -> bool:
    """Whether it is one function on a grid that is known, which takes pointers alone."""
    alone = kernel.source.startswith(f"{JIT}\ndef {kernel.name}(") and kernel.source.count(JIT) == 1
    return alone and kernel.programs is not None and not (kernel.descriptors or kernel.sizes)


def _how(kernel: TritonKernel) -> tuple[object, ...]:
    """What kernels of one launch have in common."""
    return kernel.warps, kernel.stages, kernel.registers, kernel.contracts


def _kernels(
    loops: Sequence[Loop], given: Mapping[str, TritonKernel], buffers: Buffers, selected: Selected
) -> list[TritonKernel]:
    """Of each loop, those of sums over rows of the same length in like blocks."""
    tilings = {l.name: choose(l, selected.tuning) for l in loops if l.name not in given}
    largest: dict[tuple[object, ...], Tiling] = {}
    for tiling in tilings.values():
        kind = _kind(tiling)
        if kind not in largest or largest[kind].warps < tiling.warps:
            largest[kind] = tiling
    made: list[TritonKernel] = []
    for loop in loops:
        if loop.name in given:
            made.append(given[loop.name])
            continue
        tiling = tilings[loop.name]
        like = largest[_kind(tiling)]
        blocks = zip(tiling.dimensions, like.dimensions, strict=True)
        # one row alone stays one: what is stored of it has no other place
        dimensions = tuple(replace(o, block=l.block) if o.axes else o for o, l in blocks)
        tiling = replace(tiling, dimensions=dimensions, warps=like.warps)
        made.append(generate(replace(loop, origins=()), *buffers, tiling))
    return made


def _kind(tiling: Tiling) -> tuple[object, ...]:
    """Tilings that may take each other's number of rows and warps."""
    blocks = tuple(d.block for d in tiling.dimensions if d.name == "r")
    names = tuple(d.name for d in tiling.dimensions)
    return names, blocks, tiling.looped, tiling.in_registers, tiling.registers, tiling.parts


def joined(kernels: Sequence[TritonKernel], name: str) -> TritonKernel:
    """One kernel whose programs are those of all, in order."""
    arguments = tuple(dict.fromkeys(each for kernel in kernels for each in kernel.arguments))
    pointers = {n: p for k in kernels for n, p in zip(k.arguments, k.pointers, strict=True)}
    parts: list[str] = []
    lines = ["    program = tl.program_id(0)"]
    constants: list[tuple[str, int]] = []
    first = 0
    for number, kernel in enumerate(kernels):
        assert kernel.programs is not None
        part = _part(kernel)
        parts.append(part)
        places = [f"b{arguments.index(buffer)}" for buffer in kernel.arguments]
        own = [(name, value) for name, value in kernel.constants if name != DEPENDENT]
        passed = [f"{constant}{number}" for constant, _ in own]
        constants += zip(passed, (value for _, value in own), strict=True)
        last = number == len(kernels) - 1
        test = "else:" if last else f"if program < {first + kernel.programs}:"
        lines.append("    " + ("el" if number > 0 and not last else "") + test)
        program = "program" if first == 0 else f"program - {first}"
        called = ", ".join([*places, program, *passed])
        lines.append(f"        {_name_of(part)}({called})")
        first += kernel.programs
    one, ordered = kernels[0], {buffer: pointers[buffer] for buffer in arguments}
    made = kernel_of(name, lines, ordered, tuple(constants), first, one.warps, one.stages)
    source = "\n\n".join([*dict.fromkeys(parts), made.source])
    return replace(made, source=source, registers=one.registers, contracts=one.contracts)


def _part(kernel: TritonKernel) -> str:
    """A kernel as a function that is given which of its programs it is, named by its text."""
    _, _, body = kernel.source.partition("\n")
    _, _, rest = body.partition("\n")
    rest = rest.removeprefix(f"{RELEASE}\n").removeprefix(f"{WAIT}\n")  # the joint kernel waits
    taken = [f"b{place}" for place in range(len(kernel.arguments))] + ["program_id"]
    taken += [
        f"{constant}: tl.constexpr" for constant, _ in kernel.constants if constant != DEPENDENT
    ]
    text = f"({', '.join(taken)}):\n" + rest.replace("tl.program_id(0)", "program_id")
    return f"{JIT}\ndef part_{hashlib.sha256(text.encode()).hexdigest()[:12]}{text}"


def _name_of(part: str) -> str:
    return part.partition("def ")[2].partition("(")[0]


def _touching(
    loops: Sequence[Loop], program: Program, kernel: TritonKernel, given: Mapping[str, TritonKernel]
) -> Loop:
    """A loop that represents a launch by what it reads and writes."""
    dtypes = {b.name: b.layout.dtype for b in program.buffers}
    sets = [_touched(loop, given.get(loop.name)) for loop in loops]
    reads, writes = (set[str]().union(*each) for each in zip(*sets, strict=True))
    at, body = as_expr(0), list[Instr]()
    for name in kernel.arguments:
        if name in reads:
            body.append(Load(name, at, dtypes[name]))
    for name in kernel.arguments:
        if name in writes:
            body += [Const(0, dtypes[name]), Store(name, at, len(body))]
    origins = tuple(dict.fromkeys(origin for loop in loops for origin in loop.origins))
    return Loop(loops[0].name, (Axis("x0", 1),), (), tuple(body), origins)


def _touched(loop: Loop, given: TritonKernel | None) -> Touched:
    """Buffers that a loop reads and writes; the kernel of a template is given more than the loop
    that represents it says, and reads nothing of a product that it does not store."""
    reads, writes = touched(RunLoop(loop))
    return (reads if given is None else frozenset(given.arguments) - writes), writes
