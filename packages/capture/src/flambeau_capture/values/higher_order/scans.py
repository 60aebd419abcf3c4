"""Loops over slices that are not written out: their length is open, or large.

In: a step, what it carries and what it goes through. Out: a call of `scan_call` on the step's body.
Invariant: what is carried has the same metadata before and after a step; a step writes to nothing.
"""

from __future__ import annotations

from typing import Any

import torch

from flambeau_capture.breaks import Break
from flambeau_capture.graph.builder import GraphBuilder
from flambeau_capture.graph.functions import scan_call
from flambeau_capture.observe.unguarded import of_arguments
from flambeau_capture.polyfills import scanning
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value, unpack
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.dicts import named_dict
from flambeau_capture.values.containers.lists import ListValue
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.call_rules import handles
from flambeau_capture.values.higher_order.bodies import (
    Captured,
    TensorSlot,
    arguments,
    capture_body,
    numbered,
)
from flambeau_capture.values.higher_order.control_flow import body_fakes, body_writes, metadata
from flambeau_capture.values.tensors.graph_calls import record_result
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue
from flambeau_capture.values.tensors.tensor import TensorValue

of_arguments(scanning.is_open)


@handles(scanning.is_open)
def _is_open(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return Constant(isinstance(args[0], SymbolValue))


@handles(scanning.looped)
def _looped(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    step, init, xs = args
    carried, sliced = numbered(tx, init)[0], numbered(tx, xs)[0]
    flags = [value.fake.requires_grad for value in carried]
    while True:
        body, shapes = _step(tx, step, init, xs, flags)
        found = list(body_fakes(body))
        after = found[: len(carried)]
        if metadata(after) != metadata([value.fake for value in carried]):
            raise Break("FB0025", "a scan changes the metadata of what it carries")
        now = [old or new.requires_grad for old, new in zip(flags, after, strict=True)]
        if now == flags:
            break
        flags = now  # what a step carries out requires grad in the next one
    if body_writes(body):
        tx.heap.changed()
        raise Break("FB0025", "the step of a scan writes to a tensor")
    length = sliced[0].fake.shape[0]
    with tx.graph.fake_mode:
        rows = [
            x.unsqueeze(0).expand(length, *x.shape).clone(memory_format=torch.contiguous_format)
            for x in found[len(carried) :]
        ]
        result = (*(x.clone() for x in after), *rows)
    tensors = [*(value.node for value in (*carried, *sliced)), *body.lifted]
    head = (body.node, len(carried), len(sliced))
    made = unpack(tx, record_result(tx, scan_call, (*head, *tensors), result))
    first, second = made[: len(carried)], made[len(carried) :]
    return TupleValue([_built(tx, shapes[0], first), _built(tx, shapes[1], second)])


def _step(
    tx: Tracer, step: Value, init: Value, xs: Value, flags: list[bool]
) -> tuple[Captured, tuple[Any, Any]]:
    """The body of a step, which gives the tensors that it carries and then its results, and the
    structures of both. flags: what is carried requires grad."""
    shapes: list[Any] = []

    def run(body: GraphBuilder) -> Value:
        given: list[TensorValue] = []

        def enter(value: TensorValue) -> torch.Tensor:
            fake: torch.Tensor = value.fake
            if len(given) < len(flags):
                needs = flags[len(given)] and not fake.requires_grad
                return fake.detach().requires_grad_() if needs else fake
            return fake.as_strided(fake.shape[1:], fake.stride()[1:])

        with tx.graph.fake_mode:
            inner = [arguments(body, value, given, enter)[0] for value in (init, xs)]
        answer = unpack(tx, tx.call(step, inner, {}))
        if len(answer) != 2:
            raise Break("FB0025", "the step of a scan gives no pair")
        leaves: list[Value] = []
        for part in answer:
            tensors, shape = numbered(tx, part)
            _refuse_others(shape)
            leaves += tensors
            shapes.append(shape)
        return TupleValue(leaves)

    body = capture_body(tx, "the step of a scan", run)
    return body, (shapes[0], shapes[1])


def _refuse_others(shape: Any) -> None:
    """Break at a part of a structure that is no tensor."""
    if isinstance(shape, tuple | list | dict):
        for part in shape.values() if isinstance(shape, dict) else shape:
            _refuse_others(part)
    elif not isinstance(shape, TensorSlot):
        raise Break("FB0025", "the step of a scan gives what is no tensor")


def _built(tx: Tracer, shape: Any, values: list[Value]) -> Value:
    """A structure with these values at its places."""
    if isinstance(shape, TensorSlot):
        return values[shape.index]
    if isinstance(shape, dict):
        return named_dict({key: _built(tx, part, values) for key, part in shape.items()}, tx)
    parts = [_built(tx, part, values) for part in shape]
    return ListValue(parts) if isinstance(shape, list) else TupleValue(parts)
