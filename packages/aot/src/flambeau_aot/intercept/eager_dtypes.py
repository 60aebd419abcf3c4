"""Dtypes that eager's own kernel refuses, found by a call of it on a few elements.

In: a torch function or an operator, its arguments. Out: eager's words where it refuses them.
Invariant: only the dtypes are judged: the kernel is run on a few ones of the same dtypes and
numbers of dimensions, and its error counts where other dtypes, or the call without `out=`, meet
none. Nothing of the run stays: no random numbers, no warning, nor the mark that it was given.

Determinism alerts that eager raises under `use_deterministic_algorithms`. In: an operator with its
arguments. Out: whether eager's kernel alerts. Invariant: the table is what torch documents of that
function; where an operator may be nondeterministic on a GPU alone, a tensor on a CPU is no cause.
Source: the documentation of `torch.use_deterministic_algorithms`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from flambeau_aot._torch_compat import is_aten, outside_tracing
from flambeau_aot.joint.nested import map_leaves, tensors_in

_EVERYWHERE = "can't be cast to the desired output type"
_BY_KERNEL = "not implemented for '"
_ASKED: dict[Any, str] = {}
_MOST = 4096
"""So many answers are remembered, the oldest forgotten first."""
_SMALL = range(-8, 9)
"""Whole numbers that may be a choice (a dimension, a reduction, an exponent): each its own kind."""


def refusal_by_eager(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """What eager says of a call whose dtypes it refuses; empty where it takes them.

    Of pointwise operators and products a GPU's kernels are called where it is in use; those for a
    CPU say nothing of other devices', but for how operands are promoted. Those of derivatives are
    not: they take their numbers to be of the tensors that the forward was given, and would read
    beyond small ones. The forward was checked. Nor is an operator beyond ATen: what else it does (a
    collective, a program's print) would be done once too often.
    """
    tensors = tensors_in((args, kwargs))
    if not tensors or "_backward" in getattr(func, "__name__", "") or not is_aten(func):
        return ""
    if func is torch.ops.aten.mkldnn_rnn_layer.default:
        return ""  # it takes sizes from its numbers, and reads past the end of smaller tensors
    gpu = _in_use({x.device.type for x in tensors})
    key: Any = []
    map_leaves((args, kwargs), lambda leaf: key.append(_key(leaf)))
    try:
        key = func, len(args), tuple(kwargs), tuple(key), gpu
        words = _ASKED.get(key)
    except TypeError:
        return ""  # an argument without a hash, of which nothing is known
    if words is None:
        if gpu and torch.cuda.is_current_stream_capturing():
            return ""  # what the question runs would be recorded
        words = _ask(func, args, kwargs, tensors, gpu)
        while len(_ASKED) >= _MOST:
            _ASKED.pop(next(iter(_ASKED)), None)
        _ASKED[key] = words
    return words


def _key(leaf: Any) -> Any:
    """What a kernel's choice of dtypes depends on: of a number its kind, see `_kind`."""
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype, leaf.dim(), leaf.device.type
    if isinstance(leaf, torch.SymInt | torch.SymFloat):
        return type(leaf)
    return type(leaf), _kind(leaf) if type(leaf) in (int, float) else leaf


def _kind(number: float) -> Any:
    """Numbers of one kind are taken, or refused, by the same dtypes: they have one sign, the same
    dtypes hold them, and in the same ones they come round to 0."""
    if number in _SMALL or not math.isfinite(number):
        return str(number)
    below = int(number) if number >= 0 else -int(number) - 1
    zero = sum(int(number) % 2**bits == 0 for bits in (8, 16, 32, 64))
    return number >= 0, below.bit_length(), number == int(number), zero


def _in_use(devices: set[str]) -> bool:
    """Whether these are of a GPU that the process has begun to use: fake tensors begin no use."""
    return devices <= {"cpu", "cuda"} and "cuda" in devices and torch.cuda.is_initialized()


_PRODUCTS = frozenset({
    "mm", "bmm", "addmm", "baddbmm", "addbmm", "addmv", "addr", "mv", "dot", "vdot", "ger", "outer",
})  # fmt: skip


def _only_computes(func: Any) -> bool:
    """Whether no element decides where memory is touched, nor whether a kernel goes on. One that
    stops ends the process's use of a GPU: a mask of more elements than its source, a pivot of 0."""
    pointwise = isinstance(func, torch._ops.OpOverload) and torch.Tag.pointwise in func.tags
    return pointwise or getattr(func, "__name__", "").partition(".")[0].rstrip("_") in _PRODUCTS


def _ask(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[torch.Tensor], gpu: bool
) -> str:
    if any(isinstance(x, torch.Generator) for x in (*args, *kwargs.values())):
        return ""
    always = torch.is_warn_always_enabled()
    try:
        torch.set_warn_always(True)  # else what is said once is said here
        with (
            outside_tracing(), torch.no_grad(), warnings.catch_warnings(),
            torch.random.fork_rng(devices=[], enabled=not isinstance(func, torch._ops.OpOverload)),
        ):  # fmt: skip
            warnings.simplefilter("ignore")
            # float32 all devices take, or none: a first call of a GPU's kernel costs more
            of_gpu = gpu and _only_computes(func)
            there = of_gpu and any(x.dtype != torch.float32 for x in tensors)
            words = _error(func, args, kwargs, lambda dtype: dtype, there)
            if not words or _EVERYWHERE in words or any(x.device.type != "cpu" for x in tensors):
                return words if _EVERYWHERE in words or (of_gpu and _BY_KERNEL in words) else ""
            others = _others(func, args, kwargs)
            taken = _BY_KERNEL in words or any(not _error(*call) for call in others)
            return words if taken else ""
    finally:
        torch.set_warn_always(always)


_Change = Callable[[torch.dtype], torch.dtype]


def _others(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """The same call of other dtypes: one that succeeds shows that only they were refused."""
    if "out" in kwargs:
        rest = {n: x for n, x in kwargs.items() if n != "out"}
        for zeros in (False, True):  # an index into a number is 0
            yield func, args, rest, lambda dtype: dtype, zeros
    yield func, args, kwargs, lambda dtype: torch.float32
    yield func, args, kwargs, lambda dtype: torch.bool
    yield func, args, kwargs, lambda dtype: torch.complex64  # for a complex number
    # a mask is not to become an index
    yield func, args, kwargs, lambda dtype: dtype if dtype is torch.bool else torch.int64
    yield (
        func,
        args,
        kwargs,
        lambda dtype: torch.float32 if dtype.is_floating_point or dtype.is_complex else dtype,
    )


def _error(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], change: _Change, there: bool = False
) -> str:
    """The words of the error that a call of small tensors raises, its dtypes changed so. there:
    they are on the devices of the arguments, where a position that is none would end the process:
    integers are 0. Sizes are as large as a small number that may be one; matrices have a
    factorization."""
    numbers: list[Any] = [2]
    map_leaves((args, kwargs), numbers.append)
    side = max(n for n in numbers if type(n) is int and n in _SMALL)

    def small(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            whole = leaf.dtype != torch.bool and not leaf.is_floating_point()
            made = torch.zeros if there and whole else torch.ones
            device = leaf.device.type if there else "cpu"
            size = (side if leaf.dim() < 6 else 2,) * leaf.dim()
            tensor = made(size, dtype=change(leaf.dtype), device=device)
            matrices = not whole and leaf.dtype != torch.bool and leaf.dim() > 1
            return tensor.tril().triu() if matrices else tensor
        if isinstance(leaf, torch.SymInt | torch.SymFloat):
            return 2 if isinstance(leaf, torch.SymInt) else 2.0
        if isinstance(leaf, torch.device):
            return leaf if there else torch.device("cpu")
        return change(leaf) if isinstance(leaf, torch.dtype) else leaf

    try:
        func(*map_leaves(args, small), **map_leaves(kwargs, small))
    except Exception as error:
        return str(error) or type(error).__name__
    return ""


_When = Callable[[Mapping[str, Any]], bool]
"""From the arguments, by name, to whether the call alerts."""


def _always(given: Mapping[str, Any]) -> bool:
    return True


def _of_fractions(given: Mapping[str, Any]) -> bool:
    return bool(given["self"].is_floating_point() or given["self"].is_complex())


_ANYWHERE: dict[str, _When] = {
    "aten::put": lambda given: not given.get("accumulate", False),
    "aten::max_unpool2d": _always,
    "aten::max_unpool3d": _always,
}
_BACKWARDS = (
    "avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d max_pool3d_with_indices "
    "adaptive_max_pool2d fractional_max_pool2d fractional_max_pool3d upsample_linear1d "
    "upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d reflection_pad1d "
    "reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d "
    "grid_sampler_2d grid_sampler_3d _ctc_loss"
)
_ON_GPU: dict[str, _When] = {
    **dict.fromkeys((f"aten::{name}_backward" for name in _BACKWARDS.split()), _always),
    **dict.fromkeys(("aten::put", "aten::histc", "aten::kthvalue"), _always),
    "aten::bincount": lambda given: given.get("weights") is not None,
    "aten::scatter_reduce": lambda given: given.get("reduce") == "prod",
    "aten::cumsum": _of_fractions,
}
"""Of operators that alert on CUDA alone."""


def alerts(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether eager's kernel of this call says that it has no deterministic implementation."""
    name = func._schema.name
    if name not in _ANYWHERE and name not in _ON_GPU:
        return False
    given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | {**kwargs}
    devices = (getattr(x, "fake_device", x.device) for x in tensors_in((args, kwargs)))
    on_gpu = any(device.type == "cuda" for device in devices)
    asked = (_ON_GPU if on_gpu else _ANYWHERE).get(name) or _ANYWHERE.get(name)
    return asked is not None and asked(given)
