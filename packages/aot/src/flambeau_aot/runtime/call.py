"""One call of a compiled program: prologue, graph, epilogue, or all inlined in one function.

In: a plan and the compiled graphs. Out: a callable on the program's inputs.
Invariant: the inference path makes no autograd object and takes no lock; the inlined call does what
prologue and epilogue do for its plan, and a plan with a part that it does not know is not inlined.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from flambeau_aot._torch_compat import appliers, no_view, pytree
from flambeau_aot.errors import AliasingChanged, AotError
from flambeau_aot.interface import Boxed, Report
from flambeau_aot.runtime.autograd_function import autograd_function, result_nodes, watch_from_now
from flambeau_aot.runtime.codegen import defined, display, settling
from flambeau_aot.runtime.epilogue import Epilogue, epilogue
from flambeau_aot.runtime.prologue import prologue, still_leaves
from flambeau_aot.runtime.saved_values import Crossing, HigherOrder
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

_OWN_PARTS = {
    "inputs", "results", "differentiable", "visible", "structure", "grad_mode", "leaves", "inside",
    "apart", "watched", "reentrant", "linear",
}  # fmt: skip


def is_straight(plan: RuntimePlan, arguments: int) -> bool:
    """Whether arguments are the graph's inputs, in order, and results its outputs or inputs."""
    inputs = plan.inputs
    open_numbers = {place.position for place in inputs.symbols if place.dim is None}
    tensors = tuple(p for p in range(arguments) if p not in open_numbers)
    if inputs != InputPlan(inputs.static, tensors, symbols=inputs.symbols):
        return False
    if not all(
        item in (FromGraph(getattr(item, "output", -1)), IsInput(getattr(item, "primal", -1)))
        or type(item) in (LiteralResult, FromFunction)
        for item in plan.results
    ):
        return False
    return not any(getattr(plan, part.name) for part in fields(plan) if part.name not in _OWN_PARTS)


def inference_line(
    plan: RuntimePlan,
    static: Sequence[torch.Tensor],
    arguments: int,
    graph: Boxed,
    without_grad: Callable[[list[torch.Tensor]], None] | None,
) -> Call | None:
    """The call without derivatives; `without_grad` is called first wherever grad is enabled."""
    if not is_straight(plan, arguments):
        return None
    scope: dict[str, Any] = {}
    scope["graph"] = settling(graph, scope, "graph")
    inputs = _inputs(plan, static)
    checks = []
    if without_grad is not None:
        scope["is_grad_enabled"], scope["without_grad"] = torch.is_grad_enabled, without_grad
        tensors = ", ".join([*_statics(static), *_tensors(plan)])
        checks = ["    if is_grad_enabled():", f"        without_grad([{tensors}])"]
    made = _call(plan, static, arguments, f"graph([{inputs}])", scope, checks)
    made.straight = True  # type: ignore[attr-defined]
    return made


def training_line(
    plan: RuntimePlan,
    static: Sequence[torch.Tensor],
    arguments: int,
    function: type[torch.autograd.Function],
) -> Call | None:
    """The call that autograd can differentiate."""
    if not is_straight(plan, arguments) or not plan.grad_mode:
        return None
    if any(primal < plan.inputs.static for primal in plan.apart):
        return None
    general, direct, transforms_active = appliers(function)
    scope: dict[str, Any] = {"general": general, "direct": direct}
    scope["transforms_active"] = transforms_active
    inputs = _inputs(plan, static)
    chosen = "(general if transforms_active() else direct)"
    checks = []
    if plan.leaves:
        scope["leaves"], scope["still_leaves"] = plan.leaves, still_leaves
        tests = " and ".join(f"{_primal(plan, primal)}.is_leaf" for primal in plan.leaves)
        checks = [f"    if not ({tests}):", f"        still_leaves(leaves, [{inputs}])"]
    given = _inputs(plan, static, plan.apart)
    made = _call(plan, static, arguments, f"{chosen}({given})", scope, checks)
    # whoever compiles it for other arguments has to be notified
    made.straight = not plan.leaves  # type: ignore[attr-defined]
    return made


