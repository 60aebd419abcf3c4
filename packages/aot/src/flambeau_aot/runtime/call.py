"""One call of a compiled program: prologue, graph, epilogue, or all inlined in one function.

In: a plan and the compiled graphs. Out: a callable on the program's inputs.
Invariant: the inference path makes no autograd object and takes no lock; the inlined call does what
prologue and epilogue do for its plan, and a plan with a part that it does not know is not inlined.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from flambeau_aot._torch_compat import (
    appliers,
    hooks_may_change_values,
    no_view,
    pytree,
    transforms_active,
)
from flambeau_aot.errors import AliasingChanged, AotError
from flambeau_aot.interface import Boxed, Report
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime.autograd_function import autograd_function
from flambeau_aot.runtime.codegen import defined, display, settling
from flambeau_aot.runtime.differentiation import Differentiation
from flambeau_aot.runtime.epilogue import epilogue
from flambeau_aot.runtime.gated_inputs import gated
from flambeau_aot.runtime.prologue import BoundPlan, prologue
from flambeau_aot.runtime.saved_values import HigherOrder
from flambeau_aot.runtime.unneeded_derivatives import none_of_a_user
from flambeau_aot.runtime_plan import (
    FromFunction,
    FromGraph,
    InputPlan,
    IsInput,
    LiteralResult,
    RuntimePlan,
    SymbolPlace,
)

if TYPE_CHECKING:
    from flambeau_aot.joint.trace import Joint
    from flambeau_aot.partition.split import Halves
    from flambeau_aot.serialize.saved_program import Stored

Call = Callable[..., Any]

_OWN = {
    "inputs", "results", "differentiable", "visible", "structure", "grad_mode", "partly",
    "inside", "apart", "watched", "reentrant", "linear",
    "recorded", "keeping", "raising", "users", "hook_order", "kept_results",
    "leaf_order", "result_order", "once",
}  # fmt: skip


@dataclass(frozen=True)
class StraightLine:
    """A call of a bound plan inlined in one function."""

    bound: BoundPlan

    @property
    def possible(self) -> bool:
        """Whether arguments are the graph's inputs, in order, and results its outputs or inputs."""
        plan, inputs = self.bound.plan, self.bound.plan.inputs
        open_numbers = {place.position for place in inputs.symbols if place.dim is None}
        tensors = tuple(p for p in range(self.bound.arguments) if p not in open_numbers)
        if inputs != InputPlan(inputs.static, tensors, symbols=inputs.symbols):
            return False
        return all(
            type(item) in (IsInput, LiteralResult, FromFunction)
            or (isinstance(item, FromGraph) and not item.leaf)
            for item in plan.results
        ) and not any(getattr(plan, each.name) for each in fields(plan) if each.name not in _OWN)

    def inputs(self, apart: Sequence[int] = ()) -> str:
        """The graph's inputs: static tensors, arguments, values of symbols; no edges to those in
        `apart`."""
        inputs = self.bound.plan.inputs
        tensors = [
            f"a{position}.detach()" if inputs.static + place in apart else f"a{position}"
            for place, position in enumerate(inputs.primals)
        ]
        static = ["*static"] if self.bound.static else []
        return ", ".join([*static, *tensors, *map(_symbol, inputs.symbols)])

    def primal(self, primal: int) -> str:
        """One of the graph's inputs."""
        inputs = self.bound.plan.inputs
        if primal < inputs.static:
            return f"static[{primal}]"
        return f"a{inputs.primals[primal - inputs.static]}"

    def function(self, graph: str, scope: dict[str, Any], checks: Sequence[str]) -> Call:
        """The call, by the text that runs the graph."""
        plan = self.bound.plan
        scope["static"] = tuple(self.bound.static)
        results: list[str] = []
        for place, item in enumerate(plan.results):
            if isinstance(item, FromGraph):
                results.append(f"outputs[{item.output}]")
            elif isinstance(item, IsInput):
                results.append(self.primal(item.primal))
            elif isinstance(item, FromFunction):
                results.append(f"outputs[{plan.visible + item.place}]")
            else:
                assert isinstance(item, LiteralResult)
                scope[f"literal{place}"] = item.value
                results.append(f"literal{place}")
        if plan.structure == pytree.tree_structure(tuple(results)):
            finish = display(results)
        elif plan.structure == pytree.tree_structure(None) and len(results) == 1:
            finish = results[0]
        else:
            scope["rebuild"], scope["structure"] = pytree.tree_unflatten, plan.structure
            finish = f"rebuild({display(results)}, structure)"
        names = ", ".join(f"a{index}" for index in range(self.bound.arguments))
        lines = [f"def compiled_graph({names}):", *checks]
        lines += [f"    outputs = {graph}", f"    return {finish}"]
        return defined("compiled_graph", lines, scope)


