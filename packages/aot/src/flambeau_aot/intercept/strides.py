"""Strides and storage offsets that functional tensors do not have.

In: calls that name a place in a storage, make a tensor of given strides, or give one laid out as
another. Out: the same for what the graph takes: the part of a storage that the arguments cover, and
values whose memory is dense.
Invariant: the program, and the views that a call makes again, count from the start of the storage.

Lazy conjugation and negation: bits of a tensor, kept as eager keeps them. In: calls on tensors of a
trace in which a decomposition computes the conjugate, so that the value has no such bit. Out: what
eager answers where the bit decides. Invariant: a tensor has the bit if an odd number of the views
that it was made by flip it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from flambeau_aot._torch_compat import (
    current_value,
    has_metadata_mutation,
    is_conj_or_neg,
    is_functional,
    replace_value,
    storage_key,
)
from flambeau_aot.inputs.memory_overlap import ViewOf, have_gaps, is_dense, reach, steps_from
from flambeau_aot.intercept.registry import Call, Interception, getter, intercept
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime_plan import Merged, ViewStep

aten = torch.ops.aten

_OF_OTHER_SIZE = {aten.view.dtype, aten.view_as_real.default, aten.view_as_complex.default}


def in_whole_memory(merged: Merged, steps: Sequence[ViewStep]) -> tuple[ViewStep, ...]:
    """Views of what the graph takes as views of an argument, by way of its whole storage."""
    start = merged.offset
    whole = ViewStep(aten.as_strided.default, (merged.size, merged.stride, start), {}, None)
    moved: list[ViewStep] = []
    for step in steps:
        if step.func is aten.as_strided.default and len(step.args) > 2 and step.args[2] is not None:
            if any(before.func in _OF_OTHER_SIZE for before in moved):
                raise refusal("AO0013")
            args = (*step.args[:2], step.args[2] + start, *step.args[3:])
            step = replace(step, args=args)
        moved.append(step)
    return (whole, *moved)


_OWNERS = (torch, torch.Tensor, aten)
_AS_STRIDED = (*(each.as_strided for each in _OWNERS), aten.as_strided.default)
_AS_STRIDED_SCATTER = (
    *(each.as_strided_scatter for each in _OWNERS),
    aten.as_strided_scatter.default,
)


@intercept(*_AS_STRIDED, *_AS_STRIDED_SCATTER, arguments=True)
def place_in_storage(trace: Interception, call: Call) -> Any:
    """A place in the storage, as the graph counts it."""
    position = 3 if call.func in _AS_STRIDED else 4
    args, start = call.args, trace.start(call.target)
    by_position = len(args) > position
    given = args[position] if by_position else call.kwargs.get("storage_offset")
    if given is not None:
        trace.tracer.placed.add(storage_key(args[0]))
    if not start or given is None:
        return NotImplemented
    if given < start:
        raise refusal("AO0014")
    if by_position:
        call.args = (*args[:position], given - start, *args[position + 1 :])
    else:
        call.kwargs = {**call.kwargs, "storage_offset": given - start}
    return NotImplemented


@intercept(torch.Tensor.storage_offset)
def storage_offset(trace: Interception, call: Call) -> Any:
    """Where a tensor begins in the caller's storage."""
    known = trace.facts.get(id(call.target))
    if known is not None and known.offset is not None:
        return known.offset
    if trace.starts:
        return call() + trace.start(call.target)
    return NotImplemented


_MADE_BY_STRIDES: dict[Any, tuple[Any, int]] = {
    torch.empty_strided: (torch.empty, 0),
    torch.ops.aten.empty_strided: (torch.empty, 0),
    torch.ops.aten.empty_strided.default: (torch.empty, 0),
    torch.Tensor.new_empty_strided: (torch.Tensor.new_empty, 1),
    torch.ops.aten.new_empty_strided: (torch.Tensor.new_empty, 1),
    torch.ops.aten.new_empty_strided.default: (torch.Tensor.new_empty, 1),
}
"""By function, what makes memory in its place, and where among its arguments sizes begin."""


@intercept(*_MADE_BY_STRIDES)
def made_by_strides(trace: Interception, call: Call) -> Any:
    """A tensor with gaps, as a view of memory that the graph makes whole: what a graph writes and
    returns is dense."""
    make, at = _MADE_BY_STRIDES[call.func]
    args, named = call.args, dict(call.kwargs)
    given = [named.pop(name, None) for name in ("size", "stride")[len(args) - at :]]
    rest = (*args[at:], *given)
    leaf = call.kwargs.get("requires_grad")
    if len(rest) != 2 or None in rest or leaf or not have_gaps(*map(tuple, rest)):
        return call()
    size, strides = rest
    return make(*args[:at], [reach(size, strides)], **named).as_strided(size, strides)


