"""One trace of a program into a joint graph.

In: a `InputProgram`, its example inputs and a decomposition table. Out: a `Joint`: the functional
graph with every tensor a placeholder, and the plan of what happens around it.
Invariant: the program is run once (again if it turns out to write to arguments that share memory);
the backward part is what torch's autograd engine does on the values of that run.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import fx

from flambeau_aot._torch_compat import (
    SavesNoted,
    autograd_nodes,
    data_symbols,
    environment_of,
    expression_of,
    functionalization,
    keeps_undefined,
    leaves_reached,
    no_saved_tensor_hooks,
    python_dispatcher,
    pytree,
    storage_key,
    symbolic_integer,
)
from flambeau_aot.inputs.binding import (
    SyntheticBaseView,
    WritesOverlap,
    arguments,
    bind_inputs,
    parts_of,
)
from flambeau_aot.inputs.functional_inputs import (
    CONSTANT,
    FunctionalInput,
    InputFacts,
    facts_of,
    hides_grad,
    stand_in,
)
from flambeau_aot.inputs.memory_overlap import has_gaps
from flambeau_aot.intercept.autocast_cache import AutocastCache
from flambeau_aot.intercept.mode import InterceptMode
from flambeau_aot.intercept.registry import Interception
from flambeau_aot.intercept.sparse_embeddings import Use
from flambeau_aot.joint.analysis import analyze
from flambeau_aot.joint.checkpoint_regions import mark
from flambeau_aot.joint.cotangents import reached_from
from flambeau_aot.joint.differentiate import NeedsAccumulation, WrittenInBackward, backward_part
from flambeau_aot.joint.dispatch_mode import (
    FRESH,
    Attempt,
    Decompositions,
    HigherOrderCalls,
    JointTracer,
)
from flambeau_aot.joint.history import (
    is_linear,
    keeping_nodes,
    kept_by_autograd,
    leaf_order,
    partly_reached,
    raising,
    reentrant_tangents,
    refuse_written_aliases,
    result_order,
    spent,
    user_derivatives,
)
from flambeau_aot.joint.input_mutations import Effects, Returned
from flambeau_aot.joint.program import InputProgram
from flambeau_aot.joint.reach import computed_from
from flambeau_aot.joint.result_order import nodes_of_results, shared_views
from flambeau_aot.joint.shifted_plan import moved, shifted
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime_plan import (
    InputPlan,
    LateWrite,
    OutputPlan,
    Presence,
    RuntimePlan,
    SparseGrad,
    View,
)
from flambeau_aot.sizes import (
    as_tensor,
    has_symbols,
    is_symbolic,
    mentions_symbols,
    numbers_of,
    sized,
    symbolic_parts,
    symbols_of,
)

_T = TypeVar("_T")
_Planned = TypeVar("_Planned", OutputPlan, View)

__all__ = ["FRESH", "HigherOrderCalls", "Joint", "run_program", "trace"]


@dataclass(frozen=True)
class Joint:
    """The joint graph by its parts.

    static: tensors bound to the first placeholders: parameters and buffers, then constants.
    primals: placeholders of all inputs, in that order, the symbols of open sizes last; inputs: what
    each is. tangents: placeholders of the cotangents. requires_grad: whether an input does, which
    is not to say that a result does. outputs: what the forward part returns. grads: one per primal,
    None where it needs none, then what sparse gradients (`sparse`) need besides their values.
    flags: placeholders that say which cotangents are defined, as `presences` has it, where
    gradients of different cotangents are added. grads_of: for each gradient, the cotangents it
    depends on. late: placeholders of inputs that the backward part writes to, as they are when it
    begins; late_writes: the places of their new values among the grads, after those of primals.
    kept: what eager's autograd keeps, with the tangents it is kept for; what may be recomputed in a
    checkpoint among it. viewed: primals of which it keeps views. keeps_undefined: whether a
    derivative of a user's may be given None.
    """

    graph: fx.Graph
    static: tuple[torch.Tensor, ...]
    primals: tuple[fx.Node, ...]
    tangents: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]
    grads: tuple[fx.Node | None, ...]
    plan: RuntimePlan
    requires_grad: bool
    fake_runs: int
    fake_remembered: int
    sparse: tuple[SparseGrad, ...] = ()
    flags: tuple[fx.Node, ...] = ()
    presences: tuple[Presence, ...] = ()
    grads_of: tuple[frozenset[int], ...] = ()
    inputs: tuple[InputFacts, ...] = ()
    late: tuple[fx.Node, ...] = ()
    late_writes: tuple[LateWrite, ...] = ()
    kept: tuple[tuple[fx.Node, frozenset[int]], ...] = ()
    viewed: frozenset[fx.Node] = frozenset()
    keeps_undefined: bool = False

    @property
    def wanting(self) -> frozenset[int]:
        """Primals that require grad."""
        return frozenset(place for place, x in enumerate(self.inputs) if x.requires_grad)

    @property
    def symbols(self) -> tuple[fx.Node, ...]:
        """The primals that are numbers: the sizes left open."""
        count = len(self.plan.inputs.symbols)
        return self.primals[len(self.primals) - count :]

    @property
    def open_sizes(self) -> list[Any]:
        """The symbols of the sizes left open."""
        return [expression_of(node.meta["val"]) for node in self.symbols]

    @property
    def late_inputs(self) -> tuple[fx.Node, ...]:
        """What the backward part is given besides values of the forward part."""
        return (*self.tangents, *self.flags, *self.late)

    @property
    def training(self) -> bool:
        """Whether there is a backward part."""
        return bool(self.tangents)


def _refuse_seeding(seed: int, state: torch.Tensor) -> None:
    """Nothing draws on fake values: what changed was set by the program, or by another thread.

    A thread that draws leaves the seed as it is; where there is no other one, the whole state has
    to be what it was.
    """
    alone = threading.active_count() == 1
    if torch.initial_seed() != seed or (alone and not torch.equal(state, torch.get_rng_state())):
        torch.set_rng_state(state)
        raise refusal("AO0049")


class ForbidsHooks(Exception):
    """The program allows no hooks on saved tensors inside of it; trace it again without."""


def trace(
    program: InputProgram,
    inputs: Sequence[Any],
    decompositions: Decompositions,
    higher_order: HigherOrderCalls | None = None,
    all_defined: bool = True,
) -> Joint:
    """Trace a program at the metadata of its example inputs.

    higher_order: by name, what is called with the tracer in place of operators that take functions;
    one that is not there is refused. all_defined: whether the backward part will be given every
    cotangent; else it takes flags besides.
    """
    attempt = Attempt(
        decompositions, higher_order or {}, all_defined, grad_mode=torch.is_grad_enabled()
    )
    # anomaly mode reads the values of gradients; it watches the compiled function from outside
    with no_saved_tensor_hooks(), torch.autograd.set_detect_anomaly(False):
        # Leaving inference mode sets the grad mode too.
        seed, state = torch.initial_seed(), torch.get_rng_state()
        with torch.inference_mode(False), torch.set_grad_enabled(attempt.grad_mode):
            while True:
                try:
                    joint = _trace(program, inputs, attempt)
                    _refuse_seeding(seed, state)
                    return joint
                except ForbidsHooks:
                    attempt = replace(attempt, forbids_hooks=True)
                except NeedsAccumulation:
                    attempt = replace(attempt, accumulate=True)
                except WrittenInBackward as found:
                    late = attempt.written_late | found.places
                    attempt = replace(attempt, written_late=late)
                except WritesOverlap as found:
                    if found.storage in attempt.overlapping:
                        raise refusal("AO0050") from found
                    overlapping = attempt.overlapping | {found.storage}
                    attempt = replace(attempt, overlapping=overlapping)
                torch.set_grad_enabled(attempt.grad_mode)


def _trace(program: InputProgram, inputs: Sequence[Any], attempt: Attempt) -> Joint:
    primals, input_plan = bind_inputs(program, inputs, attempt.overlapping)
    requires_grad = any(tensor.requires_grad for tensor in primals)
    symbols = symbols_of(program.symbolic)
    numbers = numbers_of(program.symbolic, symbols)
    environment = environment_of(numbers[0]) if numbers else program.environment
    tracer = JointTracer(attempt, environment, program.fake_mode)
    values = [
        *(tracer.fakes.like(tensor) for tensor in program.static),
        *(tracer.fakes.like(_metadata(program, p, inputs)) for p in input_plan.primals),
        *(tracer.fakes.like(base) for base in primals[len(primals) - len(input_plan.merged) :]),
    ]
    names = [
        *program.static_names,
        *(program.input_names[p] for p in input_plan.primals),
        *(f"base_{index}" for index in range(len(input_plan.merged))),
    ]
    nodes = [
        tracer.placeholder(_identifier(name), value)
        for name, value in zip(names, values, strict=True)
    ]
    nodes.extend(tracer.symbol(number) for number in numbers)
    tracer.stack_lines = program.lines_from_stack
    facts = facts_of(values, primals, input_plan.static, len(input_plan.merged))
    stand_ins = [stand_in(value, known) for value, known in zip(values, facts, strict=True)]
    with functionalization(), tracer, _python_forms(environment is not None):
        parts = parts_of(input_plan, [item.wrapper for item in stand_ins])
        sparse: list[Use] = []
        hidden = any(hides_grad(inputs[part.member.position]) for part in parts)
        noted = SavesNoted()
        # around a trace for derivatives they would be a part of what is traced
        unnoted = requires_grad or attempt.forbids_hooks
        try:
            with nullcontext() if unnoted else noted:
                results = run_program(program, stand_ins, input_plan, tracer, parts, sparse, hidden)
        except Exception as error:
            if not unnoted and noted.are_forbidden_by(error):
                raise ForbidsHooks from error
            raise
        recorded = bool(noted.count) or (unnoted and tracer.grad_was_enabled)
        if any(item.leaf is not None and item.leaf.grad is not None for item in stand_ins):
            raise refusal("AO0051")
        grad_mode_after = torch.is_grad_enabled()
        tracer.lines.leave()
        tracer.stack_lines = False
        tracer.regions.leave()
        flat, structure = pytree.tree_flatten(results)
        effects = analyze(tracer, primals, stand_ins, flat, parts)
    if program.checked:
        effects.returned.extend(_unread_checks(effects))
    outputs = [tracer.node_of(item.value) for item in effects.returned]
    planned = shared_views(effects.results, effects.flat)
    results = tuple(_sized_views(item, symbols, outputs, tracer) for item in planned)
    inside = tuple(_sized_views(item, symbols, outputs, tracer) for item in effects.inside)
    mark(tracer.graph)
    if effects.differentiable and not requires_grad:
        raise refusal("AO0052")
    history = autograd_nodes([end.grad_fn for end in effects.ends])
    refuse_written_aliases(effects, history)
    # before the backward pass lets go of what is kept
    reached = reached_from([end.grad_fn for end in effects.ends])
    kept = kept_by_autograd(effects, history, reached)
    keeping = keeping_nodes(effects, history, reached)
    raise_when_run = raising(effects, history, reached)
    with _python_forms(environment is not None):
        found = backward_part(effects, sparse, spent(effects, history, reached, raise_when_run))
    count, extra = input_plan.static, len(tracer.constants)
    if any(mentions_symbols((s.args, s.kwargs)) for r in effects.reshapes for s in r.steps):
        raise refusal("AO0053")

    def among(items: Sequence[_T], other: _T) -> tuple[_T, ...]:
        """What belongs to primals, with this for the trace's constants and the symbols."""
        return (*items[:count], *[other] * extra, *items[count:], *[other] * len(numbers))

    apart = _inputs_without_gradient(effects)
    partly = partly_reached(effects, history, reached, apart)
    order = nodes_of_results(effects, history, separate=bool(partly))
    linear = is_linear(history, tracer.graph, found.tangents, found.grads)
    plan = RuntimePlan(
        inputs=input_plan,
        updates=tuple(effects.updates),
        results=results,
        differentiable=effects.differentiable,
        visible=len(outputs),
        structure=structure,
        grad_mode_after=None if grad_mode_after == attempt.grad_mode else grad_mode_after,
        offsets=_offsets_relied_on(tracer.graph, primals),
        grad_mode=attempt.grad_mode,
        recorded=recorded,
        reshapes=tuple(effects.reshapes),
        begin_grad=tuple(effects.begin_grad),
        end_grad=tuple(effects.end_grad),
        hooks=effects.hooks,
        touched=tuple(effects.touched),
        beside=_sharing_raised_counters(effects),
        inside=inside,
        apart=apart,
        reentrant=reentrant_tangents(effects, history),
        result_nodes=order.result_nodes,
        hook_order=order.hook_order,
        node_order=order.node_order,
        keeping=keeping,
        raising=raise_when_run,
        partly=partly,
        leaf_order=leaf_order(effects, history, reached),
        result_order=result_order(effects, history),
        users=user_derivatives(history, reached),
        linear=linear,
        once=bool(found.late) or not linear,
    )
    return Joint(
        graph=tracer.graph,
        static=(*program.static, *tracer.constants),
        primals=(*nodes[:count], *tracer.constant_nodes, *nodes[count:]),
        tangents=found.tangents,
        outputs=tuple(outputs),
        grads=(*among(found.grads, None), *found.more),
        sparse=moved(found.sparse, count, extra, len(numbers)),
        plan=shifted(plan, count, extra) if extra else plan,
        requires_grad=requires_grad,
        fake_runs=tracer.fakes.runs,
        fake_remembered=tracer.fakes.remembered,
        flags=tuple(tracer.flag_nodes),
        late=found.late,
        late_writes=moved(found.late_writes, count, extra, len(numbers)),
        presences=found.presences,
        grads_of=among(found.grads_of, _NOTHING) if found.grads_of else (),
        inputs=among(facts, CONSTANT),
        kept=kept(),
        keeps_undefined=any(keeps_undefined(node) for node, _ in history),
    )


