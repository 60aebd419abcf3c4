"""Messages between two processes as an operator of the graph.

In: calls that send or receive, alone or in a batch, and `wait` of their handles. Out: the operator
that starts them, and a wait where the program waits, after which what it receives is copied to the
tensor that the call writes to. Invariant: unlike a collective, a message may need a later one of
this process before it ends, so that nothing is waited for before the program does: one that it does
not wait for in the same graph ends the graph before it starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import REASONS, Break, BreakReport
from flambeau_capture.builtins.distributed.collectives import (
    REASON,
    CollectiveCall,
    FinishedValue,
    Form,
    wait_for,
)
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value, needing
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.lists import ListValue
from flambeau_capture.values.functions.call_rules import INLINE, RULES, handles
from flambeau_capture.values.tensors.graph_calls import graph_call
from flambeau_capture.values.tensors.tensor import TensorValue


@dataclass
class _Message:
    """A message; `result`: of the operator that starts it."""

    call: CollectiveCall
    kind: str
    tensor: TensorValue
    peer: int
    tag: int
    result: Any = None


def _message(tx: Tracer, fn: Any, kind: str, args: Args, kwargs: Kwargs) -> _Message:
    other = compat.PEERS[kind]
    call = CollectiveCall(tx, fn, Form("", "tensor", "tensor", ()), args, kwargs)
    with needing(REASON, lambda what: f"{kind}: {what} is not known"):
        tag = int(call.given["tag"].as_python())
    (tensor,) = call.tensors("tensor")
    if kind == "irecv":
        call.refuse_written([tensor])
    peer = call.root(other)
    if peer == call.ask("get_rank"):
        raise call.refuse("a message of a process to itself")
    return _Message(call, kind, tensor, peer, tag)


class PendingValue(FinishedValue):
    """The handle of messages that are on their way."""

    def __init__(self, tx: Tracer, messages: Sequence[_Message]) -> None:
        super().__init__([each.tensor for each in messages])
        self.messages = messages
        what = f"{messages[0].kind} without its wait in the same graph"
        report = BreakReport(REASONS[REASON], what, tx.user_lines())
        tx.graph.outermost.unfinished[self] = tx.step(), report

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        unfinished = tx.graph.outermost.unfinished
        if self in unfinished:
            if name not in ("wait", "synchronize"):
                raise Break(REASON, f"{name!r} of the handle of a message on its way")
            for each in self.messages:
                got = wait_for(tx, [each.result], {})
                if each.kind == "irecv":
                    each.tensor.call_method(tx, "copy_", [got], {})
            del unfinished[self]
            tx.heap.changed()
        return super().call_method(tx, name, args, kwargs)


def _start(tx: Tracer, messages: Sequence[_Message], together: bool) -> list[PendingValue]:
    """Record the start of messages; their handles."""
    given = [each.call.plain(each.tensor) for each in messages]
    columns = zip(*((each.kind, each.peer, each.tag) for each in messages), strict=True)
    more = [ListValue([Constant(item) for item in column]) for column in columns]
    group = messages[0].call.group
    name = Constant(compat.name_of_group(group))
    target = compat.exchange()
    arguments = [ListValue(given), *more, name, Constant(together)]
    results = graph_call(tx, "call_function", target, arguments, {})
    for each, result in zip(messages, results.parts(), strict=True):  # type: ignore[attr-defined]
        each.result = result
    if together and compat.one_work(group, messages[0].tensor.fake.device):
        return [PendingValue(tx, messages)]
    return [PendingValue(tx, [each]) for each in messages]


def _alone(name: str, fn: Any) -> None:
    kind = compat.WAITING.get(name, name)

    @handles(fn)
    def handler(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        message = _message(tx, fn, kind, args, kwargs)
        (handle,) = _start(tx, [message], False)
        if kind == name:
            return handle
        handle.call_method(tx, "wait", [], {})
        return Constant(message.call.among_all(message.peer) if name == "recv" else None)


for _name, _fn in compat.collectives(*compat.PEERS, *compat.WAITING).items():
    _alone(_name, _fn)
_KINDS = compat.collectives(*compat.PEERS)


@handles(*compat.collectives("batch_isend_irecv").values())
def _batch(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    given = args[0] if args else kwargs.get("p2p_op_list")
    parts = given.parts() if isinstance(given, ListValue) else []
    if not parts or any(each.cls is not compat.message_class() for each in parts):
        raise Break(REASON, "batch_isend_irecv of other than a list of P2POp")
    messages = []
    for each in parts:
        with needing(REASON, lambda what: f"batch_isend_irecv: {what} is not known"):
            fn = tx.get_attr(each, "op").as_python()
        kind = next(name for name, known in _KINDS.items() if known is fn)
        names = {"tensor": "tensor", "group": "group", "tag": "tag"}
        names[f"group_{compat.PEERS[kind]}"] = "group_peer"
        said = {name: tx.get_attr(each, own) for name, own in names.items()}
        messages.append(_message(tx, fn, kind, [], said))
    if len({id(each.call.group) for each in messages}) > 1:
        raise Break(REASON, "batch_isend_irecv in several groups")
    return ListValue([*_start(tx, messages, True)])


#: what makes a `P2POp`, and checks it
RULES.update(dict.fromkeys(compat.BATCHED, INLINE))