@intercept(
    *(
        getattr(owner, f"{name}_scatter")
        for owner in _OWNERS
        for name in ("slice", "select", "diagonal")
    ),
    *_AS_STRIDED_SCATTER,
)
def laid_out_alike(trace: Interception, call: Call) -> Any:
    """A tensor with another part, laid out as the tensor is: with its gaps, at its place."""
    target = call.target
    layout = trace.tracer.layouts.of(target)
    facts = trace.facts.get(id(target))
    offset = layout.offset if facts is None or facts.offset is None else facts.offset
    result: torch.Tensor = call()
    size, strides = layout.shape, layout.stride
    known = all(isinstance(n, int) for n in (*size, *strides, offset))
    if not (known and 0 not in size) and not (offset and target.is_contiguous()):
        return result
    if known and ((not offset and not have_gaps(size, strides)) or 0 in strides):
        return result
    if not is_functional(result):  # a transform hides it
        memory = result.new_zeros([offset + reach(size, strides)])
        return memory.as_strided(size, strides, offset).copy_(result)
    _lay_out(result, size, strides, offset)
    trace.gaps.append((result, current_value(result), offset))
    return result


def _lay_out(
    wrapper: torch.Tensor, size: Sequence[Any], strides: Sequence[Any], offset: Any
) -> None:
    """Lay the value of a functional tensor out in memory of its own, which it is no view of."""
    value = current_value(wrapper)
    with torch.no_grad():
        memory = aten.new_zeros.default(value, [offset + reach(size, strides)])
        filled = aten.as_strided_scatter.default(memory, value, size, strides, offset)
        replace_value(wrapper, aten.as_strided.default(filled, size, strides, offset))


def lay_out_again(gaps: Sequence[tuple[torch.Tensor, torch.Tensor, Any]]) -> None:
    """Give back the gaps to tensors that have lost them in a write; each comes with the value that
    it stood for at first, and where it begins in memory of its own.

    A functional write makes a dense value; whether `contiguous` and `reshape` copy, and what
    `as_strided` reaches, depends on the gaps.
    """
    for wrapper, first, offset in gaps:
        value = current_value(wrapper)
        placed = not offset or value.storage_offset() == offset
        if placed and value.stride() == first.stride():
            continue
        if has_metadata_mutation(wrapper):
            if is_dense(tuple(value.shape), tuple(value.stride())):
                raise refusal("AO0081")
            continue
        if value.shape != first.shape:
            raise refusal("AO0082")
        _lay_out(wrapper, list(first.shape), list(first.stride()), offset)


_CONJ, _NEG = torch.ops.aten._conj.default, torch.ops.aten._neg_view.default


def _no_pairs(x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError(
        "view_as_real doesn't work on unresolved conjugated tensors.  To resolve the conjugate "
        "tensor so you can view it as real, use self.resolve_conj()"
    )


_ANSWERS: dict[Any, tuple[Any, Callable[[torch.Tensor], Any]]] = {
    torch.is_conj: (_CONJ, lambda x: True),
    torch.Tensor.is_conj: (_CONJ, lambda x: True),
    torch.resolve_conj: (_CONJ, torch.clone),
    torch.Tensor.resolve_conj: (_CONJ, torch.clone),
    torch.view_as_real: (_CONJ, _no_pairs),
    **dict.fromkeys((torch.real, getter("real")), (_CONJ, lambda x: torch.real(torch.conj(x)))),
    **dict.fromkeys(
        (torch.imag, getter("imag")), (_CONJ, lambda x: torch._neg_view(torch.imag(torch.conj(x))))
    ),
    torch.is_neg: (_NEG, lambda x: True),
    torch.Tensor.is_neg: (_NEG, lambda x: True),
    torch.resolve_neg: (_NEG, torch.clone),
    torch.Tensor.resolve_neg: (_NEG, torch.clone),
}
"""By function, the view that flips the bit it reads, and its answer where the bit is set."""


def is_lazy(value: torch.Tensor, view_of: ViewOf) -> bool:
    """Whether a value was computed where eager has flipped a bit of a view."""
    _, steps = steps_from(value, view_of)
    return not is_conj_or_neg(value) and any(step.func in (_CONJ, _NEG) for step in steps)


def differs_in_lazy_bit(value: torch.Tensor, view_of: ViewOf, by: Any) -> bool:
    """Whether a value without the bit stands for a tensor that has it in eager."""
    _, steps = steps_from(value, view_of)
    return not is_conj_or_neg(value) and sum(step.func is by for step in steps) % 2 == 1


@intercept(*_ANSWERS)
def lazy_bit(trace: Interception, call: Call) -> Any:
    """What a call gives on a tensor that has the bit in eager, and whose value has it not."""
    by, give = _ANSWERS[call.func]
    target, view_of = call.target, trace.tracer.layouts.view_of
    if is_functional(target) and differs_in_lazy_bit(current_value(target), view_of, by):
        return give(target)
    return NotImplemented
