"""`backward()` and `register_hook` inside the compiled function.

In: tensors of this frame's graph. Out: the derivatives by every leaf, as one node of that graph,
added to `.grad`; one call that registers a hook, captured as a body. Invariant: every leaf is a
tensor that the program has and can be watched for hooks, and a hook computes on derivatives and
does nothing else; otherwise autograd runs the call in Python, between two graphs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import torch
from torch.utils.hooks import RemovableHandle

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import REASONS, Break, BreakReport
from flambeau_capture.builtins.autograd.gradients import (
    derivative,
    ends_before_readers,
    leaves_of,
    no_hooks,
    of_graph,
    several,
    whole_graph_is_ours,
)
from flambeau_capture.builtins.distributed.data_parallel import sum_gradients, watched_here
from flambeau_capture.graph.builder import GraphBuilder
from flambeau_capture.graph.functions import hook_call, is_reentrant, kept_call
from flambeau_capture.source import ConstantSource
from flambeau_capture.values.base import Args, Kwargs, Tracer, Unreconstructible, Value
from flambeau_capture.values.constant import Constant, is_none
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.call_rules import handles
from flambeau_capture.values.higher_order.bodies import Captured, capture_body
from flambeau_capture.values.tensors.graph_calls import graph_call, record_call, version_of
from flambeau_capture.values.tensors.tensor import TensorValue


class HandleValue(Value):
    """What `register_hook` answers: good for nothing inside of the graph."""

    cls: type = RemovableHandle

    def __init__(self, step: int) -> None:
        self.step = step

    def describe(self) -> str:
        return "the handle of a hook"

    def get_attr(self, tx: Tracer, name: str) -> Value:
        raise Break(_REASON, f"{name} of {self.describe()}")

    def reconstruct(self, writer: Any) -> NoReturn:
        raise Unreconstructible(self, f"{self.describe()} leaves the graph")


def register(tensor: TensorValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value | None:
    """A call that registers a hook; None where eager's hook would see more than the graph has."""
    if not of_graph(tx, tensor):
        return None
    read = tx.graph.first_reader(tensor.node)
    why = "a hook that is put on a tensor which the graph reads before"
    try:
        handle = _hook_in_graph(tensor, tx, args, kwargs, read)
    except Break as error:
        why, handle = error.what, None
        if read is None:
            raise
    if handle is None and read is not None:
        tx.heap.changed()
        stopped = Break(_REASON, why)
        stopped.stop = read
        raise stopped
    return handle


def _hook_in_graph(
    tensor: TensorValue, tx: Tracer, args: Args, kwargs: Kwargs, read: int | None
) -> Value | None:
    """read: the step at which the graph first reads the tensor."""
    fake = tensor.fake
    if not fake.requires_grad or len(args) + len(kwargs) != 1 or not torch.is_grad_enabled():
        return None
    hook = [*args, *kwargs.values()][0]
    step = tx.step() if read is None else read
    lines = tx.user_lines()

    def run(body: GraphBuilder) -> Value:
        with tx.graph.fake_mode:
            example = torch.empty_like(fake, requires_grad=False)
        derivative = TensorValue(body.add_example("derivative", example))
        return tx.call(hook, [derivative], {})

    before = versions(tx)
    body = capture_body(tx, "a hook of a tensor", run, later=True)
    must_only_compute(tx, body, [fake], before)
    record_call(tx, hook_call, (body.node, tensor.node), body.lifted)
    tx.heap.changed()
    report = BreakReport(REASONS[_REASON], "a hook on a tensor that leaves the graph", lines)
    tx.graph.begun.append((fake, step, report))
    return HandleValue(step)


