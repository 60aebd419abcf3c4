"""Evaluation of loops by the loop IR's meaning, in place of kernels.

In: loops. Out: a `KernelText` whose functions take tensors. Invariant: nothing is shared with code
generation, so that a wrong kernel shows as a difference from what this gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from flambeau_inductor.compilation import Built, KernelText
from flambeau_inductor.ir.evaluate import flat, run_loop
from flambeau_inductor.ir.loops import Load, Loop, Store
from flambeau_inductor.ir.show import show_loop
from flambeau_inductor.wrapper.source import LoopLaunch


def evaluated(loops: Sequence[Loop]) -> KernelText:
    """The loops as Python functions on the tensors of their buffers."""
    functions: dict[str, Any] = {}
    launches: dict[str, LoopLaunch] = {}
    for number, loop in enumerate(loops):
        names = tuple(sorted({i.buffer for i in loop.body if isinstance(i, Load | Store)}))
        functions[f"evaluated{number}"] = _function(loop, names)
        launches[loop.name] = LoopLaunch(f"evaluated{number}", names, by_address=False)

    def build() -> Built:
        return Built(functions)

    text = "\n\n".join(show_loop(loop) for loop in loops) + "\n"
    return KernelText("evaluated.txt", text, len(loops), launches, build)


def _function(loop: Loop, names: tuple[str, ...]) -> Callable[..., None]:
    def run(*tensors: torch.Tensor) -> None:
        places = zip(names, tensors, strict=True)
        run_loop(loop, {name: flat(tensor) for name, tensor in places})

    return run
