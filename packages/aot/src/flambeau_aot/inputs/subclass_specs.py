"""Specs of tensor subclasses: what one consists of, and how it is put together.

In: tensors that have `__tensor_flatten__`. Out: `SubclassSpec`; the plain tensors in a subclass,
and a subclass of such tensors. Invariant: what in it is no tensor stays the same object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any

import torch

from flambeau_aot._torch_compat import again_alike, current_value, flattens, is_functional
from flambeau_aot.refusals import refusal


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


def grouped(
    specs: Sequence[SubclassSpec | None],
    values: Sequence[Any],
    carried: Mapping[int, Sequence[Any]] = MappingProxyType({}),
) -> Iterator[tuple[SubclassSpec | None, list[Any]]]:
    """Each spec with the plain values that are its own, and the carriers after them."""
    remaining = iter(values)
    for place, spec in enumerate(specs):
        more = len(carried.get(place, ()))
        yield spec, list(islice(remaining, 1 if spec is None else spec.count + more))


def put_together(spec: SubclassSpec, inner: Sequence[torch.Tensor]) -> Any:
    """A subclass of these plain tensors."""
    made = {
        name: own[0] if part is None else put_together(part, own)
        for name, (part, own) in zip(spec.names, grouped(spec.parts, inner), strict=True)
    }
    again = spec.__dict__.get(_AGAIN)
    if again is not None:
        return again(made)
    made.update(spec.others)
    build: Any = spec.cls
    whole = build.__tensor_unflatten__(made, spec.context, spec.size, spec.stride)
    spec.__dict__[_AGAIN] = again_alike(whole)
    return whole


_AGAIN = "_again"
"""Where a spec keeps how its class is put together again."""
