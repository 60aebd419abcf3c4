"""Loop fission of row kernels: the reduction, then the stores.

In: a loop that reduces its rows and stores elements that wait for that. Out: a loop that keeps the
reductions, one number a row, and one that reads them and reduces nothing. Invariant: both together
store what the loop did, and each element is computed from the same numbers.

Of rows too long for a program's registers the second one reads its elements again, as the loop
itself would have; but it may go through them in any order, down their columns for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from flambeau_inductor.indexing import Var
from flambeau_inductor.ir.loops import Instr, Load, Loop, Reduce, ReducePart, Store, ValueId
from flambeau_inductor.ir.operands import operands, pruned, renumbered
from flambeau_inductor.schedule.gpu.split_reduction import facts_of


@dataclass(frozen=True, slots=True)
class SplitRowLoop:
    """The two loops, and the buffers between them: a number of each dtype for each row.

    The buffers have names of their own kind until they are made.
    """

    first: Loop
    rest: Loop
    between: Mapping[str, torch.dtype]

    def named(self, names: Mapping[str, str]) -> SplitRowLoop:
        """With the names of the buffers that were made."""
        between = {names.get(name, name): dtype for name, dtype in self.between.items()}
        return SplitRowLoop(renamed(self.first, names), renamed(self.rest, names), between)


def split_row_loop(loop: Loop) -> SplitRowLoop | None:
    """The two; None where no element waits for a reduction, or rows have several axes."""
    facts = facts_of(loop)
    stores = [p for p, i in enumerate(loop.body) if isinstance(i, Store) and facts.element[p]]
    if len(loop.x) != 1 or not any(facts.level[p] for p in stores):
        return None
    row = Var(loop.x[0].var)
    wanted = _needed(loop, stores)
    rest: list[Instr] = []
    new: dict[ValueId, ValueId] = {}
    first: list[Instr] = list(loop.body)
    between: dict[str, torch.dtype] = {}
    for position in sorted(wanted):
        instr = loop.body[position]
        if isinstance(instr, Reduce | ReducePart):
            name = f"{loop.name}.{position}"
            between[name] = instr.dtype
            first.append(Store(name, row, position))
            instr = Load(name, row, instr.dtype)
        else:
            instr = renumbered(instr, new)
        new[position] = len(rest)
        rest.append(instr)
    kept = _without(first, stores)
    return SplitRowLoop(
        replace(loop, name=f"{loop.name}_sums", body=kept), replace(loop, body=tuple(rest)), between
    )


def _needed(loop: Loop, stores: list[ValueId]) -> set[ValueId]:
    """What the stores take, back to what reductions give."""
    found: set[ValueId] = set()
    todo = list(stores)
    while todo:
        position = todo.pop()
        if position not in found:
            found.add(position)
            instr = loop.body[position]
            if not isinstance(instr, Reduce | ReducePart):
                todo.extend(operands(instr))
    return found


def _without(body: list[Instr], stores: list[ValueId]) -> tuple[Instr, ...]:
    """The body without some of its stores, and without what only they took."""
    new: dict[ValueId, ValueId] = {}
    kept: list[Instr] = []
    for position, instr in enumerate(body):
        if position not in stores:
            new[position] = len(kept)
            kept.append(renumbered(instr, new))
    return pruned(kept)


def renamed(loop: Loop, names: Mapping[str, str]) -> Loop:
    """The loop on buffers of other names."""
    body = tuple(
        replace(i, buffer=names.get(i.buffer, i.buffer)) if isinstance(i, Load | Store) else i
        for i in loop.body
    )
    return replace(loop, body=body)
