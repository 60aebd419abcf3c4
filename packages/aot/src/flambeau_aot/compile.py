"""The passes from a program to a callable, in order.

What comes in: a captured graph and example inputs, compilers for the halves, a decomposition
table. What goes out: a `Compiled`, which takes the program's inputs positionally.
Invariant: every pass is in `PASSES`' names, times itself under that name, and hands on frozen
data; compilers see fake values only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from flambeau_aot._torch_compat import FakeTensor
from flambeau_aot.errors import AotError
from flambeau_aot.info import Boxed, GraphCompiler, GraphInfo
from flambeau_aot.joint.trace import Joint, trace
from flambeau_aot.joint.tracer import Decompositions
from flambeau_aot.options import Classifier, Options
from flambeau_aot.partition.cost import nbytes
from flambeau_aot.partition.mincut import min_cut_partition
from flambeau_aot.partition.save_all import save_all
from flambeau_aot.partition.split import Halves, inference, split, tangents_of
from flambeau_aot.program import Program, of_graph_module
from flambeau_aot.report import Report
from flambeau_aot.runtime.call import Compiled, inference_call, training_call
from flambeau_aot.runtime.check import Checked
from flambeau_aot.runtime.function import Crossing, TangentLayout
from flambeau_aot.simplify import is_view_node, simplify

Partition = Callable[[Joint, Classifier | None], Sequence[fx.Node]]
"""From a joint graph to the values to save."""

PASSES = ("trace", "simplify", "partition", "compile forward", "compile backward")


@dataclass
class _Clock:
    """Seconds by pass name."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = time.perf_counter() - start


@dataclass(frozen=True)
class Compilers:
    """Who compiles what; a missing one is stood in for by the forward compiler."""

    forward: GraphCompiler
    backward: GraphCompiler | None = None
    inference: GraphCompiler | None = None


def compile(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    fw_compiler: GraphCompiler,
    bw_compiler: GraphCompiler | None = None,
    inference_compiler: GraphCompiler | None = None,
    decompositions: Decompositions | None = None,
    partition: Partition = min_cut_partition,
    options: Options | None = None,
) -> Compiled:
    """Compile a captured graph for the metadata of these inputs.

    Parameters and buffers the graph reads through `get_attr` become its first inputs. With grad
    enabled and an input or parameter that requires grad, forward and backward are compiled;
    else the forward part alone, and no autograd machinery is in the way of a call.

    Raises `AotError`: `TraceError` or `DataDependent` where the program cannot be run on fake
    values, `Unsupported` where it does what this layer refuses, `NotYetSymbolic` for symbolic
    sizes.
    """
    options = options or Options()
    program = of_graph_module(gm, options.name)
    compilers = Compilers(fw_compiler, bw_compiler, inference_compiler)
    return compile_program(
        program, example_inputs, compilers, decompositions or {}, partition, options
    )


def compile_program(
    program: Program,
    inputs: Sequence[Any],
    compilers: Compilers,
    decompositions: Decompositions,
    partition: Partition,
    options: Options,
) -> Compiled:
    """The passes of `PASSES` on any program."""
    clock = _Clock()
    grad_mode = torch.is_grad_enabled()
    with clock.timed("trace"):
        joint = trace(program, inputs, decompositions)
    removed: dict[str, int] = {}
    with clock.timed("simplify"):
        if options.simplify:
            simplified = simplify(joint)
            joint = simplified.joint
            removed = {
                "dead": simplified.dead,
                "repeated": simplified.repeated,
                "needless": simplified.needless,
            }
    facts = {
        "name": options.name,
        "joint_nodes": _operators(joint.graph),
        "removed": removed,
        "seconds": clock.seconds,
        "fake_runs": joint.fake_runs,
        "fake_remembered": joint.fake_remembered,
    }
    if not joint.training:
        return _inference(joint, compilers, options, clock, facts, len(inputs), grad_mode)
    with clock.timed("partition"):
        saved = partition(joint, options.classify)
        halves = split(joint, saved)
    return _training(joint, halves, compilers, options, clock, facts, len(inputs))


def _inference(
    joint: Joint,
    compilers: Compilers,
    options: Options,
    clock: _Clock,
    facts: dict[str, Any],
    arguments: int,
    grad_mode: bool,
) -> Compiled:
    gm = inference(joint)
    info = GraphInfo(
        kind="inference",
        name=options.name,
        static_inputs=tuple(range(len(joint.static))),
        mutated_outputs=tuple(item.output for item in joint.plan.updates),
    )
    compiler = compilers.inference or compilers.forward
    with clock.timed("compile forward"):
        call = _compiled(compiler, gm, info, joint.plan.visible, frozenset(), options)
    report = Report(kind="inference", forward_nodes=_operators(gm.graph), **facts)
    run = inference_call(joint.plan, joint.static, arguments, call, grad_mode, joint.requires_grad)
    return Compiled(run, report, joint, None, gm, None)


