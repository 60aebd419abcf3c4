"""Models of torchvision: classification, video, segmentation, detection, optical flow.

In: nothing. Out: cases. Invariant: one model per family unless every variant is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from benchmarks.zoo.torchvision_cpu import torchvision
from integration_tests.sweep.cases import Case, NotBuilt, Subject, positional, runs

SIZES = {"inception_v3": 299, "maxvit_t": 224, "vit_b_16": 224, "swin_t": 64, "swin_v2_t": 64}
VIDEO = ("mc3", "mvit", "r2plus1d", "r3d", "s3d", "swin3d")
# Models whose operators torchvision compiles itself: a CPU wheel has them, others may not.
FAMILY = re.compile(r"\d|_[xyslbtmh]_?(?=\d|$)|_resnet|_mobilenet|_large|_base|_small|_tiny|_\d")
DETECTION = ("rcnn", "fcos", "retinanet", "ssd")


def cases(every: bool) -> Iterator[Case]:
    """One model per family, or all."""
    seen: set[str] = set()
    names = [name for name in torchvision().models.list_models() if "quantized" not in name]
    for name in sorted(names, key=_size):
        family = FAMILY.split(name)[0]
        if family not in seen or every:
            seen.add(family)
            yield Case(name, "torchvision", partial(_build, name))


def _size(name: str) -> tuple[int, str]:
    """Smaller models of a family first, by how they are called."""
    sizes = ("tiny", "small", "_t", "_b0", "0_5", "18", "400mf", "_s", "11", "1_0", "121", "_b_16")
    found = [place for place, text in enumerate(sizes) if text in name]
    return (min(found, default=99), name)


def _build(name: str) -> Subject:
    models = torchvision().models
    arguments: dict[str, Any] = {"weights": None}
    if any(part in name for part in (*DETECTION, "deeplab", "fcn", "lraspp")):
        arguments["weights_backbone"] = None
    if name in ("googlenet", "inception_v3"):
        arguments["init_weights"] = False
    module = models.get_model(name, **arguments)
    tried = []
    for size in (SIZES.get(name, 64), 128, 224):
        inputs = tuple(_inputs(name, module, size) for _ in range(2))
        told = runs(module, inputs[0])
        if told is None:
            return Subject(module, (inputs[0], inputs[1]))
        tried.append(told)
    raise NotBuilt(tried[-1])


def _inputs(name: str, module: torch.nn.Module, size: int) -> dict[str, Any]:
    if name.startswith(VIDEO):
        return positional(module, torch.rand(2, 3, 16 if size > 64 else 8, size, size))
    if name.startswith("raft"):
        return positional(module, *(torch.rand(2, 3, 128, 128) * 2 - 1 for _ in range(2)))
    if any(part in name for part in DETECTION):
        return {"images": [torch.rand(3, size, size), torch.rand(3, size, size)]}
    return positional(module, torch.rand(2, 3, size, size))