def _unread_checks(effects: Effects) -> list[Returned]:
    """Results that nothing reads of operators that may raise, by their data or as eager's kernels
    refuse their dtypes: the graph returns them, so that whoever compiles it computes them, and
    raises as eager does."""
    tracer = effects.tracer
    if not tracer.may_raise:
        return []
    read = computed_from(tracer.node_of(item.value) for item in effects.from_function)
    return [Returned(x, None) for x in tracer.may_raise if tracer.node_of(x) not in read]


_NOTHING: frozenset[int] = frozenset()


def _inputs_without_gradient(effects: Effects) -> tuple[int, ...]:
    """Inputs that require grad to which autograd has no way from any result; none if that is so of
    all, as results of a leaf made inside require grad because an input does."""
    reached, stand_ins = {id(leaf) for leaf in leaves_reached(effects.ends)}, effects.stand_ins
    wanting = [place for place, item in enumerate(stand_ins) if item.leaf is not None]
    apart = tuple(place for place in wanting if id(stand_ins[place].leaf) not in reached)
    return () if len(apart) == len(wanting) else apart


def _sharing_raised_counters(effects: Effects) -> tuple[int, ...]:
    """Primals that share memory with one whose version counter alone is raised."""
    primals = effects.primals
    raised = {*effects.touched, *(shape.primal for shape in effects.reshapes)}
    storages = {storage_key(primals[index]) for index in raised if index < len(primals)}
    if not storages:
        return ()
    return tuple(
        index
        for index, tensor in enumerate(primals)
        if index not in raised and storage_key(tensor) in storages
    )