def _call(
    plan: RuntimePlan,
    static: Sequence[torch.Tensor],
    arguments: int,
    graph: str,
    scope: dict[str, Any],
    checks: Sequence[str] = (),
) -> Call:
    scope["static"] = tuple(static)
    results: list[str] = []
    for place, item in enumerate(plan.results):
        if isinstance(item, FromGraph):
            results.append(f"outputs[{item.output}]")
        elif isinstance(item, IsInput):
            results.append(_primal(plan, item.primal))
        elif isinstance(item, FromFunction):
            results.append(f"outputs[{plan.visible + item.place}]")
        else:
            assert isinstance(item, LiteralResult)
            scope[f"literal{place}"] = item.value
            results.append(f"literal{place}")
    flat = pytree.tree_structure(tuple(results))
    if plan.structure == flat:
        finish = f"return {display(results)}"
    elif plan.structure == pytree.tree_structure(None) and len(results) == 1:
        finish = f"return {results[0]}"
    else:
        scope["rebuild"], scope["structure"] = pytree.tree_unflatten, plan.structure
        finish = f"return rebuild({display(results)}, structure)"
    names = ", ".join(_names(arguments))
    lines = [f"def compiled_graph({names}):", *checks]
    lines += [f"    outputs = {graph}", f"    {finish}"]
    return defined("compiled_graph", lines, scope)


def _names(arguments: int) -> list[str]:
    return [f"a{index}" for index in range(arguments)]


def _statics(static: Sequence[torch.Tensor]) -> list[str]:
    return ["*static"] if static else []


def _tensors(plan: RuntimePlan, apart: Sequence[int] = ()) -> list[str]:
    return [
        f"a{position}.detach()" if plan.inputs.static + place in apart else f"a{position}"
        for place, position in enumerate(plan.inputs.primals)
    ]


def _inputs(plan: RuntimePlan, static: Sequence[torch.Tensor], apart: Sequence[int] = ()) -> str:
    """The graph's inputs: static tensors, arguments, values of symbols; no edges to those in
    `apart`."""
    symbols = [_symbol(place) for place in plan.inputs.symbols]
    return ", ".join([*_statics(static), *_tensors(plan, apart), *symbols])


def _symbol(place: SymbolPlace) -> str:
    if place.dim is None:
        return f"a{place.position}"
    return f"a{place.position}.{'stride' if place.stride else 'size'}({place.dim})"


def _primal(plan: RuntimePlan, primal: int) -> str:
    static = plan.inputs.static
    if primal < static:
        return f"static[{primal}]"
    return f"a{plan.inputs.primals[primal - static]}"


class Compiled:
    """A compiled program: call it with the program's inputs, in order.

    report: what the compile did. joint, halves: the traced graph and its cut (None without a
    backward part). forward, backward: the graphs the compilers were given. again: compiles the
    program for other inputs; `variants` are those made for arguments that share memory in another
    way than the first. otherwise: from why the program cannot be compiled again to what runs in its
    place from then on, for arguments that no variant is for; None: the error is raised. stored:
    what `restore` makes it from again in another process. Of a restored program joint, halves,
    forward and backward are None.
    """

    def __init__(
        self,
        run: Call,
        report: Report,
        joint: Joint | None,
        halves: Halves | None,
        forward: fx.GraphModule | None,
        backward: fx.GraphModule | None,
        again: Callable[[Sequence[Any]], Compiled] | None = None,
        stored: Stored | None = None,
    ) -> None:
        self.run = run
        self.report = report
        self.joint = joint
        self.halves = halves
        self.forward = forward
        self.backward = backward
        self.again = again
        self.stored = stored
        self.higher: HigherOrder | None = None
        self.otherwise: Callable[[Exception], Call] | None = None
        self.variants: list[Compiled] = []
        self._uncompiled: Call | None = None
        self._sizes: list[Any] = []

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
        sizes = tuple(map(_layout_of, args)) if self._leaves_sizes_open() else ()
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
                self.variants.append(variant)
                self._sizes.append(sizes)
                return variant.run(*args)
        return self._uncompiled(*args)

    def _leaves_sizes_open(self) -> bool:
        if self.joint is not None:
            return bool(self.joint.symbols)
        return self.stored is not None and bool(self.stored.plan.inputs.symbols)


