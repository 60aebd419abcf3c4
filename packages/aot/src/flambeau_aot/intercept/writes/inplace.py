"""In-place writes, `out=` among them: eager's checks, strides, version counters and views.

In: calls on functional tensors that may write to one. Out: the calls, with what eager leaves; what
eager raises; a refusal where functionalization would give another value than eager.
Invariant: a tensor that is written to keeps its strides, and its memory those of its base; no call
reads memory that it writes, but for elements at the indices that they are written at; an input that
is a leaf, or a view of one, is not written to with grad enabled. Functionalization loses views of a
tensor that is resized: an `out` that would be is refused, as is what eager refuses, by a kernel
that is chosen by the dtype of `out` on CUDA.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from flambeau_aot._torch_compat import (
    base_of,
    current_value,
    fake_fused_steps,
    flattens,
    has_metadata_mutation,
    is_distributed_tensor,
    is_functional,
    keep_value,
    laid_out_alike,
    of_custom_operator,
    own_part,
    pytree,
    raise_version,
    replace_value,
    shown,
    spread_like,
    storage_key,
    version,
    without_tangents_in_texts,
)
from flambeau_aot.inputs.memory_overlap import (
    Layouts,
    is_dense,
    overlaps_itself,
    same_elements,
    share_elements,
)
from flambeau_aot.intercept.eager_dtypes import refusal_by_eager
from flambeau_aot.intercept.registry import Call, Interception, forms, intercept
from flambeau_aot.joint.nested import tensors_in
from flambeau_aot.refusals import refusal

WRITE_TO_LISTS = frozenset(x for x in dir(torch) if x.startswith("_foreach_") and x.endswith("_"))
#: optimizers' steps, which write to several lists of one length; some of them may be empty
WRITE_TO_SEVERAL_LISTS = frozenset(
    name for name in dir(torch) if name.startswith("_fused_") and name.endswith("_")
)
_SIGNS = ("add", "sub", "mul", "truediv", "div", "and", "or", "xor", "pow", "mod", "floordiv")
_IN_PLACE_SIGNS = frozenset(f"__i{name}__" for name in _SIGNS)
RESHAPE_IN_PLACE = frozenset(
    f"{name}_"
    for name in ("t", "transpose", "swapdims", "swapaxes", "squeeze", "unsqueeze", "as_strided")
)
_NO_WRITE = frozenset(("requires_grad_", "detach_", "share_memory_"))
_WITHOUT_GRAD = (
    "A view was created in no_grad mode and is being modified inplace with grad mode enabled."
)


class Views:
    """Views of one trace that were taken before their base was reshaped in place: refused.

    Eager takes such a view again by its place in memory; a functional tensor has no memory, and
    takes it by dimensions, which are not those it was taken of. Only views alive at the reshape
    count, of a tensor that requires grad, then or by what is written to it later.
    """

    def __init__(self) -> None:
        self._of: dict[int, list[weakref.ref[torch.Tensor]]] = {}
        self._stale: dict[int, torch.Tensor] = {}
        # By base, those of tensors that require no grad so far.
        self._without_grad: dict[int, list[torch.Tensor]] = {}

    def made(self, result: Any) -> None:
        """Note views among the results of a call."""
        for value in result if isinstance(result, (list, tuple)) else (result,):
            if isinstance(value, torch.Tensor) and (base := base_of(value)) is not value:
                self._of.setdefault(id(base), []).append(weakref.ref(value))

    def reshaped(self, target: torch.Tensor) -> None:
        """A tensor is given another shape in place."""
        base = base_of(target)
        views = [x for ref in self._of.pop(id(base), ()) if (x := ref()) is not None]
        if base.requires_grad:
            self._stale.update({id(view): view for view in views if view is not target})
        else:
            own = [] if target is base else [base, target]
            self._without_grad.setdefault(id(base), []).extend((*views, *own))

    def recorded(self, target: torch.Tensor) -> None:
        """A tensor without grad is about to get a history, and what shares its memory with it."""
        for view in self._without_grad.pop(id(base_of(target)), ()):
            self._stale[id(view)] = view

    def refuse_stale(self, values: Any) -> None:
        """Raise where one of these is a view of a shape that is gone."""
        if self._stale and any(id(value) in self._stale for value in tensors_in(values)):
            raise refusal("AO0076")


def writes_in_place(name: str) -> bool:
    """Whether a torch function of this name writes to its first argument."""
    if name.startswith("__"):
        return name == "__setitem__" or name in _IN_PLACE_SIGNS
    return name.endswith("_") and name not in _NO_WRITE


def read_by_value(call: Call) -> None:
    """A subclass is functional within, not without: what is written to it is given as the value
    that it has, for functionalization takes nothing functional for what is not. With grad enabled
    autograd knows the functional one."""
    targets = call.target if isinstance(call.target, list | tuple) else (call.target,)
    if not writes_in_place(call.name) or not any(map(flattens, targets)):
        return

    def value(x: Any) -> Any:
        recorded = torch.is_grad_enabled() and x.requires_grad
        return current_value(x) if is_functional(x) and not recorded else x

    call.args, call.kwargs = pytree.tree_map_only(torch.Tensor, value, (call.args, call.kwargs))


@intercept(*forms(*RESHAPE_IN_PLACE))
def reshape_in_place(trace: Interception, call: Call) -> Any:
    """Views of the tensor are stale from now on. A view is refused `as_strided_`: autograd would
    take it again by the view that it was."""
    target = call.target
    if isinstance(target, torch.Tensor):
        as_strided = call.name.split(".")[0] == "as_strided_"
        if as_strided and base_of(target) is not target:
            raise refusal("AO0062")
        trace.tracer.views.reshaped(target)
    return NotImplemented


def write(trace: Interception, call: Call) -> Any:
    """A call that may write to its first argument, as eager makes it."""
    name, target = call.name, call.target
    if trace.tracer.regions.count and writes_in_place(name):
        trace.tracer.regions.refuse_unseen(target)
    if name.endswith("_") and torch.is_grad_enabled():
        refuse_as_eager(trace, name, target, call.args)
    result = write_on_copy(target, call, trace.tracer.layouts)
    if name.split(".")[0] == "as_strided_" and is_functional(target):
        keep_value(target, current_value(target))  # else it counts its elements of before
    return result


def refuse_as_eager(
    trace: Interception, name: str, target: torch.Tensor, args: tuple[Any, ...]
) -> None:
    """Writes that eager refuses for leaves, which stand-ins are not, and those to the memory of a
    tensor reshaped in place: autograd would take its views again of the new shape."""
    if not writes_in_place(name):
        return
    base = base_of(target)
    known = trace.facts.get(id(base))
    without_grad = known is not None and known.view_without_grad
    if not base.requires_grad:
        if any(isinstance(x, torch.Tensor) and x.requires_grad for x in args):
            if without_grad:
                raise RuntimeError(_WITHOUT_GRAD)
            trace.tracer.views.recorded(target)
            trace.tracer.views.refuse_stale((target,))
        return
    if known is not None and known.viewing_leaf and base is not target and base.is_leaf:
        # In eager they are both views of a tensor that requires no grad.
        raise refusal("AO0074")
    if without_grad:
        raise RuntimeError(_WITHOUT_GRAD)
    if known is not None and (known.leaf or known.view_of_leaf):
        if name == "__setitem__" and is_basic(args[1]):
            target.detach()[args[1]]  # an index out of bounds is noticed first
        what = "a leaf" if known.leaf and base is target else "a view of a leaf"
        raise RuntimeError(
            f"{what} Variable that requires grad is being used in an in-place operation."
        )
    if base.grad_fn is not None and of_custom_operator(base.grad_fn):
        raise refusal("AO0163", func=name)
    if name in RESHAPE_IN_PLACE:
        trace.reshaped.append(base)
    elif any(base is item for item in trace.reshaped):
        raise refusal("AO0075")


def refuse_lists_as_eager(trace: Interception, call: Call) -> None:
    """The same for an operator that writes to a list of tensors."""
    if torch.is_grad_enabled():
        others, name = tensors_in(call.args[1:]), call.name.removeprefix("_foreach_")
        for target in call.args[0] if call.args else call.kwargs["self"]:
            refuse_as_eager(trace, name, target, (target, *others))


def write_to_several_lists(call: Call) -> Callable[..., Any] | None:
    """What such an operator does, in its functional form, whose results are the new values list by
    list; None where no list is empty: torch takes an empty one for one that is not functional, and
    asserts that none is. Distributed tensors are written to by their parts: torch spreads no call
    of the functional form."""
    fake_fused_steps()
    args, kwargs, name = call.args, call.kwargs, call.name
    spread = any(map(is_distributed_tensor, tensors_in(args)))
    schema = getattr(torch.ops.aten, name).default._schema
    lists = [
        args[index] if index < len(args) else kwargs[argument.name]
        for index, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    if not spread and (all(lists) or not any(lists)):
        return None
    keys = [storage_key(own_part(tensor)) for tensors in lists for tensor in tensors]
    if len(set(keys)) != len(keys):
        raise refusal("AO0077", func=name)
    form = getattr(torch.ops.aten, name.removesuffix("_"))

    def write(first: Any, *others: Any, **kwargs: Any) -> None:
        given = [[own_part(x, like) for x, like in zip(each, first)] for each in (first, *others)]
        for old, new in zip(lists, form(*given, **kwargs), strict=True):
            for one, other, like in zip(old, new, first[: len(old)], strict=True):
                if laid_out_alike(one, like):  # else eager writes to what was laid out anew
                    one.copy_(spread_like(one, other))

    return write


def write_to_list(call: Call, call_one: Callable[..., Any]) -> Any:
    """Operators that write to a list of tensors, one after the other: in eager every write raises a
    version counter and is seen by those after it, above functionalization none is.

    Those whose tensors share memory are made of calls of `call_one`, one for each tensor.
    """
    args = call.args
    targets = args[0] if args else call.kwargs["self"]
    keys = [storage_key(tensor) for tensor in targets]
    lists = [values for values in args[1:] if isinstance(values, (list, tuple))]
    others = {
        storage_key(tensor)
        for values in lists
        for index, tensor in enumerate(values)
        if isinstance(tensor, torch.Tensor) and tensor is not targets[index]
    }
    if len(set(keys)) != len(keys) or others & set(keys):
        single = getattr(torch.Tensor, call.name.removeprefix("_foreach_"), None)
        # Eager's derivative knows of no memory that is written to twice.
        tensors = tensors_in([targets, *lists])
        recorded = torch.is_grad_enabled() and any(item.requires_grad for item in tensors)
        if single is None or len(args) > 2 or not args or recorded:
            raise refusal("AO0077", func=call.name)
        for index, tensor in enumerate(targets):
            own = [item[index] if isinstance(item, (list, tuple)) else item for item in args[1:]]
            call_one(single, (tensor, *own), call.kwargs)
        return None
    before = [version(tensor) for tensor in targets]
    refuse_dtypes(call)
    result = call()
    for tensor, count in zip(targets, before, strict=True):
        if version(tensor) == count:
            raise_version(tensor)
    return result


def write_on_copy(target: torch.Tensor, call: Call, layouts: Layouts) -> Any:
    """A call that may write to `target`.

    What it reads must not be memory that it writes, but for elements at the indices that they are
    written at: eager refuses such a call, or gives what the order of its kernel gives.
    """
    if not is_functional(target):
        return _write_keeping_strides(target, call, layouts)
    before, inexact = version(target), layouts.inexact(target)
    result = _write_keeping_strides(target, call, layouts)
    name, args, kwargs = call.name.split(".")[0], call.args, call.kwargs
    if version(target) == before or name in RESHAPE_IN_PLACE:
        return result
    if inexact is not None:
        raise refusal("AO0078", name=name, inexact=inexact)
    key = storage_key(target)
    given = tensors_in((args, {n: x for n, x in kwargs.items() if n != "out"}))
    given = given[1:] if "out" not in kwargs else given
    beside = [x for x in given if storage_key(x) == key]
    if not beside:
        return result
    if name == "__setitem__" and is_basic(args[1]):
        target = target.detach()[args[1]]
    written = layouts.of(target)
    for other in map(layouts.of, beside):
        in_place = same_elements(written, other) and _reads_where_it_writes(name)
        if not in_place and share_elements(written, other):
            raise refusal("AO0079", name=name)
    return result


def _reads_where_it_writes(name: str) -> bool:
    """Whether what an in-place function writes at an index depends on what is at that index."""
    if name in ("copy_", "__setitem__") or name in _IN_PLACE_SIGNS:
        return True
    operator = getattr(torch.ops.aten, name, None)
    overloads = [] if operator is None else operator.overloads()
    return any(torch.Tag.pointwise in getattr(operator, item).tags for item in overloads)


def is_basic(index: Any) -> bool:
    """Whether an index is made of numbers and slices, so that it is a view."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(
        part is None or (isinstance(part, int | slice | type(...)) and not isinstance(part, bool))
        for part in parts
    )


