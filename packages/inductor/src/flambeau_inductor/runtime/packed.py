"""Convolutions whose weights are brought into the library's own order once.

In: the arguments of `aten.convolution`. Out: its result. Invariant: a packed weight is used only
with the tensor that it was made of, while that tensor has not been written to; anything that
oneDNN does not take goes to the plain operator.

Without this each call reorders the weights anew, which for many channels and small images takes
longer than the convolution. Writes through `.data` are not seen: whoever asks for `freezing`
promises that there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_inductor._torch_compat import OpOverload, onednn_convolution, overload_of

IMAGE = 4

Ints = Sequence[int]


class PackedConvolution:
    """Call it like `aten.convolution`; it keeps what it packed for as long as it lives."""

    def __init__(self) -> None:
        self._plain: OpOverload = overload_of("aten.convolution.default")
        self._onednn = onednn_convolution()
        self._packed: dict[tuple[Any, ...], tuple[Tensor, Tensor]] = {}

    def __call__(
        self,
        image: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        stride: Ints,
        padding: Ints,
        dilation: Ints,
        transposed: bool,
        output_padding: Ints,
        groups: int,
    ) -> Tensor:
        fits = not transposed and image.dtype == torch.float32 and image.dim() == IMAGE
        if self._onednn is None or not fits or not image.numel() or not weight.numel():
            result: Tensor = self._plain(
                image, weight, bias, stride, padding, dilation, transposed, output_padding, groups
            )
            return result
        compute, pack = self._onednn
        shape = tuple(image.shape)
        key = (weight.data_ptr(), weight._version, shape, *map(tuple, (stride, padding, dilation)))
        if key not in self._packed:
            packed = pack(weight, padding, stride, dilation, groups, shape)
            self._packed[key] = weight, packed  # while it is kept, nobody else gets its address
        arguments: tuple[Any, ...] = (padding, stride, dilation, groups, "none", [], "")
        result = compute(image, self._packed[key][1], bias, *arguments)
        return result
