"""Control-flow operators: `cond`, `while_loop`, activation checkpointing.

In: a region's functions and operands. Out: a call of `graph_functions` on the bodies. Invariant:
both sides of a branch, and a loop's state before and after a turn, have the same metadata.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import fx
from torch.nn.attention.flex_attention import create_mask
from torch.utils import checkpoint as _checkpoint
from torch.utils._pytree import tree_map

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.graph.builder import GraphBuilder
from flambeau_capture.graph.functions import (
    body_call,
    checkpoint_call,
    cond_call,
    select,
    while_call,
)
from flambeau_capture.polyfills import attention, scanning
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value, needing, unpack
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.call_rules import Action, breaks, handles
from flambeau_capture.values.higher_order.bodies import Captured, capture_body, not_under_hooks
from flambeau_capture.values.tensors.graph_calls import record_call, record_result, tensor_call
from flambeau_capture.values.tensors.numbers.data_numbers import condition_tensor, is_by_data
from flambeau_capture.values.tensors.tensor import TensorValue

CHECKPOINT_OPTIONS = ("use_reentrant", "preserve_rng_state", "determinism_check", "early_stop")


@handles(_checkpoint.checkpoint)
def _checkpointed(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`checkpoint(function, *args, use_reentrant=None, ..., **kwargs)`."""
    named = dict(kwargs)
    if "context_fn" in named or "debug" in named:
        raise Break("FB0025", "checkpoint with context_fn or debug")
    with needing("FB0025", lambda error: f"checkpoint with {error}"):
        options = {n: named.pop(n).as_python() for n in CHECKPOINT_OPTIONS if n in named}
    if not torch.is_grad_enabled():
        return tx.call(args[0], args[1:], named)  # nothing is kept for backward anyway
    reentrant = options.get("use_reentrant", True)
    tensors = [arg for arg in args[1:] if isinstance(arg, TensorValue)]
    if reentrant and not any(tensor.fake.requires_grad for tensor in tensors):
        raise Break("FB0025", "a reentrant checkpoint of which no argument requires grad")
    if options.get("use_reentrant") is None and "use_reentrant" in options:
        raise Break("FB0025", "checkpoint without use_reentrant")

    body = capture_body(tx, "a checkpointed function", lambda _: tx.call(args[0], args[1:], named))
    if body_writes(body):  # it does so once more when it is run again: only torch itself knows when
        tx.heap.changed()
        raise Break("FB0025", "a checkpointed function writes to a tensor (batch norm in training)")
    fakes = [node.meta["val"] for node in body.lifted]
    if not any(isinstance(fake, torch.Tensor) and fake.requires_grad for fake in fakes):
        not_under_hooks(tx, "FB0025", "a checkpoint, which saves its arguments all the same,")
    # it saves each of its arguments, one that is given twice or that nothing reads, too
    operands = [*dict.fromkeys([*body.lifted, *(tensor.node for tensor in tensors)])]
    explicit = tuple(operands.index(tensor.node) for tensor in tensors)
    if len({*explicit}) < len(explicit):  # hooks may unpack two values, of which the body takes one
        not_under_hooks(tx, "FB0025", "a checkpoint that is given a tensor twice")
    head = (body.node, tuple(options.items()), explicit, len(body.lifted))
    return record_call(tx, checkpoint_call, head, operands)


