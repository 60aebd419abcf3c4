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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from flambeau_aot._torch_compat import expression_of, pytree
from flambeau_aot.errors import AotError
from flambeau_aot.higher_order.control_flow import NAMESPACE as BRANCHES
from flambeau_aot.higher_order.derivative import (
    Needs,
    derivative,
    needs,
    own_inputs,
    plan_of,
    read_after_all,
)
from flambeau_aot.joint.program import InputProgram
from flambeau_aot.joint.source_lines import Lines
from flambeau_aot.joint.trace import Joint
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime.ambient_state import Ambient, Streams, replayed
from flambeau_aot.runtime.call import Compiled
from flambeau_aot.runtime.result_nodes import Gradient, Request, ended, linked
from flambeau_aot.runtime.saved_values import HigherOrder
from flambeau_aot.runtime.single_run import Run, gradients
from flambeau_aot.runtime_plan import FromFunction, FromGraph, InputPlan, ViewOfOutput
from flambeau_aot.sizes import sized


@dataclass(frozen=True)
class _Untraced:
    """In the place of a tracer, for a program that is not traced."""

    lines: Lines = field(default_factory=Lines)


def eager_derivative(
    program: InputProgram,
    joint: Joint,
    needed: Needs,
    ambience: Ambient,
    read: Sequence[torch.Tensor],
    cotangents: Sequence[torch.Tensor | None],
    symbols: Sequence[int] = (),
    request: Request | None = None,
    main: Any = None,
) -> Sequence[torch.Tensor | None]:
    """Gradients of those primals that have one, as part of the autograd graph if grad is enabled.

    read: the primals of `needed.handed`. request: what is wanted where results depend on others.
    main: the node of the call, where all is to be differentiated in one run of the program. Raises
    DoubleBackwardError where the program now does something else than when it was traced; else what
    the program raises.
    """
    if main is not None and hasattr(main, "rerun"):
        return gradients(main, main.rerun.seeds(cotangents))
    constants = len(joint.static) - needed.statics
    plan = plan_of(joint, constants, symbols)
    own = own_inputs(joint, needed)
    handed = iter(read)
    starts: dict[int, torch.Tensor] = {}
    values: dict[int, torch.Tensor] = {}
    for index in own:
        if index in needed.read:
            given = next(handed) if index in needed.handed else joint.static[index]
        else:
            given = _like(joint, index, symbols)
        if main is not None and given.requires_grad:
            given = given.detach().requires_grad_()
        # what stands for an input: the hooks on the input are not this run's to call
        starts[index] = values[index] = same_memory(given) if given.requires_grad else given
        if index in joint.plan.written:
            with torch.enable_grad():
                values[index] = starts[index].clone()
    ordered = [values[index] for index in own]
    args = _arguments(plan, ordered, len(program.input_names))
    try:
        with ambience.restored(), torch.set_grad_enabled(joint.plan.grad_mode):
            results = program.run(ordered[: plan.static], args, _Untraced())  # type: ignore[arg-type]
    except AotError as error:
        raise (error.__cause__ or error) from None
    ends = _ends(joint, results, values)
    pairs = [(end, item) for end, item in zip(ends, cotangents, strict=True) if item is not None]
    if any(end is None or end.shape != item.shape for end, item in pairs):
        raise refusal("AO0145", name=program.name)
    if main is not None:
        by = [starts[index] for index in own if joint.grads[index] is not None]
        main.rerun = Run(ends, by)
        return gradients(main, main.rerun.seeds(cotangents))
    flat, _ = pytree.tree_flatten(results)
    create_graph = torch.is_grad_enabled()
    wanted = [starts[index] for index in own if joint.grads[index] is not None]
    depended = joint.plan.depended if request else ()
    inner = {place: flat[place] if place >= 0 else values[~place] for place in depended}
    whole: Mapping[int, Gradient] = request.whole if request else {}
    if request and request.asked:
        whole = dict.fromkeys(request.asked)
        wanted = [inner[place] for place in request.asked]
    reached = [(end, item) for end, item in pairs if end is not None and end.requires_grad]
    if not wanted or not reached:
        return [None] * len(wanted)
    with torch.enable_grad(), ended(whole, inner):
        found = torch.autograd.grad(
            [end for end, _ in reached],
            wanted,
            [item for _, item in reached],
            create_graph=create_graph,
            allow_unused=True,
        )
    return linked(request.main, found, inner) if request and create_graph else found


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


