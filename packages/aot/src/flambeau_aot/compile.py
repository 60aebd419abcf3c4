"""The pipeline from a program to a callable: passes in order.

In: a captured graph and example inputs, compilers for the halves, a decomposition table. Out: a
`Compiled`, which takes the program's inputs positionally.
Invariant: every pass is in `PASSES`' names, times itself under that name, and hands on frozen data;
compilers see fake values only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx

from flambeau_aot import facts
from flambeau_aot.errors import AotError
from flambeau_aot.higher_order.control_flow import HIGHER_ORDER
from flambeau_aot.higher_order.lazy_derivative import Derivatives
from flambeau_aot.interface import Boxed, GraphCompiler, GraphInfo, Options, Report
from flambeau_aot.joint.program import InputProgram, of_graph_module
from flambeau_aot.joint.trace import Joint, trace
from flambeau_aot.joint.tracer import Decompositions
from flambeau_aot.partition.mincut import min_cut_partition
from flambeau_aot.partition.must_not_recompute import relying_on_leaves, watching
from flambeau_aot.partition.split import Halves, checked_cut, inference, split, tangents_of
from flambeau_aot.plan import RuntimePlan
from flambeau_aot.runtime.ambient_state import ambient
from flambeau_aot.runtime.call import Compiled, direct, inference_call, training_call
from flambeau_aot.runtime.check import Checked, Contract
from flambeau_aot.runtime.crossing import Crossing, HigherOrder
from flambeau_aot.runtime.unasked_derivatives import refuse_upstream
from flambeau_aot.serialize.saved_program import Stored
from flambeau_aot.simplify import simplify
from flambeau_aot.subclasses import unwrapped

Partition = Callable[[Joint, Options], Sequence[fx.Node]]
"""From a joint graph to the values to save."""

PASSES = ("trace", "simplify", "partition", "compile forward", "compile backward")


@dataclass
class _PassTimer:
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
    open_sizes: bool = True,
) -> Compiled:
    """Compile a captured graph for the metadata of these inputs.

    Parameters and buffers the graph reads through `get_attr` become its first inputs. With grad
    enabled and an input or parameter that requires grad, forward and backward are compiled; else
    the forward part alone, and no autograd machinery is in the way of a call.

    Raises `AotError`: `TraceError` or `DataDependent` where the program cannot be run on fake
    values, `Unsupported` where it does what this layer refuses, `NotYetSymbolic` for symbolic sizes
    that it cannot leave open. Sizes are left open where the placeholders' `meta["val"]` have
    symbols; what their shape environment holds when this returns has been relied on, and is for the
    caller to check at each call. With `open_sizes=False` every size is what it is for these inputs.
    """
    options = options or Options()
    program = of_graph_module(gm, options.name)
    if not open_sizes:
        program = replace(program, symbolic=())
    compilers = Compilers(fw_compiler, bw_compiler, inference_compiler)
    return compile_program(
        program, example_inputs, compilers, decompositions or {}, partition, options
    )


def compile_program(
    program: InputProgram,
    inputs: Sequence[Any],
    compilers: Compilers,
    decompositions: Decompositions,
    partition: Partition,
    options: Options,
) -> Compiled:
    """The passes of `PASSES` on any program."""
    plain = unwrapped(program, inputs)
    if plain is not None:
        inner = compile_program(
            plain.program, plain.inputs, compilers, decompositions, partition, options
        )
        parts = (inner.report, inner.joint, inner.halves, inner.forward, inner.backward)
        return Compiled(plain.around(inner), *parts)

    def again(others: Sequence[Any]) -> Compiled:
        static = replace(program, symbolic=())
        return compile_program(static, others, compilers, decompositions, partition, options)

    clock = _PassTimer()
    grad_mode = torch.is_grad_enabled()
    surroundings = ambient()
    with clock.timed("trace"):
        joint = trace(program, inputs, decompositions, HIGHER_ORDER, all_defined=False)
    joint = watching(joint, options.classify)
    removed: dict[str, int] = {}
    with clock.timed("simplify"):
        if options.simplify:
            simplified = simplify(joint)
            joint = simplified.joint
            removed = simplified.removed
    if not joint.training:
        own = len(program.static)
        compiled = _inference(
            joint, compilers, options, clock, removed, len(inputs), grad_mode, own
        )
        compiled.again = again
        return compiled
    refuse_upstream(joint, inputs, tangents_of(joint))
    with clock.timed("partition"):
        saved = checked_cut(joint, partition(joint, options))
        joint = relying_on_leaves(joint, saved, options.classify)
        halves = split(joint, saved, options.classify)

    def compile_derivative(of: InputProgram, examples: Sequence[Any]) -> Compiled:
        own = replace(options, name=of.name)
        return compile_program(of, examples, compilers, decompositions, partition, own)

    higher = None
    if options.higher_order:
        derivatives = Derivatives(program, joint, surroundings, compile_derivative, options.name)
        higher = derivatives.higher_order()
    if joint.symbols:
        # what is learnt about a size while the backward part is compiled must be known by the end
        options = replace(options, compile_backward="ahead")
    compiled = _training(
        joint, halves, compilers, options, clock, removed, len(inputs), higher, len(program.static)
    )
    compiled.again = again
    compiled.higher = higher
    return compiled


def _inference(
    joint: Joint,
    compilers: Compilers,
    options: Options,
    clock: _PassTimer,
    removed: dict[str, int],
    arguments: int,
    grad_mode: bool,
    own: int,
) -> Compiled:
    gm = inference(joint)
    info = facts.inference_info(joint, options)
    compiler = compilers.inference or compilers.forward
    with clock.timed("compile forward"):
        call = _compiled(compiler, gm, info, joint.plan.visible, frozenset(), options, joint.plan)
    report = facts.inference_report(joint, gm, options, removed, clock.seconds)
    run = inference_call(joint.plan, joint.static, arguments, call, grad_mode, joint.requires_grad)
    stored = _stored(joint, own, arguments, report, call.contract, grad_mode=grad_mode)
    return direct(Compiled(run, report, joint, None, gm, None, stored=stored))


def _training(
    joint: Joint,
    halves: Halves,
    compilers: Compilers,
    options: Options,
    clock: _PassTimer,
    removed: dict[str, int],
    arguments: int,
    higher: HigherOrder | None,
    own: int,
) -> Compiled:
    backward_gm = halves.backward
    assert backward_gm is not None
    visible, count = joint.plan.visible, len(halves.saved)
    backward_info = facts.backward_info(joint, halves, options)
    backward_compiler = compilers.backward or compilers.forward
    tangent_places = frozenset(range(count, count + len(joint.tangents)))

    def compile_backward() -> Boxed:
        with clock.timed("compile backward"):
            results = len(facts.outputs_of(backward_gm))
            return _compiled(
                backward_compiler, backward_gm, backward_info, results, tangent_places, options
            )

    with clock.timed("compile forward"):
        info = facts.forward_info(joint, halves, options)
        forward = _compiled(
            compilers.forward, halves.forward, info, visible, frozenset(), options, joint.plan
        )
    lazily = options.compile_backward == "lazy"
    backward: Boxed = _Lazy(compile_backward) if lazily else compile_backward()
    crossing = facts.crossing(joint, halves, backward_info)
    report = facts.training_report(joint, halves, options, removed, clock.seconds, crossing, higher)
    run = training_call(joint.plan, joint.static, arguments, forward, backward, crossing, higher)
    stored = None
    if isinstance(backward, Checked):
        both = forward.contract, backward.contract
        stored = _stored(joint, own, arguments, report, *both, crossing=crossing, higher=higher)
    return direct(Compiled(run, report, joint, halves, halves.forward, backward_gm, stored=stored))


def _stored(
    joint: Joint,
    own: int,
    arguments: int,
    report: Report,
    forward: Contract,
    backward: Contract | None = None,
    grad_mode: bool = True,
    crossing: Crossing | None = None,
    higher: HigherOrder | None = None,
) -> Stored:
    """The program as data, `own` of its static tensors being those it came with.

    What was learnt about open sizes is no part of it: the shape environment knows.
    """
    constants = joint.static[own:]
    return Stored(
        joint.plan,
        arguments,
        constants,
        grad_mode,
        joint.requires_grad,
        forward,
        backward,
        crossing,
        higher,
        report,
    )


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
    plan: RuntimePlan | None = None,
) -> Checked:
    examples = [node.meta["val"] for node in gm.graph.nodes if node.op == "placeholder"]
    try:
        call = compiler(gm, examples, info)
    except Exception as error:
        error.add_note(f"while the compiler of {info.name} (the {info.kind} graph) was at work")
        raise
    if not callable(call):
        raise AotError(f"the compiler of {info.name} returned {call!r}, which cannot be called")
    contract = Contract(
        info.name,
        fresh,
        shareable,
        differentiable=info.kind == "forward",
        strides=info.kind != "backward",
        roots=plan.roots if plan and info.kind == "inference" else frozenset(),
        updates=info.updates,
        viewed=plan.viewed if plan else frozenset(),
    )
    return Checked(call, contract, gm if options.check_outputs else None)