def must_only_compute(
    tx: Tracer, body: Captured, like: Sequence[torch.Tensor], before: list[int]
) -> None:
    """The body is run by backward, in its grad mode, once or not at all; it answers nothing, or
    derivatives like these."""
    why, found = "", body.result
    answers = found.parts() if isinstance(found, TupleValue) else [found]
    nodes = list(body.node.meta["val"].graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    if any(node.target is compat.set_grad_enabled for node in nodes):
        why = "sets the grad mode"
    elif any(
        version_of(given) for given in _tensors_of(inputs[: len(inputs) - len(body.lifted)])
    ) or (versions(tx)[: len(before)] != before):
        why = "writes to a tensor"
    elif is_none(found):
        return
    else:
        fakes = [each.fake for each in answers if isinstance(each, TensorValue)]
        if len(fakes) < len(answers):
            why = "answers no tensor"
        elif [*map(_kind, fakes)] != [*map(_kind, like)]:
            why = "answers another kind of tensor"
    if why:
        tx.heap.changed()
        raise Break(_REASON, f"a hook that {why}")


def _kind(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype, tensor.device


def versions(tx: Tracer) -> list[int]:
    """How often what is in the graph was written to."""
    nodes = [node for node in tx.graph.graph.nodes if node.op != "get_attr"]
    return [version_of(tensor) for tensor in _tensors_of(nodes)]


def _tensors_of(nodes: Sequence[torch.fx.Node]) -> list[torch.Tensor]:
    found = [node.meta.get("val") for node in nodes]
    return [each for each in found if isinstance(each, torch.Tensor)]


_REASON = "FB0007"
_OF_METHOD = ("gradient", "retain_graph", "create_graph", "inputs")
_OF_FUNCTION = (
    "tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs",
)  # fmt: skip


def method(tensor: TensorValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value | None:
    given = dict(zip(_OF_METHOD, args)) | dict(kwargs)
    if len(args) > len(_OF_METHOD) or not set(given) <= set(_OF_METHOD):
        return None
    weight = given.pop("gradient", Constant(None))
    return backward(tx, [tensor], [weight], given)


@handles(torch.autograd.backward)
def _function(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    given = dict(zip(_OF_FUNCTION, args)) | dict(kwargs)
    if not set(given) <= set(_OF_FUNCTION) or "grad_variables" in given or "tensors" not in given:
        raise Break(_REASON, "torch.autograd.backward with other arguments")
    outputs = several(tx, given.pop("tensors"))
    weights = given.pop("grad_tensors", Constant(None))
    each = [weights] * len(outputs) if is_none(weights) else several(tx, weights)
    return backward(tx, outputs, each, given)


def backward(
    tx: Tracer, outputs: Sequence[Value], weights: Sequence[Value], options: dict[str, Value]
) -> Value:
    """Add the outputs' derivatives to `.grad` of the leaves that they depend on."""
    inputs = options.get("inputs", Constant(None))
    with ends_before_readers(tx, [] if is_none(inputs) else several(tx, inputs)):
        return _in_graph(tx, outputs, weights, options)


def _in_graph(
    tx: Tracer, outputs: Sequence[Value], weights: Sequence[Value], options: dict[str, Value]
) -> Value:
    roots = [output for output in outputs if isinstance(output, TensorValue)]
    if tx.graph is not tx.graph.outermost:
        raise Break(_REASON, "backward in a function that torch maps or runs again")
    if len(roots) != len(outputs) or len(weights) != len(outputs) or not outputs:
        raise Break(_REASON, "backward of what is no tensor")
    if "create_graph" in options and options["create_graph"].truth(tx):
        raise Break(_REASON, "backward with create_graph=True")
    together = compat.are_processes_together
    tx.guard(ConstantSource(together, "torch.distributed"), "ANSWER", together())
    if any(not root.fake.requires_grad for root in roots):
        raise Break(_REASON, "backward of a tensor that does not require grad")
    if any(is_reentrant(node) for node in tx.graph.graph.nodes):
        raise Break(_REASON, "backward through a checkpoint with use_reentrant=True")
    whole_graph_is_ours(tx)
    _examine_again(tx)
    leaves = _leaf_values(tx, roots, options.get("inputs", Constant(None)))
    summed = watched_here(tx, leaves)
    for leaf in leaves:
        no_hooks(tx, leaf)
        if together() and id(leaf.real) not in summed:
            _unwatched(tx, leaf)
    keep = options.get("retain_graph", Constant(None)).as_python()
    call_options = {"allow_unused": True} | ({} if keep is None else {"retain_graph": keep})
    found = derivative(tx, roots, leaves, TupleValue(list(weights)), call_options)
    assert isinstance(found, TupleValue)
    given = {id(value) for value in [*roots, *leaves, *weights]}
    derivatives = found.parts()
    last = {id(made): place for place, made in enumerate(derivatives)}
    viewed = {id(x.fake._base) for x in derivatives if isinstance(x, TensorValue)}
    for place, (leaf, made) in enumerate(zip(leaves, derivatives, strict=True)):
        if isinstance(made, TensorValue):
            if made.fake.layout is not torch.strided:
                raise Break(_REASON, "backward with a sparse derivative")
            # of a derivative that another is a view of, the engine still holds the whole
            own = id(made) not in given and last[id(made)] == place
            _accumulate(tx, leaf, made, own and id(made.fake) not in viewed)
    sum_gradients(tx, leaves)
    return Constant(None)


def _examine_again(tx: Tracer) -> None:
    for examine, step in tx.graph.examined_again:
        try:
            examine()
        except Break as error:
            tx.heap.changed()
            error.stop = step
            raise


def _unwatched(tx: Tracer, leaf: TensorValue) -> None:
    """What trains with other processes may watch the derivatives by a leaf where no Python code
    sees it, also from a later call on."""
    if leaf.real is None or leaf.source is None:
        return
    question = compat.nobody_watches
    if not question(leaf.real):
        raise Break(_REASON, "backward to a leaf that others watch: under DDP, or in a live graph")
    tx.guard(leaf.source, "CALL", question, "a leaf whose derivatives nobody else watches")


def _leaf_values(tx: Tracer, roots: list[TensorValue], inputs: Value) -> list[TensorValue]:
    """The leaves to accumulate into: those given, or all that the roots depend on."""
    by_fake = {id(value.fake): value for value in [*_entered(tx), *tx.graph.own_leaves]}
    fakes = dict.fromkeys(id(leaf) for root in roots for leaf in leaves_of(root.fake))
    reached = [by_fake.get(fake) for fake in fakes]
    if any(leaf is None for leaf in reached):
        raise Break(_REASON, "backward to a leaf that the graph makes")
    if is_none(inputs):
        return [*(leaf for leaf in reached if leaf is not None), *tx.graph.retaining]
    wanted = several(tx, inputs)
    chosen = [value for value in wanted if any(value is leaf for leaf in reached)]
    if len(chosen) != len(wanted) or len({id(value) for value in chosen}) != len(chosen):
        raise Break(_REASON, "backward with inputs that are no leaves")
    return [value for value in chosen if isinstance(value, TensorValue)]


def _entered(tx: Tracer) -> Iterator[TensorValue]:
    for _, value in tx.heap.known():
        if isinstance(value, TensorValue) and value.real is not None and value.in_graph():
            yield value


def _accumulate(tx: Tracer, leaf: TensorValue, derivative: TensorValue, own: bool) -> None:
    """What autograd does at a leaf: keep the first derivative, a copy unless it is the leaf's own,
    add the next to it in place."""
    before = leaf.get_attr(tx, "grad")
    if isinstance(before, TensorValue):
        if before.fake.requires_grad or before.fake.shape != leaf.fake.shape:
            raise Break(_REASON, "backward into a .grad that is differentiated itself")
        graph_call(tx, "call_method", "add_", [before, derivative], {})
        return
    if not is_none(before):
        raise Break(_REASON, f"backward where .grad is {before.describe()}")
    steps = zip(leaf.fake.shape, torch.empty_like(leaf.fake).stride(), leaf.fake.stride())
    dense = leaf.fake.numel() == 0  # whatever its strides are
    dense = dense or all(size == 1 or step == wanted for size, step, wanted in steps)
    options = [Constant(dense), Constant(own)]
    kept = graph_call(tx, "call_function", kept_call, [derivative, leaf, *options], {})
    leaf.set_attr(tx, "grad", kept)
