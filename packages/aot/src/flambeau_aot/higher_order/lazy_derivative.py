"""Derivatives of a compiled program, compiled at first use or run eagerly.

In: a traced program, the way programs are compiled, values of its inputs and cotangents. Out:
gradients that can themselves be differentiated.
Invariant: nothing is traced or compiled before the first backward pass with `create_graph=True`. A
derivative that cannot be compiled is what eager does after the forward pass, which is run again on
copies of what the program writes to, but for what its backward part alone writes to.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from flambeau_aot._torch_compat import current_value, outside_tracing, pytree, without_autocast
from flambeau_aot.errors import AotError
from flambeau_aot.higher_order.derivative import (
    derivative,
    higher_order,
    own_inputs,
    plan_of,
    read_after_all,
    unread_input,
)
from flambeau_aot.inputs.binding import arguments, parts_of
from flambeau_aot.inputs.memory_overlap import reach, steps_from
from flambeau_aot.joint.dispatch_mode import JointTracer
from flambeau_aot.joint.program import InputProgram
from flambeau_aot.joint.trace import Joint
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime.ambient_state import Ambient, replayed
from flambeau_aot.runtime.call import Call, Compiled
from flambeau_aot.runtime.epilogue import replay
from flambeau_aot.runtime.pullbacks import Gradient, accumulated, pulled_back
from flambeau_aot.runtime.result_nodes import Request, ended, linked, still_there
from flambeau_aot.runtime.saved_values import (
    DerivativeCall,
    GradientLayout,
    HigherCall,
    HigherOrder,
    Place,
    as_traced,
)
from flambeau_aot.runtime.single_run import Run, gradients
from flambeau_aot.runtime_plan import FromFunction, FromGraph, View
from flambeau_aot.sizes import TensorLayout


def same_memory(given: torch.Tensor) -> torch.Tensor:
    """A tensor computed from one that requires grad, of the same memory, and no view of it."""
    with torch.enable_grad():
        same: torch.Tensor = _Same.apply(given)  # type: ignore[no-untyped-call]
        return same


class _Same(torch.autograd.Function):
    """The same memory; a gradient, sparse or not, is handed on as it is."""

    @staticmethod
    def forward(ctx: Any, given: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        return given.detach()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> torch.Tensor | None:
        return grads[0]


class _Undefined(torch.autograd.Function):
    """A value that gives what it is computed from undefined gradients."""

    @staticmethod
    def forward(ctx: Any, *given: torch.Tensor) -> torch.Tensor:
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[None, ...]:
        return (None,) * len(ctx.next_functions)


def _reason(request: Request) -> str:
    """The id of why a derivative runs eagerly."""
    known = {
        "AO0171": request.undefined,
        "AO0164": request.tangents,
        "AO0176": request.alive,
        "AO0178": request.changed,
        "AO0181": request.deferred is not None,
    }
    return next((id for id, holds in known.items() if holds), "AO0153")


def _ends(
    joint: Joint, results: Any, values: Mapping[int, torch.Tensor], symbols: Sequence[int]
) -> list[torch.Tensor | None]:
    """What the cotangents are of: results, bases of results, new values of inputs."""
    plan = joint.plan
    found: dict[int, Any] = {}
    flat, _ = pytree.tree_flatten(results)
    if len(flat) != len(plan.results):
        return [None] * len(plan.differentiable)
    for item, result in zip(plan.results, flat):
        if isinstance(item, View) and isinstance(result, torch.Tensor):
            base = result._base
            if base is None and item.output >= 0 and not item.numbers:
                base = found.get(item.output, _written_to(joint, item.output, symbols))
                with torch.enable_grad():
                    replay(base, item.steps, True, symbols).copy_(result)
            found.setdefault(item.output, base)
        elif isinstance(item, FromFunction):
            found[plan.visible + item.place] = result
    for item, result in zip(plan.results, flat):
        if isinstance(item, FromGraph):
            found[item.output] = result
    for update in plan.updates:
        if update.differentiable:
            found[update.output] = values[update.primal]
    ends = [found.get(place) for place in plan.differentiable]
    return [end if isinstance(end, torch.Tensor) else None for end in ends]


def _written_to(joint: Joint, output: int, symbols: Sequence[int]) -> torch.Tensor:
    """Memory for what eager made anew where the graph has views of an output: a formula of torch's
    may have another form where it reads elements, and only the graph's is free of that."""
    value = joint.outputs[output].meta["val"]
    return TensorLayout.of(value, joint.open_sizes).at(symbols).empty().zero_()


