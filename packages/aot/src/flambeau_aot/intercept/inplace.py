"""In-place calls that functionalisation would get wrong.

What comes in: calls of torch functions on functional tensors. What goes out: the same calls, with
the strides and version counters that eager leaves; a refusal where functionalization would give
another value than eager.
Invariant: a tensor that is written to in place keeps its strides, and its memory those of its
base; no call reads memory that it writes, but for elements at the indices that they are written at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from flambeau_aot._torch_compat import (
    base_of,
    current_value,
    has_metadata_mutation,
    is_functional,
    keep_value,
    raise_version,
    replace_value,
    storage_key,
    version,
)
from flambeau_aot.errors import Unsupported
from flambeau_aot.inputs.memory_overlap import (
    Layouts,
    StorageLayout,
    overlaps_itself,
    same_elements,
    share_elements,
)
from flambeau_aot.joint.fake_metadata import is_dense
from flambeau_aot.joint.nested import tensors_in

WRITE_TO_LISTS = frozenset(
    name for name in dir(torch) if name.startswith("_foreach_") and name.endswith("_")
)
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


def count_again(wrapper: torch.Tensor) -> None:
    """After `as_strided_` a functional tensor goes on counting its elements of before."""
    keep_value(wrapper, current_value(wrapper))


def writes_in_place(name: str) -> bool:
    """Whether a torch function of this name writes to its first argument."""
    if name.startswith("__"):
        return name == "__setitem__" or name in _IN_PLACE_SIGNS
    return name.endswith("_") and name not in _NO_WRITE


def write_to_several_lists(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[..., Any] | None:
    """What such an operator does, in its functional form, whose results are the new values list by
    list; None where no list is empty: torch takes an empty one for one that is not functional, and
    asserts that none is."""
    schema = getattr(torch.ops.aten, func.__name__).default._schema
    lists = [
        args[index] if index < len(args) else kwargs[argument.name]
        for index, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    if all(lists) or not any(lists):
        return None
    keys = [storage_key(tensor) for tensors in lists for tensor in tensors]
    if len(set(keys)) != len(keys):
        raise Unsupported(
            f"{func.__name__} writes to tensors that share memory; write to them one by one"
        )
    form = getattr(torch.ops.aten, func.__name__.removesuffix("_"))

    def write(*args: Any, **kwargs: Any) -> None:
        for old, new in zip(lists, form(*args, **kwargs), strict=True):
            for one, other in zip(old, new, strict=True):
                one.copy_(other)

    return write


def write_to_list(
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    call: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any],
) -> Any:
    """Operators that write to a list of tensors, one after the other: in eager every write
    raises a version counter and is seen by those after it, above functionalization none is.

    Those whose tensors share memory are made of `call`s, one for each tensor.
    """
    targets = args[0] if args else kwargs["self"]
    keys = [storage_key(tensor) for tensor in targets]
    others = [
        storage_key(tensor)
        for values in args[1:]
        if isinstance(values, (list, tuple))
        for index, tensor in enumerate(values)
        if isinstance(tensor, torch.Tensor) and tensor is not targets[index]
    ]
    if len(set(keys)) != len(keys) or set(keys) & set(others):
        single = getattr(torch.Tensor, func.__name__.removeprefix("_foreach_"), None)
        tensors = [
            *targets,
            *(x for item in args[1:] if isinstance(item, (list, tuple)) for x in item),
        ]
        # Eager's derivative knows of no memory that is written to twice.
        recorded = torch.is_grad_enabled() and any(
            isinstance(item, torch.Tensor) and item.requires_grad for item in tensors
        )
        if single is None or len(args) > 2 or not args or recorded:
            raise Unsupported(
                f"{func.__name__} writes to tensors that share memory; write to them one by one"
            )
        for index, tensor in enumerate(targets):
            own = [item[index] if isinstance(item, (list, tuple)) else item for item in args[1:]]
            call(single, (tensor, *own), kwargs)
        return None
    before = [version(tensor) for tensor in targets]
    result = func(*args, **kwargs)
    for tensor, count in zip(targets, before, strict=True):
        if version(tensor) == count:
            raise_version(tensor)
    return result


def write_on_copy(
    target: torch.Tensor,
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    layouts: Layouts,
) -> Any:
    """A call that may write to `target`.

    What it reads must not be memory that it writes, but for elements at the indices that they are
    written at: eager refuses such a call, or gives what the order of its kernel gives.
    """
    if not is_functional(target):
        return func(*args, **kwargs)
    before, inexact = version(target), layouts.inexact(target)
    result = write_keeping_strides(target, func, args, kwargs, layouts)
    name = getattr(func, "__name__", "").split(".")[0]
    if version(target) == before or name in RESHAPE_IN_PLACE:
        return result
    if inexact is not None:
        raise Unsupported(f"{name} writes to {inexact}; write to slices of it, or to a clone")
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
            raise Unsupported(
                f"{name} writes to memory that it reads at other places; clone what it reads"
            )
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


def write_keeping_strides(
    target: torch.Tensor,
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    layouts: Layouts,
) -> Any:
    """A call on a tensor that it may write to: with `out=`, its operands order what it makes."""
    if not is_functional(target) or getattr(func, "__name__", "") in RESHAPE_IN_PLACE:
        return func(*args, **kwargs)
    before = version(target)
    base = base_of(target)
    shape, strides = tuple(base.shape), tuple(base.stride())
    overlaps = layouts.may_repeat(target) and overlaps_itself(layouts.of(target))
    result = func(*args, **kwargs)
    if version(target) == before:
        return result
    if overlaps:
        raise Unsupported(
            "a write to an expanded tensor, or to another whose elements share memory; write to a "
            "clone, or to the tensor that was expanded"
        )
    if lay_out_as(base, shape, strides):
        current_value(target)
    return result


def lay_out_as(base: torch.Tensor, shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Lay out what was written to memory as before, if it has the size of before; whether it was
    laid out otherwise."""
    current_value(base)
    other = tuple(base.shape) == tuple(shape) and tuple(base.stride()) != tuple(strides)
    if other:
        _restride(base, tuple(strides))
    return other