def _training(
    joint: Joint,
    halves: Halves,
    compilers: Compilers,
    options: Options,
    clock: _Clock,
    facts: dict[str, Any],
    arguments: int,
) -> Compiled:
    backward_gm = halves.backward
    assert backward_gm is not None
    visible, count = joint.plan.visible, len(halves.saved)
    static = len(joint.static)
    outputs = _outputs(halves.forward)
    forward_info = GraphInfo(
        kind="forward",
        name=f"{options.name}_forward",
        static_inputs=tuple(range(static)),
        saved_outputs=tuple(range(visible, len(outputs))),
        mutated_outputs=tuple(item.output for item in joint.plan.updates),
    )
    reusable = tuple(
        place
        for place, item in enumerate(halves.saved)
        if item.kind == "output" and item.index >= visible
    )
    backward_info = GraphInfo(
        kind="backward",
        name=f"{options.name}_backward",
        static_inputs=tuple(
            place
            for place, item in enumerate(halves.saved)
            if item.kind == "input" and item.index < static
        ),
        reusable_inputs=_alone(halves, reusable),
    )
    backward_compiler = compilers.backward or compilers.forward
    tangent_places = frozenset(range(count, count + len(joint.tangents)))

    def compile_backward() -> Boxed:
        with clock.timed("compile backward"):
            return _compiled(
                backward_compiler,
                backward_gm,
                backward_info,
                len(_outputs(backward_gm)),
                tangent_places,
                options,
            )

    with clock.timed("compile forward"):
        forward = _compiled(
            compilers.forward, halves.forward, forward_info, visible, frozenset(), options
        )
    lazily = options.compile_backward == "lazy"
    backward = _Lazy(compile_backward) if lazily else compile_backward()
    kept = [
        node
        for node, item in zip(halves.saved_nodes, halves.saved, strict=True)
        if item.kind == "output"
    ]
    report = Report(
        kind="training",
        forward_nodes=_operators(halves.forward.graph),
        backward_nodes=_operators(backward_gm.graph),
        saved_tensors=len(kept),
        saved_bytes=sum(nbytes(node.meta["val"]) for node in kept),
        saved_bytes_save_all=_bytes_of_save_all(joint),
        recomputed=halves.recomputed,
        **facts,
    )
    crossing = Crossing(
        visible=visible,
        differentiable=joint.plan.differentiable,
        saved=halves.saved,
        grads=halves.grads,
        tangents=tuple(_layout(node) for node in joint.tangents),
        reusable=backward_info.reusable_inputs,
        tangents_of=tangents_of(joint),
    )
    run = training_call(joint.plan, joint.static, arguments, forward, backward, crossing)
    return Compiled(run, report, joint, halves, halves.forward, backward_gm)


class _Lazy:
    """A backward graph compiled at its first use."""

    def __init__(self, make: Callable[[], Boxed]) -> None:
        self.make = make
        self.call: Boxed | None = None

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        if self.call is None:
            self.call = self.make()
        return self.call(args)


def _compiled(
    compiler: GraphCompiler,
    gm: fx.GraphModule,
    info: GraphInfo,
    fresh: int,
    shareable: frozenset[int],
    options: Options,
) -> Boxed:
    examples = [node.meta["val"] for node in gm.graph.nodes if node.op == "placeholder"]
    call = compiler(gm, examples, info)
    if not callable(call):
        raise AotError(f"the compiler of {info.name} returned {call!r}, which cannot be called")
    checked = Checked(
        call, gm, info.name, fresh, shareable, options.check_outputs, info.kind == "forward"
    )
    return checked


def _alone(halves: Halves, places: tuple[int, ...]) -> tuple[int, ...]:
    """Of these saved values, those that share memory with no other value of the forward graph."""
    return tuple(
        place
        for place in places
        if not is_view_node(halves.saved_nodes[place])
        and not any(is_view_node(user) for user in halves.saved_nodes[place].users)
    )


def _outputs(gm: fx.GraphModule) -> list[Any]:
    end = next(node for node in reversed(gm.graph.nodes) if node.op == "output")
    return list(end.args[0])  # type: ignore[arg-type]


def _operators(graph: fx.Graph) -> int:
    return sum(node.op == "call_function" for node in graph.nodes)


def _bytes_of_save_all(joint: Joint) -> int:
    written = {joint.primals[update.primal] for update in joint.plan.updates}
    return sum(
        nbytes(node.meta["val"])
        for node in save_all(joint)
        if node.op != "placeholder" or node in written
    )


def _layout(node: fx.Node) -> TangentLayout:
    value: FakeTensor = node.meta["val"]
    return TangentLayout(tuple(value.shape), tuple(value.stride()), value.dtype, value.fake_device)
