"""Torch's OpInfo database: operators and sample inputs.

In: a dtype, a limit. Out: entries, and sample calls of each.
Invariant: samples are the same for the same seed, and small enough that all of them run in
minutes. Tried on torch 2.13.0 and 2.11.0.

The database belongs to torch's own tests. Its module wants `expecttest` for the base class of
test cases, which is not used here; where it is not installed, `unittest`'s stands in for it.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import math
import sys
import types
import unittest
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from flambeau_prims.graph_recorder import flatten, map_values

MOST_ELEMENTS = 20_000
"""A sample with more elements than this is left out."""


@dataclass(frozen=True)
class SampleCall:
    """One sample call: `entry(*args, **kwargs)`; `differentiable` picks what gradients are of."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    differentiable: Any


def tools_of_tests() -> Any:
    """The module of torch's that the database is built on."""
    if "expecttest" not in sys.modules and importlib.util.find_spec("expecttest") is None:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    from torch.testing._internal import common_utils  # two seconds, at first use

    return common_utils


@functools.cache
def entries() -> tuple[Any, ...]:
    """All entries, in the database's order."""
    tools_of_tests()
    from torch.testing._internal.common_methods_invocations import op_db  # seconds to import

    return tuple(op_db)


@functools.cache
def by_name() -> dict[str, Any]:
    """Entries by name: `name.variant`, with a number where the database has one name twice."""
    named: dict[str, Any] = {}
    for entry in entries():
        variant = entry.variant_test_name
        label = f"{entry.name}.{variant}" if variant else str(entry.name)
        while label in named:
            base, _, number = label.partition("#")
            label = f"{base}#{int(number or 1) + 1}"
        named[label] = entry
    return named


def takes(entry: Any, dtype: torch.dtype) -> bool:
    """Whether the operation is defined on tensors of `dtype` on CPU."""
    return dtype in entry.supported_dtypes("cpu")


def has_gradient(entry: Any, dtype: torch.dtype) -> bool:
    """Whether the operation has a derivative for `dtype` on CPU."""
    if not (dtype.is_floating_point or dtype.is_complex) or not entry.supports_autograd:
        return False
    return dtype in entry.supported_backward_dtypes("cpu")


VALUES: dict[str, Callable[[torch.finfo], tuple[float, ...]]] = {
    "special": lambda info: (
        *(0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, -2.5, 3.0, 1e-3),
    ),
    "extreme": lambda info: (
        *(info.max, info.min, info.tiny, -info.tiny / 4, 1e4, -1e4, 88.0, -104.0, 1e-7),
        *(info.max / 2, 0.0),
    ),
}
"""What takes the place of two in five elements of a sample's floating-point tensors, by the name of
the draw; `samples` leaves all as they are."""


def _drawn(x: Any, values: str, generator: torch.Generator) -> Any:
    """The same with some elements replaced, where it is a tensor of floating-point numbers."""
    if not isinstance(x, torch.Tensor) or x.layout != torch.strided or x.dtype.is_complex:
        return x
    if not x.dtype.is_floating_point or x.numel() == 0:
        return x
    table = torch.tensor(VALUES[values](torch.finfo(x.dtype)), dtype=torch.float64)
    picked = table[torch.randint(0, len(table), x.shape, generator=generator)].to(x.dtype)
    chosen = torch.rand(x.shape, generator=generator) < 0.4
    return torch.where(chosen, picked, x.detach()).requires_grad_(x.requires_grad)


def _elements(tree: Any) -> int:
    return sum(leaf.numel() for leaf in flatten(tree) if isinstance(leaf, torch.Tensor))


def calls(
    entry: Any, dtype: torch.dtype, limit: int, gradient: bool, values: str = "samples"
) -> Iterator[SampleCall]:
    """Up to `limit` sample calls, spread over those that the database makes, of its values or of
    others (`VALUES`)."""
    torch.manual_seed(0)
    made = entry.sample_inputs("cpu", dtype, requires_grad=gradient)
    small = [
        sample
        for sample in itertools.islice(made, 40 * limit)
        if _elements((sample.input, sample.args, sample.kwargs)) <= MOST_ELEMENTS
    ]
    step = max(1, len(small) // limit)
    for sample in small[::step][:limit]:
        args, kwargs = (sample.input, *sample.args), sample.kwargs
        if values != "samples":
            generator = torch.Generator().manual_seed(5)

            def other(x: Any, generator: torch.Generator = generator) -> Any:
                return _drawn(x, values, generator)

            args, kwargs = map_values(other, (args, kwargs))
        yield SampleCall(args, kwargs, sample.output_process_fn_grad)
