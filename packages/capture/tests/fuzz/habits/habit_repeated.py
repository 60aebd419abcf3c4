"""Habits of loops with a break inside: blocks, experts and numbers that are another at every turn,
and counters on classes; see `habit`."""

from __future__ import annotations

import copy
import random
from typing import Any

import torch
from habit import Case, habit, x
from torch import nn


class Cell(nn.Module):
    def __init__(self, gain: float) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("shift", torch.ones(4))
        self.gain = gain

    def forward(self, t: Any) -> Any:
        t = self.linear(t)
        if t.sum() > 1e9:  # depends on data: the graph ends here
            return t
        return torch.tanh(t) * self.gain + self.shift


class Picks(nn.Module):
    def __init__(self, cells: Any) -> None:
        super().__init__()
        self.cells = nn.ModuleList(cells)
        self.turns = 5

    def forward(self, t: Any) -> Any:
        for number in range(self.turns):
            if t.max() > 1e9:
                break
            t = t + self.cells[number](t) * number
        return t


class Counting:
    calls = 2
    step = 1
    last: Any = None


class CountingMore(Counting):
    pass


def _cells() -> list[Cell]:
    torch.manual_seed(6)
    return [Cell(1.5) for _ in range(5)]


def _changes(case: Case, cells: Any, pick: random.Random) -> None:
    """What is done to one of the cells, whichever."""
    kept = [copy.deepcopy(cell) for cell in cells]

    def one() -> Any:
        return pick.choice([cell for cell in cells if isinstance(cell, Cell)] or kept)

    def put(made: Any) -> None:
        cells[pick.randrange(len(cells))] = made

    case.changes["gain"] = lambda: setattr(one(), "gain", pick.random())
    case.changes["gain of another class"] = lambda: setattr(one(), "gain", torch.tensor(2.0))
    case.changes["another cell"] = lambda: put(copy.deepcopy(pick.choice(kept)))
    case.changes["another class"] = lambda: put(pick.choice((nn.Tanh(), nn.Identity())))
    case.changes["one cell twice"] = lambda: put(one())
    case.changes["tied"] = lambda: setattr(one(), "linear", one().linear)
    case.changes["tied weight"] = lambda: setattr(one().linear, "weight", one().linear.weight)
    case.changes["hook"] = lambda: one().linear.register_forward_hook(lambda m, a, out: out + 1)
    case.changes["hook on the cell"] = lambda: one().register_forward_pre_hook(
        lambda m, a: (a[0] * 2,)
    )
    case.changes["weight"] = lambda: setattr(
        one().linear, "weight", nn.Parameter(torch.randn(4, 4))
    )
    case.changes["weight in place"] = lambda: one().linear.weight.data.mul_(0.5)
    case.changes["bias gone"] = lambda: one().linear._parameters.update(bias=None)
    case.changes["buffer"] = lambda: setattr(one(), "shift", torch.randn(4))
    case.changes["buffer of one"] = lambda: setattr(one(), "shift", torch.randn(1))
    case.changes["buffer gone"] = lambda: one()._buffers.update(shift=None)
    case.changes["frozen"] = lambda: one().requires_grad_(pick.random() < 0.5)
    case.changes["training"] = lambda: one().train(pick.random() < 0.5)
    case.changes["instance forward"] = lambda: setattr(one(), "forward", lambda t: t * 4)
    case.changes["instance forward gone"] = lambda: [
        vars(cell).pop("forward", None) for cell in cells
    ]
    case.changes["attribute before a buffer"] = lambda: vars(one()).update(shift=torch.zeros(4))
    case.changes["class"] = lambda: setattr(
        one(), "__class__", type("Second", (Cell,), {"forward": lambda self, t: t - self.gain})
    )
    case.changes["double"] = lambda: one().double()


@habit
def blocks_that_break(pick: random.Random) -> Case:
    cells = nn.ModuleList(_cells())

    def fn(t: Any) -> Any:
        for cell in cells:
            t = cell(t)
        return t

    case = Case(fn, [x()])
    _changes(case, cells, pick)
    case.changes["order"] = lambda: cells._modules.update(
        zip(cells._modules, pick.sample(list(cells), len(cells)))
    )
    case.changes["removed"] = lambda: cells.pop(-1) if len(cells) > 2 else None
    return case


@habit
def cells_by_index(pick: random.Random) -> Case:
    model = Picks(_cells())
    case = Case(lambda t: model(t), [x()])
    _changes(case, model.cells, pick)
    case.changes["turns"] = lambda: setattr(model, "turns", pick.randrange(6))
    case.changes["list replaced"] = lambda: setattr(
        model, "cells", nn.ModuleList(pick.sample(list(model.cells), len(model.cells)))
    )
    case.changes["dict of the list"] = lambda: setattr(
        model.cells, "_modules", dict(model.cells._modules)
    )
    case.changes["names"] = lambda: model.cells._modules.update(
        {"0": model.cells._modules["1"], "1": model.cells._modules["0"]}
    )
    case.changes["getter"] = lambda: setattr(
        model.cells,
        "__class__",
        type("Backwards", (nn.ModuleList,), {
            "__getitem__": lambda self, key: nn.ModuleList.__getitem__(self, -1 - key)}),
    )  # fmt: skip
    return case


@habit
def cells_by_number_and_item(pick: random.Random) -> Case:
    cells = nn.ModuleList(_cells())
    scales = [1, 2, 0, 3, 5]

    def fn(t: Any) -> Any:
        for number, (cell, scale) in enumerate(zip(cells, scales), start=len(scales)):
            if t.min() < -1e9:
                break
            t = t + cell(t) * scale + number
        return t

    case = Case(fn, [x()])
    _changes(case, cells, pick)
    case.changes["scale"] = lambda: scales.__setitem__(
        pick.randrange(len(scales)), pick.choice((0, 1, 7, True, 2.5, -1))
    )
    case.changes["one scale more"] = lambda: scales.append(4)
    case.changes["one scale less"] = lambda: scales.pop() if len(scales) > 1 else None
    return case


@habit
def counters_of_classes(pick: random.Random) -> Case:
    def fn(t: Any) -> Any:
        Counting.calls += Counting.step
        CountingMore.last = t * Counting.calls
        if t.sum() > 1e9:
            return t
        Counting.calls = Counting.calls * 2
        made = CountingMore()
        return t + made.calls, made.last, CountingMore.calls, Counting.last

    start = {kind: dict(vars(kind)) for kind in (Counting, CountingMore)}

    def reset() -> None:
        for kind, kept in start.items():
            for name in ("calls", "step", "last"):
                if name in kept:
                    setattr(kind, name, kept[name])
                elif name in vars(kind):
                    delattr(kind, name)
        for kind, name, value in given:
            setattr(kind, name, value)

    given: list[Any] = []
    case = Case(fn, [x()], before=reset)
    case.own_undo.append(lambda: (given.clear(), reset()))
    for name in ("calls", "step", "last"):
        for kind in (Counting, CountingMore):
            case.changes[f"{name} of {kind.__name__}"] = lambda kind=kind, name=name: given.append(
                (kind, name, pick.choice((0, 1, 5, 9, True, 2.5)))
            )
    case.changes["as at first"] = given.clear
    case.changes["property"] = lambda: given.append(
        (CountingMore, "step", property(lambda self: 3))
    )
    return case
