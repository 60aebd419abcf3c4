"""Assignment to a tensor's data: `.data`, `nn.Parameter(...)`, `requires_grad_(False)`.

In: a tensor and what it is to be. Out: the tensor's value, on another node of the graph, and an
effect that the generated code makes on the tensor itself. Invariant: a leaf that requires grad is
used in the graph only where no derivative can ask for it; otherwise the graph ends before its use.
"""

from __future__ import annotations

from typing import Any

import torch

from flambeau_capture._torch_compat import same_memory
from flambeau_capture.breaks import Break
from flambeau_capture.source import CallResultSource, Source
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.functions.call_rules import handles
from flambeau_capture.values.tensors.graph_calls import tensor_call
from flambeau_capture.values.tensors.tensor import TensorValue

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def _memory_of(tx: Tracer, value: TensorValue) -> TensorValue:
    found = tensor_call(tx, "call_function", getattr, [value, Constant("data")])
    if found.fake is value.fake:
        raise Break("FB0016", "memory of a tensor that is not told apart from it")
    return found


def _is_own(old: torch.Tensor, new: torch.Tensor) -> bool:
    """Whether `new` is the data that a tensor has already, seen in the same way: what
    `p.data = p.data.to(device)` assigns where nothing is to be moved."""
    same = same_memory(old, new) and old.storage_offset() == new.storage_offset()
    same = same and (old.shape, old.stride(), old.dtype) == (new.shape, new.stride(), new.dtype)
    return same and (old.is_conj(), old.is_neg()) == (new.is_conj(), new.is_neg())


def set_data(tensor: TensorValue, tx: Tracer, value: Value) -> None:
    """`tensor.data = value`."""
    if tensor.source is None or tensor.real is None or not isinstance(value, TensorValue):
        raise Break("FB0016", "assignment to .data of a tensor")
    old, new = tensor.fake, value.fake
    same = (old.device, old.layout) == (new.device, new.layout)
    if old.requires_grad:  # a derivative is of the sizes that it had
        same = same and (old.shape, old.dtype, old.stride()) == (
            new.shape, new.dtype, new.stride(),
        )  # fmt: skip
    usual = old.is_leaf and not old.is_inference() and not tensor.calls
    if not same or not usual or tx.graph is not tx.graph.outermost or tensor.cls not in _PLAIN:
        raise Break("FB0016", "assignment to .data of other sizes, layout, dtype or device")
    if _is_own(old, new):
        return
    memory = _memory_of(tx, value)
    tensor.stand_on(memory.node, old.requires_grad)
    tensor.written_data = memory
    tx.heap.changed(tensor)


def set_tensor(tensor: TensorValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value | None:
    """`tensor.set_(other)` without history; None: the call is of another kind."""
    value = args[0] if len(args) == 1 and not kwargs else None
    if not isinstance(value, TensorValue) or value.cls not in _PLAIN or tensor.cls not in _PLAIN:
        return None
    old, new = tensor.fake, value.fake
    if old.requires_grad or new.requires_grad or old._is_view() or new.is_inference():
        return None
    if (old.dtype, old.device, old.layout) != (new.dtype, new.device, new.layout):
        return None
    if tensor.source is not None and tensor.real is not None:
        set_data(tensor, tx, value)
    elif tx.graph is tx.graph.outermost and not old.is_inference():
        tensor.stand_on(_memory_of(tx, value).node, None)
        tx.heap.changed()
    else:
        return None
    return tensor


class NewParameter(TensorValue):
    """A parameter that the program makes: `memory` is the tensor that it is made of."""

    def __init__(self, memory: TensorValue, requires_grad: bool) -> None:
        super().__init__(memory.node, python_class=torch.nn.Parameter)
        self.memory = TensorValue(memory.node)
        self.flag = requires_grad
        self.stand_on(memory.node, requires_grad)

    def reconstruct(self, writer: Any) -> None:
        with writer.building(self):
            writer.call(torch.nn.Parameter, [self.memory, Constant(self.flag)])


@handles(torch.nn.Parameter)
def _parameter(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not {"data", "requires_grad"} >= set(kwargs) or len(args) + len(kwargs) > 2:
        raise Break("FB0011", "nn.Parameter with other arguments")
    given = dict(zip(("data", "requires_grad"), args)) | dict(kwargs)
    data, flag = given.get("data"), given.get("requires_grad", Constant(True)).truth(tx)
    if not isinstance(data, TensorValue) or data.cls not in _PLAIN:
        raise Break("FB0012", "nn.Parameter of what is no plain tensor")
    if tx.graph is not tx.graph.outermost or data.fake.is_inference():
        raise Break("FB0012", "nn.Parameter in a function that torch maps or runs again")
    if flag and not (data.fake.is_floating_point() or data.fake.is_complex()):
        raise Break("FB0010", "a parameter of integers that requires grad")
    tx.heap.changed()
    return NewParameter(_memory_of(tx, data), flag)


def track(tensor: TensorValue, tx: Tracer, flag: bool) -> bool:
    """`requires_grad_()` of an unused leaf of the program: it enters the graph requiring grad."""
    source, real = tensor.source, tensor.real
    if source is None or real is None or not flag or tx.graph is not tx.graph.outermost:
        return False
    node, fake = tensor.node, tensor.fake
    if node.op != "placeholder" or node.users or tensor.cls not in _PLAIN:
        return False
    if not fake.is_leaf or fake.is_inference() or not fake.is_floating_point() or fake._is_view():
        return False
    fake.requires_grad_(True)
    example = real.detach().requires_grad_()
    made = CallResultSource(source, torch.Tensor.requires_grad_, (), "tracked", tx.step())
    tensor.stand_on(tx.graph.add_made(example, made, fake), None)
    tensor.written_flag = True
    tx.heap.changed(tensor)
    return True


def freeze(tensor: TensorValue, tx: Tracer, flag: bool) -> bool:
    """`requires_grad_(flag)` of a leaf that the program has; whether it is of that kind."""
    source: Source | None = tensor.source
    if source is None or tensor.real is None or tx.graph is not tx.graph.outermost:
        return False
    if tensor.written_data is not None or not tensor.fake.is_leaf or tensor.cls not in _PLAIN:
        return False
    if not flag:
        frozen = _memory_of(tx, tensor)
        tensor.frozen_from = tensor.node
        tensor.stand_on(frozen.node, False)
        tensor.written_flag = False
    elif tensor.frozen_from is not None:
        tensor.stand_on(tensor.frozen_from, None)
        tensor.frozen_from = None
        tensor.written_flag = True
    else:
        return False
    tx.heap.changed(tensor)
    return True
