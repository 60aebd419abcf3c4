"""What a user may choose about capture.

In: keyword arguments of `compile`. Out: one frozen `Options`, handed down to every stage.
Invariant: nothing reads a choice from anywhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Choices of one compiled callable.

    cache_size_limit: entries per code object before capture gives up on it, with one warning.
    nopython: a graph break is an error that names the user's line.
    dynamic: sizes may become symbols; today every size is static whatever it says.
    debug: print each graph, the bytecode before and after, and the guards.
    out: where `debug` prints; None is standard output.
    raise_internal_errors: a fault of capture itself is raised instead of falling back to eager.
    inline_depth: how deep calls are followed before the frame is broken.
    step_limit: instructions interpreted for one frame before its graph ends.
    idle_step_limit: the same, of instructions in a row that come to no operation on a tensor.
    """

    cache_size_limit: int = 8
    nopython: bool = False
    dynamic: bool = False
    debug: bool = False
    out: Callable[[str], object] | None = None
    raise_internal_errors: bool = False
    inline_depth: int = 100
    step_limit: int = 2_000_000
    idle_step_limit: int = 100_000

    def show(self, text: str) -> None:
        """Print a piece of what `debug` asks for."""
        if self.out is None:
            print(text)
        else:
            self.out(text)
