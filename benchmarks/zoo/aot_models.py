"""The two models whose joint graphs are timed: GPT-2 of 12 layers, and ResNet-50.

In: a device, whether to be quick. Out: a training `Workload`. Invariant: real depth and width;
batch and length are small, since tracing does not depend on them.
"""

from __future__ import annotations

from functools import partial

from benchmarks.zoo.models import GPT2, language, vision
from benchmarks.zoo.workload import Workload

GPT2_12 = GPT2 | {"n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257}


def _gpt2(device: str, quick: bool) -> Workload:
    settings = GPT2_12 | ({"n_embd": 96} if quick else {})
    return language("GPT2LMHeadModel", "GPT2Config", settings, 32, device, True, quick)


def _resnet(device: str, quick: bool) -> Workload:
    return partial(vision, "resnet50", 64)(device, True, True)


TRACED = {"gpt2_12": _gpt2, "resnet50": _resnet}