def _python_forms(symbolic: bool) -> AbstractContextManager[Any]:
    """The Python forms of composite operators where sizes are symbolic."""
    return python_dispatcher() if symbolic else nullcontext()


def _sized_views(
    item: _Planned, symbols: Sequence[Any], outputs: list[fx.Node], tracer: JointTracer
) -> _Planned:
    """The plan of a result, with what computes the sizes of its views at each call: of the symbols,
    of the sizes of the output that it is a view of, and of numbers by data that neither says: the
    graph returns them."""
    if not isinstance(item, View) or not mentions_symbols([(s.args, s.kwargs) for s in item.steps]):
        return item
    of_output = item.source.kind == "output"
    base = outputs[item.source.index].meta["val"] if of_output else None
    sizes: Sequence[Any] = base.shape if isinstance(base, torch.Tensor) else ()
    said: list[Any] = [expression_of(size) if is_symbolic(size) else None for size in sizes]
    parts = list(symbolic_parts([(step.args, step.kwargs.values()) for step in item.steps]))
    known: list[Any] = [*symbols]
    numbers: list[int] = []
    for symbol in sorted(data_symbols(parts) - {*symbols, *said}, key=str):
        number = tracer.sizes.node(symbolic_integer(symbol, parts[0]))
        if isinstance(number, fx.Node):
            numbers.append(len(outputs))
            outputs.append(as_tensor(number))
            known.append(symbol)
    steps = tuple(
        replace(step, sized=sized((step.args, step.kwargs), [*known, *said]))
        if mentions_symbols((step.args, step.kwargs))
        else step
        for step in item.steps
    )
    return replace(item, steps=steps, numbers=tuple(numbers))


