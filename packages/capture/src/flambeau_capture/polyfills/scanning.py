"""Polyfills of torch's associative scan, sequential checkpoints and checks of sizes.

In, out: what the functions of the same name take and give. Invariant: the function of a scan is
called a number of times that grows with the logarithm of the length (Blelloch, Prefix sums and
their applications, 1990).
"""

from __future__ import annotations

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
    found = _scan(combine, moved)
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
