"""Races of the template's convolutions against the library's, alone and with what follows them.

bash tools/gpu.sh python3 tools/gpu/races/convolutions.py --json OUT.json
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial

import flambeau_inductor
import flambeau_prims
import torch
import torch.nn.functional as F
from flambeau_inductor import Options
from flambeau_inductor.templates.selection.select import LIBRARY
from racing import best, failures, first, outcome, parser, raced
from torch import Tensor, fx

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
LAST = torch.channels_last
Case = tuple[int, int, int, int, int, int, int, int]
DEPTHWISE = 0
"""As a number of results: as many as channels, each made of its own."""
CASES: tuple[Case, ...] = (
    # images, channels, size, results, kernel, stride, padding, dilation: ResNet-50, then UNets
    (32, 3, 224, 64, 7, 2, 3, 1), (32, 64, 56, 64, 3, 1, 1, 1), (32, 64, 56, 256, 1, 1, 0, 1),
    (32, 128, 56, 128, 3, 2, 1, 1), (32, 256, 14, 256, 3, 1, 1, 1), (32, 512, 7, 512, 3, 1, 1, 1),
    (32, 512, 28, 1024, 1, 2, 0, 1), (8, 320, 64, 320, 3, 1, 1, 1), (8, 640, 32, 640, 3, 1, 1, 1),
    (8, 256, 64, 256, 3, 1, 2, 2), (8, 4, 64, 320, 3, 1, 1, 1),
    # patches of ViT-B and of Swin
    (32, 3, 224, 768, 16, 16, 0, 1), (32, 3, 224, 96, 4, 4, 0, 1),
    # depthwise: ConvNeXt, MobileNet and EfficientNet
    (32, 96, 56, DEPTHWISE, 7, 1, 3, 1), (32, 384, 14, DEPTHWISE, 7, 1, 3, 1),
    (32, 40, 56, DEPTHWISE, 7, 1, 3, 1), (32, 96, 112, DEPTHWISE, 3, 2, 1, 1),
    (32, 144, 56, DEPTHWISE, 5, 2, 2, 1), (32, 672, 14, DEPTHWISE, 5, 1, 2, 1),
    # few results: first layers of both; small images
    (32, 3, 224, 32, 3, 2, 1, 1), (8, 3, 224, 16, 3, 2, 1, 1), (32, 960, 7, DEPTHWISE, 5, 1, 2, 1),
)  # fmt: skip


@dataclass
class Row:
    """Microseconds; `fused` is with a scale, a shift, a residual and relu behind the convolution
    (in the same kernel, or in a loop behind the library's). `first` and `fused_first` are the
    shares with the tile that the model of the machine prefers."""

    case: Case
    library: float
    template: float
    tile: str
    share: float
    first: float
    fused_library: float
    fused: float
    fused_tile: str
    fused_share: float
    fused_first: float
    error: float
    failed: dict[str, str]


def measure(case: Case, dtype: torch.dtype) -> Row:
    """Race one convolution, alone and with what follows; check the fused kernel's numbers."""
    images, channels, size, results, kernel, stride, padding, dilation = case
    x = _image(torch.randn(images, channels, size, size, device="cuda"), dtype)
    groups = 1 if results else channels
    results = results or channels
    w = torch.randn(results, channels // groups, kernel, kernel, device="cuda")
    w = _image(w * (w[0].numel()) ** -0.5, dtype)
    scale, shift = (torch.rand(results, 1, 1, device="cuda").to(dtype) for _ in "ab")

    def alone(x: Tensor, w: Tensor) -> Tensor:
        return F.conv2d(x, w, None, stride, padding, dilation, groups)

    def more(x: Tensor, w: Tensor, scale: Tensor, shift: Tensor, res: Tensor) -> Tensor:
        y = F.conv2d(x, w, None, stride, padding, dilation, groups)
        return torch.relu(y * scale + shift + res)

    res = _image(torch.randn_like(alone(x, w), dtype=torch.float32), dtype)
    inputs = [x, w, scale, shift, res]
    plain, fused = outcome(alone, [x, w]), outcome(more, inputs)
    gm = flambeau_prims.lower(fx.symbolic_trace(more), inputs)
    options = Options(max_autotune=True, check_inputs=False)
    got = flambeau_inductor.compile(gm, inputs, options=options)(list(inputs))[0]
    exact = more(x[:1].double(), w.double(), scale.double(), shift.double(), res[:1].double())
    off = float((got[:1].double() - exact).norm() / exact.norm())
    seconds, tile = best(plain)
    together, fused_tile = best(fused)
    library, apart = plain.seconds[LIBRARY], fused.seconds[LIBRARY]
    return Row(
        case, library * 1e6, seconds * 1e6, tile, library / seconds, library / first(plain),
        apart * 1e6, together * 1e6, fused_tile, apart / together, apart / first(fused),
        off, dict(plain.failed),
    )  # fmt: skip


def _image(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype).contiguous(memory_format=LAST)


def told(row: Row) -> str:
    """A line of the table."""
    return (
        f"{'x'.join(map(str, row.case)):28s} library {row.library:4.0f} us, template"
        f" {row.template:4.0f} us = {row.share:.0%} ({row.tile};"
        f" {row.first:.0%} with the model's first), with more {row.fused:4.0f} us"
        f" = {row.fused_share:.0%} of library and loop ({row.fused_tile};"
        f" {row.fused_first:.0%}),"
        f" error {row.error:.1e}" + failures(row.failed)
    )


def main() -> int:
    """Measure the cases in a dtype; the exit status is 1 where one is wrong."""
    arguments = parser(__doc__)
    arguments.add_argument("--dtype", choices=sorted(DTYPES), default="bfloat16")
    given = arguments.parse_args()
    return raced(given, CASES, partial(measure, dtype=DTYPES[given.dtype]), told)


if __name__ == "__main__":
    sys.exit(main())