def has_gaps(tensor: torch.Tensor) -> bool:
    """Whether there is memory between the elements, and none that two elements share."""
    return have_gaps(tuple(tensor.shape), tuple(tensor.stride()))


def have_gaps(shape: tuple[Any, ...], strides: tuple[Any, ...]) -> bool:
    """The same of a tensor of these sizes and strides."""
    if is_dense(shape, strides):
        return False
    end = 0
    for size, step in sorted(zip(shape, strides, strict=True), key=lambda pair: pair[1]):
        if size > 1:
            if step <= end:
                return False
            end += (size - 1) * step
    return True


MADE_BY_STRIDES: dict[Any, tuple[Any, int]] = {
    torch.empty_strided: (torch.empty, 0),
    torch.ops.aten.empty_strided: (torch.empty, 0),
    torch.ops.aten.empty_strided.default: (torch.empty, 0),
    torch.Tensor.new_empty_strided: (torch.Tensor.new_empty, 1),
    torch.ops.aten.new_empty_strided: (torch.Tensor.new_empty, 1),
    torch.ops.aten.new_empty_strided.default: (torch.Tensor.new_empty, 1),
}
"""Functions that are told strides; what makes memory in their place, and where sizes begin."""


SCATTERS = frozenset(
    getattr(owner, f"{name}_scatter")
    for owner in (torch, torch.Tensor, torch.ops.aten)
    for name in ("slice", "select", "diagonal")
)
"""Functions that give a tensor with another part, laid out as the tensor is, with its gaps."""


def laid_out_alike(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], layout: StorageLayout, offset: Any
) -> torch.Tensor:
    """What one of `SCATTERS` gives of a tensor of this layout, at this place in its storage."""
    result: torch.Tensor = func(*args, **kwargs)
    size, strides = layout.shape, layout.stride
    if not all(isinstance(n, int) for n in (*size, *strides, offset)) or 0 in size:
        return result
    if (not offset and not have_gaps(size, strides)) or 0 in strides:
        return result
    reach = offset + 1 + sum((n - 1) * step for n, step in zip(size, strides, strict=True))
    return result.new_zeros([reach]).as_strided(size, strides, offset).copy_(result)


def made_by_strides(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A new tensor of these strides; with gaps, a view of memory that the graph makes whole, since
    what a graph writes and returns is dense."""
    make, at = MADE_BY_STRIDES[func]
    named = dict(kwargs)
    given = [named.pop(name, None) for name in ("size", "stride")[len(args) - at :]]
    rest = (*args[at:], *given)
    leaf = kwargs.get("requires_grad")
    if len(rest) != 2 or None in rest or leaf or not have_gaps(*map(tuple, rest)):
        return func(*args, **kwargs)
    size, strides = rest
    reach = 1 + sum((n - 1) * step for n, step in zip(size, strides, strict=True))
    return make(*args[:at], [reach], **named).as_strided(size, strides)


def _refuse_reshaped(value: torch.Tensor) -> None:
    if is_dense(tuple(value.shape), tuple(value.stride())):
        raise Unsupported(
            "a tensor with memory between its elements is given another shape in place, and "
            "written to; use the operator that returns the new shape"
        )


def lay_out_again(gaps: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Give back the gaps to tensors that have lost them in a write; each comes with the value
    that it stood for at first.

    A functional write makes a dense value; whether `contiguous` and `reshape` copy, and what
    `as_strided` reaches, depends on the gaps.
    """
    aten = torch.ops.aten
    for wrapper, first in gaps:
        value = current_value(wrapper)
        if value.stride() == first.stride():
            continue
        if has_metadata_mutation(wrapper):
            _refuse_reshaped(value)
            continue
        if value.shape != first.shape:
            raise Unsupported("a tensor gets another size in place (out=); make a new one")
        size, strides = list(first.shape), list(first.stride())
        reach = 1 + sum((n - 1) * step for n, step in zip(size, strides, strict=True))
        with torch.no_grad():
            memory = aten.new_zeros.default(value, [reach])
            filled = aten.as_strided_scatter.default(memory, value, size, strides, 0)
            replace_value(wrapper, aten.as_strided.default(filled, size, strides, 0))


def _restride(base: torch.Tensor, strides: tuple[int, ...]) -> None:
    """Lay the new value of a functional tensor out in this order of dimensions."""
    value = current_value(base)
    order = sorted(range(value.dim()), key=lambda d: (-strides[d], d))
    inverse = sorted(range(value.dim()), key=order.__getitem__)
    permute, clone = torch.ops.aten.permute.default, torch.ops.aten.clone.default
    with torch.no_grad():
        laid = clone(permute(value, order), memory_format=torch.contiguous_format)
        replace_value(base, permute(laid, inverse))
