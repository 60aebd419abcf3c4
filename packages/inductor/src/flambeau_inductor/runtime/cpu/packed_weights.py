"""Prepacked weights of convolutions and linear maps.

In: the arguments of `aten.convolution`, or of oneDNN's own. Out: its result. Invariant: a packed
weight is used only with the tensor that it was made of, while that has not been written to (but
through `.data`, which `freezing` rules out); what oneDNN does not take goes to the plain operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from flambeau_inductor._torch_compat import (
    OpOverload,
    onednn_convolution,
    onednn_packed_linear,
    overload_of,
)
from flambeau_inductor.tuning import host_tuning

IMAGE = 4

MOST_FORMS = 8
"""Packed forms of one weight that are kept: images of other sizes, and weights that were written
to, have others."""


class PackedForms:
    """The last few packed forms of each weight, for as long as this lives."""

    def __init__(self) -> None:
        self._forms: dict[int, dict[tuple[Any, ...], tuple[Tensor, Tensor]]] = {}

    def of(self, weight: Tensor, how: tuple[Any, ...], pack: Callable[[], Tensor]) -> Tensor:
        """What `pack` gives for `weight` as it is now, and for `how`."""
        forms = self._forms.setdefault(weight.data_ptr(), {})
        key = (weight._version, weight.shape, weight.stride(), *how)
        found = forms.get(key)
        if found is None:
            while len(forms) >= MOST_FORMS:
                forms.pop(next(iter(forms)), None)
            # while the weight is kept, nobody else gets its address
            found = forms[key] = weight, pack()
        return found[1]


class PackedWeights:
    """Weights of convolutions in oneDNN's order, for as long as this lives."""

    def __init__(self, pack: OpOverload) -> None:
        self._pack = pack
        self._forms = PackedForms()

    def of(self, weight: Tensor, image: Tensor, geometry: Sequence[Any]) -> Tensor:
        """The weight for images of this size and order, `geometry` being padding, stride, dilation
        and groups; itself where packing it does not pay."""
        padding, stride, dilation, groups = geometry
        shape = tuple(image.shape)
        how = (shape, image.stride(1), *map(tuple, (stride, padding, dilation)))

        def packed() -> Tensor:
            if not _pays(weight, image, stride):
                return weight
            made: Tensor = self._pack(weight, padding, stride, dilation, groups, shape)
            return made

        return self._forms.of(weight, how, packed)


def _pays(weight: Tensor, image: Tensor, stride: Sequence[int]) -> bool:
    """Whether a convolution is faster with a packed weight: that of a row-major image has its image
    and its result reordered at each call, which takes longer then, unless they are small."""
    if image.is_contiguous(memory_format=torch.channels_last):
        return True
    result = image.numel() // image.shape[1] * weight.shape[0] // prod(stride)
    return host_tuning().packed_share * weight.numel() >= image.numel() + result


class PackedConvolution:
    """Call it like `aten.convolution`."""

    def __init__(self) -> None:
        self._plain: OpOverload = overload_of("aten.convolution.default")
        self._onednn = None if onednn_convolution() is None else PackedOneDnn()

    def __call__(self, image: Tensor, weight: Tensor, bias: Tensor | None, *others: Any) -> Tensor:
        stride, padding, dilation, transposed, _, groups = others
        fits = not transposed and image.dtype == torch.float32 and image.dim() == IMAGE
        if self._onednn is not None and fits and image.numel() > 0 and weight.numel() > 0:
            geometry = padding, stride, dilation, groups
            packed = self._onednn.weights.of(weight, image, geometry)
            if packed is not weight:
                return self._onednn.compute(image, packed, bias, *geometry, "none", [], "")
        result: Tensor = self._plain(image, weight, bias, *others)
        return result


class PackedOneDnn:
    """Call it like oneDNN's convolution, which the compiler has chosen."""

    def __init__(self) -> None:
        found = onednn_convolution()
        if found is None:
            raise LookupError("oneDNN's convolution is missing here, or switched off")
        self.compute: Callable[..., Tensor] = found[0]
        self.weights = PackedWeights(found[1])

    def __call__(self, image: Tensor, weight: Tensor, bias: Tensor | None, *others: Any) -> Tensor:
        return self.compute(image, self.weights.of(weight, image, others[:4]), bias, *others)


class PackedLinear:
    """Call it like oneDNN's linear map, which the compiler has chosen."""

    def __init__(self) -> None:
        found = onednn_packed_linear()
        if found is None:
            raise LookupError("oneDNN's linear map is missing here, or switched off")
        self._compute, self._pack = found
        self._forms = PackedForms()

    def __call__(self, rows: Tensor, weight: Tensor, bias: Tensor | None, *after: Any) -> Tensor:
        count = rows.shape[0]
        packed = self._forms.of(weight, (count,), lambda: self._pack(weight.contiguous(), count))
        result: Tensor = self._compute(rows, packed, bias, *after)
        return result
