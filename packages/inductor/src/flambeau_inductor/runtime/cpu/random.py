"""Eager's CPU random numbers, drawn by a kernel.

In: the layout of a result, a probability. Out: the tensor that eager would have drawn, and its
generator moved on as far. Invariant: the kernel, a Mersenne Twister, is used only where it has just
been seen to draw what torch draws and to leave the generator where torch leaves it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from flambeau_inductor.runtime.cpu.huge_pages import empty_large
from flambeau_inductor.tuning import host_tuning

Tensor = torch.Tensor
Sizes = Sequence[int]

BERNOULLI = "flambeau.bernoulli.default"
"""A call of the library by its name in programs: it draws row by row of memory."""

STATE_BYTES = 5056
"""Size of the generator's state, whose beginning the kernel reads."""


def _empty(shape: Sizes, stride: Sizes) -> Tensor:
    if math.prod(shape) < host_tuning().huge_page_bytes:
        return torch.empty_strided(shape, stride, dtype=torch.bool)
    return empty_large(shape, stride, torch.bool)


Allocate = Callable[[Sizes, Sizes, torch.dtype], Tensor]


def bernoulli(shape: Sizes, stride: Sizes, p: float) -> Tensor:
    """True with probability `p`, drawn by torch. The strides are those of a dense tensor."""
    return _empty(shape, stride).bernoulli_(p)


def bernoulli_by(
    kernel: Callable[..., Any], allocate: Allocate | None = None
) -> Callable[[Sizes, Sizes, float], Tensor]:
    """The same with `kernel` (`draw_below` of `flambeau/mersenne.h`), where it draws the same.

    `allocate`: where its large results come from.
    """
    return KernelBernoulli(kernel, allocate) if draws_the_same(kernel) else bernoulli


class KernelBernoulli:
    def __init__(self, kernel: Callable[..., Any], allocate: Allocate | None = None) -> None:
        generator = torch.default_generator
        self._kernel = kernel
        self._allocate = allocate
        self.least = host_tuning().drawn_elements
        self.state = generator.get_state, torch.Tensor.data_ptr, generator.set_state

    def empty(self, shape: Sizes, stride: Sizes) -> Tensor:
        if self._allocate is not None and math.prod(shape) >= host_tuning().huge_page_bytes:
            return self._allocate(shape, stride, torch.bool)
        return _empty(shape, stride)

    def __call__(self, shape: Sizes, stride: Sizes, p: float) -> Tensor:
        made = self.empty(shape, stride)
        count = made.numel()
        if count < self.least:
            return made.bernoulli_(p)
        self._kernel(*self.state, made.data_ptr(), count, limit(p))
        return made


def run_after_draws(
    draw: Callable[[Sizes, Sizes, float], Tensor],
    kernel: Callable[..., Any],
    drawing: Callable[..., Any],
    place: int,
) -> Callable[..., Tensor | None]:
    """A kernel that reads draws, as a function of their layout and probability, of whether they are
    kept, and of the addresses of its other buffers. The draws come before address `place`.

    draw: makes them, as `bernoulli_by` gives it. drawing: the kernel that makes them itself, which
    is used where `draw` is by a kernel.
    """

    def drawn_before(shape: Sizes, stride: Sizes, p: float, kept: bool, *at: int) -> Tensor | None:
        made = draw(shape, stride, p)
        kernel(*at[:place], made.data_ptr(), *at[place:])
        return made if kept else None

    if not isinstance(draw, KernelBernoulli):
        return drawn_before

    def drawn_within(shape: Sizes, stride: Sizes, p: float, kept: bool, *at: int) -> Tensor | None:
        if math.prod(shape) < draw.least:
            return drawn_before(shape, stride, p, kept, *at)
        made = draw.empty(shape, stride) if kept else None
        address = 0 if made is None else made.data_ptr()
        drawing(*draw.state, limit(p), *at[:place], address, *at[place:])
        return made

    return drawn_within


def limit(p: float) -> int:
    """How many of the uniform numbers of 53 bits are below `p`."""
    return math.ceil(math.ldexp(p, 53))


def draws_the_same(kernel: Callable[..., Any]) -> bool:
    """Whether `kernel` draws what torch draws on this processor."""
    theirs = torch.Generator().manual_seed(5489)
    torch.empty(3).uniform_(generator=theirs)  # an odd number of words
    state = theirs.get_state()
    if state.numel() != STATE_BYTES:
        return False
    ours = torch.Generator().set_state(state)
    expected = torch.empty(1500, dtype=torch.bool).bernoulli_(0.3, generator=theirs)
    drawn = torch.empty_like(expected)
    how = ours.get_state, torch.Tensor.data_ptr, ours.set_state
    kernel(*how, drawn.data_ptr(), drawn.numel(), limit(0.3))
    return torch.equal(drawn, expected) and torch.equal(ours.get_state(), theirs.get_state())
