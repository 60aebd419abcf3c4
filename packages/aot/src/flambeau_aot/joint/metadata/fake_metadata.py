"""Metadata of results without computation.

In: an operator and arguments holding fake tensors. Out: fake results.
Invariant: an operator is run at most once for the same argument metadata; the results of a repeated
call have the same sizes, strides, dtypes and devices as those of the first.

A run of an operator on fake tensors costs several hundred microseconds and a model repeats its
layers, so results are remembered by (operator, metadata of the arguments). View operators are
remembered too: below functionalization nothing looks at the storage of a fake value. Calls with
lazily conjugated or negated tensors are not remembered.

Facts of a call: hidden writes, numbers in the place of tensors, dtypes that eager refuses. In: an
operator and its arguments. Out: yes or no. Invariant: nothing is run or recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch

from flambeau_aot._torch_compat import (
    FakeTensor,
    FakeTensorMode,
    data_symbols,
    expression_of,
    is_conj_or_neg,
    is_view_op,
    without_modes,
)
from flambeau_aot.inputs.memory_overlap import bare, is_dense
from flambeau_aot.intercept.eager_dtypes import refusal_by_eager
from flambeau_aot.joint.metadata.corrections import CORRECTIONS, KernelCorrection, contiguous
from flambeau_aot.joint.metadata.pointwise_layouts import iterated
from flambeau_aot.joint.nested import map_tensors, tensors_in
from flambeau_aot.refusals import refusal
from flambeau_aot.sizes import has_symbols, symbolic_parts

TensorKey = tuple[Any, ...]

# Operators whose kernels on the meta device give the metadata of every other device: structured
# kernels and views. Pointwise operators are known by their tag.
_STRUCTURED = (
    "mm bmm addmm baddbmm sum mean amax amin _softmax _log_softmax _softmax_backward_data "
    "_log_softmax_backward_data view _unsafe_view t transpose permute expand slice select "
    "unsqueeze squeeze detach alias"
)
_SAME_ON_META = frozenset(f"aten::{name}" for name in _STRUCTURED.split())


class FakeValues:
    """The fake values of one trace and what is known of their metadata."""

    def __init__(
        self, environment: Any = None, kind: Callable[..., FakeTensorMode] = FakeTensorMode
    ) -> None:
        """environment: the shape environment of symbolic sizes; None where all are numbers. kind:
        the class of the mode."""
        self.mode = kind(allow_non_fake_inputs=False, shape_env=environment)
        self.symbolic = environment is not None
        self._keys: dict[int, TensorKey] = {}
        self._alive: list[torch.Tensor] = []
        self._memo: dict[Any, Any] = {}
        self.runs = 0
        self.remembered = 0

    def like(self, tensor: torch.Tensor) -> FakeTensor:
        """A fake value with a tensor's sizes, strides, offset, dtype and device."""
        if tensor.layout != torch.strided:
            raise refusal("AO0023", layout=tensor.layout)
        if has_symbols(tensor) and not self.symbolic:
            raise refusal("AO0039", shape=tuple(tensor.shape))
        return self._make(_key(tensor))

    def tangent_like(self, value: torch.Tensor) -> FakeTensor:
        """A fake cotangent: the value's strides where they are dense, else contiguous ones."""
        stride = tuple(value.stride())
        if not is_dense(tuple(value.shape), stride):
            stride = contiguous(tuple(value.shape))
        shape, _, _, dtype, device = _key(value)
        return self._make((shape, _keyed(stride), 0, dtype, device))

    def flag(self, device: torch.device) -> FakeTensor:
        """A fake truth value."""
        return self._make(((), (), 0, torch.bool, device))

    def _make(self, key: TensorKey) -> FakeTensor:
        shape, stride, offset, dtype, device = map(_plain, key) if self.symbolic else key
        value = FakeTensor(self.mode, bare(shape, stride, offset, dtype), device)
        self._keys[id(value)] = key
        self._alive.append(value)
        return value

    def key_of(self, value: FakeTensor) -> TensorKey:
        """The metadata of a fake value as a hashable tuple."""
        key = self._keys.get(id(value))
        if key is None:
            key = self._keys[id(value)] = _key(value)
            self._alive.append(value)
        return key

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The fake results of one operator call."""
        devices: set[torch.device] = set()
        key = self._call_key(func, args, kwargs, devices)
        if key is not None:
            described = self._memo.get(key)
            if described is None and self.symbolic:
                described = self._memo.get((key, _identities(args)))
            if described is not None:
                self.remembered += 1
                return self._rebuild(described)
        self.runs += 1
        plain = key is not None and len(devices) == 1 and "device" not in kwargs
        if plain and not self.symbolic and _same_on_meta(func):
            result = self._run_on_meta(func, args, kwargs, next(iter(devices)))
        else:
            result = self.mode.__torch_dispatch__(func, (), args, kwargs)
        asked = kwargs.get("memory_format") not in (None, torch.preserve_format)
        correct = None if asked else CORRECTIONS.get(func._schema.name)
        told: Mapping[int, KernelCorrection] = {}
        if correct is not None:
            several = isinstance(result, (list, tuple))
            parts = list(result) if several else [result]
            made = [part for part in parts if part is not None]  # those that the mask wants
            if made:
                told = correct(args, made[0].fake_device)
                self._correct(parts, told)
            result = tuple(parts) if several else parts[0]
        if not told and torch.Tag.pointwise in func.tags and isinstance(result, FakeTensor):
            laid = iterated(func, args, result)
            if laid is not None and laid != tuple(result.stride()):
                shape, _, offset, dtype, device = self.key_of(result)
                result = self._make((shape, laid, offset, dtype, device))
        if key is not None:
            if (described := self._describe(result)) is not None:
                self._memo[(key, _identities(args)) if self._is_counted(result, args) else key] = (
                    described
                )
        return result

    def _is_counted(self, result: Any, args: Any) -> bool:
        """Whether a size of a result is counted in the data: the same for the same values alone."""
        if not self.symbolic:
            return False
        found = data_symbols(symbolic_parts(result))
        return bool(found) and not found <= data_symbols(symbolic_parts(args))

    def _correct(self, parts: list[Any], told: Mapping[int, KernelCorrection]) -> None:
        for place, said in told.items():
            if parts[place] is None:
                continue
            shape, stride, offset, dtype, device = self.key_of(parts[place])
            shape = shape if said.shape is None else _keyed(tuple(said.shape))
            laid = said.stride if said.laid is None else said.laid([_plain(n) for n in shape])
            stride = stride if laid is None else _keyed(tuple(laid))
            dtype = said.dtype or (dtype.to_complex() if said.is_complex else dtype)
            parts[place] = self._make((shape, stride, offset, dtype, device))

    def _run_on_meta(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], device: torch.device
    ) -> Any:
        def to_meta(value: Any) -> torch.Tensor:
            return bare(*self.key_of(value)[:4])

        def to_fake(value: torch.Tensor) -> FakeTensor:
            fake = FakeTensor(self.mode, value, device)
            self._alive.append(fake)
            return fake

        with torch.no_grad():
            result = func(*map_tensors(args, to_meta), **map_tensors(kwargs, to_meta))
        return map_tensors(result, to_fake)

    def _call_key(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], devices: set[torch.device]
    ) -> Any:
        try:
            key = (
                func,
                tuple([self._arg_key(item, devices) for item in args]),
                tuple([(name, self._arg_key(item, devices)) for name, item in kwargs.items()]),
            )
            hash(key)
        except TypeError:
            return None
        return key

    def _arg_key(self, value: Any, devices: set[torch.device]) -> Any:
        if isinstance(value, FakeTensor):
            if is_conj_or_neg(value):
                raise TypeError("a lazy conjugation or negation is no part of a metadata key")
            key = self.key_of(value)
            devices.add(key[4])
            return key
        if isinstance(value, torch.Tensor):
            raise TypeError("a real tensor has no metadata key")
        if isinstance(value, (list, tuple)):
            return tuple([self._arg_key(item, devices) for item in value])
        if isinstance(value, torch.SymInt | torch.SymFloat):
            return _Symbolic(value)
        return (type(value), value)

    def _describe(self, result: Any) -> Any:
        if isinstance(result, FakeTensor):
            return None if is_conj_or_neg(result) else ("tensor", self.key_of(result))
        if isinstance(result, (list, tuple)):
            parts = [self._describe(item) for item in result]
            return None if any(part is None for part in parts) else (_kind(result), parts)
        return ("none", None) if result is None else None

    def _rebuild(self, described: Any) -> Any:
        kind, content = described
        if kind == "tensor":
            return self._make(content)
        if kind == "none":
            return None
        return kind(self._rebuild(part) for part in content)


@cache
def _same_on_meta(func: Any) -> bool:
    return torch.Tag.pointwise in func.tags or func._schema.name in _SAME_ON_META


class _Symbolic:
    """A symbolic size as part of a key: equal to another of the same expression."""

    __slots__ = ("expression", "number")

    def __init__(self, number: torch.SymInt | torch.SymFloat) -> None:
        self.number = number
        self.expression = expression_of(number)

    def __hash__(self) -> int:
        return hash(self.expression)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Symbolic) and bool(self.expression == other.expression)


def _key(value: torch.Tensor) -> TensorKey:
    shape, stride, offset = map(_keyed, (value.shape, value.stride(), value.storage_offset()))
    device = value.fake_device if isinstance(value, FakeTensor) else value.device
    return shape, stride, offset, value.dtype, device


def _identities(args: Any) -> tuple[int, ...]:
    """Which values these are; all live as long as the trace."""
    return tuple(map(id, tensors_in(args)))


def _keyed(value: Any) -> Any:
    """Sizes as part of a key."""
    if isinstance(value, torch.SymInt):
        return _Symbolic(value)
    if isinstance(value, (tuple, list)):
        return tuple([_Symbolic(n) if isinstance(n, torch.SymInt) else n for n in value])
    return value


def _plain(part: Any) -> Any:
    """The part of a key with its sizes as they are."""
    if isinstance(part, _Symbolic):
        return part.number
    if isinstance(part, tuple):
        return tuple([n.number if isinstance(n, _Symbolic) else n for n in part])
    return part


def _kind(value: list[Any] | tuple[Any, ...]) -> type[list[Any]] | type[tuple[Any, ...]]:
    """The plain container of an operator's several results, which may be a named tuple."""
    return list if isinstance(value, list) else tuple


