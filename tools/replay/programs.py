"""The programs: models of the zoo, single kernels, programs that the campaign draws, GPU kernels.

In: nothing. Out: `GROUPS`, names by group, and `run`. Invariant: a name is the same program
whatever package sources it is compiled by; seeds are fixed.
"""

from __future__ import annotations

import random
from typing import Any

import torch

import flambeau
from benchmarks.zoo.kernels import KERNELS
from benchmarks.zoo.models import MODELS
from benchmarks.zoo.workload import Workload
from integration_tests.campaign import families
from integration_tests.campaign.program import PRELUDE, Program
from tools.replay.gpu import GPU_PROGRAMS, compile_offline

#: not in training: they are long, and their forward part says what is of their own
INFERENCE_ONLY = ("efficientnet_b0", "resnet50", "swin_small_form", "whisper_2", "convnext_atto")
DYNAMIC = ("minilm", "gpt2_4", "digits_cnn", "mixer_s32", "dlrm")
#: seeds of the campaign, a family
DRAWN = range(2000, 2006)


def _names() -> dict[str, tuple[str, ...]]:
    models = [f"{name}.train" for name in MODELS if name not in INFERENCE_ONLY]
    models += [f"{name}.eval" for name in INFERENCE_ONLY]
    return {
        "models": tuple(models),
        "open": (*(f"{name}.open" for name in DYNAMIC), *(f"{k}.open" for k in KERNELS)),
        "kernels": tuple(KERNELS),
        "drawn": tuple(f"{family}.{seed}" for family in families.FAMILIES for seed in DRAWN),
        "gpu": tuple(GPU_PROGRAMS),
    }


GROUPS = _names()


def run(group: str, name: str, options: dict[str, Any], folder: str) -> None:
    """Compile and run a program once; what is traced of it is the caller's. folder: where GPU
    kernels, which are not run, are written to."""
    flambeau.reset()
    torch.manual_seed(0)
    random.seed(0)
    first, _, kind = name.partition(".")
    if group == "gpu":
        compile_offline(GPU_PROGRAMS[name], folder)
    elif group == "drawn":
        _play(families.drawn(f"{first}:{kind}"), options)
    elif first in MODELS:
        _step(MODELS[first]("cpu", kind == "train", True), options, kind == "open")
    else:
        _step(KERNELS[first]("cpu", True), options, kind == "open")


def _step(work: Workload, options: dict[str, Any], dynamic: bool) -> None:
    work.step(flambeau.compile(work.fn, options=options, dynamic=dynamic or None))


def _play(program: Program, options: dict[str, Any]) -> None:
    """The calls of a drawn program; what it raises belongs to it."""
    text = "\n".join((*program.setup, program.function()))
    space: dict[str, Any] = {"LOG": [], "WORLD": "compiled"}
    exec(PRELUDE[PRELUDE.index("import torch") :], space)
    exec(text, space)
    chosen = {} if program.backend == "eager" else options
    target = flambeau.compile(
        space[program.target], backend=program.backend, dynamic=program.dynamic,
        options=chosen if program.backend == "inductor" else None,
    )  # fmt: skip
    for call in program.calls:
        _quietly("\n".join(call.before), space)
        given = ", ".join(f"{value}" for value in call.arguments.values())
        space["target"] = target
        names = "".join(f"{name}, " for name in call.arguments)
        start = f"{names}= args = ({given}{',' if given else ''})\n" if names else "args = ()\n"
        _quietly(start + "out = target(*args)\n" + "\n".join(call.after), space)


def _quietly(text: str, space: dict[str, Any]) -> None:
    try:
        exec(text, space)
    except Exception as error:
        space["LOG"].append(type(error).__name__)
