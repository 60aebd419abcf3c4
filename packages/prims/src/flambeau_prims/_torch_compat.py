"""Compatibility layer: every private or moving torch interface that this package uses.

In: nothing. Out: small functions with stable signatures.
Invariant: no other module of the package names an underscore attribute of torch.
Tried on torch 2.13.0 (CPU) and 2.11.0 (CPU and CUDA 13).
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload as OpOverload
from torch._ops import OpOverloadPacket as OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):
    """A mode that does not bring torch's compiler in, and hands each operation to `dispatched`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.dispatched(func, args, kwargs or {})

    def dispatched(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call; in it the mode is off."""
        raise NotImplementedError


def schema_text(op: OpOverload) -> str:
    """The schema of `op` as text, with its namespace."""
    return str(op._schema)


def is_of_onednn(dtype: torch.dtype) -> bool:
    """Whether pointwise functions of a dtype may be oneDNN's on this CPU."""
    if not torch.backends.mkldnn.is_available() or not torch._C._get_mkldnn_enabled():
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and _onednn_takes_bfloat16())


@functools.cache
def _onednn_takes_bfloat16() -> bool:
    with torch.utils._python_dispatch._disable_current_modes():  # a question to the processor
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


@functools.cache
def soft_margin_by_log1p() -> bool:
    """Whether eager's soft margin loss near 0 is more than 0, which depends on the version."""
    with torch.utils._python_dispatch._disable_current_modes():  # a question to the kernel
        loss = torch.nn.functional.soft_margin_loss(torch.tensor(30.0), torch.tensor(1.0))
        return bool(loss > 0)


def argument_names(op: OpOverload) -> tuple[tuple[str, ...], frozenset[str]]:
    """Names of all arguments of `op` in order, and which of them are keyword-only."""
    known = parameters(op)
    return tuple(p.name for p in known), frozenset(p.name for p in known if p.keyword_only)


# Types whose defaults a schema has in a coding of its own.
_CODED = ("ScalarType", "Layout", "MemoryFormat", "Device")


def argument_defaults(op: OpOverload) -> dict[str, Any]:
    """The arguments of `op` with their defaults; None where there is none, or a coded one."""
    return {
        a.name: None if any(kind in str(a.real_type) for kind in _CODED) else a.default_value
        for a in op._schema.arguments
    }


def device_of(tensor: torch.Tensor) -> torch.device:
    """The device of `tensor`; for a fake tensor the one it stands for, also inside its kernels."""
    device: torch.device = getattr(tensor, "fake_device", None) or tensor.device
    return device


def is_taken_by_onednn(dtype: torch.dtype) -> bool:
    """Whether this processor has oneDNN's convolutions in a half precision."""
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float16 and bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())


_QUESTIONS = frozenset({"aten::size", "aten::stride", "aten::storage_offset"})
"""What torch 2.11 queries of a fake tensor with symbolic sizes by way of a mode, where its own code
wants numbers; the dispatcher has no operators of these names. The answer pins the symbols."""


def reads_metadata(op: OpOverload) -> bool:
    """Whether `op` computes nothing: it reads the device, sizes or strides of a tensor."""
    return op.namespace == "prim" or op._schema.name in _QUESTIONS


