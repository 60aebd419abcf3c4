"""Strides that a program reads of results: as eager's kernels lay them out.

In: a tensor of the graph whose strides Python needs. Out: nothing, or a break where a kernel's
result lies otherwise than its fake says. Invariant: what the tensor is computed of is run on zeros
of the same layouts, with no effect on the program; what is beyond the limits is as its fake says.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.values.base import Tracer
from flambeau_capture.values.tensors.data.constant_data import cone, of_torch, tensors_of
from flambeau_capture.values.tensors.refused_calls import operator_name, zeros
from flambeau_capture.values.tensors.tensor import TensorValue

#: elements, and operators, of all that a tensor is computed of
ELEMENTS, OPERATORS = 1 << 20, 200
#: modules of torch whose functions work on tensors alone
_MODULES = ("torch", "torch.functional", "torch.nn.functional", "torch._tensor", None)


def check_layout(tx: Tracer, tensor: TensorValue) -> None:
    """Raises Break where the strides of the tensor's fake are not those that eager's would have."""
    if not tensor.in_graph() or tensor.node.op not in ("call_function", "call_method"):
        return
    fake = tensor.fake
    if fake.layout is not torch.strided or not fake.dim():
        return
    said = _hints(fake.stride())
    made = _made(tensor.node)
    if said is None or made is None or made.shape != torch.Size(_hints(fake.shape) or ()):
        return
    if made.stride() != said:
        found = f"strides of {operator_name(tensor.node.target)}, read by the program"
        raise Break("FB0031", f"{found}: {list(made.stride())}, its fake has {list(said)}")


def _made(root: fx.Node) -> torch.Tensor | None:
    """What the node is on zeros; None where that is not known."""
    left = [ELEMENTS]
    nodes = cone(root, lambda node: _enters(node, left), OPERATORS)
    if nodes is None:
        return None
    values: dict[fx.Node, Any] = {}
    devices = {one.device for node in nodes for one in tensors_of(node.meta["val"])}
    kept = [device for device in devices if device.type == "cuda"]
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(kept), torch.no_grad():
            warnings.simplefilter("ignore")
            for node in nodes:
                values[node] = _value(node, values)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, AssertionError):
        return None  # zeros are not what it takes
    found = values[root]
    return found if isinstance(found, torch.Tensor) else None


def _enters(node: fx.Node, left: list[int]) -> bool | None:
    """Whether a node is made of others, which are run; None where it is not to be run itself.
    `left`: how many elements there may be still."""
    given = [*tensors_of(node.meta.get("val"))]
    for one in given:
        size = _hints((one.numel(),))
        if size is None or one.layout is not torch.strided or one.device.type == "meta":
            return None
        left[0] -= size[0]
    if left[0] < 0:
        return None
    if not given or node.op in ("placeholder", "get_attr"):
        return False
    return (of_torch(node.target) and _on_tensors_alone(node.target)) or None


def _on_tensors_alone(target: Any) -> bool:
    return isinstance(target, str) or getattr(target, "__module__", None) in (
        *_MODULES,
        "_operator",
    )


def _value(node: fx.Node, values: dict[fx.Node, Any]) -> Any:
    fake = node.meta["val"]
    if node.op in ("placeholder", "get_attr") and isinstance(fake, torch.Tensor):
        sizes, steps = _hints(fake.shape), _hints(fake.stride())
        if sizes is None or steps is None:
            raise ValueError("a size that data decides")
        return zeros(sizes, steps, fake)
    if not any(True for _ in tensors_of(fake)):
        found = _hints((fake,))
        if found is None:
            raise ValueError("a number that data decides")
        return found[0]
    args, kwargs = (fx.node.map_arg(part, values.__getitem__) for part in (node.args, node.kwargs))
    return compat.perform(node.target, args, kwargs)


def _hints(numbers: Any) -> tuple[Any, ...] | None:
    """The numbers, open ones as they are in this capture; None where data decides one."""
    symbols = torch.SymInt | torch.SymFloat | torch.SymBool
    found = tuple(compat.hint(n) if isinstance(n, symbols) else n for n in numbers)
    return None if any(n is None for n in found) else found
