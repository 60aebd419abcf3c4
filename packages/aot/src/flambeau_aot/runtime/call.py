"""One call of a compiled program: prologue, graph, epilogue.

What comes in: a plan and the compiled graphs. What goes out: a callable on the program's inputs.
Invariant: the inference path makes no autograd object and takes no lock.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from flambeau_aot._torch_compat import no_view, pytree
from flambeau_aot.errors import AliasingChanged, AotError
from flambeau_aot.info import Boxed
from flambeau_aot.plan import RuntimePlan
from flambeau_aot.report import Report
from flambeau_aot.runtime.autograd_function import (
    Crossing,
    HigherOrder,
    autograd_function,
    result_nodes,
    watch_from_now,
)
from flambeau_aot.runtime.epilogue import Epilogue, epilogue
from flambeau_aot.runtime.inline_call import inference_line, training_line
from flambeau_aot.runtime.prologue import prologue

if TYPE_CHECKING:  # what a loaded program runs on knows nothing of tracing
    from flambeau_aot.joint.trace import Joint
    from flambeau_aot.partition.split import Halves
    from flambeau_aot.serialize.saved_program import Stored

Call = Callable[..., Any]


class Compiled:
    """A compiled program: call it with the program's inputs, in order.

    report: what the compile did. joint, halves: the traced graph and its cut (None without a
    backward part). forward, backward: the graphs the compilers were given. again: compiles the
    program for other inputs; `variants` are those made for arguments that share memory in
    another way than the first. otherwise: from why the program cannot be compiled again to what
    runs in its place from then on, for arguments that no variant is for; None: the error is raised.
    stored: what `restore` makes it from again in another process.
    Of a restored program joint, halves, forward and backward are None.
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
        """Whether no derivative of a user's is behind the results but for linear ones; one run of
        a part of a gradient then adds up with another."""
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

    grad_mode: whether it was traced with grad enabled. shield: whether an input requires grad
    all the same, so that the graph must run with grad disabled.
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
    apply: Callable[..., Any] = function.apply
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