def is_view_op(op: OpOverload) -> bool:
    """Whether the schema of `op` says that a result aliases an input without writing to it."""
    returns = op._schema.returns
    return any(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def is_mutable(op: OpOverload) -> bool:
    """Whether the schema of `op` says that it writes to an argument."""
    return bool(op._schema.is_mutable)


def is_composite(op: OpOverload) -> bool:
    """Whether `op` is defined by other operations, autograd included."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return bool(op.has_kernel_for_dispatch_key(key))


def make_fake(
    mode: FakeTensorMode,
    shape: Sequence[int],
    stride: Sequence[int],
    dtype: torch.dtype,
    device: torch.device,
) -> FakeTensor:
    """A FakeTensor of `mode` built directly, some ten times faster than by running an op."""
    bare = torch.empty_strided(tuple(shape), tuple(stride), dtype=dtype, device="meta")
    return FakeTensor(mode, bare, device)


def result_count(op: OpOverload) -> int:
    """How many results the schema of `op` has; an in-place one on lists has none."""
    return len(op._schema.returns)


def result_names(op: OpOverload) -> list[str]:
    """The names that the schema of `op` gives its results; of one without a name its number."""
    return [result.name or str(place) for place, result in enumerate(op._schema.returns)]


def aten_overloads() -> list[OpOverload]:
    """Every overload under `torch.ops.aten`, sorted by name; also those without any kernel."""
    names = {
        schema.name.removeprefix("aten::")
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::")
    }
    packets = [getattr(torch.ops.aten, name) for name in sorted(names)]
    return [getattr(packet, name) for packet in packets for name in packet.overloads()]


def has_dispatch(op: OpOverload) -> bool:
    """Whether the dispatcher knows `op`; the rest serve the interpreter of TorchScript alone."""
    return bool(torch._C._dispatch_has_kernel(op.name()))


@dataclass(frozen=True)
class Parameter:
    """One argument of an operator's schema; `type` as schemas spell it (`Tensor?[]`, `SymInt`)."""

    name: str
    type: str
    keyword_only: bool
    required: bool
    is_written: bool
    is_output: bool


@functools.cache
def parameters(op: OpOverload) -> tuple[Parameter, ...]:
    """The arguments of `op` in order."""
    return tuple(
        Parameter(
            name=a.name,
            type=_type_text(a),
            keyword_only=bool(a.kwarg_only),
            required=not a.has_default_value(),
            is_written=bool(a.alias_info and a.alias_info.is_write),
            is_output=bool(a.is_out),
        )
        for a in op._schema.arguments
    )


# How the JIT's types print, and how schemas spell them.
_SPELLING = {"Optional": "?", "List": "[]"}


def _type_text(argument: Any) -> str:
    text = str(argument.real_type)
    suffix = ""
    while text.partition("[")[0] in _SPELLING:
        outer, _, text = text.partition("[")
        text = text[:-1]
        suffix = _SPELLING[outer] + suffix
    text = {"number": "Scalar", "ScalarType": "dtype"}.get(text, text)
    return text + suffix


def give_symbols(mode: FakeTensorMode) -> None:
    """Let `mode` make symbols for sizes that depend on elements, if it cannot yet."""
    if mode.shape_env is None:
        # at first use: it brings sympy, which most programs do without
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        mode.shape_env = ShapeEnv()


def symbolic_mode() -> FakeTensorMode:
    """A mode that makes a symbol for each size (equal sizes share one) but 0 and 1."""
    mode = FakeTensorMode()
    give_symbols(mode)
    mode.static_shapes = False
    return mode


def expression_of(size: torch.SymInt) -> Any:
    """The sympy expression of a symbolic size."""
    return size.node.expr


def symbol_from(expression: Any, like: torch.SymInt) -> torch.SymInt | int:
    """A symbolic size for an expression over the symbols of `like`'s environment."""
    environment = like.node.shape_env
    values = getattr(environment, "backed_var_to_val", None) or environment.var_to_val
    hint = expression.xreplace(values)
    known = int(hint) if hint.is_Integer else None
    made: torch.SymInt | int = environment.create_symintnode(expression, hint=known)
    return made


def is_settled(size: Any) -> bool:
    """Whether a size is a number, or a symbol that was pinned to one by a guard."""
    return not isinstance(size, torch.SymInt) or bool(size.node.expr.is_number)


def register_fake(library: torch.library.Library, name: str, rule: Callable[..., Any]) -> None:
    """`torch.library.register_fake` without a search through all modules of the process for the
    line that it is called from, which in a large program takes longer than the registration."""
    registry = getattr(torch._library, "simple_registry", None)
    if registry is None:
        torch.library.register_fake(name, rule, lib=library)
        return
    entry = registry.singleton.find(name)
    handle = entry.fake_impl.register(rule, "flambeau_prims", lib=library)
    library._registration_handles.append(handle)


def unlogged(refusals: type[Exception]) -> None:
    """Torch does not log these errors of the rules that it runs on fake tensors: what a rule
    refuses reaches its caller."""

    def is_shown(record: logging.LogRecord) -> bool:
        kind = record.exc_info[0] if record.exc_info else None
        return kind is None or not issubclass(kind, refusals)

    logging.getLogger(FakeTensorMode.__module__).addFilter(is_shown)


def fills_uninitialized_memory() -> bool:
    """Whether torch fills the memory that `empty` and its like give, so that it is reproducible."""
    return bool(
        torch.are_deterministic_algorithms_enabled()
        and torch._C._get_deterministic_fill_uninitialized_memory()
    )


def surely(condition: Any) -> bool:
    """Whether a condition on sizes holds; no where data decides it, and nothing is assumed then."""
    if not isinstance(condition, torch.SymBool):
        return bool(condition)
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    return bool(guard_or_false(condition))


def is_less(a: Any, b: Any) -> bool:
    """Whether a step is surely less than another one, of tensors of two elements or more along each
    dimension of a size that data decide."""
    condition = a < b
    if not isinstance(condition, torch.SymBool) or surely(condition):
        return bool(condition)
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    over = (b - a).node.expr
    several = {
        symbol: 2 + type(symbol)(f"{symbol}_more", integer=True, nonnegative=True)
        for symbol in free_unbacked_symbols(over)
    }
    return bool(several and over.xreplace(several).expand().is_positive)