def _like(joint: Joint, index: int, symbols: Sequence[int]) -> torch.Tensor:
    """Zeros of the metadata of an input whose elements no gradient depends on."""
    value = joint.primals[index].meta["val"]
    open_sizes = [expression_of(node.meta["val"]) for node in joint.symbols]
    shape, stride = sized((tuple(value.shape), tuple(value.stride())), open_sizes)(symbols)
    made = torch.empty_strided(shape, stride, dtype=value.dtype, device=value.fake_device)
    return made.zero_().requires_grad_(index in joint.wanting)


def _arguments(plan: InputPlan, values: Sequence[torch.Tensor], count: int) -> list[Any]:
    """The program's arguments, where nothing is merged."""
    args: list[Any] = [None] * count
    for place, position in enumerate(plan.primals):
        args[position] = values[plan.static + place]
    for position, primal in plan.duplicates:
        args[position] = values[primal]
    for position, value in plan.literals:
        args[position] = value
    return args


def _ends(
    joint: Joint, results: Any, values: Mapping[int, torch.Tensor]
) -> list[torch.Tensor | None]:
    """What the cotangents are of: results, bases of results, new values of inputs."""
    plan = joint.plan
    found: dict[int, Any] = {}
    flat, _ = pytree.tree_flatten(results)
    if len(flat) != len(plan.results):
        return [None] * len(plan.differentiable)
    for item, result in zip(plan.results, flat):
        if isinstance(item, ViewOfOutput) and isinstance(result, torch.Tensor):
            found.setdefault(item.output, result._base)
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


Derive = Callable[..., Sequence[torch.Tensor | None]]
CompileProgram = Callable[[InputProgram, Sequence[Any]], Compiled]


def warn_of(error: Exception) -> None:
    """Say that a derivative runs eagerly, and why."""
    warnings.warn(f"a derivative of a compiled program runs eagerly: {error}", stacklevel=2)


