"""Bucketing gives each rank what it had: graphs are drawn, and run for all ranks in one process."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from flambeau_inductor._torch_compat import WAIT, overload_of
from flambeau_inductor.passes.merge_collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    REDUCE_SCATTER,
    merge_collectives,
)
from flambeau_inductor.tuning.machine import link_of
from flambeau_prims import PRIMS
from torch import Tensor, fx

RANKS = 3


def of(name: str) -> Any:
    return overload_of(name)


def prim(name: str) -> Any:
    return PRIMS[name].overload


class Ranks:
    """All ranks of a group at once: a node's values are a list, one a rank."""

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.started: list[str] = []
        self.values: dict[fx.Node, list[Any]] = {}

    def run(self, inputs: list[list[Tensor]]) -> list[list[Tensor]]:
        values = self.values
        given = iter(inputs)
        for node in self.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(given)
                continue
            args = [
                fx.node.map_arg(node.args, lambda each, rank=rank: values[each][rank])
                for rank in range(RANKS)
            ]
            if node.op == "output":
                return [list(each[0]) for each in args]
            if str(node.target) in (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER):
                self.started.append(str(node.target))
                values[node] = self._together(node, [each[0] for each in args])
            elif str(node.target) == WAIT:
                values[node] = values[node.args[0]]
            else:
                values[node] = [node.target(*each, **node.kwargs) for each in args]
        raise AssertionError("a graph without an output")

    def _together(self, node: fx.Node, given: list[Tensor]) -> list[Tensor]:
        target = str(node.target)
        if target == ALL_GATHER:
            return [torch.cat(given) for _ in range(RANKS)]
        op = node.args[1]
        whole = sum(given) if op == "sum" else torch.stack(given).amax(0)
        assert isinstance(whole, Tensor)
        if target == ALL_REDUCE:
            return [whole.clone() for _ in range(RANKS)]
        return list(whole.chunk(RANKS))


