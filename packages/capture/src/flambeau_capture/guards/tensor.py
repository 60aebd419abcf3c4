"""TENSOR_MATCH: the guard on a tensor's metadata.

In: a tensor. Out: a `TensorSpec`, which checks other tensors against it in plain Python and gives
the native pattern that does the same by reading fields. Invariant: a pattern reads fields only
where, for the very tensor it was made from, they agreed with what torch says of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from flambeau_capture import _torch_compat as compat
from flambeau_capture.guards.equality import same
from flambeau_capture.guards.kinds import Params, register, shown

if TYPE_CHECKING:
    import torch

    from flambeau_capture._native import TensorPattern

Dims = tuple[int | None, ...]


class NotYetSymbolic(Exception):
    """A size is a symbol where this stage takes integers only."""


@dataclass(frozen=True)
class TensorSpec:
    """`None` among sizes and strides leaves that dimension open."""

    cls: type
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    dispatch_keys: int
    sizes: Dims
    strides: Dims | None  # None: the layout has no strides

    @classmethod
    def of(
        cls,
        tensor: torch.Tensor,
        dynamic_dims: tuple[int, ...] = (),
        dynamic_strides: tuple[int, ...] | None = None,
    ) -> TensorSpec:
        """`dynamic_strides` None: those that may depend on an open size."""
        sizes, strides = _static(tuple(tensor.shape)), _strides(tensor)
        if strides is None:
            open_strides: Dims | None = None
        elif dynamic_strides is None:
            open_strides = _open_strides(strides, dynamic_dims)
        else:
            open_strides = _without(strides, dynamic_strides)
        kind = (type(tensor), tensor.dtype, tensor.device, tensor.requires_grad)
        keys = _compat().dispatch_keys(tensor)
        return cls(*kind, keys, _without(sizes, dynamic_dims), open_strides)

    def difference(self, value: Any) -> tuple[str, str] | None:
        """The first thing in which a value differs: what was expected of it, what it is."""
        cls: type = type(value)
        if cls is not self.cls:
            return f"class {self.cls.__qualname__}", f"class {cls.__qualname__}"
        for name in ("dtype", "device", "requires_grad"):
            if getattr(value, name) != getattr(self, name):
                return f"{name} {getattr(self, name)}", f"{name} {getattr(value, name)}"
        if (keys := _compat().dispatch_keys(value)) != self.dispatch_keys:
            return f"dispatch keys {self.dispatch_keys:#x}", f"dispatch keys {keys:#x}"
        sizes = tuple(value.shape)
        if len(sizes) != len(self.sizes):
            return f"{len(self.sizes)} dimensions", f"{len(sizes)} dimensions"
        if not _fits(self.sizes, sizes):
            return f"sizes {_shown(self.sizes)}", f"sizes {_shown(sizes)}"
        strides = _strides(value)
        if self.strides is None or strides is None:
            return None if self.strides is strides else ("another layout", str(value.layout))
        if not _fits(self.strides, strides):
            return f"strides {_shown(self.strides)}", f"strides {_shown(strides)}"
        return None

    def holds(self, value: Any) -> bool:
        cls: type = type(value)
        alike = (
            cls is self.cls
            and value.shape == self.sizes  # none of which is open, if so
            and value.dtype is self.dtype
            and value.requires_grad is self.requires_grad
            and value.device == self.device
            and _compat().dispatch_keys(value) == self.dispatch_keys
            and _strides(value) == self.strides
        )
        return alike or self.difference(value) is None

    def pattern(self) -> TensorPattern:
        """The native check. Reads fields if they can be trusted for tensors like this one."""
        # the layout is looked for at the first tensor, not at import: it needs torch
        from flambeau_capture._native import TensorPattern
        from flambeau_capture.guards._tensor_layout import encode, tensor_layout

        layout = tensor_layout()
        fields = None if self.strides is None else encode(self.cls, self.dtype, self.device)
        dense = _compat().is_plain_dense(self.dispatch_keys)
        if layout is None or fields is None or self.strides is None or not dense:
            return TensorPattern(self.cls, self.holds)
        known = (layout, self.dispatch_keys, *fields, self.requires_grad)
        return TensorPattern(self.cls, self.holds, *known, self.sizes, self.strides)

    def __str__(self) -> str:
        grad = ", requires_grad" if self.requires_grad else ""
        name = f"{self.cls.__qualname__}, {self.dtype}, {self.device}{grad}"
        return f"{name}, sizes {_shown(self.sizes)}, strides {_shown(self.strides or ())}"


def _static(dims: tuple[Any, ...]) -> tuple[int, ...]:
    for dim in dims:
        if type(dim) is not int:
            raise NotYetSymbolic(f"a tensor guard on the symbolic size or stride {dim}")
    return dims


def _strides(tensor: torch.Tensor) -> tuple[int, ...] | None:
    import torch  # at first use: the rest of the guards works without torch

    return _static(tuple(tensor.stride())) if tensor.layout is torch.strided else None


def _without(dims: tuple[int, ...], places: tuple[int, ...]) -> Dims:
    return tuple(None if i in places else dim for i, dim in enumerate(dims))


def _open_strides(strides: tuple[int, ...], dynamic_dims: tuple[int, ...]) -> Dims:
    """A stride that may depend on an open size, because it is not below that dimension's own, is
    open too."""
    open_strides = [strides[i] for i in dynamic_dims]
    return tuple(
        None
        if any(stride >= other and i != d for d, other in zip(dynamic_dims, open_strides))
        else stride
        for i, stride in enumerate(strides)
    )


def _fits(wanted: Dims, dims: tuple[int, ...]) -> bool:
    return all(want is None or want == dim for want, dim in zip(wanted, dims, strict=True))


def _shown(dims: Dims) -> str:
    return "(" + ", ".join("any" if dim is None else str(dim) for dim in dims) + ")"


def _compat() -> ModuleType:
    from flambeau_capture import _torch_compat  # torch, at first use

    return _torch_compat


def _got(value: Any, params: Params) -> str:
    difference = params[0].difference(value)
    return difference[1] if difference else str(TensorSpec.of(value))


TENSOR_MATCH = register(
    "TENSOR_MATCH",
    lambda value, params: params[0].holds(value),
    expected=lambda params: str(params[0]),
    got=_got,
    check=lambda params: ("TENSOR", params[0].pattern()),
    cost=2,
)


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


TENSOR_VALUES = register(
    "TENSOR_VALUES",
    lambda value, params: params[0].hold(value),
    expected=lambda params: str(params[0]),
    got=lambda value, params: f"a tensor of {value.tolist()}",
    cost=4,
    prepare=lambda params: (Contents.of(params[0]),),
)


def _flattened(value: Any) -> tuple[tuple[str, ...], Any]:
    names, context, _ = compat.flattened(value)
    return names, context


FLATTENS = register(
    "FLATTENS",
    lambda value, params: same(_flattened(value), params),
    expected=lambda params: f"a tensor subclass of {', '.join(params[0])}, context {params[1]!r}",
    got=lambda value, params: shown(_flattened(value)),
    cost=4,
)
