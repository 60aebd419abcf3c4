"""Desugaring of tensor subclasses that flatten.

In: a program with inputs or parameters that have `__tensor_flatten__`. Out: a program of their
inner tensors; around its compiled form, what desugars arguments and puts results together.
Invariant: the subclass's own `__torch_dispatch__` says what every operator does, in the forward and
in the backward pass, while the program is traced; a gradient is of the subclass, as in eager.

A gradient may have other parts than what it is of: that of a shard may lie whole on every process.
Autograd holds the gradient of a plain tensor to the size of that tensor, so that such parts are the
gradients of carriers: further inputs of their sizes, without memory, which nothing reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress, islice
from types import MappingProxyType
from typing import Any

import torch

from flambeau_aot._torch_compat import (
    FakeTensor,
    current_value,
    flattens,
    is_functional,
    pytree,
    raise_version,
    storage_key,
    version,
)
from flambeau_aot.inputs.binding import SubclassSpec, grouped, plain_tensors, put_together, spec_of
from flambeau_aot.joint.dispatch_mode import JointTracer
from flambeau_aot.joint.program import InputProgram
from flambeau_aot.refusals import refusal
from flambeau_aot.sizes import TensorLayout


def _refuse_differentiating(spec: SubclassSpec) -> None:
    if torch.is_grad_enabled():
        raise refusal("AO0021", cls=spec.cls.__name__)


Seen = Callable[[SubclassSpec | int, tuple["_Part", ...]], None]


@dataclass(frozen=True)
class _Part:
    """What a carrier carries: a gradient's part of this form."""

    size: torch.Size
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, value: torch.Tensor) -> _Part:
        """The form of a tensor."""
        return cls(value.shape, value.dtype, value.device)

    def carrier(self) -> torch.Tensor:
        """A tensor of this form that takes no memory."""
        return torch.zeros((), dtype=self.dtype, device=self.device).expand(self.size)


class _Together(torch.autograd.Function):
    """Plain tensors as a subclass, whose gradient comes with the context of `tangent` and goes to
    the tensors themselves, or to the carriers after them; `seen` is given the spec of it, and the
    forms of its parts where they are not those of the tensors."""

    @staticmethod
    def forward(
        ctx: Any, spec: SubclassSpec, tangent: SubclassSpec, seen: Seen | None, *inner: torch.Tensor
    ) -> Any:
        """The subclass."""
        ctx.spec, ctx.tangent, ctx.seen = spec, tangent, seen
        ctx.set_materialize_grads(False)
        given = [item.detach() for item in inner]
        ctx.inner, ctx.carriers = given[: spec.count], given[spec.count :]
        return put_together(spec, [item.detach() for item in ctx.inner])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The gradient, as plain tensors."""
        _refuse_differentiating(ctx.spec)
        if grads[0] is None:
            return (None,) * (3 + len(ctx.carriers) + len(ctx.inner))
        grad = current_value(grads[0]) if is_functional(grads[0]) else grads[0]
        found: list[torch.Tensor | None] = [None] * len(ctx.inner)
        of_gradient: SubclassSpec | int
        if flattens(grad):
            if ctx.seen is None:
                grad = _as_promised(ctx.tangent, grad)
            parts = plain_tensors(grad, ctx.spec)
            found[:] = parts
            of_gradient = spec_of(grad)
            forms = [part.shape for part in parts]
            if forms != [item.shape for item in ctx.carriers or ctx.inner]:
                if ctx.seen is not None:
                    ctx.seen(of_gradient, tuple(map(_Part.of, parts)))
                raise refusal("AO0173", cls=ctx.spec.cls.__name__)
        elif ctx.carriers:
            raise refusal("AO0173", cls=ctx.spec.cls.__name__)
        else:
            of_gradient = _carrier(ctx.spec, ctx.inner, grad)
            found[of_gradient] = grads[0]
        for place, (part, own) in enumerate(zip(found, ctx.inner, strict=True)):
            if part is not None and not own.is_floating_point():
                if not _is_same(part, own):
                    raise refusal("AO0168", cls=ctx.spec.cls.__name__)
                found[place] = None
        if ctx.seen is not None:
            ctx.seen(of_gradient, tuple(map(_Part.of, ctx.carriers)))
        unused: list[None] = [None] * len(ctx.inner)
        return None, None, None, *(unused if ctx.carriers else []), *found


def _as_promised(spec: SubclassSpec, grad: Any) -> Any:
    """A gradient with the context that the program was traced for, if the class knows how."""
    coerce = getattr(grad, "__coerce_same_metadata_as_tangent__", None)
    if coerce is None or spec_of(grad).context == spec.context:
        return grad
    return coerce(spec.context)


def _tangent_of(spec: SubclassSpec, result: Any) -> SubclassSpec:
    """The spec of the gradient of a result. A class may say that it has another context than the
    result: parts of a sum have the gradient of the sum."""
    coerce = getattr(result, "__coerce_tangent_metadata__", None)
    if coerce is None or not (torch.is_grad_enabled() and result.requires_grad):
        return spec
    tangent = coerce()
    found = spec_of(tangent)
    if found.context == spec.context:
        return spec
    sizes = [[x.shape for x in plain_tensors(each, spec)] for each in (result, tangent)]
    if sizes[0] != sizes[1]:
        raise refusal("AO0175", cls=spec.cls.__name__)
    return found


def _carrier(spec: SubclassSpec, inner: Sequence[torch.Tensor], grad: torch.Tensor) -> int:
    """The place of the part that a plain gradient has the form of."""
    kind = (grad.shape, grad.dtype, grad.device)
    for place, part in enumerate(inner):
        if (part.shape, part.dtype, part.device) == kind:
            return place
    raise refusal("AO0020", cls=spec.cls.__name__, kind=type(grad).__name__)


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors hold the same: values of a trace, if they are the same memory."""
    form = [(x.shape, x.stride(), x.storage_offset(), x.dtype) for x in (one, other)]
    if form[0] == form[1] and storage_key(one) == storage_key(other):
        return True
    traced = is_functional(one) or isinstance(one, FakeTensor)
    return not traced and form[0][0] == form[1][0] and torch.equal(one, other)


