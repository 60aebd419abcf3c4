"""History of the results: what autograd knows of the way from them to the inputs.

In: what the program returned, with its autograd graph; the joint graph. Out: the tangents that
lead to reentrant checkpoints; what is kept and freed; whether the gradients are linear in the
cotangents.
Invariant: an operator that is not known is not linear: eager runs a user's derivative once, of the
whole gradient, and parts of it need not add up.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from flambeau_aot._torch_compat import (
    accumulates_only,
    autograd_nodes,
    base_of,
    current_value,
    functionalization,
    is_functional,
    keeps_something,
    kept_values,
    node_sequence,
    of_a_user,
    storage_key,
    version,
    was_freed,
    watch_unpacking,
    writes_to_view,
)
from flambeau_aot.intercept.writes.custom_operators import taken_message
from flambeau_aot.joint.cotangents import Cotangents
from flambeau_aot.joint.input_mutations import Effects
from flambeau_aot.joint.result_order import History
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime_plan import KeepingNode, Raising


def reentrant_tangents(effects: Effects, history: History) -> frozenset[int]:
    """The tangents that lead to a checkpoint with use_reentrant=True, which eager's engine goes
    through only where gradients are accumulated in all leaves."""
    if not any(accumulates_only(node) for node, _ in history):
        return frozenset()
    return frozenset(
        order
        for order, end in enumerate(effects.ends)
        if any(accumulates_only(node) for node, _ in autograd_nodes([end.grad_fn]))
    )


FREED_MESSAGE = (
    "Trying to backward through the graph a second time (or directly access saved tensors after "
    "they have already been freed). Saved intermediate values of the graph are freed when you call "
    ".backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the "
    "graph a second time or if you need to access saved tensors after calling backward."
)

Reached = Mapping[Any, Cotangents]
"""For each node of autograd, the tangents from which it is reached."""

KeptValues = tuple[tuple[fx.Node, frozenset[int]], ...]
"""What is kept for a backward pass, each with the cotangents that it is kept for."""


def kept_by_autograd(
    effects: Effects, history: History, reached: Reached
) -> Callable[[], KeptValues]:
    """What the nodes keep for a backward pass, whether or not their formulas read it: to be called
    when the pass is recorded. A user's derivative keeps what it unpacks, or nothing; a node that
    keeps something else looks at the versions of all of it."""
    tracer = effects.tracer
    by_node: dict[Any, list[fx.Node]] = {}
    unpacked: set[Any] = set()
    for node, _ in history:
        if was_freed(node):
            continue
        with functionalization(), tracer:  # a view of what was written to since is taken again
            values = [current_value(x) for x in kept_values(node) if is_functional(x)]
        by_node[node] = [tracer.node_of(x) for x in values if tracer.has_node(x)]
        if by_node[node] and of_a_user(node):
            watch_unpacking(node, unpacked.add)
        else:
            unpacked.add(node)

    def kept() -> KeptValues:
        found: dict[fx.Node, frozenset[int]] = {}
        for node, values in by_node.items():
            for value in values if node in unpacked else ():
                found[value] = found.get(value, frozenset()) | reached[node]
        return tuple(found.items())

    return kept


def refuse_written_aliases(effects: Effects, history: History) -> None:
    """Raise Unsupported where a node keeps memory that was written to through an alias without
    history: eager counts writes to both together, or reads what is there when the pass begins."""
    roots: dict[int, dict[int, bool]] = {}
    recorded: dict[Any, int] = {}
    views = {part.member.counter for part in effects.parts if part.member.is_view}
    for part in effects.parts:
        if part.member.counter in views and not part.member.is_view:
            continue  # autograd counts its writes with those of the views
        of_base, root = roots.setdefault(part.base, {}), id(base_of(part.wrapper))
        of_base[root] = of_base.get(root, False) or version(part.wrapper) != part.version
        if part.member.is_view:
            recorded[storage_key(part.wrapper)] = root
    several = [known for known in roots.values() if len(known) > 1]
    for node, _ in history if several else ():
        if writes_to_view(node) and any(
            known[x] for known in several for x in known if x not in recorded.values()
        ):
            raise refusal("AO0133", error="it was written to through an alias")
        for tensor in () if was_freed(node) else kept_values(node):
            own = id(base_of(tensor))
            if not any(own in known for known in several) and is_functional(tensor):
                own = recorded.get(storage_key(tensor), own)  # a result of its own, kept without it
            for known in several:
                if own in known and any(known[x] for x in known if x != own):
                    raise refusal("AO0133", error="it was written to through an alias")


def partly_reached(
    effects: Effects, history: History, reached: Reached, apart: Container[int]
) -> tuple[tuple[int, frozenset[int]], ...]:
    """The inputs that require grad to which autograd has no way from every result, each with the
    tangents that lead to it. Left out: those in `apart`."""
    leaves = {id(getattr(node, "variable", None)): reached[node] for node, _ in history}
    every, inputs = len(effects.ends), effects.stand_ins
    found = {
        place: leaves.get(id(item.leaf), frozenset())
        for place, item in enumerate(inputs)
        if item.leaf is not None and place not in apart
    }
    return tuple((place, own) for place, own in found.items() if len(own) < every)


def leaf_order(
    effects: Effects, history: History, reached: Reached
) -> tuple[tuple[int, tuple[tuple[int, frozenset[int]], ...]], ...]:
    """The inputs that may be leaves, with the nodes that lead there: a field of a `RuntimePlan`."""
    places = {x.history: at for at, x in enumerate(effects.stand_ins) if x.leaf is not None}
    edges = [
        ((node_sequence(node), -position), places[other], reached[node])
        for node, _ in history
        for position, (other, _) in enumerate(node.next_functions)
        if other in places
    ]
    found: dict[int, list[tuple[int, frozenset[int]]]] = {}
    for number, (_, place, tangents) in enumerate(sorted(edges, key=lambda edge: edge[0])):
        known = found.setdefault(place, [])
        if not tangents <= frozenset().union(*(own for _, own in known)):
            known.append((number, tangents))
    return tuple((place, tuple(known)) for place, known in found.items()) * (len(found) > 1)


def result_order(effects: Effects, history: History) -> tuple[tuple[int, int], ...]:
    """For each tangent, where eager calls the hooks on its result: a field of a `RuntimePlan`."""
    places = {x.history for x in effects.stand_ins if x.leaf is not None}
    edges = sorted(
        node_sequence(node)
        for node, _ in history
        for other, _ in node.next_functions
        if other in places
    )
    numbers = [node_sequence(end.grad_fn) for end in effects.ends]
    found = tuple((bisect_right(edges, number), number) for number in numbers)
    return () if len({*numbers}) < max(len(numbers), 2) else found


def user_derivatives(history: History, reached: Reached) -> tuple[frozenset[int], ...]:
    """For each derivative of a user's, the tangents that lead to it."""
    return tuple(reached[node] for node, _ in history if of_a_user(node))


