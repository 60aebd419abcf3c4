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

    def fits(self, wanted: TensorForm) -> bool:
        """Whether dtype, device and the sizes that `wanted` fixes are the same."""
        here, there = ((f.dtype, f.device, len(f.shape)) for f in (self, wanted))
        sizes = zip(self.shape, wanted.shape)
        return here == there and all(isinstance(n, str) or size == n for size, n in sizes)

    def __str__(self) -> str:
        return f"{self.dtype} of shape [{', '.join(map(str, self.shape))}] on {self.device}"


def check(place: int, leaf: Any, example: Any) -> None:
    if isinstance(example, TensorForm):
        if not isinstance(leaf, torch.Tensor):
            raise TypeError(f"argument {place} is a {type(leaf).__name__}, exported for {example}")
        if not TensorForm.of(leaf).fits(example):
            raise ValueError(f"argument {place} is {TensorForm.of(leaf)}, exported for {example}")
        if not example.lies_alike(leaf):
            raise ValueError(
                f"argument {place} has the strides {leaf.stride()}, and is exported for elements "
                f"without gaps, dimensions {example.order} from the outermost: lay it out so"
            )
    elif type(leaf) is not type(example) or leaf != example:
        raise ValueError(f"argument {place} is {leaf!r}, exported for {example!r}")