def inference_line(
    bound: BoundPlan, graph: Boxed, without_grad: Callable[[list[torch.Tensor]], None] | None
) -> Call | None:
    """The call without derivatives; `without_grad` is called first wherever grad is enabled."""
    line = StraightLine(bound)
    if not line.possible:
        return None
    scope: dict[str, Any] = {}
    scope["graph"] = settling(graph, scope, "graph")
    checks = []
    if without_grad is not None:
        scope["is_grad_enabled"], scope["without_grad"] = torch.is_grad_enabled, without_grad
        checks = ["    if is_grad_enabled():", f"        without_grad([{line.inputs()}])"]
    made = line.function(f"graph([{line.inputs()}])", scope, checks)
    made.straight = True  # type: ignore[attr-defined]
    return made


def training_line(
    bound: BoundPlan,
    own: Differentiation,
    function: type[torch.autograd.Function],
    uncompiled: Call,
) -> Call | None:
    """The call that autograd can differentiate."""
    line, plan = StraightLine(bound), bound.plan
    if not line.possible or not plan.grad_mode:
        return None
    if any(primal < plan.inputs.static for primal in plan.apart):
        return None
    general, direct = appliers(function)
    scope: dict[str, Any] = {"general": general, "direct": direct}
    scope["transforms_active"] = transforms_active
    scope["hooks_may_change_values"], scope["uncompiled"] = hooks_may_change_values, uncompiled
    names = ", ".join(f"a{index}" for index in range(bound.arguments))
    checks = ["    if hooks_may_change_values():", f"        return uncompiled({names})"]
    partly = plan.partly_given
    if plan.gates:
        scope["with_gates"] = _training_steps(bound, own, function)
        tests = " and ".join(f"{line.primal(primal)}.is_leaf" for primal in plan.gates)
        checks += [f"    if not ({tests}):", f"        return with_gates({names})"]
    if partly:
        scope["partly"], scope["none_of_a_user"] = partly, none_of_a_user
        tests = " and ".join(f"{line.primal(primal)}.is_leaf" for primal, _ in partly)
        checks += [f"    if not ({tests}):", f"        none_of_a_user(partly, [{line.inputs()}])"]
    chosen = "(general if transforms_active() else direct)"
    made = line.function(f"{chosen}({line.inputs(plan.apart)})", scope, checks)
    # whoever compiles it for other arguments has to be notified
    made.straight = not partly  # type: ignore[attr-defined]
    return made


def _symbol(place: SymbolPlace) -> str:
    if place.dim is None:
        return f"a{place.position}"
    return f"a{place.position}.{'stride' if place.stride else 'size'}({place.dim})"


class Uncompiled:
    """What runs in the place of a compiled program where hooks on saved tensors are in force: eager
    gives them each tensor that an operator saves, and the compiled program saves others.

    run: the program as eager runs it; None where it was loaded without its source. of: the compiled
    program, whose `otherwise` has precedence.
    """

    def __init__(self, run: Call | None) -> None:
        self.of: Callable[[], Compiled | None] = lambda: None
        self._run = run
        self._made: Call | None = None

    def __call__(self, *args: Any) -> Any:
        if self._made is None:
            error, compiled = refusal("AO0167"), self.of()
            if compiled is not None and compiled.otherwise is not None:
                self._made = compiled.otherwise(error)
            elif self._run is None:
                raise error
            else:
                warnings.warn(str(error), stacklevel=2)
                self._made = self._run
        return self._made(*args)


