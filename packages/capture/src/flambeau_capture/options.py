"""Options of capture.

In: keyword arguments of `compile`. Out: one frozen `Options`, handed down to every stage.
Invariant: nothing reads a choice from anywhere else.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Options:
    """Choices of one compiled callable.

    cache_size_limit: entries per code object before capture gives up on it, with one warning: from
        then on it runs as it is where no entry fits, with all that it calls.
    compile_seconds: a program that compiles in call after call (in 16 of its last 32) compiles
        nothing more, with one warning, once this took so many seconds.
    never_slower: a frame whose graph ends at a break, or that fell back, is timed in both forms
        once it compiles no more; where it is slower than uncaptured by more than 5 % it runs as it
        is. It takes ten to 120 calls, of which half run uncaptured. So is one of a whole graph on
        the CPU, if the backend is `made_for_speed`: after sixteen calls, in up to a thousand short
        ones or eighty long ones.
    nopython: a graph break is an error that names the user's line.
    dynamic: None: a size, or a number among the arguments and attributes, becomes a symbol of the
        graph when it has a second value. True: every size of an argument does at once.
        False: none does.
    sizes: policies of the sizes of arguments, by parameter, part and dimension: "open" (never a
        constant: a line that makes one raises ConstraintViolation), "fixed" (a graph for each),
        `Bucket` or `PadTo`. They count for more than `dynamic`, and a tensor's marks for more yet.
    debug: print each graph, the bytecode before and after, and the guards.
    debug_function: capture functions of this name only; all others run as they are. None: the
        variable FLAMBEAU_DEBUG_FUNCTION, if it is set.
    record_failures: a folder where a frame is recorded that capture fails on, for `replay`. None:
        the variable FLAMBEAU_RECORD_FAILURES, if it is set.
    out: where `debug` prints; None is standard output.
    raise_internal_errors: a fault of capture itself, or of a stage after it, is raised instead of
        falling back to eager; FLAMBEAU_FAULTS=raise sets it everywhere.
    inline_depth: how deep calls are followed before the frame is broken.
    small_values: what follows from at most 16 integers or booleans of a tensor on the CPU may be
        read (`item()`, a branch, the size of a result): capture reads them and a guard fixes
        them. A tensor that is seen with others is data from then on, and breaks the graph there.
    branches_by_data: a branch by a tensor's data whose two ways only compute tensors is a choice in
        the graph, with the rest of the loop that it leaves, where nothing else follows from it.
        Each way runs operator by operator, and has no second derivative. Experimental: for what
        passes through a way unchanged, views and identity may differ. False: the graph ends.
    sum_gradients: a step under `DistributedDataParallel` that calls `backward()` is one graph,
        which sums gradients itself. All ranks must have that graph then, and go on having it: one
        that breaks it, or runs uncompiled, has its reducer sum otherwise than the rest.
    gather_parameters: what `fully_shard` gathers and scatters is part of the graph, in place of its
        hooks. All ranks must have that graph then, as with `sum_gradients`.
    step_limit: instructions interpreted for one frame before its graph ends.
    idle_step_limit: the same, of instructions in a row that come to no operation on a tensor.
    watch: gets what `Records` gets as it comes about: `watch(kind, record)`, where the kind is
        "frame", "graph", "break", "recompile", "entry" (an `EntryRecord`) or "settled" (a text: a
        function compiles no more, or runs as it is). It only looks, and must not raise.
    """

    cache_size_limit: int = 8
    compile_seconds: float = 60.0
    never_slower: bool = True
    nopython: bool = False
    dynamic: bool | None = None
    sizes: Mapping[str, Any] | None = dataclasses.field(default=None, hash=False)
    debug: bool = False
    debug_function: str | None = None
    record_failures: str | None = None
    out: Callable[[str], object] | None = None
    raise_internal_errors: bool = False
    inline_depth: int = 100
    small_values: bool = True
    branches_by_data: bool = False
    sum_gradients: bool = False
    gather_parameters: bool = False
    step_limit: int = 2_000_000
    idle_step_limit: int = 100_000
    watch: Callable[[str, object], None] | None = dataclasses.field(
        default=None, compare=False, repr=False
    )

    def with_environment(self) -> Options:
        """These choices, and what variables of the environment say where they say nothing."""
        told: dict[str, Any] = {
            name: getattr(self, name) or os.environ.get(f"FLAMBEAU_{name.upper()}") or None
            for name in ("debug_function", "record_failures")
        }
        faults = self.raise_internal_errors or os.environ.get("FLAMBEAU_FAULTS") == "raise"
        return dataclasses.replace(self, **told, raise_internal_errors=faults)

    def show(self, text: str) -> None:
        """Print a piece of what `debug` shows."""
        if self.out is None:
            print(text)
        else:
            self.out(text)