def _layout_of(value: Any) -> Any:
    """A tensor's sizes and strides; anything else as it is."""
    return (value.shape, value.stride()) if isinstance(value, torch.Tensor) else value


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
    plan: RuntimePlan,
    static: Sequence[torch.Tensor],
    arguments: int,
    call: Boxed,
    grad_mode: bool,
    shield: bool,
) -> Call:
    """A call without derivatives.

    grad_mode: whether it was traced with grad enabled. shield: whether an input requires grad all
    the same, so that the graph must run with grad disabled.
    """
    if not (grad_mode and shield):
        refuse = None if grad_mode else _refuse_grad
        straight = inference_line(plan, static, arguments, call, refuse)
        if straight is not None:
            return straight
    bind = prologue(plan, static, arguments, in_place=True)
    finish = epilogue(plan)
    build = _structure(plan)
    bound = plan.inputs.bound

    def run(*args: Any) -> Any:
        primals = bind(args)
        if not grad_mode and torch.is_grad_enabled():
            _refuse_grad(primals)
        if finish is None:
            return build(call(primals))
        return build(finish(primals, call(primals[:bound])))

    handed = plan.handed

    def run_shielded(*args: Any) -> Any:
        primals = bind(args)
        with torch.no_grad():
            found = call(primals[:bound])
        outputs = [no_view(item) if at in handed else item for at, item in enumerate(found)]
        return build(outputs if finish is None else finish(primals, outputs))

    return run_shielded if shield and grad_mode else run


def training_call(
    plan: RuntimePlan,
    static: Sequence[torch.Tensor],
    arguments: int,
    forward: Boxed,
    backward: Boxed,
    crossing: Crossing,
    higher: HigherOrder | None,
) -> Call:
    """A call that autograd can differentiate."""
    function, life = autograd_function(forward, backward, crossing, higher)
    call = training_line(plan, static, arguments, function) or _training_steps(
        plan, static, arguments, crossing, higher, function
    )
    call.life = life  # type: ignore[attr-defined]
    return call


def _training_steps(
    plan: RuntimePlan,
    static: Sequence[torch.Tensor],
    arguments: int,
    crossing: Crossing,
    higher: HigherOrder | None,
    function: type[torch.autograd.Function],
) -> Call:
    """The call that autograd can differentiate, step by step."""
    bind = prologue(plan, static, arguments)
    shown = crossing.visible + len(crossing.inside)

    def apply(*primals: Any) -> Any:
        outputs = function.apply(*primals)  # type: ignore[no-untyped-call]
        return outputs[:shown] if crossing.once else outputs

    finish: Epilogue | None = epilogue(plan, result_nodes(plan.result_nodes, crossing, higher))
    build = _structure(plan)
    bound = plan.inputs.bound

    apart = plan.apart

    def given(primals: Sequence[Any]) -> list[Any]:
        """The graph's inputs; there is no edge to those that no result depends on."""
        inputs = list(primals[:bound])
        for place in apart:
            inputs[place] = inputs[place].detach()
        return inputs

    def run(*args: Any) -> Any:
        primals = bind(args)
        outputs = apply(*(given(primals) if apart else primals))
        return build(outputs if finish is None else finish(primals, outputs))

    def run_merged(*args: Any) -> Any:
        primals = bind(args)
        with torch.enable_grad():
            outputs = apply(*given(primals))
        return build(outputs if finish is None else finish(primals, outputs))

    plain = run_merged if plan.inputs.merged or not plan.grad_mode else run
    if finish is None or not crossing.watched_after:
        return plain
    end, first = finish, plan.differentiable[0]

    def run_watched(*args: Any) -> Any:
        primals = bind(args)
        with torch.set_grad_enabled(plain is run_merged or torch.is_grad_enabled()):
            outputs = apply(*given(primals))
        node = outputs[first].grad_fn
        results = end(primals, outputs)
        watch_from_now(node, crossing, primals)
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
