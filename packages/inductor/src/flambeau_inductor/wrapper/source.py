"""Source text of the wrapper.

In: a program, and how each of its loops is launched. Out: `Wrapper`: the text of a module whose
`call(args)` runs the program. Invariant: one or a few lines a step, in the program's order; a name
is deleted after the last step that needs its memory; an address is read once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flambeau_inductor._torch_compat import out_names, overload_of, returns_sequence
from flambeau_inductor.indexing import hint, is_open, same_sizes
from flambeau_inductor.ir.loops import Check
from flambeau_inductor.ir.program import (
    Alloc,
    CheckIndex,
    Extern,
    FreeBuffer,
    Layout,
    Program,
    Ref,
    Reuse,
    RunLoop,
    Step,
)
from flambeau_inductor.ir.steps import DeferredDraw, storage_bytes, touched
from flambeau_inductor.runtime.cpu.blocked_linear import IN_BLOCKS
from flambeau_inductor.runtime.cpu.huge_pages import RETURNED
from flambeau_inductor.runtime.cpu.random import BERNOULLI
from flambeau_inductor.runtime.operators import (
    FOR_BACKWARD,
    OWN,
    PACKED,
    for_backward,
    with_packed_weight,
)
from flambeau_inductor.tuning import host_tuning
from flambeau_inductor.wrapper import names


class Addresses:
    """Addresses of buffers, of which the launches of a program take some: `owner` is the buffer
    from which one has its memory, `taken` how many times the address of each piece is taken."""

    def __init__(self, program: Program, launched: Iterable[Iterable[str]]) -> None:
        self.owner: dict[str, str] = {}
        for step in program.steps:
            if isinstance(step, Reuse):
                self.owner[step.buffer] = self.owner.get(step.old, step.old)
        of = (self.owner.get(name, name) for buffers in launched for name in buffers)
        self.taken, self.known = Counter(of), set[str]()

    def __call__(self, buffer: str, offset: int, write: Callable[[str], None]) -> str:
        """The address so many bytes after the start of a buffer that is there now."""
        plus = f" + {offset}" if offset else ""
        owner = self.owner.get(buffer, buffer)
        if self.taken[owner] == 1:
            return f"{buffer}.data_ptr(){plus}"
        if owner not in self.known:
            self.known.add(owner)
            write(f"{owner}_at = {buffer}.data_ptr()")
        return f"{owner}_at{plus}"


INDENT = "    "


@dataclass(frozen=True, slots=True)
class LoopLaunch:
    """How a loop runs: `kernel` is its name in the wrapper, called with `buffers` in order.

    `by_address`: with addresses rather than with the tensors: of the first elements, plus `offsets`
    bytes. `sizes`: open sizes, and what is computed of them, which come after them. `queued`: on
    the device's current stream, whose handle comes before them. `drawn`: how it runs after the
    draws that it reads.
    """

    kernel: str
    buffers: tuple[str, ...]
    by_address: bool
    queued: bool = False
    offsets: tuple[int, ...] = ()
    sizes: tuple[str, ...] = ()
    drawn: LaunchAfterDraws | None = None


@dataclass(frozen=True, slots=True)
class LaunchAfterDraws:
    """`kernel` is the name of the kernel that draws what its loop reads."""

    kernel: str
    draws: DeferredDraw


@dataclass(frozen=True, slots=True)
class Wrapper:
    """`operators` by the names that the text uses for them."""

    text: str
    operators: Mapping[str, str]


@dataclass
class _WrapperWriter:
    program: Program
    launches: Mapping[str, LoopLaunch]
    layouts: Mapping[str, Layout]
    address: Addresses
    unchanging: frozenset[str]
    lines: list[str] = field(default_factory=list)
    operators: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    waiting: frozenset[int] = frozenset()
    dying: dict[str, str] = field(default_factory=dict)
    """Buffers by those that took over their memory and are not written yet."""

    in_blocks: dict[str, str] = field(default_factory=dict)
    drawn: str = ""
    behind: dict[str, str] = field(default_factory=dict)
    allocate: str = "empty_large"

    def __call__(self, line: str) -> None:
        self.lines.append(INDENT + line)


def generate(
    program: Program,
    launches: Mapping[str, LoopLaunch],
    *,
    check_inputs: bool = False,
    check_values: bool = False,
    unchanging: frozenset[int] = frozenset(),
    kept_memory: int | None = 0,
) -> Wrapper:
    """Print `program`; `launches` by the loops' names (and those of library calls that a kernel
    makes), `unchanging` the positions of inputs that are the same tensors with the same values at
    every call; `kept_memory`: see `Options`."""
    layouts = {b.name: b.layout for b in program.buffers}
    given = _given(program)
    same = frozenset(name for place, name in enumerate(given) if place in unchanging)
    taken = (
        launch.buffers
        for step in program.steps
        if isinstance(step, RunLoop) and (launch := launches[step.loop.name]).by_address
    )
    addresses = Addresses(program, taken)
    printer = _WrapperWriter(program, launches, layouts, addresses, same)
    if kept_memory != 0:
        printer.allocate = "kept"
    if not check_values:
        waiting = (launch.drawn.draws.draw for launch in launches.values() if launch.drawn)
        printer.waiting = frozenset(map(id, waiting))
    _receive(printer, program, check_inputs)
    for step in program.steps:
        _PRINT[type(step)](printer, step)
        if check_values:
            _check_values(printer, step)
    outputs = [_output(o, given) for o in program.outputs]
    printer("return (" + "".join(f"{o}, " for o in outputs).rstrip(" ") + ")")
    large = printer.drawn or printer.in_blocks or any("= kept(" in x for x in printer.lines)
    keeps = kept_memory != 0 and bool(large)
    head = [
        f'"""Wrapper of {program.name}, generated by flambeau-inductor."""',
        "",
        "import torch",
        "from torch import device, empty_strided, inf, nan",
        "",
        "from flambeau_inductor.runtime.checks import check_index, check_input, check_values",
        "from flambeau_inductor.runtime.memory import laid_out, reuse, scalar, seen_as",
        "from flambeau_inductor.runtime.cpu.huge_pages import empty_large",
        "",
    ]

    def use(module: str, imported: str, *definitions: str) -> None:
        head[-1:] = [f"from flambeau_inductor.runtime.{module} import {imported}", ""]
        head.extend([*definitions, ""] if definitions else [])

    if any(launch.queued for launch in launches.values()):
        use("gpu.launch", "current_raw_stream")
    if printer.operators:
        named = (f"{name} = operator({target!r})" for target, name in printer.operators.items())
        use("operators", "operator", *named)
    if any(map(_of_library, printer.operators)):
        use("memory", "promised, so_many")
    if keeps:
        use("output_cache", "KeptMemory", f"kept = KeptMemory({kept_memory})")
    if printer.in_blocks:
        into = "kept" if keeps else "empty_large"
        named = (f"{n} = in_blocks({t!r}, {into})" for t, n in printer.in_blocks.items())
        use("cpu.blocked_linear", "in_blocks", *named)
    if printer.drawn:
        drawn = f"drawn = bernoulli_by({printer.drawn}{', kept' if keeps else ''})"
        behind = (f"{name} = run_after_draws({how})" for name, how in printer.behind.items())
        imported = "bernoulli_by, run_after_draws" if printer.behind else "bernoulli_by"
        use("cpu.random", imported, drawn, *behind)
    head[-1:] = [*(f"{name} = device({of!r})" for of, name in printer.places.items()), ""]
    head[-1:] = [f"ROWS = {_rows(printer, program)!r}", ""]
    watched = (f"{INDENT}if profiler._is_profiler_enabled:", f"{INDENT * 2}return profiled(args)")
    lines = [*watched, *printer.lines]
    text = "\n".join([*head, "", "def call(args):", *lines, ""])
    return Wrapper(text, {n: t for t, n in {**printer.operators, **printer.in_blocks}.items()})


def _rows(p: _WrapperWriter, program: Program) -> dict[str, str]:
    """What a profiler shows for the call, and for each kernel that it calls by name."""
    found = {"call": program.name}
    for step in program.steps:
        if isinstance(step, RunLoop):
            kernel = p.launches[step.loop.name].kernel
            if f"behind_{kernel}" not in p.behind:  # which is looked into, not called
                found.setdefault(kernel, f"{kernel}: {' '.join(step.loop.origins)}")
    return found


def _receive(p: _WrapperWriter, program: Program, check: bool) -> None:
    given = _given(program)
    for position in range(0, len(given), 8):
        row = ", ".join(given[position : position + 8])
        opening = "(" if position == 0 else " "
        last = position + 8 >= len(given)
        p(f"{opening}{row}," + (") = args" if last else ""))
    p("args.clear()")
    for name, source in program.symbols:
        if source.text:
            p(f"{name} = {source.text}")
        elif source.dim is not None:
            read = "stride" if source.stride else "size"
            number = f"{given[source.position]}.{read}({source.dim})"
            if (source.factor, source.offset) != (1, 0):
                number = f"({number} - {source.offset}) // {source.factor}"
            p(f"{name} = {number}")
    for name, value in program.scalars:
        place = p.layouts[name].device
        p(f"{name} = scalar({value.text}{'' if place.type == 'cpu' else f', {str(place)!r}'})")
    if not check:
        return
    places = [k for k in range(len(given)) if k not in program.numbers]
    for position, buffer in zip(places, program.inputs, strict=True):
        at = f"{names.layout(buffer.layout)}, {str(buffer.layout.device)!r}"
        p(f"check_input({position}, {buffer.name}, {at})")


def _given(program: Program) -> list[str]:
    """Names for what is in the boxed list."""
    read = ((name, source) for name, source in program.symbols if not source.text)
    symbols = {source.position: name for name, source in read if source.dim is None}
    tensors = iter(program.inputs)
    return [
        symbols.get(position, f"number{position}")
        if position in program.numbers
        else next(tensors).name
        for position in range(len(program.inputs) + len(program.numbers))
    ]


def _alloc(p: _WrapperWriter, step: Alloc) -> None:
    of = p.layouts[step.buffer]
    shape, stride = names.sizes(of.shape), names.strides(of.shape, of.stride)
    if of.device.type == "cpu" and hint(storage_bytes(of)) >= host_tuning().huge_page_bytes:
        small = not is_open((*of.shape, *of.stride)) and hint(storage_bytes(of)) < RETURNED
        allocate = "empty_large" if small else p.allocate
        p(f"{step.buffer} = {allocate}({shape}, {stride}, {of.dtype})")
        return
    index = "" if of.device.index is None else of.device.index
    place = p.places.setdefault(str(of.device), f"on_{of.device.type}{index}")
    p(f"{step.buffer} = empty_strided({shape}, {stride}, dtype={of.dtype}, device={place})")


def _reuse(p: _WrapperWriter, step: Reuse) -> None:
    new, old = p.layouts[step.buffer], p.layouts[step.old]
    same = new.dtype == old.dtype
    same = same and same_sizes((*new.shape, *new.stride), (*old.shape, *old.stride))
    p(
        f"{step.buffer} = {step.old}"
        if same
        else f"{step.buffer} = reuse({step.old}, {names.layout(new)})"
    )
    if step.dead:
        p(f"del {step.old}")
        return
    p.dying[step.buffer] = step.old  # who writes the new one may still read it under its old name


def _run_loop(p: _WrapperWriter, step: RunLoop) -> None:
    launch = p.launches[step.loop.name]
    if launch.drawn is not None and id(launch.drawn.draws.draw) in p.waiting:
        _run_after_draws(p, step, launch, launch.drawn)
        return
    given = [_stream(p, launch.buffers[0])] if launch.queued else []
    if launch.by_address:
        offsets = launch.offsets or (0,) * len(launch.buffers)
        given += [p.address(b, o, p) for b, o in zip(launch.buffers, offsets, strict=True)]
    else:
        given += launch.buffers
    given += launch.sizes
    called = f"{launch.kernel}({', '.join(given)})"
    looks = any(isinstance(instr, Check) for instr in step.loop.body) and not launch.queued
    p(f"outside = {called}" if looks else called)
    _let_go(p, step)


def _run_after_draws(
    p: _WrapperWriter, step: RunLoop, launch: LoopLaunch, how: LaunchAfterDraws
) -> None:
    """The kernel that draws what it reads, or the draws and the kernel."""
    mask, call = how.draws.mask, how.draws.draw
    place = launch.buffers.index(mask)
    called = f"behind_{launch.kernel}"
    p.drawn = p.launches[BERNOULLI].kernel
    p.behind[called] = f"drawn, {launch.kernel}, {how.kernel}, {place}"
    offsets = launch.offsets or (0,) * len(launch.buffers)
    others = [pair for pair in zip(launch.buffers, offsets, strict=True) if pair[0] != mask]
    given = [names.argument(a) for a in call.args]
    given += [str(how.draws.kept), *(p.address(b, o, p) for b, o in others)]
    p(f"{mask} = {called}({', '.join(given)})")
    _let_go(p, step)


def _let_go(p: _WrapperWriter, step: RunLoop) -> None:
    """What a loop has written is what is left of the memory that it was written to."""
    _, written = touched(step)
    if gone := [p.dying.pop(name) for name in list(p.dying) if name in written]:
        p("del " + ", ".join(gone))


def _stream(p: _WrapperWriter, buffer: str) -> str:
    """The current stream of the device that holds a buffer; it is read once a call."""
    index = p.layouts[buffer].device.index or 0
    name = f"stream{index}"
    if name not in p.known:
        p.known.add(name)
        p(f"{name} = current_raw_stream({index})")
    return name


def _check_values(p: _WrapperWriter, step: Step) -> None:
    """Look at the numbers that a step wrote."""
    if not isinstance(step, RunLoop | Extern):
        return
    _, written = touched(step)
    if isinstance(step, Extern):
        written |= {r for r in step.results if r is not None}
        what = f"{step.target} ({' '.join(step.origins)})"
    else:
        what = f"{step.loop.name} ({' '.join(step.loop.origins)})"
    for name in sorted(written):
        p(f"check_values({name}, {what!r})")


def _extern(p: _WrapperWriter, step: Extern) -> None:
    if id(step) in p.waiting:
        return  # drawn by the loop that reads it
    used = [(k, r) for k, r in enumerate(step.results) if r is not None]
    target = step.target
    if any(position == FOR_BACKWARD.get(target) for position, _ in used):
        target = for_backward(target)
    # of a form that keeps its weight packed, where the weight stays as it is
    weight = step.args[1] if step.target in PACKED else None
    if isinstance(weight, Ref) and weight.buffer in p.unchanging:
        target = with_packed_weight(target)
    called = _in_blocks(p, step) if target in IN_BLOCKS else ""
    called = called or _called(p, target)
    parts = [names.argument(a) for a in step.args]
    parts += [f"{k}={names.argument(v)}" for k, v in step.kwargs]
    if step.into:
        keywords = out_names(overload_of(step.target))
        if len(keywords) != len(step.into):
            raise ValueError(f"{step.target} writes {keywords}, and is given {step.into}")
        parts += [f"{k}={names.reference(r)}" for k, r in zip(keywords, step.into)]
        p(f"{called}({', '.join(parts)})")
        return
    call = f"{called}({', '.join(parts)})"
    if not used and not step.sizes:
        p(call)
        return
    single = step.target in OWN or not returns_sequence(overload_of(step.target))
    if single and not step.sizes and len(step.results) == 1:
        _result(p, used[0][1], call, target)
        return
    if not single and _of_library(target):
        call = f"so_many({call}, {len(step.results)}, {_of_library(target)!r})"
    p(f"made = {call}")
    for size in step.sizes:
        given = "made" if single else f"made[{size.result}]"
        p(f"{size.name} = {given}" + ("" if size.dim is None else f".size({size.dim})"))
    if single and used:
        _result(p, used[0][1], "made", target)
        used = []
    for position, name in used:
        _result(p, name, f"made[{position}]", target)
    p("del made")


def _called(p: _WrapperWriter, target: str) -> str:
    """The name of what is called."""
    if target == BERNOULLI and target in p.launches:
        p.drawn = p.launches[target].kernel
        return "drawn"
    return p.operators.setdefault(target, target.replace(".", "_"))


def _in_blocks(p: _WrapperWriter, step: Extern) -> str:
    """The name of what makes a result that is too large for the library's allocator; "" for any
    other."""
    (name,) = step.results
    of = None if name is None else p.layouts[name]
    if of is None or is_open((*of.shape, *of.stride)) or hint(storage_bytes(of)) < RETURNED:
        return ""
    return p.in_blocks.setdefault(step.target, f"blocks_of_{step.target.replace('.', '_')}")


#: torch's libraries, and ours
_OWN_LIBRARIES = frozenset(
    {
        "aten", "prims", "prim", "mkldnn", "mkl", "onednn", "quantized", "_quantized", "c10d",
        "_c10d_functional", "flambeau", "flambeau_aot", "flambeau_capture", "flambeau_inductor",
        "flambeau_prims",
    }
)  # fmt: skip


def _of_library(target: str) -> str:
    """The name of an operator that is not torch's own, of which only a fake says what it gives."""
    space, _, rest = target.partition(".")
    return "" if space in _OWN_LIBRARIES else f"{space}::{rest.removesuffix('.default')}"


