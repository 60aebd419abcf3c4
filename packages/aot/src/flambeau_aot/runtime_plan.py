"""Runtime plan of a compiled graph, as data.

In: facts that `analyze` found while the program was traced. Out: frozen dataclasses that `runtime`
reads.
Invariant: a plan names tensors by position only; it can be printed, and holds no value of a call
but literals of the program itself.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import torch

from flambeau_aot.sizes import Sized


@dataclass(frozen=True)
class ViewStep:
    """One view operator: `func(source, *args, **kwargs)`, then `[index]` where it gives a list.

    sized: for arguments with symbolic sizes, from the symbols' values, the numbers that the graph
    returns for it, and the sizes of what the first step views, to args and kwargs.
    """

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    index: int | None
    sized: Sized | None = None


@dataclass(frozen=True)
class Saved:
    """Where a value is found when the forward graph has run."""

    kind: str
    """"input" (a primal) or "output" (of the forward graph); "memory" of a primal, which it has at
    the call: eager keeps a view of it, which an assignment to its `.data` leaves alone."""
    index: int

    @property
    def place(self) -> Saved:
        """Where it is found, whatever of it is meant."""
        return Saved("input", self.index) if self.kind == "memory" else self


@dataclass(frozen=True)
class Watched:
    """A result (an "output"), or an input, that shares the memory of something that eager keeps for
    the backward pass, with the tangents that this is read for."""

    source: Saved
    readers: frozenset[int]


@dataclass(frozen=True)
class Presence:
    """An input of a backward graph: whether one of these cotangents is defined, on a device."""

    tangents: tuple[int, ...]
    device: torch.device


@dataclass(frozen=True)
class Member:
    """An argument that is part of a base, by its place in the base's storage.

    recorded: a view that autograd knows of. whole: it is the base itself. counter: members of one
    number share a version counter.
    """

    position: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    recorded: bool
    whole: bool
    counter: int

    @property
    def is_view(self) -> bool:
        """Whether autograd knows that it shows the base, or part of it."""
        return self.recorded or self.whole


@dataclass(frozen=True)
class Merged:
    """Arguments that share memory one of which is written to; the graph takes their base.

    size, stride, offset: the base in its storage. own: the base is the tensor they are views of;
    else it is made over their memory, without autograd.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    own: bool
    members: tuple[Member, ...]


@dataclass(frozen=True)
class SymbolPlace:
    """Where a call finds the value of a symbol: an argument, or its size or stride at `dim`."""

    position: int
    dim: int | None
    stride: bool = False

    def read(self, argument: Any) -> int:
        """The value of the symbol, from the argument at `position`."""
        if self.dim is None:
            value: int = argument
            return value
        return int(argument.stride(self.dim) if self.stride else argument.shape[self.dim])


@dataclass(frozen=True)
class InputPlan:
    """How the caller's arguments become the graph's primals.

    primals: for each primal after the static ones, the position of the argument it is; the bases of
    `merged` follow. Plans count the members of bases as primals that come after these. duplicates:
    (position, primal): this argument was the same tensor as that primal. literals: (position,
    value): an argument that is no tensor, fixed at its traced value. symbols: the sizes that are
    left open, numbers that are the last primals of all.
    """

    static: int
    primals: tuple[int, ...]
    duplicates: tuple[tuple[int, int], ...] = ()
    literals: tuple[tuple[int, Any], ...] = ()
    merged: tuple[Merged, ...] = ()
    symbols: tuple[SymbolPlace, ...] = ()

    @property
    def bound(self) -> int:
        """How many primals the graph takes."""
        return self.static + len(self.primals) + len(self.merged) + len(self.symbols)

    def moved(self, start: int, by: int) -> InputPlan:
        """The plan after `by` static tensors were inserted before primal `start`."""
        duplicates = tuple((at, p + by if p >= start else p) for at, p in self.duplicates)
        return replace(self, static=self.static + by, duplicates=duplicates)