@dataclass
class Derivatives:
    """The derivatives of one compiled program, one for each set of cotangents that need grad.

    compiled: None for one that runs eagerly. `told`: is called with why, once for each. `apart`:
    makes of a function one that whoever has captured the program does not look into. observed:
    whether a pass has run eagerly for what the caller has put on results.
    """

    program: InputProgram
    joint: Joint
    ambience: Ambient
    compile: CompileProgram
    name: str
    compiled: dict[Any, Compiled | None] = field(default_factory=dict)
    told: Callable[[Exception], None] = field(default=warn_of)
    apart: Callable[[Derive], Derive] = field(default=lambda derive: derive)
    lock: threading.Lock = field(default_factory=threading.Lock)
    observed: bool = False

    def __post_init__(self) -> None:
        self.needs: Needs = needs(self.program, self.joint)

    def refused(self) -> AotError | None:
        """Why there is no derivative; None where there is one."""
        name, plan = self.name, self.joint.plan
        if self.needs.written:
            names = ", ".join(self.joint.primals[index].name for index in self.needs.written)
            return refusal("AO0147", name=name, names=names)
        if plan.inputs.merged or plan.begin_grad or plan.end_grad:
            return refusal("AO0148", name=name)
        if any(getattr(n.target, "namespace", "") == BRANCHES for n in self.joint.graph.nodes):
            return refusal("AO0149", name=name)
        if self.needs.unrepeatable:
            return refusal("AO0150", name=name, draws=", ".join(self.needs.unrepeatable))
        return None

    def uncompiled(self) -> AotError | None:
        """Why the derivative is not compiled, though there is one; None where it is."""
        if self.joint.late_writes:
            return refusal("AO0151", name=self.name)
        return refusal("AO0152", name=self.name) if self.joint.sparse else None

    def higher_order(self) -> HigherOrder:
        """What the autograd function needs to know of these derivatives."""
        needed = self.needs
        refused = self.refused()
        why, kept = (refused.message, ()) if refused else ("", needed.kept)
        return HigherOrder(needed.read, needed.statics, needed.draws, why, kept, self)

    def __call__(
        self,
        read: Sequence[torch.Tensor],
        cotangents: Sequence[torch.Tensor | None],
        streams: Streams,
        symbols: Sequence[int] = (),
        request: Request | None = None,
        main: Any = None,
    ) -> Sequence[torch.Tensor | None]:
        """Gradients, of those primals that have one, as part of the autograd graph.

        read: the primals of `needs.handed`, with their history. streams: the random streams as they
        were before the program ran. symbols: values of the open sizes; a derivative is compiled for
        each, and for each set of defined cotangents. request: what is wanted where results depend
        on others; such a pass runs eagerly. main: the node of a call whose backward part must run
        once in a backward pass.
        """
        if all(grad is None for grad in self.joint.grads[: len(self.joint.primals)]):
            return []
        return self.apart(self._derived)(read, cotangents, streams, symbols, request, main)

    def _derived(
        self,
        read: Sequence[torch.Tensor],
        cotangents: Sequence[torch.Tensor | None],
        streams: Streams,
        symbols: Sequence[int],
        request: Request | None,
        main: Any,
    ) -> Sequence[torch.Tensor | None]:
        own = (self.program, self.joint, self.needs, self.ambience, read, cotangents, symbols)
        if request:
            self._notify_of_observers()
            with replayed(streams):
                return eager_derivative(*own, request)
        defined = tuple(place for place, item in enumerate(cotangents) if item is not None)
        known = [item for item in cotangents if item is not None]
        pattern = (defined, tuple(map(_standing, known)), tuple(symbols))
        if pattern not in self.compiled:
            with self.lock:
                if pattern not in self.compiled:
                    entry = self._compiled_or_none([*read, *known], symbols, defined)
                    self.compiled[pattern] = entry
        entry = self.compiled[pattern]
        with replayed(streams):
            if entry is None:
                return eager_derivative(*own, main=main)
            grads: Sequence[torch.Tensor | None] = entry(*read, *known)
        return grads

    def _notify_of_observers(self) -> None:
        if not self.observed:
            self.observed = True
            self.told(refusal("AO0153", name=self.name))

    def _compiled_or_none(
        self, examples: Sequence[torch.Tensor], symbols: Sequence[int], defined: Sequence[int]
    ) -> Compiled | None:
        """The compiled derivative; None, and `told` why, where it is run eagerly: a program that
        was compiled is differentiated whatever comes."""
        try:
            if reason := self.uncompiled():
                raise reason
            compiled = self._compile(examples, symbols, defined)
            if not (self.joint.plan.linear or compiled.linear):
                raise refusal("AO0159", name=self.name)
            return compiled
        except Exception as error:
            self.told(error)
            return None

    def _compile(
        self, examples: Sequence[torch.Tensor], symbols: Sequence[int], defined: Sequence[int]
    ) -> Compiled:
        name = f"{self.name}_derivative"
        program = derivative(self.program, self.joint, self.needs, name, symbols, defined)
        # Objects of their own: that two cotangents are one tensor now holds for this call only.
        own = [_of_its_own(item) for item in examples]
        with self.ambience.restored():
            compiled = self.compile(program, own)
        assert compiled.joint is not None
        read = read_after_all(compiled.joint)
        if read:
            raise refusal("AO0154", name=self.name, read=", ".join(read))
        return compiled


def _standing(cotangent: torch.Tensor) -> tuple[bool, bool]:
    """What autograd makes of a write to a cotangent, as a backward formula may do one."""
    return cotangent.requires_grad, cotangent.is_leaf


def _of_its_own(example: torch.Tensor) -> torch.Tensor:
    """Another tensor of the same memory, a leaf exactly if this one is."""
    own = example.detach().requires_grad_(example.requires_grad)
    return own if example.is_leaf else same_memory(own)