def _metadata(program: InputProgram, position: int, inputs: Sequence[Any]) -> torch.Tensor:
    """What has the metadata of an input: the input, or what stands for it with open sizes."""
    stand_in = program.symbolic[position] if program.symbolic else None
    if isinstance(stand_in, torch.Tensor) and has_symbols(stand_in):
        return stand_in
    tensor: torch.Tensor = inputs[position]
    return tensor


def run_program(
    program: InputProgram,
    stand_ins: Sequence[FunctionalInput],
    plan: InputPlan,
    tracer: JointTracer,
    parts: Sequence[SyntheticBaseView] | None = None,
    sparse: list[Use] | None = None,
    stays_without_grad: bool = False,
) -> Any:
    """The program's results on these stand-ins, its arguments being bound by `plan`."""
    wrappers = [item.wrapper for item in stand_ins]
    if parts is None:
        parts = parts_of(plan, wrappers)
    wrappers.extend(part.wrapper for part in parts)
    args = arguments(plan, wrappers, len(program.input_names), parts, program.symbolic)
    static = wrappers[: plan.static]
    starts = {
        stand_ins[part.base].storage: part.merged.offset for part in parts if not part.merged.own
    }
    facts = {id(item.wrapper): item.facts for item in stand_ins}
    facts |= {id(x.wrapper): x.facts for x in parts if not x.member.whole}
    trace = Interception(
        tracer,
        facts,
        gaps=[(item.wrapper, item.value, 0) for item in stand_ins if has_gaps(item.value)],
        sparse=sparse,
        starts=starts,
        casts=AutocastCache(stand_ins),
        stays_without_grad=stays_without_grad,
    )
    tracer.input_hooks.histories = {id(item.wrapper): item.history for item in stand_ins}
    with torch.autograd.set_multithreading_enabled(False), InterceptMode(trace):
        return program.run(static, args, tracer)


def _offsets_relied_on(
    graph: fx.Graph, primals: Sequence[torch.Tensor]
) -> tuple[tuple[int, int], ...]:
    """Inputs that an `as_strided` may address by their storage rather than by their elements."""
    if not any("as_strided" in getattr(node.target, "__name__", "") for node in graph.nodes):
        return ()
    return tuple((index, int(tensor.storage_offset())) for index, tensor in enumerate(primals))


def _identifier(name: str) -> str:
    text = "".join(char if char.isalnum() else "_" for char in name)
    return text if text and not text[0].isdigit() else f"_{text}"
