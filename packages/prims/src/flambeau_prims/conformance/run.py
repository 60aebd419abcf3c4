"""The conformance run: all programs over one backend.

In: a backend, a choice of families, dtypes, kinds of programs. Out: outcomes.
Invariant: the calls of one primitive in one dtype are one program; where that fails, each call is
run alone, so that a failure names the call.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import torch

from flambeau_prims._op import PRIMS, Prim
from flambeau_prims.conformance.check import Backend, KitOutcome, check
from flambeau_prims.conformance.compare import judge_of
from flambeau_prims.conformance.programs.composed import composed, composed_with_symbols, symbolic
from flambeau_prims.conformance.programs.programs import KitProgram, program_of
from flambeau_prims.conformance.programs.random_graphs import Dice, random_program
from flambeau_prims.conformance.samples.cases import cases_of
from flambeau_prims.conformance.samples.registry import Case
from flambeau_prims.conformance.samples.tensors import CPU

KINDS = ("prims", "symbols", "graphs", "random")


@dataclass(frozen=True)
class KitPlan:
    """What to run: families and dtypes (None: all), kinds, and how many random graphs."""

    families: Collection[str] | None = None
    dtypes: Collection[torch.dtype] | None = None
    kinds: Collection[str] = KINDS
    seed: int = 0
    random_graphs: int = 50
    prims: Collection[str] | None = None
    device: torch.device = CPU

    def wants(self, prim: Prim) -> bool:
        """Whether the calls of `prim` are to be run."""
        named = self.prims is None or prim.name in self.prims
        return named and (self.families is None or prim.family in self.families)


def groups(prim: Prim, seed: int = 0, device: torch.device = CPU) -> dict[str, list[Case]]:
    """The sample calls of a primitive by dtype."""
    found: dict[str, list[Case]] = {}
    for case in cases_of(prim, seed):
        name = str(case.dtype).removeprefix("torch.") if case.dtype is not None else "any"
        found.setdefault(name, []).append(case.on(device))
    return found


def single_prims(plan: KitPlan) -> Iterator[tuple[str, list[Case]]]:
    """Name and calls of each group of the plan."""
    wanted = None if plan.dtypes is None else {str(d).removeprefix("torch.") for d in plan.dtypes}
    for prim in PRIMS.values():
        if not plan.wants(prim):
            continue
        for dtype, cases in groups(prim, plan.seed, plan.device).items():
            if wanted is None or dtype in wanted:
                yield f"{prim.name}-{dtype}", cases


def check_group(backend: Backend, name: str, cases: list[Case]) -> list[KitOutcome]:
    """Outcomes of a group: one if it is right as a whole, else one a call."""
    simple = [c for c in cases if len(c.dtypes) <= 1]
    mixed = [c for c in cases if len(c.dtypes) > 1]
    outcomes: list[KitOutcome] = []
    for part, suffix in ((simple, ""), (mixed, "-mixed")):
        if part:
            outcomes += _whole_or_parts(backend, name + suffix, part)
    return outcomes


def _whole_or_parts(backend: Backend, name: str, cases: list[Case]) -> list[KitOutcome]:
    together = check(backend, program_of(name, cases, judge_of))
    if together.status == "right" or len(cases) == 1:
        return [together]
    alone = [check(backend, program_of(case.label, [case], judge_of)) for case in cases]
    if together.status != "declared" and all(outcome.status == "right" for outcome in alone):
        return [together]  # only the combination is wrong
    return alone


def run(
    backend: Backend,
    plan: KitPlan | None = None,
    progress: Callable[[KitOutcome], None] | None = None,
) -> list[KitOutcome]:
    """All outcomes of `plan`; `progress` sees each when it is there."""
    plan = plan or KitPlan()
    outcomes: list[KitOutcome] = []

    def add(new: list[KitOutcome]) -> None:
        outcomes.extend(new)
        if progress is not None:
            for outcome in new:
                progress(outcome)

    if "prims" in plan.kinds:
        for name, cases in single_prims(plan):
            add(check_group(backend, name, cases))
    for program in _graphs(plan):
        add([check(backend, program)])
    return outcomes


def _graphs(plan: KitPlan) -> Iterator[KitProgram]:
    if "symbols" in plan.kinds and (plan.families is None or "symbols" in plan.families):
        for prim in PRIMS.values():
            wanted = plan.prims is None or prim.name in plan.prims
            program = symbolic(prim, plan.seed, plan.device) if wanted else None
            if program is not None:
                yield program
        if plan.prims is None:
            yield from composed_with_symbols(plan.seed, plan.device)
    if plan.prims is not None:
        return
    if "graphs" in plan.kinds and (plan.families is None or "graphs" in plan.families):
        yield from composed(plan.seed, device=plan.device)
    if "random" in plan.kinds and (plan.families is None or "random graphs" in plan.families):
        for number in range(plan.random_graphs):
            dice = Dice(random.Random(plan.seed * 1_000_003 + number))
            yield random_program(dice, f"random-{plan.seed}-{number}", device=plan.device)
