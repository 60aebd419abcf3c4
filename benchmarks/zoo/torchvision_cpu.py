"""torchvision where its compiled operators cannot load (a CUDA wheel beside a CPU torch).

In: nothing. Out: the module. Invariant: only operator schemas are declared, none is implemented:
models that need the compiled operators fail as they would without this.
"""

from __future__ import annotations

import sys
from types import ModuleType

import torch

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)

_declared: list[torch.library.Library] = []


def torchvision() -> ModuleType:
    """The torchvision package."""
    if "torchvision" not in sys.modules and not _declared and not torch.version.cuda:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for schema in SCHEMAS:
            library.define(schema)
        _declared.append(library)
    import torchvision as found  # deferred: the operators above must be declared first

    return found
