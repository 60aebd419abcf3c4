"""Padding: a graph of constant sizes for arguments that are filled up, and results that are cut.

In: a captured graph with open sizes whose `meta["padding"]` says, by placeholder and dimension, up
to what size and with what. Out: what a backend compiles of the same graph at those sizes, and a
callable that fills and cuts around it. Invariant: which dimensions of a result are cut follows from
their symbols, never from a number; what cannot be cut exactly, strides and memory included, is not
padded, and the report says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from flambeau import _torch_compat as compat
from flambeau.backends.request import Backend, Request
from flambeau.errors import warn
from flambeau.testing.comparison import copied_graph

Filled = Mapping[int, tuple[int, int | float]]
"""By dimension, the size that a tensor is filled up to, and what with."""


class CannotPad(Exception):
    """Why a graph is not padded."""


def padding(backend: Backend, request: Request) -> Backend:
    """The backend; graphs that are to be padded are compiled at the sizes they are padded to."""

    def compile(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        why = gm.meta.get("unpadded")
        if why is None and "padding" in gm.meta:
            try:
                plan = planned(gm, gm.meta["padding"])
                constant = at_padded_sizes(gm, plan)
                given = plan.filled(example_inputs)
            except CannotPad as error:
                why = str(error)
            else:
                return Padded(backend(constant, given), plan)
        if why is not None:
            text = f"{type(gm).__name__}: {why}"
            request.recorder.unpadded(text)
            warn(f"{text}: it is compiled for a range of sizes, and nothing is padded")
        return backend(gm, example_inputs)

    return compile


@dataclass(frozen=True)
class Cut:
    """A result of the graph. same_as: the input that it is. dims: those that are cut, each with the
    symbol that says to what; it keeps the order in memory that the compiled graph gives it."""

    same_as: int | None = None
    dims: Mapping[int, Any] | None = None

    def of(self, found: torch.Tensor, sizes: Mapping[Any, int]) -> torch.Tensor:
        """The result of the call, in memory of its own where it is cut."""
        dims = self.dims or {}
        if all(found.shape[dim] == sizes[symbol] for dim, symbol in dims.items()):
            return found
        order = _by_strides(found)
        for dim, symbol in dims.items():
            found = found.narrow(dim, 0, sizes[symbol])
        strides = [0] * found.dim()
        step = 1
        for dim in reversed(order):
            strides[dim] = step
            step *= max(found.shape[dim], 1)
        return found.new_empty_strided(found.shape, strides).copy_(found)


@dataclass(frozen=True)
class PaddingPlan:
    """How a graph is padded. dropped: inputs that are numbers of padded sizes. fills: by input.
    orders: of each of them, its dimensions from the outermost in memory.
    places: for each symbol, an input and its dimension. to: the size that it is padded to."""

    dropped: frozenset[int]
    fills: Mapping[int, Filled]
    orders: Mapping[int, tuple[int, ...]]
    places: Mapping[Any, tuple[int, int]]
    to: Mapping[Any, int]
    cuts: Sequence[Cut | None]

    def sizes(self, inputs: Sequence[Any]) -> dict[Any, int]:
        """What the padded sizes are in a call."""
        return {symbol: inputs[n].shape[dim] for symbol, (n, dim) in self.places.items()}

    def filled(self, inputs: Sequence[Any]) -> list[Any]:
        """The inputs of the padded graph."""
        return [
            filled(given, self.fills[place], self.orders[place]) if place in self.fills else given
            for place, given in enumerate(inputs)
            if place not in self.dropped
        ]


def filled(tensor: torch.Tensor, fills: Filled, order: tuple[int, ...]) -> torch.Tensor:
    """A tensor that is filled up after its elements, dense in the order of its dimensions."""
    for dim, (size, value) in fills.items():
        more = size - tensor.shape[dim]
        if more:
            sides = [0, 0] * (tensor.dim() - 1 - dim) + [0, more]
            tensor = torch.nn.functional.pad(tensor, sides, value=value)
    if order == tuple(range(tensor.dim())):
        return tensor.contiguous()
    places = sorted(range(tensor.dim()), key=order.__getitem__)
    return tensor.permute(order).contiguous().permute(places)


class Padded:
    """A compiled graph, called with what is filled up."""

    def __init__(self, run: Callable[..., Any], plan: PaddingPlan) -> None:
        self.run, self.plan = run, plan

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        plan = self.plan
        sizes, found = plan.sizes(inputs), self.run(*plan.filled(inputs))
        return tuple(
            each
            if cut is None
            else inputs[cut.same_as]
            if cut.same_as is not None
            else cut.of(each, sizes)
            for each, cut in zip(found, plan.cuts, strict=True)
        )


def planned(gm: fx.GraphModule, padding: Mapping[str, Filled]) -> PaddingPlan:
    """How a graph is padded. Raises CannotPad."""
    inputs = gm.graph.find_nodes(op="placeholder")
    to: dict[Any, int] = {}
    places: dict[Any, tuple[int, int]] = {}
    for place, node in enumerate(inputs):
        for dim, (size, value) in padding.get(node.name, {}).items():
            symbol = compat.size_expression(node.meta["val"].shape[dim])
            if not getattr(symbol, "is_Symbol", False):
                raise CannotPad(f"the program makes dimension {dim} of {node.name} {symbol}")
            if to.setdefault(symbol, size) != size:
                raise CannotPad(f"one size is padded to {to[symbol]} and to {size}")
            _check_value(node, value)
            places.setdefault(symbol, (place, dim))
    fills: dict[int, Filled] = {}
    orders: dict[int, tuple[int, ...]] = {}
    dropped: set[int] = set()
    for place, node in enumerate(inputs):
        known, own = node.meta["val"], padding.get(node.name, {})
        if not isinstance(known, torch.Tensor):
            expression = compat.size_expression(known)
            if expression in to:
                dropped.add(place)
            elif _padded_in(expression, to):
                raise CannotPad(f"{node.name} is computed of a padded size")
            continue
        for dim, size in enumerate(known.shape):
            if dim not in own and _padded_in(compat.size_expression(size), to):
                raise CannotPad(
                    f"dimension {dim} of {node.name} follows from a padded size: give it a policy "
                    f"that pads it, too"
                )
        if own:
            fills[place], orders[place] = own, _by_strides(known)
    return PaddingPlan(frozenset(dropped), fills, orders, places, to, _cuts(gm, inputs, fills, to))


def _check_value(node: fx.Node, value: int | float) -> None:
    dtype = node.meta["val"].dtype
    if not dtype.is_floating_point and not dtype.is_complex:
        least, most = (
            (0, 1) if dtype is torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
        )
        if int(value) != value or not least <= value <= most:
            raise CannotPad(f"{value} is no {dtype}, with which {node.name} is to be padded")


def _padded_in(expression: Any, to: Mapping[Any, int]) -> bool:
    return bool(getattr(expression, "free_symbols", frozenset()) & to.keys())


def _cuts(
    gm: fx.GraphModule,
    inputs: Sequence[fx.Node],
    fills: Mapping[int, Filled],
    to: Mapping[Any, int],
) -> list[Cut | None]:
    memory = {_memory(inputs[place]): inputs[place].name for place in fills}
    found: list[Cut | None] = []
    taken: set[Any] = set()
    (results,) = gm.graph.output_node().args
    for node in results if isinstance(results, tuple | list) else (results,):
        if not isinstance(node, fx.Node) or not isinstance(node.meta["val"], torch.Tensor):
            found.append(None)
            continue
        known = node.meta["val"]
        if node in inputs:
            found.append(Cut(same_as=inputs.index(node)))
            continue
        if _memory(node) in memory:
            raise CannotPad(f"a result is a view of {memory[_memory(node)]}, which is padded")
        expressions = [compat.size_expression(size) for size in known.shape]
        dims = {dim: each for dim, each in enumerate(expressions) if each in to}
        others = [e for e in expressions if e not in to and _padded_in(e, to)]
        if others:
            raise CannotPad(f"a result has a size of {others[0]}, which is no padded one")
        if dims and 0 in expressions:
            raise CannotPad("a result of padded sizes has no elements: any strides may be eager's")
        dense = _is_dense(known)
        steps = any(_padded_in(compat.size_expression(step), to) for step in known.stride())
        if (dims or steps) and not dense:
            raise CannotPad("a result of padded sizes has gaps or overlaps in its memory")
        if dims and _memory(node) in taken:
            raise CannotPad("two results share memory, of which one is to be cut")
        taken.add(_memory(node))
        found.append(Cut(dims=dims) if dims else None)
    return found


def _memory(node: fx.Node) -> Any:
    return node.meta["val"].untyped_storage()._cdata


def _by_strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """The dimensions from the largest stride to the least."""
    steps = [compat.size_hint(step) for step in tensor.stride()]
    return tuple(sorted(range(tensor.dim()), key=lambda dim: (-steps[dim], dim)))


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether the dimensions are dense in one order at all sizes that the graph is for."""
    sizes, steps = (map(compat.size_expression, each) for each in (tensor.shape, tensor.stride()))
    known = [*zip(sizes, steps, strict=True)]
    wanted = 1
    for size, step in map(known.__getitem__, reversed(_by_strides(tensor))):
        if size != 1 and step != wanted:
            return False
        wanted *= size or 1
    return True


def at_padded_sizes(gm: fx.GraphModule, plan: PaddingPlan) -> fx.GraphModule:
    """The graph for the sizes that its inputs are padded to. Raises CannotPad where it does not run
    at them."""
    made = copied_graph(gm)
    for place, node in enumerate(made.graph.find_nodes(op="placeholder")):
        if place in plan.dropped:
            _replace(node, plan.to[compat.size_expression(node.meta["val"])])
            made.graph.erase_node(node)
        elif place in plan.fills:
            sizes = {dim: size for dim, (size, _) in plan.fills[place].items()}
            node.meta["val"] = compat.fake_of_size(node.meta["val"], sizes, plan.orders[place])
    try:
        compat.propagate(made)
    except Exception as error:
        raise CannotPad(f"at the padded sizes it raises {type(error).__name__}: {error}") from error
    made.recompile()
    return made


def _replace(node: fx.Node, number: int) -> None:
    """A number in place of a node."""

    def other(each: fx.Node) -> Any:
        return number if each is node else each

    for user in list(node.users):
        user.args = fx.node.map_arg(user.args, other)
        user.kwargs = fx.node.map_arg(user.kwargs, other)
