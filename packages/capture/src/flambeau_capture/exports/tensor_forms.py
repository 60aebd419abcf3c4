"""Forms of tensors: what the arguments of an export have to be.

In: the arguments of its example. Out: forms, and a check of another call's arguments. Invariant: a
graph is called with what it was made for alone, in dtype, device, sizes and order in memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from flambeau_capture import _torch_compat as compat


@dataclass(frozen=True)
class TensorForm:
    """What a tensor argument has to be. A size that is left open is text, its expression.

    order: the dimensions from the outermost in memory; None where there are gaps between elements.
    """

    shape: tuple[int | str, ...]
    dtype: torch.dtype
    device: torch.device
    order: tuple[int, ...] | None = None

    @classmethod
    def of(cls, tensor: torch.Tensor, stand_in: torch.Tensor | None = None) -> TensorForm:
        """The form of `tensor`; sizes that its stand-in leaves open are expressions."""
        sizes = tensor.shape if stand_in is None else stand_in.shape
        known = (n if isinstance(n, int) else compat.decided(n) for n in sizes)
        shape = tuple(size if isinstance(size, int) else str(size) for size in known)
        made = cls(shape, tensor.dtype, tensor.device)
        if tensor.layout is not torch.strided:
            return made
        order = tuple(sorted(range(tensor.dim()), key=tensor.stride().__getitem__, reverse=True))
        ordered = dataclasses.replace(made, order=order)
        return ordered if ordered.lies_alike(tensor) else made

    def lies_alike(self, tensor: torch.Tensor) -> bool:
        """Whether the elements of a tensor lie in memory in this order, without gaps."""
        return self.order is None or tensor.permute(self.order).is_contiguous()

    def named(self, names: Mapping[tuple[int, int], str], place: int) -> TensorForm:
        """This form with the declared names of its sizes, as the argument at a place."""
        sizes = [names.get((place, dim), size) for dim, size in enumerate(self.shape)]
        return dataclasses.replace(self, shape=tuple(sizes))

    def __str__(self) -> str:
        return f"{self.dtype} of shape [{', '.join(map(str, self.shape))}] on {self.device}"


def difference(leaf: Any, example: Any) -> str:
    """In words, in what an argument is not of the exported form; nothing where it is."""
    if not isinstance(example, TensorForm):
        same = type(leaf) is type(example) and leaf == example
        return "" if same else f"{leaf!r}, exported for {example!r}"
    if not isinstance(leaf, torch.Tensor):
        return f"of type {type(leaf).__name__}, exported for a tensor, {example}"
    for given, wanted in ((leaf.dtype, example.dtype), (leaf.device, example.device)):
        if given != wanted:
            return f"{given}, exported for {wanted}"
    if leaf.dim() != len(example.shape):
        return f"{leaf.dim()} dimensions, exported for {len(example.shape)}: {example}"
    for dim, (size, known) in enumerate(zip(leaf.shape, example.shape, strict=True)):
        if not isinstance(known, str) and size != known:
            return f"dimension {dim} is {size}, exported for {known}: {example}"
    if example.lies_alike(leaf):
        return ""
    return (
        f"strides {leaf.stride()}, exported for elements without gaps, dimensions {example.order} "
        f"from the outermost: lay it out so"
    )