def _result(p: _WrapperWriter, name: str | None, value: str, target: str) -> None:
    assert name is not None
    layout, library = names.layout(p.layouts[name]), _of_library(target)
    function, more = ("promised", repr(library)) if library else ("laid_out", "")
    if target.startswith("aten."):
        more = "eager=True"
    p(f"{name} = {function}({', '.join(filter(None, (value, layout, more)))})")


def _check(p: _WrapperWriter, step: CheckIndex) -> None:
    low = -step.size if step.wrap else 0
    p(
        ("if outside: " if step.after else "")
        + f"check_index({names.reference(step.ref)}, {names.size(low)}, {names.size(step.size)}, "
        f"{step.error!r}, {step.message!r})"
    )


def _free(p: _WrapperWriter, step: FreeBuffer) -> None:
    line = f"{INDENT}del {step.buffer}"
    if p.lines and p.lines[-1].startswith(f"{INDENT}del ") and len(p.lines[-1]) < 80:
        p.lines[-1] += f", {step.buffer}"
    else:
        p.lines.append(line)


def _output(output: object, given: Sequence[str]) -> str:
    if not isinstance(output, Ref):
        return names.literal(output)
    seen = names.reference(output)
    # of a buffer that nobody else has the caller is given no view
    return seen if output.layout is None or output.buffer in given else f"{seen}.detach()"


_PRINT: Mapping[type[Step], Callable[[_WrapperWriter, Any], None]] = {
    Alloc: _alloc,
    Reuse: _reuse,
    RunLoop: _run_loop,
    Extern: _extern,
    CheckIndex: _check,
    FreeBuffer: _free,
}
