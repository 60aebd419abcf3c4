"""Assembly of a program from fusion groups and library calls.

In: a `TensorProgram`. Out: a program whose memory is still to be planned. Invariant: buffer names
are `in0...` (inputs), `const0...` (tensors of the module) and `buf0...`; every member of a group is
computed once, at the coordinates that the group's axes give it, and stored where someone outside
reads it; a loop without elements does not become a step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import torch

from flambeau_inductor._torch_compat import WAIT
from flambeau_inductor.indexing import Expr, Ranges, Size, Var, decide_equal, hint, known, plain
from flambeau_inductor.ir.loops import Axis, Loop, Scalar
from flambeau_inductor.ir.operands import pruned
from flambeau_inductor.ir.program import (
    Buffer,
    BufferOwnership,
    CheckIndex,
    Extern,
    Layout,
    Program,
    Ref,
    RunLoop,
    each_leaf,
    leaves,
)
from flambeau_inductor.ir.steps import Compute, sizes_known
from flambeau_inductor.ir.tensors import (
    Attribute,
    IndexCheck,
    LibraryCall,
    Node,
    NumberTensor,
    Shape,
    dot,
    flat_strides,
    unflatten,
)
from flambeau_inductor.schedule.bounds_checks import check_inside, check_loop
from flambeau_inductor.schedule.fuse.emit import Emitter, Where
from flambeau_inductor.schedule.fuse.legality import Block, FusionGroup, is_whole, size_of
from flambeau_inductor.schedule.fuse.loop_order import normalised
from flambeau_inductor.schedule.materialize.concat_in_place import is_concatenation, rest
from flambeau_inductor.schedule.materialize.plan import (
    MaterializationPlan,
    NodeStorage,
    PlannedArgument,
    StorageView,
    data_sizes_in,
    operands_of,
)
from flambeau_inductor.schedule.tensor_program import TensorProgram
from flambeau_inductor.scheduling_limits import Limits


@dataclass(slots=True)
class _Assembly:
    plan: MaterializationPlan
    names: dict[Node, str] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    constants: list[tuple[str, torch.Tensor]] = field(default_factory=list)
    shared: set[str] = field(default_factory=set)
    steps: list[Compute] = field(default_factory=list)
    checked: set[tuple[Node, IndexCheck]] = field(default_factory=set)
    bare: list[Node] = field(default_factory=list)
    counter: int = 0

    def name_of(self, node: Node) -> str:
        """The node's buffer, made on first sight."""
        found = self.names.get(node)
        if found is None:
            owner = self.plan.memory_of(node)
            if owner is not node:
                found = self.names[node] = self.name_of(owner)
                return found
            if isinstance(node.define, Attribute):
                found = f"const{len(self.constants)}"
                self.constants.append((found, node.define.tensor))
            else:
                found = f"buf{self.counter}"
                self.counter += 1
            self.add(found, node)
        return found

    def add(self, name: str, node: Node) -> None:
        self.names[node] = name
        self.buffers[name] = Buffer(name, self.plan.graph.layout(node))

    def scratch(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> str:
        """A contiguous buffer that stands for no node."""
        name = f"buf{self.counter}"
        self.counter += 1
        strides = flat_strides(shape)
        self.buffers[name] = Buffer(name, Layout(shape, strides, dtype, device))
        return name

    def place(self, node: Node) -> NodeStorage | None:
        if not self.plan.has_memory(node):
            return None
        piece = self.plan.pieces.get(node)
        offset = 0 if piece is None else piece.offset
        return NodeStorage(self.name_of(node), self.plan.graph.stride_of(node), offset)


def assemble(program: TensorProgram, limits: Limits) -> Program:
    """Emit every loop and call."""
    (plan, steps), graph = program.planned(), program.graph
    made = _Assembly(plan)
    for position, node in enumerate(graph.inputs):
        made.add(f"in{position}", node)
    used = [scalar for scalar in graph.scalars if scalar.node in plan.live]
    for number, scalar in enumerate(used):
        made.add(f"scalar{number}", scalar.node)
    stored = _stored(plan, steps)
    loops = 0
    for step in steps:
        if isinstance(step, LibraryCall):
            _call(made, step)
            continue
        if decide_equal(step.numel, 0) or step.members[0].node.device.type == "meta":
            # no element to compute; the tensors still have to exist for whoever refers to them
            made.bare.extend(a.node for a in step.members if a.node in stored)
            continue
        loop = build_loop(f"loop{loops}", step, made.place, stored.__contains__)
        for anchor in step.members:
            for node in anchor.reads:
                loop = _check(made, node, limits, loop)
        loops += 1
        made.steps.append(RunLoop(loop))
    outputs = each_leaf(partial(_argument, made), tuple(plan.outputs))
    inputs = tuple(made.buffers[f"in{i}"] for i in range(len(graph.inputs)))
    scalars = tuple((made.names[s.node], s.value) for s in used)
    empty = tuple(dict.fromkeys(made.name_of(n) for n in made.bare))
    given = [*(b.name for b in inputs), *(n for n, _ in (*made.constants, *scalars)), *empty]
    kept = frozenset(o.buffer for o in outputs if isinstance(o, Ref))
    shared = frozenset(made.shared)
    owned = BufferOwnership(
        given=frozenset(given),
        kept=kept,
        shared=shared,
        donated=frozenset(f"in{i}" for i in graph.donated) - kept - shared,
        updates=_updates(plan, outputs),
        empty=empty,
    )
    return Program(
        graph.name,
        inputs,
        outputs,
        tuple(made.buffers.values()),
        tuple(checked_first(made.steps)),
        tuple(made.constants),
        tuple(graph.numbers),
        graph.symbols,
        scalars,
        owned,
    )


ASSERTION = "aten._assert_scalar.default"
"""What checks a condition on sizes that depend on data."""


def checked_first(steps: Sequence[Compute]) -> list[Compute]:
    """The steps with each check of sizes right after the last of these is known. Rule: whatever
    reads or writes memory by several sizes comes after all of them, and so after their check."""
    found: list[Compute] = []
    for step in steps:
        if not isinstance(step, Extern) or step.target != ASSERTION:
            found.append(step)
            continue
        names = {name for each in leaves(step.args) for name in data_sizes_in(each)}
        found.insert(sizes_known(found, names), step)
    return found


def _updates(plan: MaterializationPlan, outputs: Sequence[Ref | Scalar | None]) -> dict[str, str]:
    """Buffers that are returned whole, once, as the new value of an input, and that input's."""
    often = Counter(o.buffer for o in outputs if isinstance(o, Ref))
    return {
        output.buffer: f"in{given}"
        for position, given in plan.graph.updates.items()
        if isinstance(output := outputs[position], Ref)
        and often[output.buffer] == 1
        and output.layout is None
    }


def _stored(plan: MaterializationPlan, steps: Sequence[FusionGroup | LibraryCall]) -> set[Node]:
    """Anchors that someone outside their own loop reads; a loop over no points reads nothing."""
    stored = {o.node for o in plan.outputs if isinstance(o, StorageView)} | set(plan.checks)
    for step in steps:
        if isinstance(step, LibraryCall):
            stored.update(operands_of(plan, step))
        elif not decide_equal(step.numel, 0):
            stored |= step.reads.keys() - step.nodes()
    return stored & plan.anchors


def _check(made: _Assembly, node: Node, limits: Limits, loop: Loop) -> Loop:
    """Check what `loop` is the first to read, before it or, on a GPU, in it. What is to lie in a
    size that nobody knows yet is no position to this loop, but to a later one."""
    checks = made.plan.checks.get(node, ())
    for check in checks:
        if (node, check) in made.checked:
            continue
        sizes = data_sizes_in(check.size)
        if sizes and not sizes <= _known_sizes(made):
            continue
        made.checked.add((node, check))
        if not node.numel:
            continue
        ref = Ref(made.name_of(node), check.layout)
        step = CheckIndex(ref, check.size, check.wrap, check.error, check.message)
        if node.device.type != "cuda":
            made.steps.append(step)
            continue
        layout = check.layout or made.buffers[ref.buffer].layout
        inside = check_inside(loop, step, layout, _bounds_message(step))
        if inside is None:
            made.steps.extend(_on_device(made, step, layout))
        else:
            loop = inside
    return loop


def _known_sizes(made: _Assembly) -> set[str]:
    """The sizes that depend on data and are known after the steps so far."""
    calls = (step for step in made.steps if isinstance(step, Extern))
    read = {size.name for call in calls for size in call.sizes}
    return read.union(name for name, _ in made.plan.graph.symbols)


def _bounds_message(check: CheckIndex) -> str:
    """What a device says of a position: it can name neither that nor an open size."""
    size = str(check.size) if isinstance(check.size, int) else "its size"
    return check.message.replace("{index}", "of a GPU tensor").replace("{size}", size)


def _on_device(made: _Assembly, check: CheckIndex, layout: Layout) -> list[Compute]:
    """A check that does not wait for the device: a kernel that looks, and an assertion there."""
    seen = made.scratch((), torch.bool, layout.device)
    name = f"check{sum(isinstance(step, RunLoop) for step in made.steps)}"
    look = RunLoop(check_loop(name, check, layout, seen))
    return [look, Extern("aten._assert_async.msg", (Ref(seen), _bounds_message(check)))]


def _call(made: _Assembly, call: LibraryCall) -> None:
    args, kwargs = each_leaf(
        partial(_argument, made), (made.plan.arguments[call], made.plan.keywords[call])
    )
    results = made.plan.results(call)
    if call.target == WAIT:
        args = (*args, *started_with(args, made.steps))
    if call.aliases:
        made.shared.update(ref.buffer for ref in leaves(args) if isinstance(ref, Ref))
    live = made.plan.live
    names = [made.name_of(node) if node is not None and node in live else None for node in results]
    sizes = made.plan.graph.sized.get(call, ())
    if call.aliases:
        made.shared.update(n for n in names if n is not None)
    if call.out and is_concatenation(call):
        assert names[0] is not None
        made.steps.extend(rest(made.plan, call, args, names[0]))
    elif call.out:
        into = tuple(Ref(n) for n in names if n is not None)
        made.steps.append(Extern(call.target, args, kwargs, into, (), call.origins))
    else:
        made.steps.append(Extern(call.target, args, kwargs, (), tuple(names), call.origins, sizes))


def started_with(args: Sequence[object], steps: Sequence[Compute]) -> list[Ref]:
    """What the collective that is waited for was given: until then it may be read."""
    waited = {ref.buffer for ref in leaves(tuple(args)) if isinstance(ref, Ref)}
    calls = (step for step in steps if isinstance(step, Extern) and waited & {*step.results})
    return [ref for call in calls for ref in call.reads if ref.buffer not in waited]


def _argument(made: _Assembly, argument: PlannedArgument) -> object:
    if isinstance(argument, StorageView):
        return Ref(made.name_of(argument.node), argument.layout)
    if isinstance(argument, Node | NumberTensor):
        raise TypeError(f"{argument} was not planned as an operand")
    return argument


@dataclass(frozen=True, slots=True)
class Space:
    """A group's axes, outermost first, and the two row-major positions that they spell."""

    axes: tuple[tuple[str, Size, bool], ...]
    element: Expr
    row: Expr

    def ranges(self) -> Ranges:
        return {name: (0, size - 1) for name, size, _ in self.axes}


def build_loop(name: str, group: FusionGroup, place: Where, stored: Callable[[Node], bool]) -> Loop:
    """Emit the members in order, store what is needed, bring the axes into their best order."""
    space = space_of(group)
    emitter = Emitter(where=place, ranges=dict(space.ranges()))
    for anchor in group.members:
        node = anchor.node
        whole = is_whole(anchor, group.blocks)
        flat = space.element if whole else space.row
        coordinates = unflatten(flat, anchor.shape, emitter.ranges)
        own = coordinates
        if anchor.reduces and not anchor.scans:
            own = unflatten(space.row, node.shape, emitter.ranges)
        value = emitter.member(node, coordinates, own)
        if stored(node):
            emitter.store(node, own, value)
    x = tuple(Axis(n, s) for n, s, reduced in space.axes if not reduced)
    r = tuple(Axis(n, s) for n, s, reduced in space.axes if reduced)
    origins = tuple(dict.fromkeys(o for m in group.members for o in m.node.origins))
    return normalised(Loop(name, x, r, pruned(emitter.body), origins))


def space_of(group: FusionGroup) -> Space:
    """Split each block where a member's shape has a boundary."""
    cuts = _cuts(group)
    axes: list[tuple[str, Size, bool]] = []
    element_strides: list[Size] = []
    row_strides: list[Size] = []
    step, row_step = size_of(group.blocks, None), size_of(group.blocks, False)
    count = {False: 0, True: 0}
    for (size, reduced), inside in zip(group.blocks, cuts, strict=True):
        step //= size
        if not reduced:
            row_step //= size
        outer = size
        for cut in sorted(inside, key=hint, reverse=True):
            name = f"{'r' if reduced else 'x'}{count[reduced]}"
            count[reduced] += 1
            axes.append((name, outer // cut, reduced))
            element_strides.append(step * cut)
            row_strides.append(0 if reduced else row_step * cut)
            outer = cut
    index = tuple(Var(name) for name, _, _ in axes)
    return Space(tuple(axes), dot(index, element_strides), dot(index, row_strides))


def _cuts(group: FusionGroup) -> list[set[Size]]:
    """For each block the strides (within it) at which an axis ends; 1 is always one of them."""
    cuts: list[set[Size]] = [{1} for _ in group.blocks]
    for anchor in group.members:
        whole = is_whole(anchor, group.blocks)
        _cut(cuts, group.blocks, anchor.shape, whole)
        if anchor.reduces and not anchor.scans:
            _cut(cuts, group.blocks, anchor.node.shape, False)
    return cuts


def _cut(cuts: list[set[Size]], blocks: tuple[Block, ...], shape: Shape, whole: bool) -> None:
    step: Size = 1
    spans: list[tuple[int, Size, Size]] = []
    for position in range(len(blocks) - 1, -1, -1):
        size, reduced = blocks[position]
        if reduced and not whole:
            continue
        spans.append((position, step, size))
        step *= size
    for boundary in flat_strides(shape):
        for position, start, size in spans:
            inside = plain(boundary // start)
            within = known("lt", 1, inside) and known("lt", inside, size)
            if within and known("eq", boundary % start, 0):
                chain = sorted({*cuts[position], inside, size}, key=hint)
                if all(known("eq", b % a, 0) for a, b in pairwise(chain)):
                    cuts[position].add(inside)  # type: ignore[arg-type]
