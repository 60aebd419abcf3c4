"""Polyfills of torch's loops over a dimension, branches, sequential checkpoints, checks of sizes.

In, out: what the functions of the same name take and give. Invariant: the function of an
associative scan is called a number of times that grows with the logarithm of the length (Blelloch,
Prefix sums and their applications, 1990); that of a map or a scan once for each slice, in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

Combine = Callable[[list[Any], list[Any]], list[Any]]


def associative_scan(
    combine_fn: Callable[[Any, Any], Any],
    xs: Any,
    dim: int,
    reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Any:
    leaves, spec = pytree.tree_flatten(xs)
    each = combine_fn if combine_mode == "pointwise" else torch.vmap(combine_fn)

    def combine(left: list[Any], right: list[Any]) -> list[Any]:
        return pytree.tree_leaves(
            each(pytree.tree_unflatten(left, spec), pytree.tree_unflatten(right, spec))
        )

    moved = [torch.movedim(leaf, dim, 0) for leaf in leaves]
    if reverse:
        moved = [torch.flip(leaf, [0]) for leaf in moved]
    length = moved[0].shape[0]
    found = _scan_open(combine, moved, length) if is_open(length) else _scan(combine, moved)
    if reverse:
        found = [torch.flip(leaf, [0]) for leaf in found]
    return pytree.tree_unflatten([torch.movedim(leaf, 0, dim) for leaf in found], spec)


def _scan(combine: Combine, xs: list[Any]) -> list[Any]:
    """Running results along the first dimension: of pairs, then of what lies between them."""
    length = xs[0].shape[0]
    if length < 2:
        return xs
    pairs = length // 2
    odd = _scan(combine, combine([x[0 : 2 * pairs : 2] for x in xs], [x[1::2] for x in xs]))
    later = [x[2::2] for x in xs]
    if len(later[0]) == 0:
        even = [x[:1] for x in xs]
    else:
        count = later[0].shape[0]
        between = combine([x[:count] for x in odd], later)
        even = [torch.cat([x[:1], one]) for x, one in zip(xs, between)]
    return [_interleave(one, other) for one, other in zip(even, odd)]


def _interleave(even: Any, odd: Any) -> Any:
    count = odd.shape[0]
    both = torch.stack([even[:count], odd], dim=1).flatten(0, 1)
    return both if even.shape[0] == count else torch.cat([both, even[count:]])


def is_open(number: int) -> bool:
    """False when run; code under capture sees whether a number is left open."""
    return False


def _scan_open(combine: Combine, xs: list[Any], count: int) -> list[Any]:
    """The same in the same order, in one form for all lengths between two powers of two: the first
    `count` elements are scanned, which is all or all but one. What has no partner is paired as the
    first two are, so that no value or derivative comes up that is none of the loop's."""
    length = xs[0].shape[0]
    if length < 2:
        return xs
    half = (length + 1) // 2
    first = 2 * torch.arange(half, device=xs[0].device)
    paired = first + 1 < count
    left, right = torch.where(paired, first, 0), torch.where(paired, first + 1, 1)
    pairs = combine([x[left] for x in xs], [x[right] for x in xs])
    odd = _scan_open(combine, pairs, count // 2)
    even = [x[:1] for x in xs]
    if half > 1:
        there = first[1:] < count
        later = torch.where(there, first[1:], 1)
        before = [_where(there, one[: half - 1], x[:1]) for one, x in zip(odd, xs)]
        between = combine(before, [x[later] for x in xs])
        even = [torch.cat(both) for both in zip(even, between)]
    return [torch.stack(both, dim=1).flatten(0, 1)[:length] for both in zip(even, odd)]


def _where(rows: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return torch.where(rows.reshape(-1, *[1] * (one.dim() - 1)), one, other)


#: the most slices whose calls are written out in the graph, one after the other
LONGEST = 128


def refuse(what: str) -> None:
    """Never run: a call of it ends the graph, and torch's own function says what is the case."""
    raise NotImplementedError(what)


def looped(step: Callable[[Any, Any], Any], init: Any, xs: Any) -> tuple[Any, Any]:
    """Never run: code under capture gets a loop that each call runs as often as there are slices
    along the first dimension. In: a function from what is carried and a slice to what is carried on
    and what else it gives. Out: what is carried out, and the rest, stacked."""
    raise NotImplementedError


def map_slices(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """`map`: what a function gives for each slice along the first dimension, stacked."""
    leaves, spec = pytree.tree_flatten(xs)
    length = _count_slices(leaves, 0)
    if is_open(length) or length > LONGEST:
        _, found = looped(lambda nothing, x: (nothing, f(x, *args)), (), xs)
        stacked, shape = pytree.tree_flatten(found)
    else:
        steps = [
            pytree.tree_flatten(f(pytree.tree_unflatten([leaf[i] for leaf in leaves], spec), *args))
            for i in range(length)
        ]
        stacked, shape = _stacked([found for found, _ in steps]), steps[0][1]
    _check_history([*leaves, *pytree.tree_leaves(args)], stacked)
    return pytree.tree_unflatten(stacked, shape)


def scan(
    combine_fn: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    *,
    dim: int = 0,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """The last carry, and what else each step gives, stacked along `dim`."""
    leaves, spec = pytree.tree_flatten(xs)
    before, carried = pytree.tree_flatten(init)
    if not before or not all(isinstance(leaf, torch.Tensor) for leaf in before):
        refuse("a scan that carries what is no tensor")
    if leaves and isinstance(leaves[0], torch.Tensor) and dim < 0:
        dim += leaves[0].dim()
    length = _count_slices(leaves, dim)
    if is_open(length) or length > LONGEST:
        given = [torch.movedim(leaf, dim, 0) for leaf in leaves]
        given = [leaf.flip(0) for leaf in given] if reverse else given
        carry, found = looped(combine_fn, init, pytree.tree_unflatten(given, spec))
        stacked, shape = pytree.tree_flatten(found)
        stacked = [x.flip(0) for x in stacked] if reverse else stacked
    else:
        carry, steps, shape = init, [], carried
        for i in range(length - 1, -1, -1) if reverse else range(length):
            given = pytree.tree_unflatten([leaf.select(dim, i) for leaf in leaves], spec)
            carry, out = combine_fn(carry, given)
            after, now = pytree.tree_flatten(carry)
            if now != carried or [_metadata(x) for x in after] != [_metadata(x) for x in before]:
                refuse("a scan that changes the metadata of what it carries")
            found, shape = pytree.tree_flatten(out)
            steps.append(found)
        stacked = _stacked(steps[::-1] if reverse else steps)
    _check_history([*before, *leaves], [*pytree.tree_leaves(carry), *stacked])
    moved = [torch.movedim(x, 0, dim) if dim and dim < x.dim() else x for x in stacked]
    return carry, pytree.tree_unflatten(moved, shape)


def _count_slices(leaves: list[Any], dim: int) -> int:
    if not leaves or not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        refuse("a loop over what is no tensor")
    if any(dim < 0 or leaf.dim() <= dim for leaf in leaves):
        refuse("a loop over a dimension that is not there")
    length: int = leaves[0].shape[dim]
    if any(leaf.shape[dim] != length for leaf in leaves[1:]) or not length > 0:
        refuse("a loop over slices of several counts, or over none")
    return length


def _stacked(steps: list[list[Any]]) -> list[Any]:
    if len({len(step) for step in steps}) != 1:
        refuse("a loop whose steps answer differently")
    columns = list(zip(*steps))
    for column in columns:
        if not all(isinstance(x, torch.Tensor) for x in column):
            refuse("a loop that gives what is no tensor")
        if any(_metadata(x) != _metadata(column[0]) for x in column):
            refuse("a loop whose steps answer differently")
    return [torch.stack(column) for column in columns]


def _check_history(given: list[Any], made: list[Any]) -> None:
    """torch's own is one node of autograd, and all that it makes requires grad, or nothing does."""
    flags = {x.requires_grad for x in made if x.is_floating_point() or x.is_complex()}
    tensors = [x for x in given if isinstance(x, torch.Tensor)]
    if torch.is_grad_enabled() and False in flags:
        if True in flags or any(x.requires_grad for x in tensors):
            refuse("a loop of whose results some require grad")


def _metadata(x: Any) -> tuple[Any, ...]:
    return x.dtype, x.device, tuple(x.shape)


def of_two_sizes(predicate: Any, one: Any, other: Any) -> Any:
    """`cond` of tensors that differ in their sizes: what is chosen, out of both in a row."""
    chosen = predicate.reshape(())
    sizes = [m if m == n else (chosen * (m - n) + n).item() for m, n in zip(one.shape, other.shape)]
    both = torch.cat([one.flatten(), other.flatten()])
    first = (chosen.logical_not() * one.numel()).item()
    return both[first : first + math.prod(sizes)].view(sizes).clone()


def wrap(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return func(*args, **kwargs)


def wrap_with_set_grad_enabled(
    enable_grad: bool, wrapped_func: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(enable_grad)
    found = wrapped_func(*args, **kwargs)
    torch.set_grad_enabled(before)
    return found


def wrap_with_autocast(
    device_type: str,
    dtype: torch.dtype | None,
    enabled: bool,
    cache_enabled: bool | None,
    wrapped_func: Callable[..., Any],
    *args: Any,
    **kwargs: Any,
) -> Any:
    with torch.autocast(device_type, dtype, enabled, cache_enabled):
        return wrapped_func(*args, **kwargs)


def checkpoint_sequential(
    functions: Any,
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
) -> Any:
    options: dict[str, Any] = {
        "use_reentrant": use_reentrant,
        "preserve_rng_state": preserve_rng_state,
    }
    steps = list(functions.children()) if isinstance(functions, torch.nn.Sequential) else functions
    length = len(steps) // segments
    for start in range(0, length * (segments - 1), length):
        segment = _one_after_the_other(steps[start : start + length])
        input = checkpoint(segment, input, **options)
    return _one_after_the_other(steps[length * (segments - 1) :])(input)


def _one_after_the_other(steps: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def run(input: Any) -> Any:
        for step in steps:
            input = step(input)
        return input

    return run


def check_is_size(i: Any, message: Any = None, *, max: Any = None) -> None:
    """Whether a number is a size, and no larger than `max`."""
    torch._check(i >= 0, message)
    if max is not None:
        torch._check(i <= max, message)
