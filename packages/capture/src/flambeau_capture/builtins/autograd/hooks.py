"""`Tensor.register_hook` on tensors made in the graph.

In: a tensor of this frame's graph and the hook. Out: one call that registers the hook, captured as
a body. Invariant: a hook computes on derivatives and does nothing else; the tensor that has it
stays in the graph, and so does the handle that would take it away.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch.utils.hooks import RemovableHandle

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import REASONS, Break, BreakReport
from flambeau_capture.graph.builder import GraphBuilder
from flambeau_capture.graph.functions import hook_call
from flambeau_capture.values.base import Args, Kwargs, Tracer, Unreconstructible, Value
from flambeau_capture.values.constant import is_none
from flambeau_capture.values.higher_order.bodies import Captured, capture_body
from flambeau_capture.values.tensors.graph_calls import record_call
from flambeau_capture.values.tensors.tensor import TensorValue

_REASON = "FB0007"


class HandleValue(Value):
    """What `register_hook` answers: good for nothing inside of the graph."""

    def __init__(self, step: int) -> None:
        self.step = step

    @property
    def cls(self) -> type:
        return RemovableHandle

    def describe(self) -> str:
        return "the handle of a hook"

    def truth(self, tx: Tracer) -> bool:
        return True

    def get_attr(self, tx: Tracer, name: str) -> Value:
        raise Break(_REASON, f"{name} of {self.describe()}")

    def reconstruct(self, writer: Any) -> NoReturn:
        raise Unreconstructible(self, f"{self.describe()} leaves the graph")


def register(tensor: TensorValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value | None:
    """None where a hook cannot be a part of the graph; nor can it then be put on a result that the
    same graph goes on from, where all that eager's hook sees would not pass: the graph ends before
    anything reads the tensor."""
    made_here = tensor.source is None and tensor.real is None
    if not made_here or tx.graph is not tx.graph.outermost:
        return None
    read = tx.graph.first_reader(tensor.node)
    why = "a hook that is put on a tensor which the graph reads before"
    try:
        handle = _in_graph(tensor, tx, args, kwargs, read)
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


def _in_graph(
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

    before = _versions(tx)
    body = capture_body(tx, "a hook of a tensor", run)
    _must_only_compute(tx, body, fake, before)
    record_call(tx, hook_call, (body.node, tensor.node), body.lifted)
    tx.heap.changed()
    report = BreakReport(REASONS[_REASON], "a hook on a tensor that leaves the graph", lines)
    tx.graph.begun.append((fake, step, report))
    return HandleValue(step)


def _must_only_compute(tx: Tracer, body: Captured, fake: torch.Tensor, before: list[int]) -> None:
    """The body is run by backward, in its grad mode, once or not at all."""
    why = ""
    nodes = list(body.node.meta["val"].graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    if any(node.target is compat.set_grad_enabled for node in nodes):
        why = "sets the grad mode"
    elif inputs[0].meta["val"]._version or _versions(tx)[: len(before)] != before:
        why = "writes to a tensor"
    elif isinstance(body.result, TensorValue):
        found = body.result.fake
        if (found.shape, found.dtype, found.device) != (fake.shape, fake.dtype, fake.device):
            why = "answers another kind of tensor"
    elif not is_none(body.result):
        why = "answers no tensor"
    if why:
        tx.heap.changed()
        raise Break(_REASON, f"a hook that {why}")


def _versions(tx: Tracer) -> list[int]:
    """How often each tensor of the graph has been written to."""
    found = [node.meta.get("val") for node in tx.graph.graph.nodes if node.op != "get_attr"]
    return [t._version for t in found if isinstance(t, torch.Tensor) and not t.is_inference()]
