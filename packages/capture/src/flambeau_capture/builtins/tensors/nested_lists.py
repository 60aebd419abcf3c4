"""Tensors made of numbers, nested lists and symbols.

In: calls of `torch.tensor` and its like on data that holds tensors or open numbers. Out: calls of
the graph in which they stay what they are. Invariant: where nothing is open, torch's function is
what the graph holds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterator
from typing import Any

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant, constant_of, evaluate, is_none
from flambeau_capture.values.containers.lists import ListValue
from flambeau_capture.values.containers.sequences import SequenceValue
from flambeau_capture.values.functions.call_rules import RULES, handles
from flambeau_capture.values.numpy.arrays import NumpyScalar
from flambeau_capture.values.tensors.graph_calls import graph_call
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue
from flambeau_capture.values.tensors.tensor import TensorValue


def tensor_of_open(tx: Tracer, data: Value, kwargs: Kwargs) -> Value | None:
    """`torch.tensor` of symbols, or of lists of them, as stacked tensors; else None."""
    is_open = any(isinstance(leaf, SymbolValue) for leaf in _flat(data))
    if not is_open or not set(kwargs) <= {"dtype", "device"}:
        return None
    leaves = _regular(data, lambda leaf: _is_number(leaf, (int, float)))
    if leaves is None:
        return None
    named = dict(kwargs)
    if "dtype" not in named:
        whole = all(leaf.cls is int for leaf in leaves)
        named["dtype"] = tx.wrap_new(torch.int64 if whole else torch.get_default_dtype())
    return _filled(tx, data, named)


def _flat(value: Value) -> Iterator[Value]:
    """What nested lists hold, in order."""
    if isinstance(value, SequenceValue):
        for part in value.parts():
            yield from _flat(part)
    else:
        yield value


def _regular(value: Value, is_leaf: Callable[[Value], bool]) -> list[Value] | None:
    """The same; None where anything else is among them, or where lists differ in their shapes."""
    leaves = [*_flat(value)]
    return leaves if _shape(value) is not None and all(map(is_leaf, leaves)) else None


def _shape(value: Value) -> tuple[int, ...] | None:
    if not isinstance(value, SequenceValue):
        return ()
    inner = {_shape(part) for part in value.parts()}
    each = inner.pop() if len(inner) == 1 else None
    return None if each is None else (len(value.parts()), *each)


def _is_number(value: Value, kinds: Container[type]) -> bool:
    return isinstance(value, SymbolValue | Constant) and value.cls in kinds


def _is_element(value: Value) -> bool:
    if isinstance(value, TensorValue):
        return value.cls is torch.Tensor and value.fake.dim() == 0
    return _is_number(value, _DTYPES)


def _filled(tx: Tracer, value: Value, named: dict[str, Value]) -> Value:
    if not isinstance(value, SequenceValue):
        return graph_call(tx, "call_function", torch.full, [tx.wrap_new(()), value], named)
    parts: list[Any] = [_filled(tx, part, named) for part in value.parts()]
    return graph_call(tx, "call_function", torch.stack, [value.like(parts)], {})


@handles(torch.sym_float)
def _sym_float(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    answered: Value = RULES[float].handler(tx, args, kwargs)
    return answered


_TAKEN = frozenset({"dtype", "device", "requires_grad", "pin_memory"})


def made(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    given = list(args)
    owner = given.pop(0) if name == "new_tensor" and given else None
    named = dict(kwargs)
    data = given.pop(0) if given else named.pop("data", None)
    for each in ("dtype", "device"):
        if given:
            named[each] = given.pop(0)
    if not isinstance(data, SequenceValue) or given or not set(named) <= _TAKEN:
        return None
    leaves = _regular(data, _is_element)
    tensors = [leaf for leaf in leaves or () if isinstance(leaf, TensorValue)]
    if leaves is None or not tensors:
        return None
    wanted = ("requires_grad", "pin_memory")
    if any(constant_of(named.pop(each, Constant(False))) for each in wanted):
        raise Break("FB0002", f"{name} of a list of tensors, with {' or '.join(wanted)}")
    if any(leaf.fake.device.type != "cpu" for leaf in tensors):
        raise Break("FB0002", f"{name} of a list of tensors that are not on the CPU")
    dtype, device = (named.get(n, Constant(None)).as_python() for n in ("dtype", "device"))
    if isinstance(owner, TensorValue):
        dtype = owner.fake.dtype if dtype is None else dtype
        device = owner.fake.device if device is None else device
    if dtype is None:
        dtype = functools.reduce(torch.promote_types, [_dtype(leaf) for leaf in leaves])
    if not all(torch.can_cast(_dtype(leaf), dtype) for leaf in leaves):
        return None  # torch takes some of them and refuses others: a matter of the data
    made = _stacked(tx, data, dtype)
    return made if device is None else made.call_method(tx, "to", [tx.wrap_new(device)], {})


_DTYPES: dict[type, Any] = {
    bool: lambda: torch.bool,
    int: lambda: torch.int64,
    float: torch.get_default_dtype,
    complex: lambda: (
        torch.complex128 if torch.get_default_dtype() == torch.float64 else torch.complex64
    ),
}


def _dtype(leaf: Value) -> torch.dtype:
    found = leaf.fake.dtype if isinstance(leaf, TensorValue) else _DTYPES[leaf.cls]()
    assert isinstance(found, torch.dtype)
    return found


def _stacked(tx: Tracer, value: Value, dtype: torch.dtype) -> Value:
    if isinstance(value, SequenceValue):
        parts: list[Value] = [_stacked(tx, part, dtype) for part in value.parts()]
        return graph_call(tx, "call_function", torch.stack, [ListValue(parts)], {})
    wanted = tx.wrap_new(dtype)
    if isinstance(value, TensorValue):
        return value.call_method(tx, "detach", [], {}).call_method(tx, "to", [wanted], {})
    return _filled(tx, value, {"dtype": wanted, "device": tx.wrap_new(torch.device("cpu"))})


def shape_as_tensor(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    if kwargs or len(args) != 1 or not isinstance(args[0], TensorValue):
        return None
    sizes = tx.call_python(list, [tx.get_attr(args[0], "shape")])
    named = {"dtype": tx.wrap_new(torch.int64)}
    return tx.call_python(torch.tensor, [sizes], named)


def of_scalars(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """NumPy's scalars among the data: torch reads the dtype of each, unlike of a Python number."""
    if len(args) != 1 or not any(isinstance(leaf, NumpyScalar) for leaf in _flat(args[0])):
        return None
    named = dict(kwargs)
    if "dtype" not in named or is_none(named["dtype"]):
        sample = _sample(args[0])
        if sample is None:
            return None
        named["dtype"] = Constant(evaluate(tx, torch.tensor, sample).dtype)
    data = _numbers(args[0])
    opened = tensor_of_open(tx, data, named)
    return opened or graph_call(tx, "call_function", torch.tensor, [data], named)


def _sample(value: Value) -> Any:
    """Data of the same classes; None where anything else is among them."""
    if isinstance(value, SequenceValue):
        parts = [_sample(part) for part in value.parts()]
        return None if any(part is None for part in parts) else parts
    if isinstance(value, NumpyScalar):
        return value.sample()
    return value.cls(1) if _is_number(value, _DTYPES) else None


def _numbers(value: Value) -> Value:
    if isinstance(value, SequenceValue):
        return ListValue([_numbers(part) for part in value.parts()])
    return value.as_number() if isinstance(value, NumpyScalar) else value


def scalars_as_one(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """Numbers that are tensors, one for each tensor of a list, as the one that torch takes."""
    given, named = list(args), dict(kwargs)
    scalars = given[3] if len(given) > 3 else named.get("scalars")
    parts = scalars.parts() if isinstance(scalars, SequenceValue) else []
    tensors = [part for part in parts if isinstance(part, TensorValue)]
    if not parts or len(tensors) < len(parts) or any(part.fake.dim() for part in tensors):
        return None
    one = graph_call(tx, "call_function", torch.stack, [ListValue([*parts])], {})
    return graph_call(tx, "call_function", compat.WITH_SCALARS[name], [*given[:3], one], {})