@handles(_checkpoint.checkpoint_sequential)
def _checkpointed_parts(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    names = {"functions", "segments", "input", "use_reentrant", "preserve_rng_state"}
    if not names.issuperset(kwargs) or (len(args) < 4 and "use_reentrant" not in kwargs):
        raise Break("FB0025", "checkpoint_sequential without use_reentrant, or with other options")
    return tx.call_python(scanning.checkpoint_sequential, args, kwargs)


@handles(torch.cond, *compat.conditionals())
def _cond(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`torch.cond(pred, true_fn, false_fn, operands=())`."""
    given = dict(zip(("pred", "true_fn", "false_fn", "operands"), args)) | dict(kwargs)
    predicate = given["pred"]
    operands = unpack(tx, given["operands"]) if "operands" in given else []
    if is_by_data(predicate):
        predicate = condition_tensor(tx, predicate) or predicate
    if not isinstance(predicate, TensorValue):
        return tx.call(given["true_fn" if predicate.truth(tx) else "false_fn"], operands, {})
    if predicate.fake.dtype != torch.bool:  # whatever is not zero is true
        predicate = tensor_call(tx, "call_function", torch.ne, [predicate, Constant(0)])
    sides = [
        capture_body(tx, f"{name} of torch.cond", _calling(tx, given[name], lambda _: operands))
        for name in ("true_fn", "false_fn")
    ]
    results = [body_fakes(side) for side in sides]
    if metadata(results[0]) != metadata(results[1]):
        return _of_two_sizes(tx, predicate, sides, results)
    tensors: list[fx.Node] = list(dict.fromkeys([*sides[0].lifted, *sides[1].lifted]))
    order = {node: place for place, node in enumerate(tensors)}
    places = tuple(tuple(order[node] for node in side.lifted) for side in sides)
    with tx.graph.fake_mode:
        result = select(predicate.fake, *results)
    head = (predicate.node, sides[0].node, sides[1].node, places)
    return record_result(tx, cond_call, (*head, *tensors), result)


def _of_two_sizes(
    tx: Tracer, predicate: TensorValue, sides: list[Captured], results: list[Any]
) -> Value:
    """`torch.cond` of sides whose results differ in their sizes: both are computed, and data says
    how large what is chosen is. torch's own has no derivative of that either."""
    several = [type(result) for result in results] == [tuple, tuple]
    leaves = [tuple(result) if several else (result,) for result in results]
    plain = all(
        isinstance(leaf, torch.Tensor) and leaf.is_contiguous() and not leaf.requires_grad
        for leaf in (*leaves[0], *leaves[1])
    )
    kinds = [[(x.dtype, x.device, x.dim()) for x in side] for side in leaves if plain]
    if not plain or kinds[0] != kinds[1] or not tx.data_sizes():
        raise Break("FB0025", "the sides of torch.cond answer differently")
    both = [
        unpack(tx, record_result(tx, body_call, (side.node, *side.lifted), own))
        for side, own in zip(sides, leaves, strict=True)
    ]
    pairs = zip(*both, strict=True)
    chosen = [tx.call_python(scanning.of_two_sizes, [predicate, *pair]) for pair in pairs]
    return TupleValue(chosen) if several else chosen[0]


@handles(*compat.loops())
def _while(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`while_loop(cond_fn, body_fn, carried_inputs)`."""
    given = dict(zip(("cond_fn", "body_fn", "carried_inputs"), args)) | dict(kwargs)
    carried = unpack(tx, given["carried_inputs"])
    if not all(isinstance(value, TensorValue) for value in carried):
        raise Break("FB0025", "while_loop carries what is no tensor")
    before = tuple(value.fake for value in carried)  # type: ignore[attr-defined]

    def state(body: GraphBuilder) -> list[Value]:
        examples = enumerate(before)
        return [TensorValue(body.add_example(f"state{place}", fake)) for place, fake in examples]

    sides = [
        capture_body(tx, f"{name} of while_loop", _calling(tx, given[name], state))
        for name in ("cond_fn", "body_fn")
    ]
    after = body_fakes(sides[1])
    if metadata(tuple(after)) != metadata(before):
        raise Break("FB0025", "while_loop changes the metadata of what it carries")
    counts = (len(carried), len(sides[0].lifted), len(sides[1].lifted))
    nodes = [value.node for value in carried]  # type: ignore[attr-defined]
    result = tuple(tensor.clone() for tensor in after)
    tensors = [*nodes, *sides[0].lifted, *sides[1].lifted]
    head = (sides[0].node, sides[1].node, counts)
    return record_result(tx, while_call, (*head, *tensors), result)


_SAME_IN_PYTHON = dict(
    zip(
        (*compat.loops_over_slices(), *compat.wrappers(), compat.attention()),
        (
            scanning.associative_scan, scanning.map_slices, scanning.scan, scanning.wrap,
            scanning.wrap_with_set_grad_enabled, scanning.wrap_with_autocast,
            attention.flex_attention,
        ),
    )
)  # fmt: skip

for _operator, _python in _SAME_IN_PYTHON.items():
    _is_object = not isinstance(_operator, FunctionType)

    def _in_python(
        tx: Tracer,
        args: Args,
        kwargs: Kwargs,
        _python: Callable[..., Any] = _python,
        _own: int = int(_is_object),
    ) -> Value:
        return tx.call_python(_python, args[_own:], kwargs)

    _called = type(_operator).__call__ if _is_object else _operator
    handles(_called, action=Action.POLYFILL, python=_python)(_in_python)

breaks("FB0025", scanning.refuse)


@handles(create_mask, action=Action.POLYFILL, python=attention.create_mask)
def _mask(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return tx.call_python(attention.create_mask, args, kwargs)


def _calling(
    tx: Tracer, fn: Value, given: Callable[[GraphBuilder], list[Value]]
) -> Callable[[GraphBuilder], Value]:
    return lambda body: tx.call(fn, given(body), {})


def body_writes(body: Captured) -> bool:
    module = body.node.meta["val"]
    taken = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"]
    tensors = [each for each in taken if isinstance(each, torch.Tensor)]  # no open numbers
    return any(tensor._version for tensor in tensors if not tensor.is_inference()) and any(
        _changes(node) for node in module.graph.nodes
    )


def _changes(node: fx.Node) -> bool:
    """Whether a call may write to its arguments: an operator in place, `out=`, batch norm."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    written = name.endswith("_") and not name.endswith("__")
    return node.op.startswith("call_") and (
        written or "out" in node.kwargs or name in ("batch_norm", "instance_norm", "setitem")
    )


def body_fakes(body: Captured) -> Any:
    module = body.node.meta["val"]
    output = next(node for node in reversed(module.graph.nodes) if node.op == "output")
    return fx.node.map_arg(output.args[0], lambda node: node.meta["val"])


def metadata(value: Any) -> Any:
    def of_one(leaf: Any) -> Any:
        is_tensor = isinstance(leaf, torch.Tensor)
        return (leaf.dtype, leaf.device, tuple(leaf.shape)) if is_tensor else leaf

    return tree_map(of_one, value)
