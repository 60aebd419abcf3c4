"""DistributedDataParallel in a step: its module's forward, and sums of gradients by buckets.

In: a call of the wrapper, and a `backward()` of the same frame. Out: the module's operations, and
after the derivatives have been added to `.grad` one collective a bucket. Invariant: what the graph
sums is what the reducer would, in its order: a parameter's whole `.grad`, divided by the ranks
before; a frame that hands on what would be differentiated elsewhere is cut before the call, and the
wrapper runs in Python with its module's graphs. The reducer knows nothing of such a step.

Sums of more than two ranks may round otherwise than the reducer's, whose buckets are by the order
in which gradients came in its first step (Li et al., PyTorch Distributed, VLDB 2020, 3.2.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import REASONS, Break, BreakReport
from flambeau_capture.graph.builder import WatchedLeaves
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant, is_none
from flambeau_capture.values.containers.lists import ListValue
from flambeau_capture.values.functions.call_rules import handles
from flambeau_capture.values.objects.nn_modules import ModuleValue
from flambeau_capture.values.tensors.graph_calls import graph_call
from flambeau_capture.values.tensors.tensor import TensorValue

_REASON = "FB0029"

#: attributes of the wrapper with which a step is no more than sums of gradients
PLAIN: dict[str, Any] = {
    "_use_python_reducer": False, "_delay_all_reduce_all_params": False, "mixed_precision": None,
    "find_unused_parameters": False, "gradient_as_bucket_view": False, "static_graph": False,
    "require_backward_grad_sync": True,
}  # fmt: skip


def _refused(why: str) -> Break:
    return Break(_REASON, f"a forward of DistributedDataParallel {why}: it runs in Python")


@handles(*compat.DATA_PARALLEL)
def _forward(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    wrapper = args[0]
    if not isinstance(wrapper, ModuleValue) or wrapper.real is None:
        raise _refused("that is made in the graph")
    if torch.is_grad_enabled() and not tx.options.sum_gradients:
        raise _refused("without the option `sum_gradients`, which all ranks must keep to")
    if tx.graph is not tx.graph.outermost:
        raise _refused("in a function that torch maps or runs again")
    for name, wanted in PLAIN.items():
        if wrapper.get_attr(tx, name).as_python() != wanted:
            raise _refused(f"with {name} other than {wanted}")
    if wrapper.get_attr(tx, "_join_config").get_attr(tx, "enable").truth(tx):
        raise _refused("that may join others")
    for name in ("_comm_hooks", "modules_buffers", "device_ids", "parameters_to_ignore"):
        found = wrapper.get_attr(tx, name)
        if not is_none(found) and found.length(tx):
            raise _refused(f"with {name}")
    if compat.hook_of_reducer(wrapper.real):
        raise _refused("with a hook of its reducer")
    parameters = compat.reduced_parameters(wrapper.real)
    if any(type(each) is not torch.nn.Parameter for each in parameters):
        raise _refused("with parameters of other kinds")
    step = tx.step()
    what = "a forward of DistributedDataParallel without its backward"
    report = BreakReport(REASONS[_REASON], what, tx.user_lines())
    result = tx.call(wrapper.get_attr(tx, "module"), args[1:], kwargs)
    if torch.is_grad_enabled():
        group = wrapper.get_attr(tx, "process_group")
        tx.graph.watched.append(WatchedLeaves(wrapper.real, group, parameters, step, report))
    return result


def watched_here(tx: Tracer, leaves: Sequence[TensorValue]) -> frozenset[int]:
    """Leaves, by `id`, whose gradients the frame itself sums: all of a wrapper's, or a break."""
    own = {id(leaf.real) for leaf in leaves}
    found: set[int] = set()
    for each in _wrappers(tx):
        parameters = {id(x) for x in each.parameters}
        if not parameters <= own:
            raise Break(
                _REASON, "backward that does not reach all that DistributedDataParallel sums"
            )
        found |= parameters
    return frozenset(found)


def _wrappers(tx: Tracer) -> Iterable[WatchedLeaves]:
    """Each wrapper once, however often its forward ran."""
    return {id(each.wrapper): each for each in tx.graph.watched}.values()


def sum_gradients(tx: Tracer, leaves: Sequence[TensorValue]) -> None:
    """What the reducers do when the backward pass ends."""
    by_real = {id(leaf.real): leaf for leaf in leaves}
    for each in _wrappers(tx):
        size = compat.size_of_group(each.group.real)
        for bucket in _buckets(each):
            gradients = [by_real[id(x)].get_attr(tx, "grad") for x in bucket]
            if not all(isinstance(x, TensorValue) for x in gradients):
                raise Break(_REASON, "a parameter of DistributedDataParallel without a gradient")
            _average(
                tx, [x for x in gradients if isinstance(x, TensorValue)], each.group.real, size
            )


def _average(tx: Tracer, gradients: Sequence[TensorValue], group: Any, size: int) -> None:
    flat = [x.call_method(tx, "reshape", [Constant(-1)], {}) for x in gradients]
    whole = graph_call(tx, "call_function", torch.cat, [ListValue(flat)], {})
    whole = graph_call(tx, "call_method", "mul", [whole, Constant(1 / size)], {})
    more = [Constant("sum"), Constant(compat.name_of_group(group))]
    target, wait = compat.functional("all_reduce"), compat.functional("wait_tensor")
    begun = graph_call(tx, "call_function", target, [whole, *more], {})
    summed = graph_call(tx, "call_function", wait, [begun], {})
    sizes = [x.fake.numel() for x in gradients]
    parts = graph_call(tx, "call_method", "split", [summed, ListValue(map(Constant, sizes))], {})
    for each, part in zip(gradients, parts.parts(), strict=True):  # type: ignore[attr-defined]
        each.call_method(tx, "copy_", [part.call_method(tx, "view_as", [each], {})], {})


def _buckets(watched: WatchedLeaves) -> Iterator[list[torch.Tensor]]:
    """Parameters last to first, as their gradients come; those of one kind together, up to the
    wrapper's limits."""
    first, other = compat.bucket_limits(watched.wrapper)
    bucket: list[torch.Tensor] = []
    filled, limit = 0, first
    for each in reversed(watched.parameters):
        alike = not bucket or (each.dtype, each.device) == (bucket[0].dtype, bucket[0].device)
        if bucket and (filled >= limit or not alike):
            yield bucket
            bucket, filled, limit = [], 0, other
        bucket.append(each)
        filled += each.numel() * each.element_size()
    if bucket:
        yield bucket
