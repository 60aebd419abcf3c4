"""The pipeline from a program to a callable: passes in order.

In: a captured graph and example inputs, compilers for the halves, a decomposition table. Out: a
`Compiled`, which takes the program's inputs positionally.
Invariant: every pass is in `PASSES`' names, times itself under that name, and hands on frozen data;
compilers see fake values only.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import torch
from torch import fx

from flambeau_aot import program_facts
from flambeau_aot.errors import AotError, Unsupported
from flambeau_aot.higher_order.derivative import refuse_requests
from flambeau_aot.higher_order.lazy_derivative import Derivatives
from flambeau_aot.higher_order.operators import HIGHER_ORDER
from flambeau_aot.interface import Boxed, GraphCompiler, GraphInfo, Options, Report
from flambeau_aot.joint.dispatch_mode import Decompositions
from flambeau_aot.joint.program import InputProgram, of_graph_module
from flambeau_aot.joint.trace import Joint, trace
from flambeau_aot.partition.budget import min_cut_partition
from flambeau_aot.partition.memory import gather_again
from flambeau_aot.partition.shared_memory import is_view_node, root_of, separated, watching
from flambeau_aot.partition.split import Halves, checked_cut, inference, split
from flambeau_aot.runtime.ambient_state import ambient
from flambeau_aot.runtime.call import Compiled, Uncompiled, direct, inference_call, training_call
from flambeau_aot.runtime.check import Checked, Contract
from flambeau_aot.runtime.differentiation import Differentiation
from flambeau_aot.runtime.prologue import BoundPlan
from flambeau_aot.runtime.saved_values import HigherOrder
from flambeau_aot.runtime.unneeded_derivatives import refuse_upstream
from flambeau_aot.runtime_plan import RuntimePlan
from flambeau_aot.serialize.saved_program import Stored
from flambeau_aot.serialize.saved_subclasses import with_subclasses
from flambeau_aot.simplify import simplify
from flambeau_aot.subclasses import unwrapped

Partition = Callable[[Joint, Options], Sequence[fx.Node]]
"""From a joint graph to the values to save."""

PASSES = ("trace", "simplify", "partition", "compile forward", "compile backward")


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
    compilers = fw_compiler, bw_compiler, inference_compiler
    pipeline = Pipeline(*compilers, decompositions or {}, partition, options)
    return pipeline.compile(program, example_inputs)


@dataclass
class _Work:
    """One compile: its joint graph so far, how many arguments and static tensors the program has,
    seconds by pass, operators removed by rule."""

    joint: Joint
    arguments: int
    static: int
    seconds: dict[str, float]
    removed: dict[str, int] = field(default_factory=dict)

    @property
    def bound(self) -> BoundPlan:
        """The plan, with what a call binds it to."""
        return BoundPlan(self.joint.plan, self.joint.static, self.arguments)

    def stored(self, report: Report, forward: Contract, grad_mode: bool = True) -> Stored:
        """The program as data, without a backward part. What was learnt about open sizes is no part
        of it: the shape environment knows."""
        joint, constants = self.joint, self.joint.static[self.static :]
        shield = joint.requires_grad
        return Stored(joint.plan, self.arguments, constants, grad_mode, shield, forward, report)


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    try:
        yield
    finally:
        seconds[name] = time.perf_counter() - start


@dataclass(frozen=True)
class Pipeline:
    """The passes of `PASSES` with what they are given; the forward compiler stands in for one that
    is missing."""

    forward: GraphCompiler
    backward: GraphCompiler | None
    inference: GraphCompiler | None
    decompositions: Decompositions
    partition: Partition
    options: Options

    def compile(self, program: InputProgram, inputs: Sequence[Any]) -> Compiled:
        """Compile any program for the metadata of these inputs."""
        try:
            return self._compile(program, inputs)
        except Unsupported as error:
            if error.id != "AO0169" or program.subclasses:
                raise
        return self._compile(replace(program, subclasses=True), inputs)

    def _compile(self, program: InputProgram, inputs: Sequence[Any]) -> Compiled:
        if (plain := unwrapped(program, inputs)) is not None:
            while True:
                known = len(plain.carried)
                try:
                    inner = self.compile(plain.program, plain.inputs)
                    break
                except Unsupported as error:
                    if error.id != "AO0173" or len(plain.carried) == known:
                        raise
                plain = unwrapped(program, inputs, plain)
                assert plain is not None
            plain.inputs.clear()  # their history would look like a graph of the program's
            parts = (inner.report, inner.joint, inner.halves, inner.forward, inner.backward)
            training = inner.joint is None or inner.joint.training
            stored = with_subclasses(inner.stored, plain)
            return Compiled(plain.around(inner, training), *parts, stored=stored)
        seconds: dict[str, float] = {}
        classes = self.options.classify
        grad_mode, surroundings = torch.is_grad_enabled(), ambient()
        with _timed(seconds, "trace"):
            joint = trace(program, inputs, self.decompositions, HIGHER_ORDER, all_defined=False)
        joint = separated(watching(joint, classes), classes)
        work = _Work(joint, len(inputs), len(program.static), seconds)
        with _timed(seconds, "simplify"):
            if self.options.simplify:
                work.joint, work.removed = simplify(work.joint)
        uncompiled = Uncompiled(program.eagerly)
        if not work.joint.training:
            compiled = self._inference(work, grad_mode, uncompiled)
        else:
            refuse_upstream(work.joint, inputs)
            with _timed(seconds, "partition"):
                saved = checked_cut(work.joint, self.partition(work.joint, self.options))
                halves = split(work.joint, saved, classes)
            higher = None
            if self.options.higher_order:
                own = (program, work.joint, surroundings, self._derivative, self._traced)
                higher = Derivatives(*own, self.options.name).higher
                refuse_requests(work.joint, higher, self.options.name)
            compiled = self._training(work, halves, higher, uncompiled, program.conditions)
            compiled.higher = higher
        uncompiled.of = weakref.ref(compiled)
        compiled.again = lambda others: self.compile(replace(program, symbolic=()), others)
        return compiled

    def _traced(self, program: InputProgram, examples: Sequence[Any]) -> Joint:
        return trace(program, examples, self.decompositions, HIGHER_ORDER)

    def _derivative(self, program: InputProgram, examples: Sequence[Any]) -> Compiled:
        options = replace(self.options, name=program.name)
        return replace(self, options=options).compile(program, examples)

    def _inference(self, work: _Work, grad_mode: bool, uncompiled: Uncompiled) -> Compiled:
        joint, options = work.joint, self.options
        gather_again(joint.graph)
        gm = inference(joint)
        info = program_facts.inference_info(joint, options)
        with _timed(work.seconds, "compile forward"):
            compiler = self.inference or self.forward
            call = self._compiled(compiler, gm, info, joint.plan.visible, plan=joint.plan)
        report = program_facts.inference_report(joint, gm, options, work.removed, work.seconds)
        run = inference_call(work.bound, call, grad_mode, joint.requires_grad, uncompiled)
        stored = work.stored(report, call.contract, grad_mode)
        return direct(Compiled(run, report, joint, None, gm, None, stored=stored))

    def _training(
        self,
        work: _Work,
        halves: Halves,
        higher: HigherOrder | None,
        uncompiled: Uncompiled,
        conditions: tuple[Callable[[], bool], ...],
    ) -> Compiled:
        joint, options, backward_gm = work.joint, self.options, halves.backward
        assert backward_gm is not None
        visible, count = joint.plan.visible, len(halves.saved)
        backward_info = program_facts.backward_info(joint, halves, options)
        tangents = frozenset(range(count, count + len(joint.tangents)))

        @cache
        def compiled_backward() -> Checked:
            with _timed(work.seconds, "compile backward"):
                results = len(program_facts.outputs_of(backward_gm))
                compiler = self.backward or self.forward
                return self._compiled(compiler, backward_gm, backward_info, results, tangents)

        with _timed(work.seconds, "compile forward"):
            info = program_facts.forward_info(joint, halves, options)
            forward = self._compiled(self.forward, halves.forward, info, visible, plan=joint.plan)
        # what is learnt about a size while the backward part is compiled must be known by the end
        lazily = options.compile_backward == "lazy" and not joint.symbols
        backward: Boxed = compiled_backward() if not lazily else lambda x: compiled_backward()(x)
        crossing = program_facts.crossing(joint, halves, backward_info)
        own = Differentiation(joint.plan, crossing, higher, conditions)
        counts = options, work.removed, work.seconds
        report = program_facts.training_report(joint, halves, *counts, own.kept)
        run = training_call(work.bound, own, forward, backward, uncompiled)
        stored = None
        if isinstance(backward, Checked):
            stored = replace(
                work.stored(report, forward.contract),
                backward=backward.contract,
                crossing=crossing,
                higher=higher,
                unsaved="a backward pass that may have to be another one" * bool(conditions),
            )
        parts = joint, halves, halves.forward, backward_gm
        return direct(Compiled(run, report, *parts, stored=stored))

    def _compiled(
        self,
        compiler: GraphCompiler,
        gm: fx.GraphModule,
        info: GraphInfo,
        fresh: int,
        shareable: frozenset[int] = frozenset(),
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
        origins = self._origins(gm) if info.kind == "backward" else ()
        contract = Contract(
            info.name,
            fresh,
            shareable,
            differentiable=info.kind == "forward",
            strides=info.kind != "backward",
            roots=plan.roots if plan and info.kind == "inference" else frozenset(),
            updates=info.updates,
            viewed=plan.viewed if plan else frozenset(),
            origins=origins,
        )
        return Checked(call, contract, gm if self.options.check_outputs else None)

    def _origins(self, gm: fx.GraphModule) -> tuple[int, ...]:
        """For each output, the first one that is a view of the same value."""
        is_view = partial(is_view_node, self.options.classify)
        outputs = program_facts.outputs_of(gm)
        roots = [root_of(x, is_view) if isinstance(x, fx.Node) else x for x in outputs]
        return tuple(roots.index(root) for root in roots)