class Program:
    """A drawn graph of collectives between cheap and costly steps."""

    def __init__(self, seed: int) -> None:
        self.draw, self.graph = random.Random(seed), fx.Graph()
        self.nodes: list[fx.Node] = []
        for place in range(4):
            dtype = self.draw.choice([torch.float32, torch.float32, torch.int64])
            rows = RANKS * self.draw.randint(1, 3)
            node = self.graph.placeholder(f"x{place}")
            self.keep(node, torch.empty(rows, self.draw.randint(1, 3), dtype=dtype))
        self.inputs = [node.meta["val"] for node in self.nodes]
        for _ in range(self.draw.randint(6, 24)):
            self.draw.choice([self.reduce, self.gather, self.scatter, self.cheap, self.costly])()
        count = self.draw.randint(2, len(self.nodes))
        self.graph.output(tuple(self.draw.sample(self.nodes, count)))

    def keep(self, node: fx.Node, value: Tensor) -> None:
        node.meta["val"] = value
        self.nodes.append(node)

    def call(self, target: str, *args: Any, shape: Any) -> None:
        node = self.graph.call_function(of(target), args)
        node.meta["val"] = args[0].meta["val"].new_empty(shape)
        wait = self.graph.call_function(of(WAIT), (node,))
        self.keep(wait, node.meta["val"])

    def any(self) -> fx.Node:
        return self.draw.choice(self.nodes)

    def reduce(self) -> None:
        node = self.any()
        op, group = self.draw.choice(["sum", "max"]), self.draw.choice(["0", "0", "1"])
        self.call(ALL_REDUCE, node, op, group, shape=node.meta["val"].shape)

    def gather(self) -> None:
        node = self.any()
        rows, *rest = node.meta["val"].shape
        if rows < 100:
            self.call(ALL_GATHER, node, RANKS, "0", shape=(RANKS * rows, *rest))

    def scatter(self) -> None:
        node = self.any()
        rows, *rest = node.meta["val"].shape
        if rows % RANKS == 0:
            shape = (rows // RANKS, *rest)
            self.call(REDUCE_SCATTER, node, "sum", RANKS, "0", shape=shape)

    def cheap(self) -> None:
        node = self.any()
        made = self.graph.call_function(prim("add"), (node, node))
        self.keep(made, node.meta["val"])

    def costly(self) -> None:
        node = self.any()
        value = node.meta["val"]
        made = self.graph.call_function(prim("cumsum"), (node, 0))
        self.keep(made, value.new_empty(value.shape))


def numbers(program: Program, seed: int) -> list[list[Tensor]]:
    made = torch.Generator().manual_seed(seed)

    def one(like: Tensor) -> Tensor:
        return torch.randint(-9, 9, like.shape, generator=made).to(like.dtype)

    return [[one(like) for _ in range(RANKS)] for like in program.inputs]


def test_drawn_programs_give_what_they_gave() -> None:
    merged = 0
    for seed in range(150):
        program = Program(seed)
        inputs = numbers(program, seed)
        before = Ranks(program.graph)
        wanted = before.run(inputs)
        count = merge_collectives(program.graph)
        program.graph.lint()
        after = Ranks(program.graph)
        given = after.run(inputs)
        assert len(after.started) <= len(before.started) - count // 2
        merged += count
        for mine, theirs in zip(given, wanted, strict=True):
            for one, other in zip(mine, theirs, strict=True):
                assert torch.equal(one, other) and one.shape == other.shape, seed
            own = [each.untyped_storage().data_ptr() for each in mine]
            before_ = [each.untyped_storage().data_ptr() for each in theirs]
            assert len(set(own)) >= len(set(before_)), seed
    assert merged > 300


def reduced(sizes: list[int], costly_between: bool = False, chained: bool = False) -> fx.Graph:
    graph = fx.Graph()
    given, outs = [], []
    for place, size in enumerate(sizes):
        node = graph.placeholder(f"x{place}")
        node.meta["val"] = torch.empty(size, device="meta")
        given.append(node)
    for node in given:
        if chained and outs:
            node = graph.call_function(prim("add"), (outs[-1], outs[-1]))
            node.meta["val"] = outs[-1].meta["val"]
        if costly_between and outs:  # what reads the last result comes before this is ready
            first = graph.call_function(prim("cumsum"), (outs[-1], 0))
            node = graph.call_function(prim("add"), (first, first))
            first.meta["val"] = node.meta["val"] = outs[-1].meta["val"]
        made = graph.call_function(of(ALL_REDUCE), (node, "sum", "0"))
        wait = graph.call_function(of(WAIT), (made,))
        made.meta["val"] = wait.meta["val"] = node.meta["val"]
        outs.append(wait)
    graph.output(tuple(outs))
    return graph


def calls(graph: fx.Graph) -> int:
    return sum(str(node.target) == ALL_REDUCE for node in graph.nodes)


@pytest.mark.parametrize(
    ("sizes", "options", "left"),
    [
        ([8, 8, 8], {}, 1),
        ([8], {}, 1),
        ([8, 8, 8], {"chained": True}, 3),
        ([8, 8, 8], {"costly_between": True}, 3),
        ([1 << 24, 1 << 24], {}, 2),  # to copy them takes longer than to start
        ([8, 1 << 24, 8], {}, 2),
    ],
)
def test_what_gains_is_merged(sizes: list[int], options: dict[str, bool], left: int) -> None:
    graph = reduced(sizes, **options)
    merge_collectives(graph)
    graph.lint()
    assert calls(graph) == left


def test_a_bucket_has_an_end() -> None:
    link = link_of("cpu")
    size = int(link.latency * link.copy_rate / 2 / 4) - 1
    assert link.gains(4 * size)
    count = 3 * link.most_bytes // (4 * size)
    graph = reduced([size] * count)
    merge_collectives(graph)
    assert 3 <= calls(graph) <= 5
