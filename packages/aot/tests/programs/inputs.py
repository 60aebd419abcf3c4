"""Inputs of a program: tensors, and tensors that share memory.

What comes in: a description of bases and of the inputs made of them. What goes out: fresh
tensors of that description, leaves to differentiate by, and everything a caller still holds.
Invariant: two makes of one description with one seed have equal values and equal aliasing, and
share no memory with each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

LAYOUTS = ("contiguous", "transposed", "strided", "offset")
GRADS = ("none", "leaf", "non-leaf")
SHARES = {
    "itself": "{b}",
    "flat": "{b}.view(-1)",
    "tail": "{b}[1:]",
    "head": "{b}[:2]",
    "t": "{b}.t()",
    "detach": "{b}.detach()",
    "data row": "{b}.detach()[0]",
    "last": "{b}[..., -1]",
    "unrecorded": "unrecorded({b})",
}


@dataclass(frozen=True)
class Base:
    """A tensor of memory of its own."""

    shape: tuple[int, ...]
    layout: str
    grad: str


@dataclass(frozen=True)
class Inputs:
    """Bases, and for each input which base it is made of and how."""

    bases: tuple[Base, ...]
    inputs: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Made:
    """Fresh tensors: leaves, bases as the caller holds them, and inputs."""

    leaves: list[torch.Tensor]
    bases: list[torch.Tensor]
    inputs: list[torch.Tensor]


def plain(base: Base, generator: torch.Generator) -> torch.Tensor:
    """Memory in the layout that is asked for."""
    shape = base.shape
    if base.layout == "transposed" and len(shape) > 1:
        swapped = (*shape[:-2], shape[-1], shape[-2])
        return torch.randn(swapped, generator=generator).transpose(-1, -2)
    if base.layout == "strided" and shape:
        return torch.randn((*shape[:-1], 2 * shape[-1]), generator=generator)[..., ::2]
    if base.layout == "offset" and shape:
        return torch.randn((shape[0] + 1, *shape[1:]), generator=generator)[1:]
    return torch.randn(shape, generator=generator)


def make(spec: Inputs, seed: int, scope: dict) -> Made:
    """Fresh tensors of this description."""
    generator = torch.Generator().manual_seed(seed)
    leaves: list[torch.Tensor] = []
    bases: list[torch.Tensor] = []
    with torch.enable_grad():
        for base in spec.bases:
            value = plain(base, generator).detach()
            if base.grad != "none":
                value.requires_grad_()
                leaves.append(value)
                if base.grad == "non-leaf":
                    value = value * 1.5
            bases.append(value)
        inputs: list[torch.Tensor] = []
        for index, how in spec.inputs:
            inputs.append(eval(SHARES[how].format(b="b"), {**scope, "b": bases[index]}))
    return Made(leaves, bases, inputs)