def _write_keeping_strides(target: torch.Tensor, call: Call, layouts: Layouts) -> Any:
    """A call on a tensor that it may write to: with `out=`, its operands order what it makes. Where
    a transform of `torch.func` hides it in another one, what is hidden keeps its strides."""
    given, call = call, _as_written(target, call)
    inside = shown(target)
    own = inside is target
    if not is_functional(inside) or (own and call.name in RESHAPE_IN_PLACE):
        return call()
    before, base = version(inside), base_of(inside)
    shape, strides = tuple(base.shape), tuple(base.stride())
    layout = layouts.of(inside) if own and layouts.may_repeat(inside) else None
    if own or hasattr(call.func, "__code__"):
        result = call()
    else:
        with without_tangents_in_texts():
            result = call()
    if version(inside) == before:
        return result
    refuse_dtypes(given)
    if layout is not None and overlaps_itself(layout):
        raise refusal("AO0080")
    if lay_out_as(base, shape, strides):
        current_value(inside)
    return result


def refuse_dtypes(call: Call) -> None:
    """Raise where eager refuses to write a result of this dtype."""
    if words := refusal_by_eager(call.func, call.args, call.kwargs):
        raise refusal("AO0056", func=call.name, words=words)


def lay_out_as(base: torch.Tensor, shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Lay out what was written to memory as before, if it has the size of before; whether it was
    laid out otherwise."""
    current_value(base)
    other = tuple(base.shape) == tuple(shape) and tuple(base.stride()) != tuple(strides)
    if other:
        _restride(base, tuple(strides))
    return other


def _restride(base: torch.Tensor, strides: tuple[int, ...]) -> None:
    """Lay the new value of a functional tensor out by these strides, where they leave no gaps;
    else in their order. A value that has no other step between elements is not copied."""
    aten, value = torch.ops.aten, current_value(base)
    shape = tuple(value.shape)
    free = 0 in shape
    stepped = [d for d, n in enumerate(shape) if not (free or n == 1)]
    with torch.no_grad():
        if any(value.stride(d) != strides[d] for d in stepped):
            order = sorted(range(value.dim()), key=lambda d: (-strides[d], d))
            inverse = sorted(range(value.dim()), key=order.__getitem__)
            laid = aten.permute.default(value, order)
            laid = aten.clone.default(laid, memory_format=torch.contiguous_format)
            value = aten.permute.default(laid, inverse)
        if tuple(value.stride()) != strides and is_dense(shape, strides):
            value = aten._reshape_alias.default(value, shape, strides)
        replace_value(base, value)


OF_WHOLE_NUMBERS = frozenset(
    f"bitwise_{name}" for name in ("and", "or", "xor", "left_shift", "right_shift")
)
OF_REAL_NUMBERS = frozenset({"maximum", "minimum", "max", "min", "clamp_max", "clamp_min"})
"""Functions whose kernels for CUDA are chosen by the dtype of what they write to, not by that of
the operands: of those for a CPU, which write a converted copy, one takes any dtype."""

OF_A_CPU = frozenset({"narrow_copy", "_add_relu"})
"""Functions of which no kernel for CUDA writes to what it is given."""

COMPUTED_AS_WRITTEN_IF_WHOLE = frozenset({"fmax", "fmin"})
COMPUTED_AS_WRITTEN = (
    OF_REAL_NUMBERS | OF_WHOLE_NUMBERS | {"logaddexp", "logaddexp2"} | COMPUTED_AS_WRITTEN_IF_WHOLE
)
"""Functions whose kernels for CUDA compute in the dtype of `out`, of whatever dtypes the operands
are; some of them only where these promote to whole numbers."""
COMPUTED_IN_PLACE = frozenset({"clamp_max_", "clamp_min_", "__ilshift__", "__irshift__"}) | {
    f"{name}_" for name in OF_WHOLE_NUMBERS
}
"""Those that compute so in place."""


def _as_written(target: torch.Tensor, call: Call) -> Call:
    """The call with its operands in the dtype that its kernel computes in; one that writes to
    nothing stays as it is."""
    names = COMPUTED_AS_WRITTEN if call.kwargs.get("out") is target else COMPUTED_IN_PLACE
    name = call.name.split(".")[0]
    if target.device.type != "cuda" or name not in names:
        return call
    whole = name in COMPUTED_AS_WRITTEN_IF_WHOLE
    if whole and torch.result_type(*call.args[:2]).is_floating_point:
        return call

    def taken(x: Any) -> Any:
        return x.to(target.dtype) if isinstance(x, torch.Tensor) and x is not target else x

    kwargs = {name: taken(x) for name, x in call.kwargs.items()}
    return replace(call, args=tuple(map(taken, call.args)), kwargs=kwargs)


def _has_no_kernel(name: str, out: torch.Tensor) -> bool:
    """Whether eager refuses to write to `out` for its device and dtype alone."""
    whole = not (out.dtype.is_floating_point or out.dtype.is_complex)
    return out.device.type == "cuda" and (
        name in OF_A_CPU
        or (name in OF_WHOLE_NUMBERS and not whole)
        or (name in OF_REAL_NUMBERS and out.dtype.is_complex)
    )


def keeping_size(out: torch.Tensor, call: Call, layouts: Layouts) -> Any:
    """A call that writes its result to `out`; functionalization loses views of a resized one."""
    name = call.name
    if _has_no_kernel(name.split(".")[0], out):
        raise refusal("AO0083", func=name, dtype=out.dtype)
    before, base, written = tuple(out.shape), base_of(out), version(out)
    if torch.is_grad_enabled() and base.requires_grad:
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic "
            "differentiation, but one of the arguments requires grad."
        )
    if any(not tensor.numel() for tensor in (out, *call.args) if isinstance(tensor, torch.Tensor)):
        raise refusal("AO0084", func=name)
    if base is not out:
        return _written_to_a_view(out, call, layouts)
    if is_functional(out) and has_metadata_mutation(out):
        raise refusal("AO0086", func=name)
    failure: Exception | None = None
    result: Any = None
    try:
        result = write_on_copy(out, call, layouts)
    except (IndexError, RuntimeError) as error:
        failure = error
    if tuple(out.shape) != before:
        # Functionalization takes views of `out` again, of a shape that they do not fit.
        raise refusal("AO0087", func=name, before=before, shape=tuple(out.shape)) from failure
    if failure is not None:
        raise failure
    if is_functional(out) and version(out) == written:
        # Written by an unsafe view of `out`, which functionalization takes for a copy, or not at
        # all: some composite operators leave it out where a mode of dispatch is on.
        refuse_dtypes(call)
        given = {key: value for key, value in call.kwargs.items() if key != "out"}
        out.copy_(call.func(*call.args, **given))
    return result


def _written_to_a_view(out: torch.Tensor, call: Call, layouts: Layouts) -> torch.Tensor:
    """The same where `out` is a view: the result in memory of its own, then a copy of that.
    Functionalization would put one of another size into the base unseen."""
    own = _own_memory(out, call)
    keeping_size(own, replace(call, kwargs={**call.kwargs, "out": own}), layouts)
    write_on_copy(out, Call(torch.Tensor.copy_, (out, own), {}), layouts)
    return out


def _own_memory(out: torch.Tensor, call: Call) -> torch.Tensor:
    """Memory for what is written to a view, laid out as the view is."""
    others = [tensor for tensor in tensors_in([call.args, call.kwargs]) if tensor is not out]
    repeated = any(step == 0 and size > 1 for size, step in zip(out.shape, out.stride()))
    if repeated or any(base_of(tensor) is base_of(out) for tensor in others):
        raise refusal("AO0085", func=call.name)
    return out.new_empty_strided(tuple(out.shape), tuple(out.stride()))


def keeping_strides(outs: Sequence[torch.Tensor], call: Call, layouts: Layouts) -> Any:
    """A call that writes its results to several tensors."""
    refuse_dtypes(call)
    own = tuple(out if base_of(out) is out else _own_memory(out, call) for out in outs)
    before = [(tuple(out.shape), tuple(out.stride())) for out in own]
    result = replace(call, kwargs={**call.kwargs, "out": own})()
    for out, mine, (shape, strides) in zip(outs, own, before, strict=True):
        laid = not is_functional(mine) or current_value(mine).is_contiguous()
        if tuple(mine.shape) != shape and not (laid and mine is out):
            # some kernels resize it row by row, others to be laid out as their own result
            raise refusal("AO0087", func=call.name, before=shape, shape=tuple(mine.shape))
        if is_functional(mine):
            lay_out_as(mine, shape, strides)
        if mine is not out:
            write_on_copy(out, Call(torch.Tensor.copy_, (out, mine), {}), layouts)
    places = {id(mine): out for out, mine in zip(outs, own, strict=True)}
    return pytree.tree_map(lambda x: places.get(id(x), x), result)