def keeping_nodes(effects: Effects, history: History, reached: Reached) -> tuple[KeepingNode, ...]:
    """The nodes that keep something, which a backward pass that comes to one frees."""
    leads = _inputs_led_to(effects, history)
    nodes = [node for node, _ in history if keeps_something(node)]
    return tuple(dict.fromkeys(KeepingNode(reached[node], leads[node]) for node in nodes))


def _inputs_led_to(effects: Effects, history: History) -> dict[Any, frozenset[int]]:
    """For each node, the inputs that it leads to."""
    places = {id(x.leaf): at for at, x in enumerate(effects.stand_ins) if x.leaf is not None}
    leads: dict[Any, frozenset[int]] = {}
    for node, following in reversed(history):
        own = places.get(id(getattr(node, "variable", None)))
        leads[node] = frozenset(() if own is None else (own,)).union(*(leads[n] for n in following))
    return leads


def raising(effects: Effects, history: History, reached: Reached) -> tuple[Raising, ...]:
    """Derivatives that raise where eager comes to them: those of which derivatives inside of the
    program have freed what they keep, and those of operators that have none."""
    messages: dict[Any, str] = {}
    for node, _ in history:
        message = FREED_MESSAGE if was_freed(node) else taken_message(node)
        if message is not None:
            messages[node] = message
    if not messages:
        return ()
    leads = _inputs_led_to(effects, history)
    known = messages.items()
    return tuple({Raising(reached[node], leads[node], message) for node, message in known})


def spent(
    effects: Effects, history: History, reached: Reached, derivatives: Sequence[Raising]
) -> frozenset[int]:
    """The tangents that lead to no input but through what the program has freed: a backward pass
    from one of them raises before it computes anything, so nothing of it is recorded."""
    places = {id(x.leaf): at for at, x in enumerate(effects.stand_ins) if x.leaf is not None}
    freed = [each for each in derivatives if each.message == FREED_MESSAGE]
    raising = {(tangent, at) for each in freed for tangent in each.tangents for at in each.primals}
    found = {tangent for tangent, _ in raising}
    for node, _ in history:
        if hasattr(node, "variable"):
            at = places.get(id(node.variable))
            found -= {tangent for tangent in reached[node] if (tangent, at) not in raising}
    return frozenset(found)