@dataclass(eq=False, repr=False)
class Compiled:
    """A compiled program: call it with the program's inputs, in order.

    report: what the compile did. joint, halves: the traced graph and its cut (None without a
    backward part). forward, backward: the graphs the compilers were given. again: compiles the
    program for other inputs; `variants` are those made for arguments that share memory in another
    way than the first. otherwise: from why the program cannot run compiled to what runs in its
    place, for arguments that no variant is for, and under hooks on saved tensors; None: the error
    is raised, or the program run as it is. stored:
    what `restore` makes it from again in another process. Of a restored program joint, halves,
    forward and backward are None.
    """

    run: Call
    report: Report
    joint: Joint | None
    halves: Halves | None
    forward: fx.GraphModule | None
    backward: fx.GraphModule | None
    again: Callable[[Sequence[Any]], Compiled] | None = None
    stored: Stored | None = None
    higher: HigherOrder | None = field(default=None, init=False)
    otherwise: Callable[[Exception], Call] | None = field(default=None, init=False)
    variants: list[Compiled] = field(default_factory=list, init=False)
    _uncompiled: Call | None = field(default=None, init=False)
    _sizes: list[Any] = field(default_factory=list, init=False)

    def __call__(self, *args: Any) -> Any:
        try:
            return self.run(*args)
        except AliasingChanged:
            if self.again is None:
                raise
        return self._variant(args)

    @property
    def linear(self) -> bool:
        """Whether no derivative of a user's leads to the results but for linear ones; one run of a
        part of a gradient then adds up with another."""
        return self.joint is not None and self.joint.plan.linear

    def derive(
        self, told: Callable[[Exception], None], apart: Callable[[Call], Call] | None = None
    ) -> None:
        """How derivatives of higher order are made: `told` is called, in place of a warning, with
        why one runs eagerly; `apart` hides a function from whoever has captured the program."""
        derivatives: Any = None if self.higher is None else self.higher.call
        if hasattr(derivatives, "told"):
            derivatives.told = told
            derivatives.apart = apart or derivatives.apart

    def _variant(self, args: tuple[Any, ...]) -> Any:
        """The same program compiled for arguments that share memory in another way."""
        # a variant leaves no size open
        sizes: tuple[Any, ...] = ()
        if self._leaves_sizes_open():
            sizes = tuple((x.shape, x.stride()) if isinstance(x, torch.Tensor) else x for x in args)
        for variant, own in zip(self.variants, self._sizes, strict=True):
            if own != sizes:
                continue
            try:
                return variant.run(*args)
            except AliasingChanged as difference:
                del difference
        if self._uncompiled is None:
            assert self.again is not None
            try:
                variant = self.again(args)
            except Exception as error:
                if self.otherwise is None:
                    raise
                self._uncompiled = self.otherwise(error)
            else:
                variant.otherwise = self.otherwise
                self.variants.append(variant)
                self._sizes.append(sizes)
                return variant.run(*args)
        return self._uncompiled(*args)

    def _leaves_sizes_open(self) -> bool:
        if self.joint is not None:
            return bool(self.joint.symbols)
        return self.stored is not None and bool(self.stored.plan.inputs.symbols)


def direct(compiled: Compiled) -> Compiled:
    """The same object; where its call is one generated function, calling it adds no frame.

    Python looks `__call__` up on the type, so such an object gets a type of its own.
    """
    if getattr(compiled.run, "straight", False):
        kind = type("Compiled", (Compiled,), {"__call__": staticmethod(compiled.run)})
        compiled.__class__ = kind
        # a class is in a cycle with itself: what it holds is to go with its one instance
        weakref.finalize(compiled, delattr, kind, "__call__").atexit = False
    return compiled