class _Desugared(torch.autograd.Function):
    """A subclass as plain tensors, and the carriers of its gradient where it has other parts;
    `of_gradient` is the spec that its gradient has, or the place of the part whose gradient it is,
    a plain tensor."""

    @staticmethod
    def forward(
        ctx: Any,
        spec: SubclassSpec,
        of_gradient: SubclassSpec | int,
        carried: tuple[_Part, ...],
        value: Any,
    ) -> tuple[torch.Tensor, ...]:
        """The plain tensors."""
        inner = plain_tensors(value, spec)
        carriers = [part.carrier() for part in carried]
        like = carriers or inner
        ctx.spec, ctx.of_gradient, ctx.parts = spec, of_gradient, len(like)
        # A write to a part is one to the value: of a float, only the layout is needed afterwards.
        ctx.layouts = [
            TensorLayout(tuple(x.shape), tuple(x.stride()), x.dtype, x.device)
            if x.is_floating_point()
            else None
            for x in like
        ]
        ctx.save_for_backward(*(x.detach() for x in like if not x.is_floating_point()))
        results = (*(item.detach() for item in inner), *carriers)
        constant = [*results[: len(inner)]] if carriers else []
        constant += [x for x in results[len(constant) :] if not x.is_floating_point()]
        ctx.mark_non_differentiable(*constant)
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The gradients, put together; what has none is zero, or what it was if it is no float."""
        _refuse_differentiating(ctx.spec)
        grads = grads[-ctx.parts :]
        if all(grad is None for grad in grads):
            return None, None, None, None
        if isinstance(ctx.of_gradient, int):
            return None, None, None, grads[ctx.of_gradient]
        others = iter(ctx.saved_tensors)
        inner = [
            next(others) if layout is None else layout.empty().zero_() if grad is None else grad
            for grad, layout in zip(grads, ctx.layouts, strict=True)
        ]
        return None, None, None, put_together(ctx.of_gradient, inner)


def together(
    spec: SubclassSpec,
    inner: Sequence[torch.Tensor],
    tangent: SubclassSpec | None = None,
    seen: Seen | None = None,
) -> Any:
    """A subclass of these tensors, and of what carries its gradient, as part of the autograd
    graph."""
    if not (torch.is_grad_enabled() and any(item.requires_grad for item in inner)):
        return put_together(spec, inner[: spec.count])
    return _Together.apply(  # type: ignore[no-untyped-call]
        spec, spec if tangent is None else tangent, seen, *inner
    )


def differentiable_parts(
    spec: SubclassSpec,
    value: Any,
    of_gradient: SubclassSpec | int | None = None,
    carried: tuple[_Part, ...] = (),
    training: bool = True,
) -> tuple[torch.Tensor, ...]:
    """The tensors of a subclass, and what carries its gradient, as part of the autograd graph where
    one is wanted."""
    if not (training and torch.is_grad_enabled() and value.requires_grad):
        found = plain_tensors(value, spec) + [part.carrier() for part in carried]
        return tuple(item.detach() if item.requires_grad else item for item in found)
    of_gradient = spec if of_gradient is None else of_gradient
    parts: Any = _Desugared.apply(  # type: ignore[no-untyped-call]
        spec, of_gradient, carried, value
    )
    return tuple(parts)


@dataclass
class Unwrapped:
    """A program of plain tensors, and what a call of it needs.

    statics: those of the program that are subclasses; they come before the arguments. specs: of
    these and of the arguments, None for what is plain. results: what each result is: the spec of a
    subclass, the place of an argument that it is, or None. written: places of arguments that the
    program writes to, and whether autograd knows of it; the new values of those of which it does
    follow the results. gradients: what the gradients of subclasses are, by place: a spec, or the
    part that has a plain one; carried: the forms of their parts, where carriers have them.
    tangents: the specs of results' gradients that are not those of the results, by place.
    """

    program: InputProgram
    statics: tuple[torch.Tensor, ...]
    specs: list[SubclassSpec | None]
    inputs: list[Any]
    results: list[SubclassSpec | int | None] = field(default_factory=list)
    structure: Any = None
    written: list[tuple[int, bool]] = field(default_factory=list)
    gradients: dict[int, SubclassSpec | int] = field(default_factory=dict)
    carried: dict[int, tuple[_Part, ...]] = field(default_factory=dict)
    tangents: dict[int, SubclassSpec] = field(default_factory=dict)

    def saw(self, place: int, gradient: SubclassSpec | int, carried: tuple[_Part, ...]) -> None:
        """Note what the gradient of a subclass is."""
        self.gradients[place] = gradient
        if carried:
            self.carried[place] = carried

    def around(self, run: Callable[..., Any], training: bool) -> Callable[..., Any]:
        """A call of the program, given a call of its plain form; training: whether autograd is to
        see that."""

        def call(*args: Any) -> Any:
            given = (*self.statics, *args)
            values = iter(run(*flat(self.specs, given, self.gradients, self.carried, training)))
            made: list[Any] = []
            for place, item in enumerate(self.results):
                if isinstance(item, int):
                    made.append(given[item])
                elif item is None:
                    made.append(next(values))
                else:
                    own = list(islice(values, item.count))
                    made.append(together(item, own, self.tangents.get(place)))
            for place, recorded in self.written:
                spec = self.specs[place]
                assert spec is not None
                if recorded:
                    new = together(spec, list(islice(values, spec.count)))
                    with torch.enable_grad():
                        given[place].copy_(new)
                else:
                    raise_version(given[place])
            return pytree.tree_unflatten(made, self.structure)

        return call


def flat(
    specs: Sequence[SubclassSpec | None],
    values: Sequence[Any],
    gradients: Mapping[int, SubclassSpec | int] = MappingProxyType({}),
    carried: Mapping[int, tuple[_Part, ...]] = MappingProxyType({}),
    training: bool = True,
) -> list[Any]:
    """The values with every subclass in its place as plain tensors, and carriers after them."""
    found: list[Any] = []
    for place, (spec, value) in enumerate(zip(specs, values, strict=True)):
        if spec is None:
            found.append(value)
        else:
            own = gradients.get(place), carried.get(place, ())
            found.extend(differentiable_parts(spec, value, *own, training))
    return found


def unwrapped(
    program: InputProgram, inputs: Sequence[Any], before: Unwrapped | None = None
) -> Unwrapped | None:
    """The program on plain tensors; None where everything is plain already. before: the same, whose
    trace came to a gradient with other parts than what it is of."""
    if not program.subclasses and not any(map(flattens, (*program.static, *inputs))):
        return None
    subclass = [flattens(tensor) for tensor in program.static]
    statics = tuple(filter(flattens, program.static))
    given = [*statics, *inputs]
    specs = [spec_of(value) if flattens(value) else None for value in given]
    plain = [not is_one for is_one in subclass]

    def run(params: Sequence[torch.Tensor], args: Sequence[Any], tracer: JointTracer) -> Any:
        values = [
            own[0] if spec is None else together(spec, own, seen=partial(made.saw, place))
            for place, (spec, own) in enumerate(grouped(specs, args, carried))
        ]
        states = [_state(v) if s is not None else None for s, v in zip(specs, values, strict=True)]
        own_static, own_params = iter(values[: len(statics)]), iter(params)
        static = [next(own_static) if is_one else next(own_params) for is_one in subclass]
        results = program.run(static, values[len(statics) :], tracer)
        leaves, made.structure = pytree.tree_flatten(results)
        made.results.clear()
        made.tangents.clear()
        flattened: list[Any] = []
        for leaf in leaves:
            kind = _kind(leaf, values, specs)
            made.results.append(kind)
            if isinstance(kind, SubclassSpec):
                tangent = _tangent_of(kind, leaf)
                if tangent is not kind:
                    made.tangents[len(made.results) - 1] = tangent
                flattened.extend(differentiable_parts(kind, leaf, tangent))
            elif kind is None:
                flattened.append(leaf)
        made.written.clear()
        for place, (spec, value, was) in enumerate(zip(specs, values, states, strict=True)):
            if spec is not None and was is not None and version(value) != was.version:
                recorded = _recorded(given[place], value, spec, was)
                made.written.append((place, recorded))
                if recorded:
                    flattened.extend(item.clone() for item in differentiable_parts(spec, value))
        return flattened

    gradients = before.gradients if before is not None else {}
    carried = dict(before.carried) if before is not None else {}
    inputs_now = flat(specs, given, gradients, carried)
    named = tuple(f"part_{place}" for place in range(len(inputs_now)))
    made = Unwrapped(
        replace(
            program,
            static=tuple(compress(program.static, plain)),
            static_names=tuple(compress(program.static_names, plain)),
            input_names=named,
            run=run,
            subclasses=False,
            symbolic=_stand_ins(program, specs, statics, carried),
        ),
        statics,
        specs,
        inputs_now,
        carried=dict(carried),
    )
    return made


def _stand_ins(
    program: InputProgram,
    specs: Sequence[SubclassSpec | None],
    statics: Sequence[torch.Tensor],
    carried: Mapping[int, tuple[_Part, ...]],
) -> tuple[Any, ...]:
    """What stands for the plain tensors where sizes are left open: subclasses have fixed ones."""
    if not program.symbolic:
        return ()
    found: list[Any] = []
    for place, (stand_in, spec) in enumerate(
        zip((*[None] * len(statics), *program.symbolic), specs)
    ):
        more = len(carried.get(place, ()))
        found.extend([stand_in] if spec is None else [None] * (spec.count + more))
    return tuple(found)


@dataclass(frozen=True)
class _SubclassState:
    """A subclass before the program ran: how often it was written to, its history and its parts."""

    version: int
    history: Any
    parts: tuple[int, ...]


def _state(value: Any) -> _SubclassState:
    parts = plain_tensors(value, spec_of(value))
    return _SubclassState(version(value), value.grad_fn, tuple(map(id, parts)))


def _recorded(argument: Any, value: Any, spec: SubclassSpec, was: _SubclassState) -> bool:
    """Whether autograd knows of a write to a subclass; refuses what cannot be done to an argument.

    What is in the subclass's parts is copied into those of the argument with the graph's other
    writes; what autograd is to know is copied once more, by the argument itself.
    """
    now = _state(value)
    if spec_of(value) != spec or now.parts != was.parts:
        raise refusal("AO0022", cls=spec.cls.__name__)
    recorded = bool(value.requires_grad) and now.history is not was.history
    if recorded and argument.requires_grad and argument.is_leaf:
        raise RuntimeError(
            "a leaf Variable that requires grad is being used in an in-place operation."
        )
    return recorded


def _kind(
    leaf: Any, values: Sequence[Any], specs: Sequence[SubclassSpec | None]
) -> SubclassSpec | int | None:
    """What a result is: an argument of a subclass, another of a subclass, or neither."""
    for place, (value, spec) in enumerate(zip(values, specs, strict=True)):
        if spec is not None and leaf is value:
            return place
    plain = leaf if flattens(leaf) or not is_functional(leaf) else current_value(leaf)
    return spec_of(plain) if flattens(plain) else None
