"""Derivatives under capture: `torch.autograd.grad`, `requires_grad_`, and those after a break.

In: tensors of this frame's graph; the graph that a break ends. Out: derivatives as one node of the
graph; where the graph has to end instead. Invariant: only what the graph holds as a whole is
differentiated in it; a leaf that begins to require grad in the graph never leaves it. All results
of one graph belong to one node of autograd, so a derivative by one of them after the graph lacks
what goes through another: a result by which later code differentiates is read by the next graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any

import torch
from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import REASONS, Break, BreakReport
from flambeau_capture.graph.autograd_functions import autograd_call
from flambeau_capture.graph.builder import GraphBuilder
from flambeau_capture.graph.functions import derivative_call, is_reentrant
from flambeau_capture.reachability import reached
from flambeau_capture.source import Attr
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value, unpack
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.call_rules import handles
from flambeau_capture.values.higher_order.bodies import not_under_hooks
from flambeau_capture.values.tensors.data.data_assignment import freeze, track
from flambeau_capture.values.tensors.graph_calls import record_derivative, version_of
from flambeau_capture.values.tensors.methods import assume_leaf
from flambeau_capture.values.tensors.tensor import TensorValue

_GIVEN = frozenset({"placeholder", "get_attr"})
_OF_TENSORS = frozenset({"retain_grad", "register_hook"})


def names_derivatives(code: CodeType, namespace: Mapping[str, Any]) -> bool:
    """Whether code names `grad`, `retain_grad`, `register_hook` or `backward(inputs=...)`."""
    names = {*code.co_names, *code.co_freevars}
    if names & _OF_TENSORS or any(namespace.get(name) is torch.autograd.grad for name in names):
        return True
    if "backward" in names and any(
        isinstance(constant, tuple) and "inputs" in constant for constant in code.co_consts
    ):
        return True
    module = "autograd" in names or any(namespace.get(name) is torch.autograd for name in names)
    return "grad" in names and module


def read_before_derivatives(
    graph: GraphBuilder, outputs: Sequence[fx.Node], codes: Sequence[tuple[CodeType, Any]]
) -> tuple[int, BreakReport] | None:
    """The step that first reads a result of which later code takes a derivative; else None."""
    leaving = {node for node in outputs if _has_history(node)}
    if not leaving or not any(names_derivatives(*each) for each in codes):
        return None
    given = {node for node in graph.graph.find_nodes(op="placeholder") if _has_history(node)}
    found = [
        step
        for node in leaving | given
        if _leads_to(graph, node, leaving - {node})
        and (step := first_reader(graph, node)) is not None
    ]
    if not found:
        return None
    why = "a result that another one depends on, where derivatives are asked for behind the graph"
    return min(found), BreakReport(REASONS["FB0007"], why, ())


def first_reader(graph: GraphBuilder, node: fx.Node) -> int | None:
    """The step at which the graph first reads what it has made of a value; else None."""
    if node.op in ("call_function", "call_method"):
        return graph.first_reader(node)
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not version_of(value):
        return None
    steps = {user: graph.steps[user] for user in node.users if user in graph.steps}
    writing = (step for user, step in steps.items() if node in _written(graph, user))
    written = max(writing, default=0)
    return min((step for step in steps.values() if step > written), default=None)


def _written(graph: GraphBuilder, call: fx.Node) -> set[Any]:
    if call in graph.written_by_functions:
        return graph.written_by_functions[call]
    name = str(getattr(call.target, "__name__", call.target))
    in_place = name.endswith("_") and not name.endswith("__")
    return {call.args[0]} if in_place or name in ("setitem", "__setitem__") else set()


def _has_history(node: fx.Node) -> bool:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not value.requires_grad:
        return False
    try:
        return not value.is_leaf
    except RuntimeError:  # a view that was made and written to under no_grad: autograd keeps none
        return False


def _leads_to(graph: GraphBuilder, node: fx.Node, others: set[fx.Node]) -> bool:
    """Whether one of the others is computed from a value, or is written to with it."""

    def following(value: fx.Node) -> Iterator[fx.Node]:
        found = (each for user in value.users for each in (user, *_written(graph, user)))
        return (each for each in found if isinstance(each, fx.Node))

    return any(value in others for value in reached([node], following))


_PARAMETERS = (
    "outputs", "inputs", "grad_outputs", "retain_graph", "create_graph", "only_inputs",
    "allow_unused", "is_grads_batched", "materialize_grads",
)  # fmt: skip
_REASON = "FB0007"


@handles(torch.autograd.grad)
def _grad(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    given: dict[str, Value] = dict(zip(_PARAMETERS, args)) | dict(kwargs)
    if not set(given) <= set(_PARAMETERS) or len(args) > len(_PARAMETERS):
        raise Break(_REASON, "torch.autograd.grad with arguments that it does not take")
    outputs, inputs = (_tensors(tx, given.get(name), name) for name in ("outputs", "inputs"))
    with ends_before_readers(tx, inputs):
        return _in_graph(tx, given, outputs, inputs)


@contextmanager
def ends_before_readers(tx: Tracer, tensors: Sequence[Value]) -> Iterator[None]:
    """End the graph before it reads a tensor by which a derivative after it is taken."""
    try:
        yield
    except Break as error:
        if tx.graph is not tx.graph.outermost or error.stop is not None:
            raise
        made = [value for value in tensors if isinstance(value, TensorValue)]
        readers = [first_reader(tx.graph, value.node) for value in made if value.fake.requires_grad]
        known = [step for step in readers if step is not None]
        if known:
            tx.heap.changed()
            error.stop = min(known)
        raise


def _in_graph(
    tx: Tracer, given: dict[str, Value], outputs: list[TensorValue], inputs: list[TensorValue]
) -> Value:
    if tx.graph is not tx.graph.outermost:
        raise Break(_REASON, "torch.autograd.grad in a function that torch maps or runs again")
    for batched in ("is_grads_batched", "only_inputs"):
        usual = batched == "only_inputs"
        if batched in given and given[batched].truth(tx) is not usual:
            raise Break(_REASON, f"torch.autograd.grad with {batched}={not usual}")
    ancestors = reached((value.node for value in outputs), lambda node: node.all_input_nodes)
    if any(is_reentrant(node) for node in ancestors):
        raise Break(_REASON, "torch.autograd.grad beside a checkpoint with use_reentrant=True")
    whole_graph_is_ours(tx, outputs, inputs)
    for tensor in inputs:
        no_hooks(tx, tensor)
    weights = given.get("grad_outputs", Constant(None))
    if not isinstance(weights, Constant | TensorValue):
        weights = TupleValue(unpack(tx, weights))
    options: dict[str, Any] = {
        name: given[name].as_python()
        for name in ("retain_graph", "create_graph", "allow_unused", "materialize_grads")
        if name in given
    }
    return derivative(tx, outputs, inputs, weights, options)


def derivative(
    tx: Tracer,
    outputs: Sequence[TensorValue],
    inputs: Sequence[TensorValue],
    weights: Value,
    options: dict[str, Any],
) -> Value:
    """One node of the graph."""
    arguments = [TupleValue(list(outputs)), TupleValue(list(inputs)), weights]
    nodes = tuple(value.graph_argument() for value in arguments)
    parts = weights.parts() if isinstance(weights, TupleValue) else [weights]
    known = [value for value in parts if isinstance(value, TensorValue)]
    return record_derivative(tx, derivative_call, nodes, options, [*outputs, *inputs, *known])


def several(tx: Tracer, value: Value) -> list[Value]:
    """A tensor, or what holds several."""
    return [value] if isinstance(value, TensorValue) else unpack(tx, value)


def of_graph(tx: Tracer, tensor: TensorValue) -> bool:
    """Whether a tensor is made in the graph, not in one that this calls."""
    made_here = tensor.source is None and tensor.real is None
    return made_here and tx.graph is tx.graph.outermost


def _tensors(tx: Tracer, value: Value | None, name: str) -> list[TensorValue]:
    if value is None:
        raise Break(_REASON, f"torch.autograd.grad without {name}")
    parts = several(tx, value)
    found = [part for part in parts if isinstance(part, TensorValue)]
    if len(found) != len(parts) or not found:
        raise Break(_REASON, f"torch.autograd.grad with {name} that are no tensors")
    return found


def whole_graph_is_ours(
    tx: Tracer, outputs: Sequence[TensorValue] = (), inputs: Sequence[TensorValue] = ()
) -> None:
    """No tensor that came in has a history into which a derivative could go on: one by a tensor
    made here ends there, and so does one by the only such tensor. Hooks on saved tensors, which
    are called where it raises as well, see it once."""
    not_under_hooks(tx, _REASON, "a derivative")
    graph = tx.graph
    for given in graph.inputs:
        if not given.is_made() and isinstance(given.tensor, torch.Tensor):
            if given.tensor.requires_grad:
                tx.guard(Attr(given.source, "is_leaf"), "CONSTANT_MATCH", given.tensor.is_leaf)
    ends = {output.node for output in outputs}
    outside = [
        node
        for node in [each for each in graph.graph.nodes if each.op in _GIVEN]
        if isinstance(tensor := graph.real(node), torch.Tensor)
        and tensor.requires_grad
        and not tensor.is_leaf
        and (not ends or node in ends or _leads_to(graph, node, ends))
    ]
    ours = bool(inputs) and not any(version_of(node.meta["val"]) for node in outside)
    for tensor in inputs if outside else ():
        if of_graph(tx, tensor) and tensor.node.op not in _GIVEN and not tensor.fake._is_view():
            continue
        source, real = tensor.source, tensor.real
        if source is None or real is None or real.retains_grad or outside != [tensor.node]:
            ours = False
        else:
            tx.guard(Attr(source, "retains_grad"), "CONSTANT_MATCH", False)
    if outside and not ours:
        raise Break(_REASON, "torch.autograd.grad beside a tensor that was computed outside")


def no_hooks(tx: Tracer, tensor: TensorValue) -> None:
    """A hook on a leaf would see its derivative, also in a graph compiled before it was set."""
    if tensor.real is None:
        return
    for table in ("_backward_hooks", "_post_accumulate_grad_hooks"):
        hooks = getattr(tensor.real, table)
        if hooks:
            raise Break(_REASON, "a derivative by a tensor with hooks")
        if tensor.source is not None:
            tx.wrap(hooks, Attr(tensor.source, table)).truth(tx)


def begin(tensor: TensorValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value | None:
    """`requires_grad_()` of a tensor made in the graph; None: it is not of that kind."""
    fake = tensor.fake
    flag = [*args, *kwargs.values(), Constant(True)][0]
    assume_leaf(tx, tensor)
    if freeze(tensor, tx, flag.truth(tx)) or track(tensor, tx, flag.truth(tx)):
        return tensor
    usual = of_graph(tx, tensor) and fake.is_leaf and fake.is_floating_point()
    usual = usual and fake.is_inference() <= torch.is_inference_mode_enabled()  # else that raises
    if not usual or not flag.truth(tx) or fake._is_view():
        return None
    node = tensor.node
    fake.requires_grad_(True)
    stack_trace = tx.stack_trace()
    tx.heap.changed()
    tx.graph.record("call_method", "requires_grad_", (node, True), {}, fake, stack_trace)
    own_leaf(tx, tensor)
    return tensor


def own_leaf(tx: Tracer, tensor: TensorValue) -> None:
    """Note a leaf that the graph makes, and that stays there."""
    if tx.graph is tx.graph.outermost:
        must_stay(tx, tensor, "a tensor made to require grad leaves the graph")
        tx.graph.own_leaves.append(tensor)


def must_stay(tx: Tracer, tensor: TensorValue, why: str, read: int | None = None) -> None:
    """Let the graph end here, or at an earlier step, if the tensor is found to leave it."""
    report = BreakReport(REASONS[_REASON], why, tx.user_lines())
    tx.graph.begun.append((tensor.fake, tx.step() if read is None else read, report))


def keep_grad(tensor: TensorValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value | None:
    """`retain_grad()` of a tensor made in the graph; None: it is not of that kind."""
    fake = tensor.fake
    if args or kwargs or fake.is_leaf or not fake.requires_grad or not of_graph(tx, tensor):
        return None
    read = tx.graph.first_reader(tensor.node)
    tx.heap.changed()
    must_stay(tx, tensor, "a tensor that keeps its derivative leaves the graph", read)
    tx.graph.retaining.append(tensor)
    tx.graph.own_leaves.append(tensor)
    return Constant(None)


def leaving_leaf(graph: GraphBuilder, outputs: Sequence[fx.Node]) -> tuple[int, BreakReport] | None:
    """Where to stop before a new leaf that leaves the graph, or is all that a result depends on."""
    for watched in graph.watched:
        entered = watched.lead_to(graph, graph.graph.nodes)
        own = {id(node.meta["val"]) for node in entered}
        for node in outputs:
            tensor = node.meta.get("val")
            if isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None:
                if any(id(leaf) in own for leaf in leaves_of(tensor)):
                    return watched.step, watched.report
    if not graph.begun:
        return None
    begun = {id(fake): (step, report) for fake, step, report in graph.begun}
    inputs = [node for node in graph.graph.nodes if node.op in ("placeholder", "get_attr")]
    for node in [*outputs, *inputs]:
        tensor = node.meta.get("val")
        if not isinstance(tensor, torch.Tensor) or not tensor.requires_grad:
            continue
        if id(tensor) in begun:
            return begun[id(tensor)]
        leaves = [begun.get(id(leaf)) for leaf in leaves_of(tensor)]
        steps = [each for each in leaves if each is not None]
        if steps and len(steps) == len(leaves):
            return min(steps, key=lambda found: found[0])
    return None


def copy_that_shows(
    graph: GraphBuilder, outputs: Sequence[fx.Node]
) -> tuple[int, BreakReport] | None:
    """Where to stop before a copy of what eager has a view of, or keeps for later calls, if it is
    written to or leaves."""
    leaving = [value for node in outputs if isinstance(value := node.meta["val"], torch.Tensor)]
    for each in graph.copied:
        versions = version_of(each.copy), version_of(each.whole)
        written = versions != (each.copy_version, each.whole_version)
        leaves = any(compat.same_memory(each.copy, value) for value in leaving)
        if each.alone and leaves:
            given = [node.meta["val"] for node in graph.graph.nodes if node.op in _GIVEN]
            seen = [x for x in (*leaving, *given) if isinstance(x, torch.Tensor)]
            leaves = any(compat.same_memory(each.whole, value) for value in seen)
        if written or leaves:
            each.seen()
            return each.step, each.report
    return None


def separately_undefined(
    graph: GraphBuilder, outputs: Sequence[fx.Node]
) -> tuple[int, BreakReport] | None:
    """Where to stop before a function that is given which derivatives are undefined, if its results
    do not lead to the same results of the graph: a later pass decides which are defined."""
    for node in graph.graph.find_nodes(op="call_function", target=autograd_call):
        results = [user for user in node.users if _requires_grad(user)]
        if len(node.args[2]) < 2 or len(results) < 2:  # type: ignore[arg-type]
            continue
        ends = ({*reached([user], lambda each: each.users)} & {*outputs} for user in results)
        somewhere = [each for each in ends if each]  # one that leads nowhere is never defined
        if any(each != somewhere[0] for each in somewhere):
            step = min(graph.steps[user] for user in (node, *results) if user in graph.steps)
            why = "set_materialize_grads(False) with results that lead to several of the graph's"
            return step, BreakReport(REASONS[_REASON], why, ())
    return None


def _requires_grad(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.requires_grad


def leaves_of(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Every leaf that requires grad and that a tensor depends on, as the engine comes to them: at
    once when what leads there has run, the nodes made last before others."""
    if tensor.grad_fn is None:
        yield tensor
        return
    last: dict[Any, tuple[int, int]] = {}
    for node in reached([tensor.grad_fn], compat.following):
        for place, leaf in enumerate(compat.following(node)):
            if hasattr(leaf, "variable"):
                when = (-compat.sequence_number(node), place)
                last[leaf] = max(last.get(leaf, when), when)
    yield from (leaf.variable for leaf in sorted(last, key=lambda leaf: last[leaf]))
