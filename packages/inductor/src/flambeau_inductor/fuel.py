"""Fuel: bounds on how often each kind of pass may act.

In: limits, or nothing. Out: `Fuel`. Invariant: a compile with less fuel means the same as one with
more; only what does the work differs, so that the first amount with which an answer is wrong names
the step that is to blame.

The idea is optimization fuel (Whalley, "Automatic isolation of compiler errors", TOPLAS 1994).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fuel:
    """Steps that may be taken of each kind, in the order in which they come; None: all of them.

    passes: those of the lists that may be left out (see `flambeau_inductor.pipeline`).
    rewrites: nodes replaced by rules of the rewriter (`flambeau_inductor.passes.rewriter`), before
        autograd and after it.
    lowerings: operations lowered by a rule. Later ones are library calls; views, which only say
        where elements are, are always lowered.
    fusions: pairs of loops joined.
    kernels: loops that run as generated kernels. Later ones are evaluated by torch on the CPU,
        slowly, by the meaning of their IR.
    """

    passes: int | None = None
    rewrites: int | None = None
    lowerings: int | None = None
    fusions: int | None = None
    kernels: int | None = None


ALL = Fuel()