_SUMS = frozenset(
    {
        "add", "sub", "cat", "stack", "rsub", "where", "index_put", "index_add",
        "scatter_add", "select_scatter", "slice_scatter", "diagonal_scatter",
        "as_strided_scatter", "index_copy", "scatter",
    }
)  # fmt: skip
"""Linear in all of their tensors that are compared with none and index nothing."""

_PRODUCTS = frozenset(
    {
        "mul", "mm", "bmm", "mv", "dot", "vdot", "matmul", "einsum", "outer", "convolution",
        "linear", "convolution_backward", "kron",
    }
)  # fmt: skip
"""Linear in each of their tensors."""

_OF_FIRST = frozenset(
    {
        "div", "sum", "mean", "neg", "clone", "contiguous", "_to_copy", "to", "index",
        "index_select", "gather", "flip", "roll", "cumsum", "masked_fill", "repeat", "tril",
        "triu", "trace", "real", "imag", "conj_physical", "sum_to_size", "constant_pad_nd",
        "_reshape_alias", "_unsafe_view", "alias", "select_backward",
        "slice_backward", "diagonal_backward", "unfold_backward", "index_backward",
        "lift_fresh", "convert_element_type",
    }
)  # fmt: skip
"""Linear in the first one; the others are none that a gradient is in."""

_ZEROS = frozenset(
    f"{kind}{rest}" for kind in ("zeros", "empty") for rest in ("", "_like", "_strided")
) | frozenset(("new_zeros", "new_empty", "new_empty_strided"))
"""What adds nothing, or is written to before it is read."""

_OF_SHAPE = _ZEROS | {
    *("ones", "full", "rand", "randn", "ones_like", "full_like", "rand_like", "randn_like"),
    *("new_ones", "new_full"),
}
"""What reads no element."""


def is_linear(
    history: History, graph: fx.Graph, tangents: Sequence[fx.Node], grads: Sequence[Any]
) -> bool:
    """Whether the gradients are linear in the cotangents; it is looked at where a derivative of a
    user's is among those that they are made of."""
    if not any(of_a_user(node) for node, _ in history):
        return True
    kinds: dict[Any, str] = dict.fromkeys(tangents, "linear")  # or "zero", or "other"
    for node in graph.nodes:
        inputs = {kinds[each] for each in node.all_input_nodes if each in kinds}
        if _is_zero(node):
            kinds[node] = "zero"
        elif not inputs or _name(node) in _OF_SHAPE:
            continue
        elif "other" in inputs or not _keeps(node, kinds):
            if inputs != {"zero"}:
                kinds[node] = "other"
        else:
            kinds[node] = "zero" if inputs == {"zero"} else "linear"
    return not any(kinds.get(grad) == "other" for grad in grads)


def _keeps(node: fx.Node, linear: Container[Any]) -> bool:
    """Whether a value is linear, where some of what it is computed from are."""
    name = _name(node)
    held: list[Any] = [each for each in node.all_input_nodes if each in linear]
    if name == "getitem" or _is_view(node):
        return held == [node.args[0]]
    if name in _SUMS:
        values: list[Any] = [each for each in node.all_input_nodes if not _indexes(each)]
        if name in ("add", "sub", "rsub", "where"):
            values += [item for item in node.args[-2:] if not isinstance(item, fx.Node)]
        return all(each in linear or _is_zero(each) for each in values)
    if name == "copy":
        return node.args[1] in linear
    if name in _PRODUCTS:
        return len(held) == 1 and _count(node, held[0]) == 1
    first = name in _OF_FIRST or _is_formula(node)
    return first and held == [node.args[0]] and _count(node, held[0]) == 1


def _is_formula(node: fx.Node) -> bool:
    """Whether an operator is torch's formula of a derivative: the gradient is its first operand."""
    own = getattr(node.target, "namespace", "") == "aten"
    return own and _name(node).endswith(("_backward", "_backward_data"))


def _indexes(node: fx.Node) -> bool:
    """Whether it is places or conditions rather than a value."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in (torch.bool, torch.int64)


def _count(node: fx.Node, operand: fx.Node) -> int:
    return sum(each is operand for each in node.args)


def _is_zero(part: Any) -> bool:
    if not isinstance(part, fx.Node):
        return bool(part == 0)
    name = _name(part)
    return name in _ZEROS or (name in ("full", "full_like", "scalar_tensor") and 0 in part.args[:2])


def _name(node: fx.Node) -> str:
    target: Any = node.target
    schema = getattr(target, "_schema", None)
    return schema.name.split("::")[-1] if schema else getattr(target, "__name__", "")


def _is_view(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(
        item.alias_info is not None and not item.alias_info.is_write for item in schema.returns
    )
