"""TENSOR_VALUES: the guard on a small tensor's data.

In: a tensor of few integers or booleans on the CPU. Out: the guard's kind, which compares another
tensor's elements with its own. Invariant: it is asked of tensors only that TENSOR_MATCH has found
to be of the same class, dtype, device and sizes, or answers False itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from flambeau_capture.guards.kinds import GuardKind, Params, register

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Contents:
    """The elements of a tensor, as Python has them."""

    dtype: torch.dtype
    elements: Any

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Contents:
        return cls(tensor.dtype, tensor.tolist())

    def hold(self, value: Any) -> bool:
        found = getattr(value, "dtype", None) is self.dtype and value.device.type == "cpu"
        return found and bool(value.tolist() == self.elements)

    def __str__(self) -> str:
        return f"a tensor of {self.elements}"


def _hold(params: Params, value: Any) -> bool:
    contents: Contents = params[0]
    return contents.hold(value)


TENSOR_VALUES = register(
    GuardKind(
        "TENSOR_VALUES",
        holds=lambda value, params: _hold(params, value),
        check=lambda params: ("PREDICATE", partial(_hold, params)),
        expected=lambda params: str(params[0]),
        got=lambda value, params: f"a tensor of {value.tolist()}",
        cost=4,
        prepare=lambda params: (Contents.of(params[0]),),
    )
)
