"""Desugaring of tensor subclasses that flatten.

In: a program with inputs or parameters that have `__tensor_flatten__`. Out: a program of their
inner tensors; around its compiled form, what desugars arguments and puts results together.
Invariant: the subclass's own `__torch_dispatch__` says what every operator does, in the forward and
in the backward pass, while the program is traced; a gradient is of the subclass, as in eager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress, islice
from operator import setitem
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
from flambeau_aot.joint.dispatch_mode import JointTracer
from flambeau_aot.joint.program import InputProgram
from flambeau_aot.refusals import refusal
from flambeau_aot.sizes import TensorLayout


@dataclass(frozen=True)
class SubclassSpec:
    """How a subclass is put together: its class, the names and specs of its parts, its context.

    A part that is a plain tensor has no spec. others: what it consists of besides tensors, by name:
    objects that are as they are, such as a mesh of devices.
    """

    cls: type
    names: tuple[str, ...]
    parts: tuple[SubclassSpec | None, ...]
    context: Any
    size: tuple[int, ...]
    stride: tuple[int, ...]
    others: tuple[tuple[str, Any], ...] = ()

    @property
    def count(self) -> int:
        """How many plain tensors there are in it."""
        return sum(1 if part is None else part.count for part in self.parts)


def spec_of(value: torch.Tensor) -> SubclassSpec:
    """The spec of a subclass."""
    named, context = value.__tensor_flatten__()  # type: ignore[attr-defined]
    inner = {name: getattr(value, name) for name in named}
    tensors = {name: item for name, item in inner.items() if isinstance(item, torch.Tensor)}
    parts = tuple(spec_of(item) if flattens(item) else None for item in tensors.values())
    size, stride = tuple(value.shape), tuple(value.stride())
    others = tuple((name, item) for name, item in inner.items() if name not in tensors)
    return SubclassSpec(type(value), (*tensors,), parts, context, size, stride, others)


def plain_tensors(value: Any, spec: SubclassSpec) -> list[torch.Tensor]:
    """The plain tensors in a subclass, in order."""
    if is_functional(value):
        # An operator of a subclass and a plain tensor was functionalized around the subclass.
        value = current_value(value)
    if type(value) is not spec.cls:
        raise refusal("AO0020", cls=spec.cls.__name__, kind=type(value).__name__)
    found: list[torch.Tensor] = []
    for name, part in zip(spec.names, spec.parts, strict=True):
        inner = getattr(value, name)
        found.extend([inner] if part is None else plain_tensors(inner, part))
    return found


def _grouped(
    specs: Sequence[SubclassSpec | None], values: Sequence[Any]
) -> Iterator[tuple[SubclassSpec | None, list[Any]]]:
    """Each spec with the plain values that are its own."""
    remaining = iter(values)
    for spec in specs:
        yield spec, list(islice(remaining, 1 if spec is None else spec.count))


def put_together(spec: SubclassSpec, inner: Sequence[torch.Tensor]) -> Any:
    """A subclass of these plain tensors."""
    made = {
        name: own[0] if part is None else put_together(part, own)
        for name, (part, own) in zip(spec.names, _grouped(spec.parts, inner), strict=True)
    }
    made.update(spec.others)
    build: Any = spec.cls
    return build.__tensor_unflatten__(made, spec.context, spec.size, spec.stride)


def _refuse_differentiating(spec: SubclassSpec) -> None:
    if torch.is_grad_enabled():
        raise refusal("AO0021", cls=spec.cls.__name__)


Seen = Callable[[SubclassSpec | int], None]


class _Together(torch.autograd.Function):
    """Plain tensors as a subclass; `seen` is given the spec of its gradient."""

    @staticmethod
    def forward(ctx: Any, spec: SubclassSpec, seen: Seen | None, *inner: torch.Tensor) -> Any:
        """The subclass."""
        ctx.spec, ctx.seen, ctx.inner = spec, seen, [item.detach() for item in inner]
        return put_together(spec, [item.detach() for item in inner])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The gradient, as plain tensors."""
        _refuse_differentiating(ctx.spec)
        grad = current_value(grads[0]) if is_functional(grads[0]) else grads[0]
        found: list[torch.Tensor | None] = [None] * len(ctx.inner)
        of_gradient: SubclassSpec | int
        if flattens(grad):
            if ctx.seen is None:
                grad = _as_promised(ctx.spec, grad)
            found[:] = plain_tensors(grad, ctx.spec)
            of_gradient = spec_of(grad)
            sizes = [
                (part.shape, own.shape) for part, own in zip(found, ctx.inner) if part is not None
            ]
            if any(one != other for one, other in sizes):
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
            ctx.seen(of_gradient)
        return None, None, *found


