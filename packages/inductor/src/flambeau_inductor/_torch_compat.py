"""Compatibility layer: every private or moving torch interface that this package uses."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch._ops import OpOverload as OpOverload
from torch.multiprocessing.reductions import StorageWeakRef

encoder_layer: Callable[..., torch.Tensor] = torch._transformer_encoder_layer_fwd
"""What `nn.TransformerEncoderLayer` calls where gradients are off."""


def without_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a zero tensor, which has elements and no storage."""
    return tensor._is_zerotensor()


def in_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or its elements in memory where they are not what its memory holds: zeros without
    any, and what is to be conjugated or negated when it is read."""
    if without_memory(tensor):
        return torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    return tensor.resolve_conj().resolve_neg()


def products_tf32() -> bool:
    """Whether products of float32 matrices on a GPU may be computed as TF32, whichever way the
    caller said so: reading the older settings raises where the newer ones were made."""
    return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")


def convolutions_tf32() -> bool:
    """The same of convolutions, which may be by default."""
    precision = torch.backends.cudnn.conv.fp32_precision  # type: ignore[attr-defined]
    return bool(precision == "tf32")


set_grad_mode = torch._C._set_grad_enabled
"""Called with a bool."""


def current_device() -> int:
    """Index of the current CUDA device; the driver has been started."""
    return int(torch._C._cuda_getDevice())


def current_raw_stream(device: int) -> int:
    """Handle of torch's current CUDA stream on `device`."""
    return int(torch._C._cuda_getCurrentRawStream(device))


Addresses = Callable[[list[Any], list[int], list[int]], bool]


def _lie_at(tensors: list[Any], addresses: list[int], places: list[int]) -> bool:
    return all(tensors[place].data_ptr() == addresses[place] for place in places)


lie_at: Addresses = getattr(torch._C, "_tensors_data_ptrs_at_indices_equal", _lie_at)
"""Whether the tensors at these places lie at the addresses there: one call in builds for GPUs."""


def storage_handle(tensor: torch.Tensor) -> int:
    """What `storage_users` knows the memory of `tensor` by, for as long as the tensor lives."""
    return handle_of_storage(tensor.untyped_storage())


def handle_of_storage(storage: torch.UntypedStorage) -> int:
    """What `storage_users` knows this memory by, for as long as the storage lives."""
    return int(storage._cdata)


storage_users: Callable[[int], int] = torch._C._storage_Use_Count
"""How many references there are to the memory of a tensor, by its handle."""


def weak_storage(tensor: torch.Tensor) -> Any:
    """Something whose `cdata` is the tensor's `storage_handle`, and nobody else's while it lives;
    it keeps no memory."""
    return StorageWeakRef(tensor.untyped_storage())


def writes(op: OpOverload) -> bool:
    """Whether the schema says that the operator writes to an argument."""
    return bool(op._schema.is_mutable)


def may_alias(op: OpOverload) -> bool:
    """Whether a result may share memory with an argument: the schema says so, or it is a wait,
    which gives back its argument and does not say so."""
    return any(r.alias_info is not None for r in op._schema.returns) or str(op) == WAIT


def argument_names(op: OpOverload) -> list[str]:
    """Names of the arguments, in order."""
    return [a.name for a in op._schema.arguments]


def out_names(op: OpOverload) -> list[str]:
    """Names of the keyword arguments into which an out overload writes, in order."""
    return [a.name for a in op._schema.arguments if a.is_out]


COLLECTIVES = "_c10d_functional"
"""Where torch's operators are in which other processes take part, and their derivatives."""


WAIT = f"{COLLECTIVES}.wait_tensor.default"
"""The end of a collective: after it, its result may be read, and what it was given written to."""


def communicating(op: OpOverload) -> Callable[..., Any]:
    """A collective, or its wait, without what autograd records of it in Python: what is compiled is
    differentiated already."""
    below = torch._C._AutoDispatchBelowAutograd

    def call(*args: Any, **kwargs: Any) -> Any:
        with below():
            return op(*args, **kwargs)

    return call


def has_effect(op: OpOverload) -> bool:
    """Whether a call matters though nobody uses its result: it draws random numbers, checks, or
    communicates."""
    random = torch.Tag.nondeterministic_seeded in op.tags
    return not op._schema.returns or random or op.namespace.startswith(COLLECTIVES)