def inference_call(
    bound: BoundPlan, call: Boxed, grad_mode: bool, shield: bool, uncompiled: Call
) -> Call:
    """A call without derivatives.

    grad_mode: whether it was traced with grad enabled. shield: whether an input requires grad all
    the same, so that the graph must run with grad disabled.
    """
    plan = bound.plan
    shield &= grad_mode
    if not (shield or plan.recorded):
        straight = inference_line(bound, call, None if grad_mode else _refuse_grad)
        if straight is not None:
            return straight
    bind, finish, build = prologue(bound, in_place=True), epilogue(plan), _structure(plan)
    count, handed = plan.inputs.bound, plan.handed

    def run(*args: Any) -> Any:
        primals = bind(args)
        if not grad_mode and torch.is_grad_enabled():
            _refuse_grad(primals)
        if finish is None:
            return build(call(primals))
        return build(finish(primals, call(primals[:count])))

    def run_shielded(*args: Any) -> Any:
        primals = bind(args)
        with torch.no_grad():
            found = call(primals[:count])
        outputs = [no_view(item) if at in handed else item for at, item in enumerate(found)]
        return build(outputs if finish is None else finish(primals, outputs))

    own = run_shielded if shield else run
    if not plan.recorded:
        return own

    def run_or_save(*args: Any) -> Any:
        # eager saves what no result leads to, too
        return uncompiled(*args) if hooks_may_change_values() else own(*args)

    return run_or_save


def training_call(
    bound: BoundPlan, own: Differentiation, forward: Boxed, backward: Boxed, uncompiled: Call
) -> Call:
    """A call that autograd can differentiate."""
    function, life = autograd_function(own, forward, backward)
    call = training_line(bound, own, function, uncompiled)
    if call is None:
        steps = _training_steps(bound, own, function)

        def call(*args: Any) -> Any:
            return uncompiled(*args) if hooks_may_change_values() else steps(*args)

    call.life = life  # type: ignore[attr-defined]
    return call


def _training_steps(
    bound: BoundPlan, own: Differentiation, function: type[torch.autograd.Function]
) -> Call:
    """The call that autograd can differentiate, step by step."""
    plan = bound.plan
    bind, finish, build = prologue(bound), epilogue(plan, own.result_nodes()), _structure(plan)
    count, apart, once, gates = plan.inputs.bound, plan.apart, plan.once, plan.gates
    shown = plan.visible + len(plan.inside)
    general, direct = appliers(function)

    def apply(*primals: Any) -> Any:
        outputs = (general if transforms_active() else direct)(*primals)
        return outputs[:shown] if once else outputs

    def given(primals: Sequence[Any]) -> list[Any]:
        """The graph's inputs; there is no edge to those that no result depends on."""
        inputs = gated(primals[:count], gates)
        for place in apart:
            inputs[place] = inputs[place].detach()
        return inputs

    def run(*args: Any) -> Any:
        primals = bind(args)
        outputs = apply(*(given(primals) if apart or gates else primals))
        return build(outputs if finish is None else finish(primals, outputs))

    def run_merged(*args: Any) -> Any:
        primals = bind(args)
        with torch.enable_grad():
            outputs = apply(*given(primals))
        return build(outputs if finish is None else finish(primals, outputs))

    plain = run_merged if plan.inputs.merged or not plan.grad_mode else run
    if finish is None or not own.watched_after:
        return plain
    end, first = finish, plan.differentiable[0]

    def run_watched(*args: Any) -> Any:
        primals = bind(args)
        with torch.set_grad_enabled(plain is run_merged or torch.is_grad_enabled()):
            outputs = apply(*given(primals))
        node = outputs[first].grad_fn
        results = end(primals, outputs)
        own.watch_from_now(node)
        return build(results)

    return run_watched


def _structure(plan: RuntimePlan) -> Callable[[Sequence[Any]], Any]:
    """Results as the program returned them; a flat tuple needs no rebuilding."""
    structure = plan.structure
    flat = pytree.tree_structure(tuple(range(len(plan.results))))
    if structure == flat:
        return tuple
    return lambda values: pytree.tree_unflatten(list(values), structure)


def _refuse_grad(primals: Sequence[Any]) -> None:
    if any(isinstance(x, torch.Tensor) and x.requires_grad for x in primals):
        raise AotError(
            "this program was compiled with grad disabled and is called with grad enabled"
        )
