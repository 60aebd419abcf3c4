"""One operator: samples in eager and compiled.

What comes in: an `OpInfo`. What goes out: a `Verdict`.
Invariant: eager and compiled get equal inputs in memory of their own and one random seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import flambeau_aot as aot
import torch
from torch.testing._internal import common_methods_invocations
from torch.utils import _pytree as pytree

DTYPE = torch.float64

# The descriptions seed the generator inside some operators; here it is seeded before each call.
common_methods_invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)


@dataclass(frozen=True)
class Verdict:
    """How an operator fared: "same", "refused", "different" or "no samples"."""

    name: str
    kind: str
    words: str = ""


def channels_last(value: torch.Tensor) -> torch.Tensor:
    """The second dimension innermost in memory."""
    return value.movedim(1, -1).contiguous().movedim(-1, 1) if value.dim() > 1 else value


def reversed_order(value: torch.Tensor) -> torch.Tensor:
    """The first dimension innermost in memory."""
    order = list(reversed(range(value.dim())))
    return value.permute(order).contiguous().permute(order)


def with_gaps(value: torch.Tensor) -> torch.Tensor:
    """Every other element of memory."""
    return value.repeat_interleave(2, -1)[..., ::2] if value.dim() else value


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "as they are": lambda value: value.clone(),
    "channels last": channels_last,
    "reversed": reversed_order,
    "with gaps": with_gaps,
}


def fresh(value: Any, layout: str = "as they are") -> Any:
    """A copy with a history of its own."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return value
    return LAYOUTS[layout](value.detach()).requires_grad_(value.requires_grad)


def outcome(fn: Callable[..., Any], flat: list[Any]) -> tuple[list[Any], list[Any]]:
    """Flat results, and gradients by input."""
    torch.manual_seed(0)
    results = pytree.tree_leaves(fn(*flat))
    ends = [
        torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
        for x in results
        if isinstance(x, torch.Tensor) and x.requires_grad
    ]
    leaves = [x for x in flat if isinstance(x, torch.Tensor) and x.requires_grad]
    if not ends or not leaves:
        return results, []
    weights = [torch.linspace(0.5, 1.5, x.numel(), dtype=x.dtype).reshape(x.shape) for x in ends]
    return results, list(torch.autograd.grad(ends, leaves, weights, allow_unused=True))


Call = Callable[..., Any]

REFUSED = (RuntimeError, NotImplementedError, ValueError, IndexError, TypeError)
"""What eager itself refuses a sample with."""


def name_of(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}".rstrip(".")


def calls(op: Any, samples: int) -> Iterator[tuple[Any, Call, list[Any]]]:
    """The first so many samples, each with the operator as a function of flat values, and those."""
    torch.manual_seed(1)
    for sample in islice(op.sample_inputs("cpu", DTYPE, requires_grad=True), samples):
        flat, structure = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))

        def call(*values: Any, _structure: Any = structure) -> Any:
            first, args, kwargs = pytree.tree_unflatten(list(values), _structure)
            return op.op(first, *args, **kwargs)

        yield sample, call, flat


def check(op: Any, samples: int, layout: str = "as they are") -> Verdict:
    """Compare the first so many samples of an operator, their tensors laid out so in memory."""
    name = name_of(op)
    ran = 0
    for _, call, flat in calls(op, samples):
        try:
            expected = outcome(call, [fresh(x, layout) for x in flat])
        except REFUSED:
            continue
        ran += 1
        try:
            given = outcome(aot.aot_function(call, aot.run_as_is), [fresh(x, layout) for x in flat])
        except aot.AotError as error:
            return Verdict(name, "refused", _first_line(error))
        except Exception as error:
            return Verdict(name, "different", f"{type(error).__name__}: {_first_line(error)}")
        for what, one, other in zip(("result", "gradient"), expected, given):
            words = _difference(one, other, what == "result")
            if words:
                return Verdict(name, "different", f"{what}: {words}")
    return Verdict(name, "same" if ran else "no samples")


def _difference(expected: list[Any], given: list[Any], strides: bool) -> str:
    if len(expected) != len(given):
        return f"{len(given)} instead of {len(expected)}"
    for one, other in zip(expected, given):
        if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
            if type(one) is not type(other) or (one is not other and one != other):
                return f"{other!r} instead of {one!r}"
            continue
        try:
            torch.testing.assert_close(other, one, equal_nan=True)
        except AssertionError as error:
            return _first_line(error)
        if strides and one.stride() != other.stride() and one.numel() > 1:
            wide = [size > 1 for size in one.shape]
            pairs = zip(wide, one.stride(), other.stride())
            if any(is_wide and a != b for is_wide, a, b in pairs):
                return f"strides {other.stride()} instead of {one.stride()}"
    return ""


def _first_line(error: BaseException) -> str:
    return (str(error).strip().split("\n") or [""])[0][:120]
