"""Tensors over existing memory.

In: tensors and layouts (shapes and strides in elements). Out: tensors over the same memory, or over
new memory of a layout. Invariant: offsets count from the tensor's own first element.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


class WrongFake(RuntimeError):
    """An operator of a library gave what its fake, by which the graph was compiled, does not say.

    wrong_fake: its name. Capture, which imports nothing of this, knows the error by this attribute.
    """

    def __init__(self, operator: str, found: str, said: str) -> None:
        super().__init__(f"the operator {operator} gave {found} where its fake says {said}")
        self.wrong_fake = operator


Tensor = torch.Tensor
Sizes = Sequence[int]


def seen_as(tensor: Tensor, shape: Sizes, stride: Sizes, offset: int) -> Tensor:
    """The memory of `tensor`, from its element `offset` on, as a tensor of `shape`."""
    return tensor.as_strided(shape, stride, tensor.storage_offset() + offset)


def scalar(value: float, device: str = "cpu") -> Tensor:
    """A number where kernels of a device can read it; a GPU is not waited for."""
    if device == "cpu":
        return torch.tensor(value, dtype=torch.float64)
    return torch.full((), value, dtype=torch.float64, device=device)


def reuse(old: Tensor, shape: Sizes, stride: Sizes, dtype: torch.dtype) -> Tensor:
    """A tensor of `dtype` (as wide as the old one's) over the memory of `old`."""
    same = old if old.dtype == dtype else old.view(dtype)
    return same.as_strided(shape, stride)


def promised(
    value: Tensor, shape: Sizes, stride: Sizes, dtype: torch.dtype, operator: str
) -> Tensor:
    """`value`, a result of an operator of a library, which is to be as the operator's fake says."""
    pairs = zip(value.shape, value.stride(), stride, strict=False)
    moved = value.numel() and any(n > 1 and a != b for n, a, b in pairs)
    if moved or tuple(value.shape) != tuple(shape) or value.dtype != dtype:
        found = f"{value.dtype}{list(value.shape)} of strides {list(value.stride())}"
        said = f"{dtype}{list(shape)} of strides {list(stride)}"
        raise WrongFake(operator, found, said)
    return value  # where nothing is stepped along a dimension its strides are the operator's


def so_many(values: Sequence[Tensor], count: int, operator: str) -> Sequence[Tensor]:
    """Results of an operator of a library, which are to be as many as its fake gives."""
    if len(values) != count:
        raise WrongFake(operator, f"{len(values)} results", str(count))
    return values


def laid_out(
    value: Tensor, shape: Sizes, stride: Sizes, dtype: torch.dtype, eager: bool = False
) -> Tensor:
    """`value`, a library call's result, with the strides that kernels and callers count on. eager:
    it is what eager calls, whose strides are the program's where nothing is stepped along them."""
    if value.stride() == stride and value.shape == shape and value.dtype == dtype:
        return value
    if tuple(value.shape) != tuple(shape) or value.dtype != dtype:
        raise RuntimeError(
            f"a library call gave {value.dtype}{list(value.shape)} where the graph's metadata say"
            f" {dtype}{list(shape)}"
        )
    moved = any(n > 1 and a != b for n, a, b in zip(shape, value.stride(), stride, strict=True))
    if not moved or not value.numel():
        return value if eager else value.as_strided(shape, stride)
    once = [1 if not step else n for n, step in zip(shape, stride, strict=True)]  # in memory
    made = torch.empty_strided(once, stride, dtype=dtype, device=value.device)
    return made.copy_(value.as_strided(once, value.stride())).expand(shape)