def _places(
    gradients: Sequence[Gradient], cotangents: Mapping[int, torch.Tensor], tracer: JointTracer
) -> list[GradientLayout]:
    """Where traced gradients lie, which may be cotangents or views of them."""
    known = {id(item): number for number, item in cotangents.items()}
    owners = {id(current_value(item)): ~number for number, item in cotangents.items()}
    found: list[GradientLayout] = []
    for number, grad in enumerate(gradients):
        if grad is None or id(grad) in known:
            found.append(None if grad is None else known[id(grad)])
            continue
        layout = tracer.layouts.of(grad)
        root, _ = steps_from(current_value(grad), tracer.view_of)
        with outside_tracing():
            start, plain = root.storage_offset(), not root.is_complex()
            whole = reach(root.shape, root.stride()) if root.numel() else 0
        mine = id(root) in owners or tracer.node_of(root).op != "placeholder"
        if not (mine and plain and root.dtype == layout.dtype):
            found.append(Place(layout.stride, number))
            continue
        owner = owners.setdefault(id(root), number)
        found.append(Place(layout.stride, owner, whole, layout.offset - start))
    return found


CompileProgram = Callable[[InputProgram, Sequence[Any]], Compiled]
TraceProgram = Callable[[InputProgram, Sequence[Any]], object]

LAYOUTS = 8
"""So many sets of layouts of cotangents are traced for one program."""


def warn_of(error: Exception) -> None:
    """Say that a derivative runs eagerly, and why."""
    warnings.warn(f"a derivative of a compiled program runs eagerly: {error}", stacklevel=2)