@dataclass(frozen=True)
class InputUpdate:
    """An input the program writes to: the graph's output `output` is copied into it.

    differentiable: the write is part of the autograd graph, as in-place operators are. counted: the
    version counter notices, as it does not where `Tensor.data` was written to. writes: by how much
    the program raises it.
    """

    primal: int
    output: int
    differentiable: bool
    counted: bool = True
    writes: int = 1


@dataclass(frozen=True)
class Reshape:
    """An input that is given another shape in place, by these views, after everything else."""

    primal: int
    steps: tuple[ViewStep, ...]
    recorded: bool


@dataclass(frozen=True)
class SameResult:
    """A result that is an earlier result itself."""

    result: int


@dataclass(frozen=True)
class FromGraph:
    """A result the graph returns, at this position.

    leaf: one that is made to require grad. view: one that the autograd function returns as a view
    it has made, which autograd lets nobody write to.
    """

    output: int
    leaf: bool = False
    view: bool = False


@dataclass(frozen=True)
class IsInput:
    """A result that is an input itself."""

    primal: int


@dataclass(frozen=True)
class View:
    """A view of a primal, or of an output of the graph; as a result, one made again at every call.

    requires_grad: whether it is made with grad enabled, as the program made it. late: a view of
    what an input is after it was given another shape, or detached. numbers: outputs of the graph
    that are numbers of which the steps are computed. calls: of each step a number that those of
    other results have too which are the same call of its operator, -1 for none; () for none at all.
    """

    source: Saved
    steps: tuple[ViewStep, ...]
    requires_grad: bool = False
    leaf: bool = False
    late: bool = False
    numbers: tuple[int, ...] = ()
    calls: tuple[int, ...] = ()

    @property
    def primal(self) -> int:
        """The primal that it is of; -1 for none."""
        return self.source.index if self.source.kind == "input" else -1

    @property
    def output(self) -> int:
        """The output of the graph that it is of; -1 for none."""
        return self.source.index if self.source.kind == "output" else -1


@dataclass(frozen=True)
class LiteralResult:
    """A result that does not depend on the inputs' values."""

    value: Any


@dataclass(frozen=True)
class FromFunction:
    """A result that is the view at this place of `RuntimePlan.inside`."""

    place: int


@dataclass(frozen=True)
class ResultNode:
    """An autograd node of their own for results that depend on other results, or whose hooks are
    called before those of others.

    outputs: what the autograd function returns at these places, in the order in which eager calls
    hooks on them. `behind`: the results, by place, and (~primal) the inputs written to, through
    which their gradients go. together: they are results of one operator, whose hooks are all called
    where one of them has a gradient, in the order in which they were put on them.
    """

    outputs: tuple[int, ...]
    behind: tuple[int, ...]
    together: bool = False


@dataclass(frozen=True)
class NodePlace:
    """Where an autograd node is found after a call: that of an `output` of the autograd function,
    of a `result` of the program or of an `input` written to."""

    kind: str
    index: int


@dataclass(frozen=True)
class Raising:
    """A derivative that raises this: one that the program itself has freed, or that an operator has
    not. A backward pass from one of these tangents to one of these primals comes to it."""

    tangents: frozenset[int]
    primals: frozenset[int]
    message: str


@dataclass(frozen=True)
class KeepingNode:
    """A node of autograd's that keeps something. A backward pass from one of these tangents to one
    of these primals comes to it, and frees that."""

    tangents: frozenset[int]
    primals: frozenset[int]


OutputPlan = FromGraph | IsInput | View | FromFunction | SameResult | LiteralResult


@dataclass(frozen=True)
class SparseGrad:
    """A primal's gradient that is sparse.

    place: that of the rows' indices among the gradients of a joint graph, where those that are no
    primal's come last; the values are the primal's own. size: the weight's. padding: the index
    whose rows have no gradient, or None.
    """

    primal: int
    place: int
    size: tuple[int, ...]
    padding: int | None