def _as_promised(spec: SubclassSpec, grad: Any) -> Any:
    """A gradient with the context that the program was traced for, if the class knows how."""
    coerce = getattr(grad, "__coerce_same_metadata_as_tangent__", None)
    if coerce is None or spec_of(grad).context == spec.context:
        return grad
    return coerce(spec.context)


def _refuse_other_tangents(spec: SubclassSpec, result: Any) -> None:
    """A class may say that the gradient of a result has another context than the result: parts of a
    sum have the gradient of the sum."""
    coerce = getattr(result, "__coerce_tangent_metadata__", None)
    if coerce is not None and torch.is_grad_enabled() and result.requires_grad:
        tangent = coerce()
        if tangent is not result and spec_of(tangent).context != spec.context:
            raise refusal("AO0175", cls=spec.cls.__name__)


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
    """A subclass as plain tensors; `of_gradient` is the spec that its gradient has, or the place of
    the part whose gradient it is, a plain tensor."""

    @staticmethod
    def forward(
        ctx: Any, spec: SubclassSpec, of_gradient: SubclassSpec | int, value: Any
    ) -> tuple[torch.Tensor, ...]:
        """The plain tensors."""
        inner = plain_tensors(value, spec)
        ctx.spec, ctx.of_gradient = spec, of_gradient
        # A write to a part is one to the value: of a float, only the layout is needed afterwards.
        ctx.layouts = [
            TensorLayout(tuple(x.shape), tuple(x.stride()), x.dtype, x.device)
            if x.is_floating_point()
            else None
            for x in inner
        ]
        ctx.save_for_backward(*(x.detach() for x in inner if not x.is_floating_point()))
        results = tuple(item.detach() for item in inner)
        ctx.mark_non_differentiable(*(x for x in results if not x.is_floating_point()))
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The gradients, put together; what has none is zero, or what it was if it is no float."""
        _refuse_differentiating(ctx.spec)
        if all(grad is None for grad in grads):
            return None, None, None
        if isinstance(ctx.of_gradient, int):
            return None, None, grads[ctx.of_gradient]
        others = iter(ctx.saved_tensors)
        inner = [
            next(others) if layout is None else layout.empty().zero_() if grad is None else grad
            for grad, layout in zip(grads, ctx.layouts, strict=True)
        ]
        return None, None, put_together(ctx.of_gradient, inner)


def together(spec: SubclassSpec, inner: Sequence[torch.Tensor], seen: Seen | None = None) -> Any:
    """A subclass of these tensors, as part of the autograd graph."""
    if not (torch.is_grad_enabled() and any(item.requires_grad for item in inner)):
        return put_together(spec, inner)
    return _Together.apply(spec, seen, *inner)  # type: ignore[no-untyped-call]


def differentiable_parts(
    spec: SubclassSpec, value: Any, of_gradient: SubclassSpec | int | None = None
) -> tuple[torch.Tensor, ...]:
    """The tensors of a subclass, as part of the autograd graph."""
    if not (torch.is_grad_enabled() and value.requires_grad):
        found = plain_tensors(value, spec)
        return tuple(item.detach() if item.requires_grad else item for item in found)
    of_gradient = spec if of_gradient is None else of_gradient
    parts: Any = _Desugared.apply(spec, of_gradient, value)  # type: ignore[no-untyped-call]
    return tuple(parts)


@dataclass
class Unwrapped:
    """A program of plain tensors, and what a call of it needs.

    statics: those of the program that are subclasses; they come before the arguments. specs: of
    these and of the arguments, None for what is plain. results: what each result is: the spec of a
    subclass, the place of an argument that it is, or None. written: places of arguments that the
    program writes to, and whether autograd knows of it; the new values of those of which it does
    follow the results. gradients: what the gradients of subclasses are, by place: a spec, or the
    part that has a plain one.
    """

    program: InputProgram
    statics: tuple[torch.Tensor, ...]
    specs: list[SubclassSpec | None]
    inputs: list[Any]
    results: list[SubclassSpec | int | None] = field(default_factory=list)
    structure: Any = None
    written: list[tuple[int, bool]] = field(default_factory=list)
    gradients: dict[int, SubclassSpec | int] = field(default_factory=dict)

    def around(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """A call of the program, given a call of its plain form."""

        def call(*args: Any) -> Any:
            given = (*self.statics, *args)
            values = iter(run(*flat(self.specs, given, self.gradients)))
            made: list[Any] = []
            for item in self.results:
                if isinstance(item, int):
                    made.append(given[item])
                elif item is None:
                    made.append(next(values))
                else:
                    made.append(together(item, list(islice(values, item.count))))
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
) -> list[Any]:
    """The values with every subclass in its place as plain tensors."""
    found: list[Any] = []
    for place, (spec, value) in enumerate(zip(specs, values, strict=True)):
        parts = [value] if spec is None else differentiable_parts(spec, value, gradients.get(place))
        found.extend(parts)
    return found


def unwrapped(program: InputProgram, inputs: Sequence[Any]) -> Unwrapped | None:
    """The program on plain tensors; None where everything is plain already."""
    if not program.subclasses and not any(map(flattens, (*program.static, *inputs))):
        return None
    subclass = [flattens(tensor) for tensor in program.static]
    statics = tuple(filter(flattens, program.static))
    given = [*statics, *inputs]
    specs = [spec_of(value) if flattens(value) else None for value in given]
    plain = [not is_one for is_one in subclass]

    def run(params: Sequence[torch.Tensor], args: Sequence[Any], tracer: JointTracer) -> Any:
        values = [
            own[0] if spec is None else together(spec, own, partial(setitem, made.gradients, place))
            for place, (spec, own) in enumerate(_grouped(specs, args))
        ]
        before = [_state(v) if s is not None else None for s, v in zip(specs, values, strict=True)]
        own_static, own_params = iter(values[: len(statics)]), iter(params)
        static = [next(own_static) if is_one else next(own_params) for is_one in subclass]
        results = program.run(static, values[len(statics) :], tracer)
        leaves, made.structure = pytree.tree_flatten(results)
        made.results.clear()
        flattened: list[Any] = []
        for leaf in leaves:
            kind = _kind(leaf, values, specs)
            made.results.append(kind)
            if isinstance(kind, SubclassSpec):
                _refuse_other_tangents(kind, leaf)
                flattened.extend(differentiable_parts(kind, leaf))
            elif kind is None:
                flattened.append(leaf)
        made.written.clear()
        for place, (spec, value, was) in enumerate(zip(specs, values, before, strict=True)):
            if spec is not None and was is not None and version(value) != was.version:
                recorded = _recorded(given[place], value, spec, was)
                made.written.append((place, recorded))
                if recorded:
                    flattened.extend(item.clone() for item in differentiable_parts(spec, value))
        return flattened

    inputs_now = flat(specs, given)
    named = tuple(f"part_{place}" for place in range(len(inputs_now)))
    made = Unwrapped(
        replace(
            program,
            static=tuple(compress(program.static, plain)),
            static_names=tuple(compress(program.static_names, plain)),
            input_names=named,
            run=run,
            subclasses=False,
            symbolic=_stand_ins(program, specs[len(statics) :], statics),
        ),
        statics,
        specs,
        inputs_now,
    )
    return made


def _stand_ins(
    program: InputProgram, specs: Sequence[SubclassSpec | None], statics: Sequence[torch.Tensor]
) -> tuple[Any, ...]:
    """What stands for the plain tensors where sizes are left open: subclasses have fixed ones."""
    found: list[Any] = []
    for stand_in, spec in zip(program.symbolic, specs) if program.symbolic else ():
        found.extend([stand_in] if spec is None else [None] * spec.count)
    before = sum(spec_of(value).count for value in statics) if found else 0
    return (*[None] * before, *found)


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
