"""One model of every module of timm, or all of them.

In: nothing. Out: cases. Invariant: of each module the smallest of its models by name is taken, so
that a sweep does not depend on the order in which timm registers them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import torch

from benchmarks.zoo.torchvision_cpu import torchvision
from integration_tests.sweep.cases import Case, NotBuilt, Subject, positional, runs

SMALL = re.compile(r"test|atto|femto|pico|nano|tiny|xxs|xs|small|_s\d|050|_b0|lite|_t[_.]|micro|18")
LIMIT = 140_000_000  # parameters


def cases(every: bool) -> Iterator[Case]:
    """A model per module of timm, or every model."""
    torchvision()
    import timm  # slow to import, and only this family needs it

    for module in sorted(timm.list_modules()):
        names = sorted(timm.list_models(module=module))
        if not every:
            small = [name for name in names if SMALL.search(name)]
            names = sorted(small or names, key=lambda name: (len(name), name))[:1]
        for name in names:
            yield Case(name, "timm", partial(_build, name))


def _build(name: str) -> Subject:
    import timm  # imported by `cases` before

    try:
        with torch.device("meta"):
            counted = timm.create_model(name)
    except (NotImplementedError, RuntimeError):  # its constructor computes with tensors
        counted = timm.create_model(name)
    count = sum(p.numel() for p in counted.parameters())
    if count > LIMIT:
        raise NotBuilt(f"{count / 1e6:.0f} million parameters")
    tried: list[str] = []
    module = timm.create_model(name)
    channels, full, _ = module.default_cfg["input_size"]
    for size in sorted({64, 128, full}):
        if size > full and size != full:
            continue
        inputs = tuple(positional(module, torch.rand(2, channels, size, size)) for _ in range(2))
        told = runs(module, inputs[0])
        if told is None:
            return Subject(module, (inputs[0], inputs[1]))
        tried.append(told)
    raise NotBuilt(tried[-1])
