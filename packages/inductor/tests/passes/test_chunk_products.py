"""Products in chunks give each rank what it had: drawn graphs, run for all ranks at once."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from flambeau_inductor._torch_compat import WAIT, overload_of
from flambeau_inductor.passes import chunk_products as chunked
from flambeau_inductor.passes.merge_collectives import ALL_GATHER, REDUCE_SCATTER
from flambeau_inductor.tuning.machine import Link
from flambeau_prims import PRIMS
from torch import Tensor, fx

from .test_merge_collectives import RANKS, Ranks

FAST, SLOW = Link(0.0, 1e6, 1e15, 1e6), Link(1e3, 1e12, 1e15, 1e12)
"""Links by which chunks gain, and by which a call of its own costs more than all else."""


class Program:
    """A product after a gather or before a scatter, of matrices or of rows in another shape."""

    def __init__(self, seed: int) -> None:
        draw, self.graph = random.Random(seed), fx.Graph()
        rows, inner, columns = (draw.choice([4, 8]), draw.randint(1, 3), draw.randint(1, 3))
        more = draw.choice([(), (), (2,), (1, 3)])
        self.inputs: list[Tensor] = []
        self.added = draw.random() < 0.5
        self.gathers = draw.random() < 0.5
        weight = self.given(inner, columns)
        outputs = []
        if self.gathers:
            x = self.given(rows, *more, inner)
            whole = self.collective(ALL_GATHER, x, (RANKS, "0"), (RANKS * rows, *more, inner))
            flat = self.flat(whole)
            outputs.append(self.product(flat, weight))
            others = draw.choice([(), (whole,), (flat,), (whole, flat)])
            outputs += [self.add(PRIMS["neg"].overload, (x,), x.meta["val"].shape) for x in others]
        else:
            x = self.given(RANKS * rows, *more, inner)
            flat = self.flat(x)
            made = self.product(flat, weight)
            if more:
                shape = [RANKS * rows, *more, columns]
                made = self.add(PRIMS["reshape"].overload, (made, shape), shape)
            args = ("sum", RANKS, "0")
            outputs.append(self.collective(REDUCE_SCATTER, made, args, (rows, *more, columns)))
        self.graph.output(tuple(outputs))

    def given(self, *shape: int) -> fx.Node:
        node = self.graph.placeholder(f"x{len(self.inputs)}")
        node.meta["val"] = torch.empty(shape, dtype=torch.int64)
        self.inputs.append(node.meta["val"])
        return node

    def add(self, target: Any, args: tuple[Any, ...], shape: Any) -> fx.Node:
        node = self.graph.call_function(target, args)
        node.meta["val"] = torch.empty(tuple(shape), dtype=torch.int64)
        return node

    def product(self, a: fx.Node, b: fx.Node) -> fx.Node:
        shape = [a.meta["val"].shape[0], b.meta["val"].shape[1]]
        if not self.added:
            return self.add(PRIMS["mm"].overload, (a, b), shape)
        bias = self.given(shape[1])
        row = self.add(PRIMS["broadcast_in_dim"].overload, (bias, shape, [1]), shape)
        return self.add(PRIMS["addmm"].overload, (row, a, b, 1, 1), shape)

    def flat(self, node: fx.Node) -> fx.Node:
        value = node.meta["val"]
        if value.dim() == 2:
            return node
        shape = [value.numel() // value.shape[-1], value.shape[-1]]
        return self.add(PRIMS["reshape"].overload, (node, shape), shape)

    def collective(self, target: str, given: fx.Node, args: tuple[Any, ...], shape: Any) -> fx.Node:
        call = self.add(overload_of(target), (given, *args), shape)
        return self.add(overload_of(WAIT), (call,), shape)


@pytest.mark.parametrize("seed", range(40))
def test_each_rank_has_what_it_had(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program, made = Program(seed), torch.Generator().manual_seed(seed)
    given = [
        [torch.randint(-9, 9, x.shape, generator=made) for _ in range(RANKS)]
        for x in program.inputs
    ]
    before = Ranks(program.graph)
    wanted = before.run(given)
    monkeypatch.setattr(chunked, "link_of", lambda kind: SLOW)
    assert chunked.chunk_products(program.graph) == 0
    monkeypatch.setattr(chunked, "link_of", lambda kind: FAST)
    assert chunked.chunk_products(program.graph) == 1
    program.graph.lint()
    after = Ranks(program.graph)
    for one, other in zip(after.run(given), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert len(before.started) == 1
    assert len(after.started) in chunked.CHUNKS
    for node, (value, *_) in after.values.items():
        assert node.meta["val"].shape == value.shape, node


def test_what_is_read_twice_by_one_product_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "link_of", lambda kind: FAST)
    program = Program.__new__(Program)
    program.graph, program.inputs = fx.Graph(), []
    x = program.given(4, 4 * RANKS)
    whole = program.collective(ALL_GATHER, x, (RANKS, "0"), (4 * RANKS, 4 * RANKS))
    made = program.add(PRIMS["mm"].overload, (whole, whole), (4 * RANKS, 4 * RANKS))
    program.graph.output((made,))
    assert chunked.chunk_products(program.graph) == 0