@dataclass
class Derivatives:
    """The derivatives of one compiled program, one for each set of cotangents that need grad.

    trace: traces a program and compiles nothing. laid: by the layouts of cotangents, those of the
    gradients. compiled: None for one that runs eagerly. `told`: is called with why, once for each.
    `apart`: makes of a function one that whoever has captured the program does not look into.
    observed: whether a pass has run eagerly for what the caller has put on results.
    """

    program: InputProgram
    joint: Joint
    ambience: Ambient
    compile: CompileProgram
    trace: TraceProgram
    name: str
    compiled: dict[Any, Compiled | None] = field(default_factory=dict)
    laid: dict[Any, Sequence[GradientLayout]] = field(default_factory=dict)
    told: Callable[[Exception], None] = field(default=warn_of)
    apart: Callable[[HigherCall], HigherCall] = field(default=lambda derive: derive)
    lock: threading.Lock = field(default_factory=threading.Lock)
    observed: bool = False

    def __post_init__(self) -> None:
        self.needed: HigherOrder = higher_order(self.program, self.joint, self.name)

    @property
    def higher(self) -> HigherOrder:
        """What they need, with this as the callable. It refers to this and not the reverse, so that
        what a program drops is gone without the collector."""
        return replace(self.needed, call=self, layouts=self.layouts)

    def __call__(self, call: DerivativeCall) -> Sequence[Gradient]:
        """Gradients, of those primals that have one, as part of the autograd graph.

        A derivative is compiled for each values of the open sizes, and for each set of defined
        cotangents; a pass that requests gradients of results runs eagerly.
        """
        grads = self.joint.grads[: len(self.joint.primals)]
        if not call.request and all(grad is None for grad in grads):
            return []
        return self.apart(self._derived)(call)

    def layouts(
        self, cotangents: Sequence[Gradient], symbols: Sequence[int]
    ) -> Sequence[GradientLayout]:
        """How eager lays out the gradients of those primals that have one, for cotangents laid out
        as these are; () where that is not known: of a program that cannot be run again, and from
        the ninth set of layouts on."""
        defined = tuple(place for place, x in enumerate(cotangents) if x is not None)
        known = [item.detach() for item in cotangents if item is not None]
        pattern = (defined, tuple(item.stride() for item in known), tuple(symbols))
        if self.needed.unrepeatable or self.joint.late_writes or self.joint.sparse:
            return ()
        if pattern not in self.laid and len(self.laid) < LAYOUTS:
            with self.lock:
                self.laid[pattern] = self._laid(known, symbols, defined)
        return self.laid.get(pattern, ())

    def _laid(
        self, cotangents: Sequence[torch.Tensor], symbols: Sequence[int], defined: Sequence[int]
    ) -> Sequence[GradientLayout]:
        """The same by a trace in which every input is a stand-in; () for what is not traced so."""
        unread = replace(self.needed, read=(), kept=())
        program = derivative(
            self.program, self.joint, unread, self.name, symbols, defined, create_graph=False
        )
        found: list[GradientLayout] = []

        def run(params: Sequence[torch.Tensor], args: Sequence[Any], tracer: JointTracer) -> Any:
            grads = program.run(params, args, tracer)
            found[:] = _places(grads, dict(zip(defined, args, strict=True)), tracer)
            return grads

        try:
            with self.ambience.restored(), torch.enable_grad():
                self.trace(replace(program, run=run), cotangents)
        except AotError:
            return ()
        return tuple(found)

    def _derived(self, call: DerivativeCall) -> Sequence[Gradient]:
        entry: Compiled | None = None
        known: Sequence[torch.Tensor] = ()
        in_turn = call.main is not None and still_there(call.main)
        if call.request or in_turn:
            if not self.observed:
                self.observed = True
                why = _reason(call.request) if call.request else "AO0176"
                self.told(refusal(why, name=self.name))
        else:
            entry, known = self._entry(call)
        with replayed(call.streams):
            if entry is None:
                return self._eager(call)
            try:
                grads: Sequence[Gradient] = entry(*call.read, *known)
            except _NotCompiled:
                return self._eager(call)
        return grads

    def _entry(self, call: DerivativeCall) -> tuple[Compiled | None, list[torch.Tensor]]:
        """The compiled derivative for what a call is given, and the cotangents that it takes; None
        where it is run eagerly. Gradients lie as eager's for eight sets of layouts of cotangents;
        others are laid out as they were traced."""
        pairs = enumerate(zip(call.cotangents, call.layouts, strict=True))
        given = [(place, x, layout) for place, (x, layout) in pairs if x is not None]
        defined, known = tuple(place for place, *_ in given), [x for _, x, _ in given]
        own = (defined, tuple(map(_standing, known)), tuple(call.symbols))
        if (*own, _lying(known)) not in self.compiled and len(self.compiled) >= LAYOUTS:
            known = [as_traced(x, layout) for _, x, layout in given]
        pattern = (*own, _lying(known))
        if pattern not in self.compiled:
            with self.lock:
                if pattern not in self.compiled:
                    entry = self._compiled_or_none([*call.read, *known], call.symbols, defined)
                    self.compiled[pattern] = entry
        return self.compiled[pattern], known

    def _eager(self, call: DerivativeCall) -> Sequence[Gradient]:
        """The gradients by a run of the program in eager, all in one where the call says so.

        Raises DoubleBackwardError where the program now does something else than when it was
        traced; else what the program raises.
        """
        joint, main, request = self.joint, None if call.request else call.main, call.request
        if main is not None and hasattr(main, "rerun"):
            return gradients(main, main.rerun.seeds(call.cotangents))
        handed = dict(zip(self.needed.handed, call.read, strict=True))
        own = own_inputs(joint, self.needed.static)
        kept = torch.is_grad_enabled()
        # what a gradient depends on in turn is led outside by one node, which knows of the results
        apart = kept and request is not None and not request.tangents
        through_checkpoints = bool(joint.plan.reentrant) and not kept
        leaves = main is not None or apart or through_checkpoints
        starts, values = self._inputs(own, handed, call.symbols, leaves)
        results = self._results([values[index] for index in own], call.symbols)
        ends = _ends(joint, results, values, call.symbols)
        pairs = self._pairs(ends, call.cotangents)
        wanted = [starts[index] for index in own if joint.grads[index] is not None]
        if main is not None:
            flat, _ = pytree.tree_flatten(results)
            kept_results = {place: flat[place] for place in joint.plan.kept_results}
            main.rerun = Run(ends, wanted, kept_results)
            return gradients(main, main.rerun.seeds(call.cotangents))
        flat, _ = pytree.tree_flatten(results)
        depended = {*joint.plan.depended, *joint.plan.kept_results} if request else ()
        inner = {place: flat[place] if place >= 0 else values[~place] for place in depended}
        whole: Mapping[int, Gradient] = request.whole if request else {}
        sources: list[tuple[torch.Tensor, torch.Tensor]] = []
        if apart:
            sources += self._outside(starts, handed)
            pairs = [(end, _as_leaf(gradient, sources)) for end, gradient in pairs]
            whole = {x: g if g is None else _as_leaf(g, sources) for x, g in whole.items()}
        if request and request.asked:
            whole = dict.fromkeys(request.asked)
            wanted = [inner[place] for place in request.asked]
        reached = [(end, item) for end, item in pairs if end.requires_grad]
        if request and request.deferred:
            later = request.deferred
            later.seeds, later.starts = reached, {at: starts[at] for at in own if joint.grads[at]}
            later.ends = {order: x for order, x in enumerate(ends) if x is not None}
            if apart:
                later.attach = lambda found: linked(request.main, found, inner, sources)
                later.enter = lambda gradient: _as_leaf(gradient, sources)
            return []
        if request and request.undefined:
            known = [end for end in ends if end is not None and end.requires_grad]
            with torch.enable_grad():
                nothing: torch.Tensor = _Undefined.apply(*known)  # type: ignore[no-untyped-call]
            reached = [(nothing, nothing.detach())]
        if not wanted or not reached:
            return [None] * len(wanted)
        with ended(whole, inner, [end for end, _ in reached]):
            if through_checkpoints:
                return accumulated(reached, wanted)
            found = pulled_back(reached, wanted, kept, retain_graph=kept)
        return linked(request.main, found, inner, sources) if request and apart else found

    def _outside(
        self, starts: Mapping[int, torch.Tensor], handed: Mapping[int, torch.Tensor]
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """What a run is differentiated by that has a history outside of it, with that."""
        for index, start in starts.items():
            if index in self.needed.read and index not in self.needed.kept and start.requires_grad:
                yield start, handed[index] if index in handed else self.joint.static[index]

    def _pairs(
        self, ends: Sequence[torch.Tensor | None], cotangents: Sequence[Gradient]
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """What a run has made, with the cotangents that there are."""
        given = [(x, g) for x, g in zip(ends, cotangents, strict=True) if g is not None]
        pairs = [(end, item) for end, item in given if end is not None]
        if len(pairs) < len(given) or any(end.shape != item.shape for end, item in pairs):
            raise refusal("AO0145", name=self.program.name)
        return pairs

    def _run_inside(
        self,
        known: Mapping[int, torch.Tensor],
        cotangents: Sequence[Gradient],
        symbols: Sequence[int],
    ) -> Sequence[Gradient]:
        """The gradients where a derivative of theirs is made by a run in eager: a part of it."""
        own = own_inputs(self.joint, self.needed.static)
        starts, values = self._inputs(own, known, symbols, leaves=False)
        results = self._results([values[index] for index in own], symbols)
        pairs = self._pairs(_ends(self.joint, results, values, symbols), cotangents)
        wanted = [starts[index] for index in own if self.joint.grads[index] is not None]
        reached = [(end, item) for end, item in pairs if end.requires_grad]
        if not wanted or not reached:
            return [None] * len(wanted)
        with without_autocast():
            return pulled_back(reached, wanted, kept=True)

    def _inputs(
        self,
        own: Sequence[int],
        known: Mapping[int, torch.Tensor],
        symbols: Sequence[int],
        leaves: bool,
    ) -> tuple[dict[int, torch.Tensor], dict[int, torch.Tensor]]:
        """By primal, what is differentiated by, and what the program is run on; `leaves`: the
        former are leaves, of no graph around the run."""
        starts: dict[int, torch.Tensor] = {}
        values: dict[int, torch.Tensor] = {}
        for index in own:
            if index in self.needed.read:
                given = known[index] if index in known else self.joint.static[index]
            else:
                given = unread_input(self.joint, index, symbols).zero_()
                given.requires_grad_(index in self.joint.wanting)
            apart = index in self.needed.kept or not given.requires_grad
            if apart and index in self.joint.wanting:  # the program may ask for a derivative by it
                given = given.detach().requires_grad_()
            if leaves and given.requires_grad:
                given = given.detach().requires_grad_()
            # what stands for an input: the hooks on the input are not this run's to call
            starts[index] = values[index] = same_memory(given) if given.requires_grad else given
            if index in self.joint.plan.written:
                with torch.enable_grad():
                    values[index] = starts[index].clone()
        return starts, values

    def _results(self, values: Sequence[torch.Tensor], symbols: Sequence[int]) -> Any:
        """What the program itself returns for these inputs, where nothing is merged."""
        plan = plan_of(self.joint, self.needed.static, symbols)
        parts = parts_of(plan, values)
        values = [*values, *(part.wrapper for part in parts)]
        args = arguments(plan, values, len(self.program.input_names), parts)
        with self.ambience.restored(), torch.set_grad_enabled(self.joint.plan.grad_mode):
            return self.program.untraced(values[: plan.static], args)

    def _compiled_or_none(
        self, examples: Sequence[torch.Tensor], symbols: Sequence[int], defined: Sequence[int]
    ) -> Compiled | None:
        """The compiled derivative; None, and `told` why, where it is run eagerly: a program that
        was compiled is differentiated whatever comes."""
        try:
            if self.joint.late_writes:
                raise refusal("AO0151", name=self.name)
            if self.joint.sparse:
                raise refusal("AO0152", name=self.name)
            compiled = self._compile(examples, symbols, defined)
            if not (self.joint.plan.linear or compiled.linear):
                raise refusal("AO0159", name=self.name)
            compiled.otherwise = self._otherwise
            return compiled
        except Exception as error:
            self.told(error)
            return None

    def _otherwise(self, error: Exception) -> Call:
        """The same for a call that the compiled derivative is not for, nor another one."""
        self.told(error)
        return _not_compiled

    def _compile(
        self, examples: Sequence[torch.Tensor], symbols: Sequence[int], defined: Sequence[int]
    ) -> Compiled:
        name = f"{self.name}_derivative"
        program = derivative(
            self.program,
            self.joint,
            self.needed,
            name,
            symbols,
            defined,
            eagerly=lambda known, cotangents: self._run_inside(known, cotangents, symbols),
        )
        # Objects of their own: that two cotangents are one tensor now holds for this call only.
        own = [_of_its_own(item) for item in examples]
        with self.ambience.restored():
            compiled = self.compile(program, own)
        assert compiled.joint is not None
        if read := read_after_all(compiled.joint):
            raise refusal("AO0154", name=self.name, read=", ".join(read))
        compiled.derive(self.told, self.apart)
        return compiled


def _as_leaf(
    gradient: torch.Tensor, sources: list[tuple[torch.Tensor, torch.Tensor]]
) -> torch.Tensor:
    """A gradient without its history, which is noted."""
    if not gradient.requires_grad:
        return gradient
    leaf = gradient.detach().requires_grad_()
    sources.append((leaf, gradient))
    return leaf


class _NotCompiled(Exception):
    """No derivative is compiled for what a call is given."""


def _not_compiled(*args: Any) -> Any:
    raise _NotCompiled


def _standing(cotangent: torch.Tensor) -> tuple[bool, bool]:
    """What autograd makes of a write to a cotangent, as a backward formula may do one."""
    return cotangent.requires_grad, cotangent.is_leaf


def _lying(tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    """How tensors lie."""
    return tuple(x.stride() for x in tensors)


def _of_its_own(example: torch.Tensor) -> torch.Tensor:
    """Another tensor of the same memory, a leaf exactly if this one is."""
    own = example.detach().requires_grad_(example.requires_grad)
    return own if example.is_leaf else same_memory(own)