@dataclass(frozen=True)
class LateWrite:
    """A primal that the backward part writes to, and where the value is among the gradients of a
    joint graph; counted: whether its version counter notices."""

    primal: int
    place: int
    counted: bool


@dataclass(frozen=True)
class RuntimePlan:
    """Everything outside the graphs.

    differentiable: positions of the outputs that autograd knows of, in tangent order: of the
    graph's, and after the visible ones of those `inside`. visible: number of graph outputs the
    caller gets or that update inputs; saved ones follow. inside: views that the autograd function
    makes: those whose gradient goes another way than by the views that lead to them (a user's
    derivative). `apart`: primals that require grad and that no output with a gradient depends on:
    the function must have no edge to them. grad_mode_after: the grad mode the program leaves, None
    where it leaves it alone. offsets: (primal, storage offset): primals whose offset in their
    storage the graph relies on. grad_mode: the grad mode the program was traced in. recorded:
    whether autograd may save something in it, if only for what no result leads to. reshapes:
    inputs given another shape. begin_grad: inputs on which the program calls requires_grad_().
    end_grad: those on which it calls detach_(). touched: inputs whose version counter is to be
    raised although nothing is copied into them. `beside`: inputs that share the memory, and so the
    counter, of one that is touched or reshaped. hooks: (primal, hook): what the program puts on the
    gradients of inputs. partly: primals that some result does not depend on,
    though the function leads from it to them, each with the tangents that lead to it. watched: what
    must not be written to between the call and a backward pass, whether or not its value is kept.
    reentrant: tangents that lead to a checkpoint with use_reentrant=True. result_nodes: nodes of
    results that depend on others, or are differentiated before them, in the order of their making.
    hook_order: the other outputs, in the order in which eager calls hooks on their gradients; ()
    where they are those of one operator. node_order: the nodes of all results in the order in which
    eager makes them, where a call makes them in another. linear: whether the gradients are linear
    in the cotangents. once: whether the backward part must run once for all gradients of a backward
    pass: it is not linear in them, or writes to inputs.
    keeping: autograd's nodes that keep something for a backward pass. raising: the derivatives that
    raise. users: for each derivative of a user's, the tangents that lead to it: eager runs it where
    these are all undefined, too. kept_results: results that eager keeps for the backward pass, as
    that of `exp`: gradients depend on them in turn. leaf_order: of primals that may be leaves,
    which nodes of eager's lead there, each by its place in the order of these, the last one run
    first, with the tangents that lead to it: hooks on a leaf are called after the last of its own.
    result_order: for each tangent, how many of those nodes are run after the hooks on its result
    are called, and a number that is the greater the earlier these are; () where a result has a node
    that the call does not make.
    """

    inputs: InputPlan
    updates: tuple[InputUpdate, ...]
    results: tuple[OutputPlan, ...]
    differentiable: tuple[int, ...]
    visible: int
    structure: Any
    grad_mode_after: bool | None = None
    offsets: tuple[tuple[int, int], ...] = ()
    grad_mode: bool = True
    recorded: bool = False
    reshapes: tuple[Reshape, ...] = ()
    begin_grad: tuple[int, ...] = ()
    end_grad: tuple[int, ...] = ()
    touched: tuple[int, ...] = ()
    beside: tuple[int, ...] = ()
    hooks: tuple[tuple[int, Any], ...] = ()
    partly: tuple[tuple[int, frozenset[int]], ...] = ()
    inside: tuple[View, ...] = ()
    apart: tuple[int, ...] = ()
    watched: tuple[Watched, ...] = ()
    reentrant: frozenset[int] = frozenset()
    result_nodes: tuple[ResultNode, ...] = ()
    hook_order: tuple[int, ...] = ()
    node_order: tuple[NodePlace, ...] = ()
    linear: bool = True
    once: bool = False
    keeping: tuple[KeepingNode, ...] = ()
    raising: tuple[Raising, ...] = ()
    users: tuple[frozenset[int], ...] = ()
    kept_results: tuple[int, ...] = ()
    leaf_order: tuple[tuple[int, tuple[tuple[int, frozenset[int]], ...]], ...] = ()
    result_order: tuple[tuple[int, int], ...] = ()

    @functools.cached_property
    def cotangents(self) -> dict[int, int]:
        """The place among the cotangents by output."""
        return {output: order for order, output in enumerate(self.differentiable)}

    @functools.cached_property
    def written(self) -> frozenset[int]:
        """Primals of the graph that are not, after a call, the tensors they were before it: one
        that the backward part reads is saved as a copy."""
        changed = {update.primal for update in self.updates}
        changed |= {shape.primal for shape in self.reshapes} | {*self.touched, *self.beside}
        bound = member = self.inputs.bound
        for index, merged in enumerate(self.inputs.merged):
            base = self.inputs.static + len(self.inputs.primals) + index
            if any(member <= primal < member + len(merged.members) for primal in changed):
                changed.add(base)
            member += len(merged.members)
        return frozenset(primal for primal in changed if primal < bound)

    @functools.cached_property
    def gates(self) -> dict[int, frozenset[int]]:
        """Primals that a call gives gates where they are no leaves, as static ones are, with the
        tangents that lead to them, those first that the engine comes to last; none where all
        results lead to all. Of views that the function makes no result is on a node of its own."""
        numbers = {place: leading[0][0] for place, leading in self.leaf_order}
        own = {place: frozenset().union(*(x for _, x in known)) for place, known in self.leaf_order}
        own |= dict(self.partly)
        given = [x for x in own if x >= self.inputs.static and x not in self.written]
        apart = self.once or self.inside or self.reentrant or self.inputs.merged
        if apart or not any(place in given for place, _ in self.partly):
            return {}
        return {place: own[place] for place in sorted(given, key=lambda x: numbers.get(x, 0))}

    @property
    def partly_given(self) -> tuple[tuple[int, frozenset[int]], ...]:
        """Those of `partly` that a call is given, and gives no gate."""
        first = self.inputs.static
        return tuple(x for x in self.partly if x[0] >= first and x[0] not in self.gates)

    @functools.cached_property
    def gated_nodes(self) -> tuple[ResultNode, ...]:
        """Nodes of the results that have none of their own, in a call with gates."""
        if self.hook_order:
            return tuple(ResultNode((at,), ()) for at in reversed(self.hook_order))
        own = {at for node in self.result_nodes for at in node.outputs}
        rest = tuple(at for at in self.differentiable if at not in own)
        return (ResultNode(rest, (), together=True),) if rest else ()

    @property
    def depended(self) -> tuple[int, ...]:
        """What other results depend on, as a `ResultNode` names it."""
        return tuple(sorted({place for node in self.result_nodes for place in node.behind}))

    @property
    def handed(self) -> frozenset[int]:
        """Outputs of the graph that are results, or that results are views of."""
        known = (x.output for x in self.results if isinstance(x, (FromGraph, View)))
        return frozenset((*known, *(view.output for view in self.inside))) - {-1}

    @property
    def views(self) -> frozenset[int]:
        """Outputs of the graph that the autograd function returns as views."""
        return frozenset(x.output for x in self.results if isinstance(x, FromGraph) and x.view)

    @property
    def roots(self) -> frozenset[int]:
        """Outputs of the graph that are results and of which other results are views."""
        seen = {item.output for item in self.results if isinstance(item, FromGraph)}
        return frozenset(seen & self.viewed)

    @property
    def viewed(self) -> frozenset[int]:
        """Outputs of the graph of which results are views."""
        return frozenset(item.output for item in self.results if isinstance(item, View)) - {-1}

    @property
    def extras(self) -> bool:
        """Whether more is to be done than to copy into inputs and to make views."""
        return bool(
            self.inputs.merged
            or self.reshapes
            or self.begin_grad
            or self.end_grad
            or self.hooks
            or self.touched
            or any(not update.counted for update in self.updates)
            or any(
                isinstance(item, SameResult) or getattr(item, "leaf", False)
                for item in self.results
            )
        )
