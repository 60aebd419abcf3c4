"""Modes: what sees an operator or a torch function before it runs.

In: nothing. Out: contexts in which fewer, or others, see them. Invariant: each context leaves the
thread as it was.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch


def beside_modes() -> Any:
    """Context in which no dispatch mode sees an operator."""
    return torch.utils._python_dispatch._disable_current_modes()


def left_alone(call: Callable[..., Any]) -> Callable[..., Any]:
    """The callable, which torch's own capture does not look into where the program has started it:
    `torch.cond` does so when it is called by Python code."""
    if "torch._dynamo" not in sys.modules:
        return call
    return cast(Callable[..., Any], torch.compiler.disable(call))


@contextmanager
def compiling() -> Iterator[None]:
    """`torch.compiler.is_compiling()` inside this block: optimizers then keep their count of
    steps in tensors on any device. Torch has one flag for the process; it is set for the time of
    a trace, and what another thread's optimizer does meanwhile is the same by tensors.
    """
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before


def python_dispatcher() -> Any:
    """Context in which composite operators on symbolic sizes run their Python forms."""
    return torch._C._EnablePythonDispatcher()