def overload_of(target: str) -> OpOverload:
    """The overload object of `aten.mm.out`; raises `LookupError` if there is none."""
    try:
        namespace, name, overload = target.split(".")
        if namespace == "flambeau_prims":  # a program from the disk may be the first to ask for one
            import_module("flambeau_prims")
        found: OpOverload = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    except (ValueError, AttributeError) as error:
        raise LookupError(f"there is no operator {target}") from error
    return found


def onednn_linear() -> OpOverload | None:
    """oneDNN's linear map of dense tensors; None where torch has none, or it is switched off."""
    found = _of_onednn("_linear_pointwise")
    return found[0] if found else None


def onednn_packed_linear() -> tuple[OpOverload, OpOverload] | None:
    """oneDNN's linear map with a packed weight, and what packs one; None as above."""
    found = _of_onednn("_linear_pointwise", "_reorder_linear_weight")
    return (found[0], found[1]) if found else None


def onednn_convolution() -> tuple[OpOverload, OpOverload] | None:
    """oneDNN's convolution with a packed weight, and what packs one; None as above."""
    found = _of_onednn("_convolution_pointwise", "_reorder_convolution_weight")
    return (found[0], found[1]) if found else None


def convolved_by_onednn(
    image: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *geometry: Any
) -> bool:
    """Whether torch, with as many threads as now, leaves this convolution to oneDNN: of this
    stride, padding, dilation and number of groups."""
    stride, padding, dilation, groups = geometry
    size = None if bias is None else list(bias.shape)
    chosen = torch._C._select_conv_backend(
        image, weight, bias, stride, padding, dilation, False, [0] * len(stride), groups, size
    )
    return "mkldnn" in str(chosen).lower()


def _of_onednn(*names: str) -> list[OpOverload]:
    """Operators of oneDNN; none of them where one is missing, or the library is switched off."""
    if not torch.backends.mkldnn.is_available() or not torch.backends.mkldnn.enabled:
        return []
    try:
        return [overload_of(f"mkldnn.{name}.default") for name in names]
    except LookupError:
        return []


def returns_sequence(op: OpOverload) -> bool:
    """Whether a call gives a tuple or a list of results rather than one tensor."""
    returns = op._schema.returns
    return len(returns) != 1 or "List" in str(returns[0].type) or "[]" in str(returns[0].type)


# -- symbolic sizes --------------------------------------------------------------------------------


def expression_of(number: Any) -> Any:
    """The sympy expression of a symbolic number, with what its environment has learnt since."""
    return number.node.expr


def own_expression(number: Any) -> Any:
    """The expression that a symbolic number was made with, whatever was learnt since."""
    return number.node._expr


def depends_on_data(number: Any) -> bool:
    """Whether a number is a symbolic integer with symbols that have no value in this compile."""
    if not isinstance(number, torch.SymInt):
        return False
    return not number.node.expr.free_symbols <= values_of(number.node.shape_env).keys()


def known_of_symbol(symbol: Any, like: Any) -> tuple[int | None, int | None, int | None]:
    """The value that a symbol has in this compile (None: it depends on data), and its range (None:
    no such end)."""
    environment = like.node.shape_env
    value = values_of(environment).get(symbol)
    ranges = environment.var_to_range[symbol]
    low = int(ranges.lower) if ranges.lower.is_Integer else None
    high = int(ranges.upper) if ranges.upper.is_Integer else None
    return (None if value is None else int(value)), low, high


def equal_always(a: Any, b: Any) -> bool:
    """Whether two sizes are one number or one expression; nothing is assumed."""
    if isinstance(a, int) or isinstance(b, int):
        return isinstance(a, int) and isinstance(b, int) and a == b
    return bool(expression_of(a) == expression_of(b))


def symbolic_integer(symbol: Any, value: int | None, like: Any) -> Any:
    """A symbol as a number of the environment that `like` belongs to."""
    return like.node.shape_env.create_symintnode(symbol, hint=value)


def values_of(environment: Any) -> Any:
    """The values of symbols in this compile; 2.13 has another name for them than 2.11."""
    name = "backed_var_to_val" if hasattr(environment, "backed_var_to_val") else "var_to_val"
    return getattr(environment, name)