def memory_order(value: torch.Tensor, device: torch.device) -> list[int] | None:
    """The dimensions of a tensor in the order of its memory; None where nothing depends on it."""
    if device.type == "cpu" and not _drawn_by_memory():
        return None
    return dense_order(value)


def dense_order(value: torch.Tensor) -> list[int] | None:
    """The same of any device; None of a tensor that has gaps or is contiguous."""
    shape, stride = tuple(value.shape), tuple(value.stride())
    if value.is_contiguous() or not is_dense(shape, stride):
        return None
    return sorted(range(value.dim()), key=lambda dim: (-stride[dim], dim))


def inverse(order: list[int]) -> list[int]:
    """The permutation that undoes one."""
    return sorted(range(len(order)), key=order.__getitem__)


@cache
def _drawn_by_memory() -> bool:
    """Whether `bernoulli_` on this processor fills a transposed tensor by its memory."""
    with without_modes():
        made = [torch.empty(8, 16) for _ in range(2)]
        made[0].t().bernoulli_(0.5, generator=torch.Generator().manual_seed(0))
        made[1].bernoulli_(0.5, generator=torch.Generator().manual_seed(0))
        return torch.equal(*made)


# Their CPU kernels write running statistics that the schema does not mark as written.
HIDDEN_WRITES: dict[str, tuple[int, int]] = {
    "aten::native_batch_norm": (3, 5),
    "aten::cudnn_batch_norm": (3, 5),
    "aten::miopen_batch_norm": (3, 5),
}


def is_of_numbers_alone(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operator on tensors is given numbers of Python's in place of all of them."""
    if tensors_in((args, kwargs)):
        return False
    given = zip(func._schema.arguments, args, strict=False)
    return any(type(x) in (int, float, bool, complex) and str(a.type) == "Tensor" for a, x in given)


CHECKED = frozenset({torch.Tag.core, torch.Tag.pointwise})
"""Tags of operators whose kernels check their numbers against their tensors."""


def is_refused_by_eager(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether eager's kernel refuses dtypes that a decomposition may take: it is recorded whole."""
    if is_view_op(func) or torch.Tag.nondeterministic_seeded in func.tags:
        return False
    return bool(refusal_by_eager(func, args, kwargs))


def is_real_number(literal: Any) -> bool:
    """Whether a tensor that the program makes of Python's numbers is one real number."""
    return (
        not isinstance(literal, FakeTensor)
        and literal.dim() == 0
        and literal.layout == torch.strided
        and literal.device.type == "cpu"
        and not literal.is_complex()
        and not literal.is_quantized
    )
