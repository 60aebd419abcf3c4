"""Kernel-choosing context managers of torch, as data that a graph can hold.

In: what the program gave them. Out: plain data; beginning and end. Invariant: they are torch's.
Tried on torch 2.11, 2.13 and 2.14.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.attention

SDP_BACKEND: Any = torch.nn.attention.SDPBackend


def _sdpa_kernel(backends: Any, set_priority: bool = False) -> Any:
    """`torch.nn.attention.sdpa_kernel`, with the backends by name."""
    chosen = [getattr(SDP_BACKEND, name) for name in backends]
    return torch.nn.attention.sdpa_kernel(chosen, set_priority)


# Context managers that choose torch's kernels: what the program calls, and the same on plain data.
CHOICES: dict[str, tuple[Any, Any]] = {
    "sdpa_kernel": (torch.nn.attention.sdpa_kernel, _sdpa_kernel),
    "cudnn.flags": (torch.backends.cudnn.flags, torch.backends.cudnn.flags),
}


def plain_choice(value: Any) -> Any:
    """An argument of one of them as a graph can hold it."""
    if isinstance(value, SDP_BACKEND):
        return (value.name,)
    if isinstance(value, list | tuple):
        return tuple(name for one in value for name in plain_choice(one))
    return value


def enter_choice(name: str, arguments: tuple[Any, ...]) -> Any:
    """Begin one: what the graph calls."""
    made = CHOICES[name][1](*arguments)
    made.__enter__()
    return made


def exit_choice(entered: Any) -> None:
    entered.__exit__(None, None, None)
