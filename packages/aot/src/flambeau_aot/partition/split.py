"""Splitting of a joint graph at the saved values.

In: a `Joint` and the nodes whose values cross from forward to backward, perhaps a user's choice.
Out: a `Halves`: two graph modules and where each backward input comes from; or the rule that is
broken.
Invariant: the backward graph reads nothing but saved values and tangents; an input that the program
writes to is saved as a copy, for its own memory has another value by then.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from flambeau_aot._torch_compat import FakeTensor, communicates, data_symbols, expression_of
from flambeau_aot.errors import AotError
from flambeau_aot.inputs.memory_overlap import has_gaps, is_dense, reach
from flambeau_aot.interface import Classifier
from flambeau_aot.joint.differentiate import in_backward
from flambeau_aot.joint.reach import computed_from
from flambeau_aot.joint.trace import Joint
from flambeau_aot.partition.cost import classify, has_effect, runs_anyway, work
from flambeau_aot.partition.memory import is_snapshot, shares_memory
from flambeau_aot.runtime_plan import Saved
from flambeau_aot.sizes import (
    ARITHMETIC,
    SizeNodes,
    as_tensor,
    has_symbols,
    is_symbolic,
    symbolic_parts,
)

aten = torch.ops.aten


class TracedModule(fx.GraphModule):
    """A graph module whose code is generated at the first use of `forward` or `code`."""

    def __init__(self, root: Any, graph: fx.Graph | None = None, class_name: str = "") -> None:
        if isinstance(root, fx.Graph):
            root, graph = torch.nn.Module(), root
        self.__dict__["deferred"] = True
        super().__init__(root, graph, class_name or "TracedModule")  # type: ignore[arg-type]

    def recompile(self) -> Any:
        """Generate the Python of `forward`; while the module is being built, put it off."""
        if self.__dict__.pop("deferred", False):
            self.__dict__["pending"] = True
            return None
        self.__dict__["pending"] = False
        return super().recompile()

    def ready(self) -> fx.GraphModule:
        """This module with its code generated."""
        if self.__dict__.get("pending"):
            self.recompile()
        return self

    def forward(self, *args: Any) -> Any:
        """Generate the code, which replaces this method on the instance's own class; run it."""
        self.ready()
        return type(self).forward(self, *args)

    @property
    def code(self) -> str:
        """The Python of `forward`."""
        text: str = fx.GraphModule.code.fget(self.ready())  # type: ignore[attr-defined]
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its code, as every graph module is."""
        self.ready()
        return super().__reduce__()


@dataclass(frozen=True)
class Halves:
    """The two graphs. Backward inputs are the saved values, then the tangents, then the flags that
    say which of them are defined, then inputs that it writes to, then the symbols.

    grads: for each primal, the position of its gradient among the backward outputs, or None.
    recomputed: names of operators that run in both graphs. recomputed_share: their part of the
    estimated work of both. remade: saved values that eager keeps as themselves, of which the
    backward graph makes views and other values again that eager has kept as they were.
    """

    forward: fx.GraphModule
    backward: fx.GraphModule | None
    saved: tuple[Saved, ...]
    saved_nodes: tuple[fx.Node, ...]
    grads: tuple[int | None, ...]
    recomputed: tuple[str, ...] = ()
    recomputed_share: float = 0.0
    remade: tuple[int, ...] = ()


def inference(joint: Joint) -> fx.GraphModule:
    """The forward graph alone."""
    graph, _ = extract(joint.primals, joint.outputs, joint.graph, _run_anyway(joint))
    return TracedModule(graph)


def backward_only(joint: Joint) -> set[fx.Node]:
    """Values that depend on a tangent, or on a collective of the backward pass: the other processes
    start it there, also where what this one gives it is known before."""
    tainted: set[fx.Node] = set(joint.late_inputs)
    for node in joint.graph.nodes:
        own = communicates(node.target) and in_backward(node)
        if own or any(source in tainted for source in node.all_input_nodes):
            tainted.add(node)
    return tainted


def tangents_of(joint: Joint) -> tuple[frozenset[int], ...]:
    """For each primal, the tangents its gradient depends on."""
    if joint.grads_of:
        return joint.grads_of
    reached = _cotangents(joint)
    return tuple(_NONE if node is None else reached.get(node, _NONE) for node in joint.grads)


_NONE: frozenset[int] = frozenset()


def _cotangents(joint: Joint) -> dict[fx.Node, frozenset[int]]:
    """The tangents that each value of the backward part depends on."""
    reached = {node: frozenset((index,)) for index, node in enumerate(joint.tangents)}
    for node in joint.graph.nodes:
        sets = {reached[source] for source in node.all_input_nodes if source in reached}
        if sets:
            reached[node] = _NONE.union(*sets) if len(sets) > 1 else next(iter(sets))
    return reached


def readers_of(joint: Joint, saved: Sequence[fx.Node]) -> tuple[frozenset[int], ...]:
    """For each saved value, the tangents that what is computed from it depends on."""
    every = frozenset(range(len(joint.tangents)))
    reached = _cotangents(joint)
    needed = {node: every for node in joint.grads if node is not None and node not in reached}
    given = set(saved)
    for node in reversed(list(joint.graph.nodes)):
        own = reached.get(node, needed.get(node))
        if own is None or (node in given and node not in reached):
            continue
        for source in node.all_input_nodes:
            if source not in reached:
                needed[source] = needed.get(source, _NONE) | own
    return tuple(needed.get(node, every) for node in saved)


def forward_part(joint: Joint) -> set[fx.Node]:
    """What the forward results need, and all outside the backward part that runs anyway."""
    return computed_from([*joint.outputs, *_run_anyway(joint)])


def _run_anyway(joint: Joint) -> list[fx.Node]:
    """Random operators and checks of the forward part: all run there, used or not, as in eager."""
    found = [node for node in joint.graph.nodes if runs_anyway(node.target)]
    late = backward_only(joint) if found else set()
    return [node for node in found if node not in late]


def split(joint: Joint, saved: Iterable[fx.Node], known: Classifier | None = None) -> Halves:
    """Cut a joint graph so that exactly these values cross."""
    written = {joint.primals[primal] for primal in joint.plan.written}
    written |= {node for node in joint.graph.nodes if is_snapshot(node)}
    order = {node: index for index, node in enumerate(joint.graph.nodes)}
    roots = {root for node in saved for root in _roots(node)}
    chosen = {_copied_as(node, written) for node in roots} - set(joint.symbols)
    if data_symbols(n for node in chosen for n in symbolic_parts(node.meta["val"])):
        chosen |= _unsaid(joint, chosen)
        order = {node: index for index, node in enumerate(joint.graph.nodes)}
    crossing = sorted(chosen, key=lambda node: order[node])
    numbers = {as_tensor(node): node for node in crossing if is_symbolic(node.meta["val"])}
    carried = {node: tensor for tensor, node in numbers.items()}
    crossing = [carried.get(node, node) for node in crossing]
    primal_index = {node: index for index, node in enumerate(joint.primals)}
    outputs: list[fx.Node] = list(joint.outputs)
    first_output = {node: index for index, node in reversed([*enumerate(outputs)])}
    places: list[Saved] = []
    copies: set[int] = set()
    for node in crossing:
        if node in primal_index and node not in written:
            itself = any(node is x for x, _ in joint.kept)
            places.append(Saved("input" if itself else "memory", primal_index[node]))
        elif _views(node) in written:
            copies.add(len(outputs))
            places.append(Saved("output", len(outputs)))
            outputs.append(node)
        elif node in first_output:
            places.append(Saved("output", first_output[node]))
        else:
            places.append(Saved("output", len(outputs)))
            outputs.append(node)
    forward, ran = extract(joint.primals, outputs, joint.graph, _run_anyway(joint), copies)
    wanted = [node for node in joint.grads if node is not None]
    distinct = list(dict.fromkeys(wanted))
    late = backward_only(joint)
    given = [*crossing, *joint.late_inputs, *joint.symbols]
    checks = _computable([n for n in late if has_effect(n.target)], set(given))
    backward, again = extract(
        given, distinct, joint.graph, checks, asked=lambda node: node not in late, numbers=numbers
    )
    forms = {*late, *(node for node in again if in_backward(node))}
    remade = computed_from([n for n in again if n not in forms and n not in given], given=given)
    sources = joint.viewed.union(source for node in remade for source in node.all_input_nodes)
    place_of = {node: index for index, node in enumerate(distinct)}
    twice = [node for node in joint.graph.nodes if node in ran and node in again]
    all_work = sum(_work(node, known) for node in joint.graph.nodes)
    return Halves(
        forward=TracedModule(forward),
        backward=TracedModule(backward),
        saved=tuple(places),
        saved_nodes=tuple(crossing),
        grads=tuple(None if node is None else place_of[node] for node in joint.grads),
        recomputed=tuple(str(node.target) for node in twice if node.target is not operator.getitem),
        remade=tuple(
            at
            for at, (node, place) in enumerate(zip(crossing, places, strict=True))
            if place.kind == "input" and node in sources
        ),
        recomputed_share=sum(_work(node, known) for node in twice) / all_work if all_work else 0.0,
    )


def _roots(node: fx.Node) -> Iterable[fx.Node]:
    """The numbers that a number is computed of, which the backward part does again: sizes of what
    it is given are made of them, too. Anything else itself."""
    if node.target not in ARITHMETIC or not is_symbolic(node.meta["val"]):
        return (node,)
    return {root for part in node.all_input_nodes for root in _roots(part)}


def _unsaid(joint: Joint, chosen: set[fx.Node]) -> set[fx.Node]:
    """Numbers by data that the backward part's sizes are made of, where nothing that it is given
    says them: a sum or a difference of two numbers says neither."""
    given = {*chosen, *joint.late_inputs, *joint.symbols}
    inside = computed_from(joint.grads, given=given)
    parts = {node: list(symbolic_parts(node.meta.get("val"))) for node in {*inside, *given}}
    said = {symbol for x in given for n in parts[x] for symbol in _solved(expression_of(n))}
    for node in inside:
        sources = (n for x in node.all_input_nodes for n in symbolic_parts(x.meta.get("val")))
        said |= data_symbols(parts[node]) - data_symbols(sources)  # an operator counts it anew
    missing = data_symbols(n for each in parts.values() for n in each) - said
    sizes, early = SizeNodes(joint.graph), forward_part(joint)
    found: dict[Any, Any] = {}
    for node in joint.graph.nodes if missing else ():
        if node in early:
            sizes.made(node, node.meta.get("val"))
            found |= {expression_of(n): n for n in symbolic_parts(node.meta.get("val"))}
    nodes = (sizes.node(found[symbol]) for symbol in missing & found.keys())
    return {node for node in nodes if isinstance(node, fx.Node)}


def _solved(expression: Any) -> Iterable[Any]:
    """The symbol that an expression is a multiple of, and a number more, if it is one."""
    for symbol in expression.free_symbols:
        factor = expression.coeff(symbol)
        if factor != 0 and (expression - factor * symbol).is_Integer:
            yield symbol


def _computable(nodes: Iterable[fx.Node], given: set[fx.Node]) -> list[fx.Node]:
    """Those that can be computed from what is given: a check is no reason to save more."""
    return [
        node
        for node in nodes
        if not any(x.op == "placeholder" for x in computed_from([node], given=given))
    ]


def _put(
    node: fx.Node, made: dict[fx.Node, fx.Node], graph: fx.Graph, needed: set[fx.Node]
) -> None:
    """Copy a node and what it reads, as far as that is not there yet.

    The parts of an operator with several results are taken at once, for together they live as long
    as the one that is taken last.
    """
    stack = [node]
    while stack:
        top = stack[-1]
        if is_snapshot(top) and top.args[0] in made:
            made[top] = made[top.args[0]]  # type: ignore[index]
        missing = [item for item in top.all_input_nodes if item not in made]
        if top in made:
            stack.pop()
        elif missing:
            stack.extend(reversed(missing))
        else:
            made[top] = graph.node_copy(top, made.__getitem__)
            stack.pop()
            for user in top.users:
                if user.target is operator.getitem and user in needed and user not in made:
                    made[user] = graph.node_copy(user, made.__getitem__)


def _copied_as(node: fx.Node, written: set[fx.Node]) -> fx.Node:
    """What is saved in place of a view of an input that is written to: the input, where the view
    shows one element at several places, which no copy of it would."""
    value = node.meta["val"]
    if _views(node) not in written or not isinstance(value, torch.Tensor) or has_symbols(value):
        return node
    repeats = not has_gaps(value) and not is_dense(tuple(value.shape), tuple(value.stride()))
    return _views(node) if repeats else node


def _views(node: fx.Node) -> fx.Node:
    """The value whose memory this one lies in."""
    while shares_memory(node) or node.target is operator.getitem:
        node = node.args[0]  # type: ignore[assignment]
    return node


def _work(node: fx.Node, known: Classifier | None) -> float:
    return work(node, classify(node.target, known)) if node.op == "call_function" else 0.0


def extract(
    inputs: Sequence[fx.Node],
    outputs: Sequence[fx.Node],
    source: fx.Graph,
    also: Sequence[fx.Node] = (),
    copies: Iterable[int] = (),
    asked: Callable[[fx.Node], bool] = lambda node: False,
    numbers: Mapping[fx.Node, fx.Node] = MappingProxyType({}),
) -> tuple[fx.Graph, set[fx.Node]]:
    """The subgraph that computes `outputs` and `also` from `inputs`, and the operators in it.

    An operator that is `asked` for stands just before the first that reads it, so that its value
    lives no longer than it must; the others keep their order. numbers: by an input that is a tensor
    of no dimension, the number that is read off it.
    """
    needed = computed_from((*outputs, *also), given={*inputs, *numbers.values()})
    if outside := [node for node in needed if node.op == "placeholder"]:
        names = [node.name for node in outside]
        raise AotError(f"the cut leaves out {names}, which the graph needs")
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for node in inputs:
        copy = graph.placeholder(node.name)
        copy.meta = dict(node.meta)
        made[node] = copy
    for tensor, number in numbers.items():
        made[number] = graph.call_function(aten._local_scalar_dense.default, (made[tensor],))
        made[number].meta = dict(number.meta)
    for node in source.nodes:
        if node in needed and not asked(node):
            _put(node, made, graph, needed)
    for node in outputs:
        _put(node, made, graph, needed)
    results: list[Any] = [made[node] for node in outputs]
    for index in copies:
        results[index] = _copy(graph, results[index])
    end = graph.output(tuple(results))
    end.meta["val"] = tuple(node.meta["val"] for node in results)
    return graph, needed


def _copy(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """A copy of a value with the same strides, gaps included: the backward part counts on them."""
    value: FakeTensor = node.meta["val"]
    numbers = (*value.shape, *value.stride())
    if not all(isinstance(number, int) for number in numbers) or not has_gaps(value):
        clone = graph.call_function(aten.clone.default, (node,))
        clone.meta = dict(node.meta)
        return clone
    size, stride = list(value.shape), list(value.stride())
    count = reach(size, stride)
    memory = graph.call_function(aten.new_zeros.default, (node, [count]))
    filled = graph.call_function(aten.as_strided_scatter.default, (memory, node, size, stride, 0))
    laid = graph.call_function(aten.as_strided.default, (filled, size, stride, 0))
    laid.meta = dict(node.meta)
    laid.meta["val"] = value.new_zeros([count]).as_strided(size, stride, 0)
    memory.meta, filled.meta = dict(node.meta), dict(node.meta)
    memory.meta["val"] = filled.meta["val"] = value.new_zeros([count])
    return laid


RULES = (
    "a partition returns the nodes of the joint graph whose values are kept for the backward part: "
    "inputs and values that the forward part computes, enough to compute every gradient from"
)


def checked_cut(joint: Joint, saved: Any) -> Sequence[fx.Node]:
    """The cut, if it is one."""
    if not isinstance(saved, Iterable):
        raise AotError(f"the partition returned {saved!r}; {RULES}")
    chosen = list(saved)
    nodes = set(joint.graph.nodes)
    for item in chosen:
        if not isinstance(item, fx.Node) or item not in nodes:
            raise AotError(f"the partition returned {item!r}, no node of the joint graph; {RULES}")
    late = backward_only(joint)
    if wrong := [node for node in chosen if node in late]:
        raise AotError(
            f"the partition saves {[node.name for node in wrong]}, which only the backward part "
            f"can compute; {RULES}",
            wrong[0].meta.get("stack_trace") or "",
        )
    given = {*chosen, *joint.late_inputs, *joint.symbols}
    needed = computed_from(joint.grads, given=given)
    if missing := [node.name for node in joint.primals if node in needed]:
        raise AotError(f"the cut leaves out {missing}, which the gradients need; {RULES}")
    return chosen
