"""Polyfill of `torch.utils.checkpoint.checkpoint_sequential`.

In: modules to be called one after the other, and into how many segments they are divided. Out: what
the last gives. Invariant: all segments but the last are checkpointed, each as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint


def checkpoint_sequential(
    functions: Any,
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
) -> Any:
    options: dict[str, Any] = {
        "use_reentrant": use_reentrant,
        "preserve_rng_state": preserve_rng_state,
    }
    steps = list(functions.children()) if isinstance(functions, torch.nn.Sequential) else functions
    length = len(steps) // segments
    for start in range(0, length * (segments - 1), length):
        segment = _one_after_the_other(steps[start : start + length])
        input = checkpoint(segment, input, **options)
    return _one_after_the_other(steps[length * (segments - 1) :])(input)


def _one_after_the_other(steps: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def run(input: Any) -> Any:
        for step in steps:
            input = step(input)
        return input

    return run
