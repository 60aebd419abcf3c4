"""Families of torch callables: operators, constant queries, labels, higher-order operators.

In: nothing. Out: torch's callables. Invariant: a name that a release lacks is left out. Tried on
torch 2.11, 2.13 and 2.14.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import torch
import torch.nn.attention
from torch.utils._pytree import tree_leaves

from flambeau_capture._torch_compat import state


def labels() -> tuple[Any, ...]:
    """Context managers that name a region for profilers."""
    return (torch.profiler.record_function, torch.autograd.profiler.record_function)


#: where torch says whether a profiler records: a module, and its variable
PROFILING = (torch.autograd.profiler, "_is_profiler_enabled")


@functools.cache
def device_constructors() -> frozenset[Any]:
    """Functions that make tensors on the default device."""
    from torch.utils._device import _device_constructors

    return frozenset(_device_constructors())


CPU_AUTOCAST: Any = getattr(torch.cpu.amp, "autocast")  # noqa: B009 - not in its __all__
SCRIPTING_QUESTIONS: tuple[Any, ...] = tuple(
    getattr(torch.jit, name) for name in ("is_scripting", "is_tracing")
)

#: whether a transform of functorch is at work; and what `torch.jit.isinstance` calls
TRANSFORMED: Any = torch._C._are_functorch_transforms_active
SCRIPTED_ISINSTANCE: Any = torch._jit_internal._isinstance

#: what an optimizer reads the numbers of its state by
READS_STATE: Any = vars(sys.modules[torch.optim.Optimizer.__module__])["_get_value"]
TENSOR_BASE: type = torch._C.TensorBase


@functools.cache
def operator_namespaces() -> tuple[Any, ...]:
    """Where every callable is an operator on tensors."""
    return (
        torch._C._VariableFunctions,
        vars(torch._C)["_sparse"],
        torch._C._nn,
        *(getattr(torch._C, name) for name in ("_special", "_linalg", "_fft")),
        torch.nn.functional,
        torch.functional,
        torch.special,
        torch.linalg,
        torch.fft,
    )


def never_under_capture() -> tuple[Any, ...]:
    """Questions whose answer under capture is no."""
    own = ("_has_torch_function", "_has_torch_function_unary", "_has_torch_function_variadic")
    public = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
    return (
        *_named(torch._jit_internal, "is_scripting"),
        *_named(torch._C, *own),
        *_named(torch.overrides, *public),
        *_named(torch.compiler, "is_exporting"),
        *_named(torch._C, "_is_tracing"),
    )


def nothing_under_capture() -> tuple[Any, ...]:
    """Calls without effect under capture: usage logging, tracing state."""
    return (torch._C._log_api_usage_once, torch._C._get_tracing_state)


def build_questions() -> tuple[Any, ...]:
    """Queries of the build and of the machine that are not public, or not in every build."""
    return _of_each(_BUILD)


def switch_questions() -> tuple[Any, ...]:
    """Queries of switches of the process that are not public, or not in every build."""
    return _of_each(_SWITCHES)


_BUILD: dict[Any, tuple[str, ...]] = {
    torch._C: ("_is_autocast_available", "_get_privateuse1_backend_name", "_get_cpu_capability"),
    torch.distributed: (
        "is_nccl_available", "is_gloo_available", "is_mpi_available", "is_ucc_available",
    ),
    torch.accelerator: ("is_available", "current_accelerator", "device_count"),
    torch.cuda: ("is_bf16_supported", "is_tf32_supported"),
    torch.profiler.itt: ("is_available",),
}  # fmt: skip

_SWITCHES: dict[Any, tuple[str, ...]] = {
    torch._C: (
        "_get_cudnn_enabled", "_get_cudnn_benchmark", "_get_cudnn_deterministic",
        "_get_cudnn_allow_tf32", "_get_cublas_allow_tf32", "_get_mkldnn_enabled",
        "_get_cublas_allow_fp16_reduced_precision_reduction", "_get_default_device",
        "_get_cublas_allow_bf16_reduced_precision_reduction", "_get_warnAlways",
        "_get_deterministic_fill_uninitialized_memory",
    ),
    torch._C._autograd: ("_saved_tensors_hooks_is_enabled", "_profiler_enabled"),
    torch.distributed: ("is_initialized", "is_torchelastic_launched"),
    torch.fx._symbolic_trace: ("is_fx_tracing", "is_fx_symbolic_tracing"),
}  # fmt: skip


def _of_each(table: dict[Any, tuple[str, ...]]) -> tuple[Any, ...]:
    return tuple(query for owner, names in table.items() for query in _named(owner, *names))


def _named(owner: Any, *names: str) -> tuple[Any, ...]:
    return tuple(getattr(owner, name) for name in names if hasattr(owner, name))


def index_operator() -> Any:
    """aten's `index`, which takes a list of tensors."""
    return torch.ops.aten.index.Tensor


def zero_under_capture() -> tuple[Any, ...]:
    """The size of the stack of dispatch modes: a frame with any in force is not captured."""
    return _named(torch._C, "_len_torch_dispatch_stack")


def mode_questions() -> tuple[Any, ...]:
    """Whether function modes are in force, of which a default device is one."""
    return _named(torch._C, "_is_torch_function_mode_enabled")


SYMBOLIC_SHAPES = "torch.fx.experimental.symbolic_shapes"
is_all_true: Any = torch._is_all_true
#: checks of all elements of a tensor; the second takes the class of the error first
CHECK_ALL: Any = torch._check_tensor_all
CHECK_ALL_WITH: Any = torch._check_tensor_all_with
CHECKED_BY_GRAPH = str(Path("torch", "distributions", "distribution.py"))


#: groups tensors by device and dtype; in C
#: operators on lists that take a number for each tensor, or one tensor of numbers
WITH_SCALARS: dict[str, Any] = {
    fn.__name__: fn
    for fn in (
        torch._foreach_addcdiv,
        torch._foreach_addcdiv_,
        torch._foreach_addcmul,
        torch._foreach_addcmul_,
    )
}
GROUP_TENSORS: Any = torch._C._group_tensors_by_device_and_dtype  # type: ignore[attr-defined]


def conditionals() -> tuple[Any, ...]:
    """torch.cond under its other names."""
    from torch._higher_order_ops import cond

    return tuple({cond, getattr(cond, "__wrapped__", cond)})


def attention() -> Any:
    """What `flex_attention` calls."""
    from torch._higher_order_ops.flex_attention import flex_attention

    return flex_attention


def loops() -> tuple[Any, ...]:
    """`while_loop`."""
    from torch._higher_order_ops import while_loop

    return (while_loop,)


def loops_over_slices() -> tuple[Any, ...]:
    """`associative_scan`, `map`, `scan`."""
    from torch import _higher_order_ops as operators

    return operators.associative_scan, operators.map, operators.scan


def wrappers() -> tuple[Any, ...]:
    """Operators that call a function: as it is, with a grad mode, under autocast."""
    from torch._higher_order_ops import wrap

    return wrap.wrap, wrap.wrap_with_set_grad_enabled, wrap.wrap_with_autocast


def result_types() -> tuple[type, ...]:
    """The classes of results that have names for their items."""
    found = vars(torch.return_types).values()
    return tuple(each for each in found if hasattr(each, "n_sequence_fields"))


def older_autocast_queries() -> tuple[Any, ...]:
    """Deprecated queries of autocast, which name a device each."""
    return _named(
        torch, "is_autocast_cpu_enabled", "get_autocast_gpu_dtype", "get_autocast_cpu_dtype"
    )


def function_applies() -> tuple[Any, ...]:
    """`torch.autograd.Function.apply`, as the function that its class method is made of."""
    found: Any = torch.autograd.Function.__dict__["apply"]
    return (found.__func__,)


def _nothing(ctx: Any) -> None:
    """What `once_differentiable` marks, to know its mark."""


_ONCE = torch.autograd.function.once_differentiable(_nothing).__code__


def is_once_differentiable(method: Any) -> bool:
    """Whether a backward, or what it wraps, is marked with `once_differentiable`."""
    function = getattr(method, "__func__", method)
    while function is not None:
        if getattr(function, "__code__", None) is _ONCE:
            return True
        function = getattr(function, "__wrapped__", None)
    return False


def is_default_generator(generator: torch.Generator) -> bool:
    """Whether it is what functions without a generator draw from, on its device."""
    if generator is torch.default_generator:
        return True
    return generator.device.type == "cuda" and any(
        generator is each for each in torch.cuda.default_generators
    )


@functools.cache
def schemas_of(name: str) -> tuple[Any, ...]:
    """The schemas of all forms of one of aten's operators; none where there is no such operator."""
    return tuple(torch._C._jit_get_schemas_for_operator(f"aten::{name}"))


def library_operator(target: Any) -> str | None:
    """The name, as `library::name`, of an operator that is not torch's own; None for all else."""
    if isinstance(target, torch._ops.OpOverload):
        name = target._schema.name
    elif isinstance(target, torch._ops.OpOverloadPacket):
        name = str(target._qualified_op_name)
    else:
        return None
    return None if name.startswith(("aten::", "prims::", "prim::")) else name


def registered_kernels() -> set[str]:
    """What Python has registered with `torch.library`, as `library/name.overload/key`: a set that
    torch keeps up to date."""
    return torch.library._impls


def kernels_among(registered: set[str], name: str) -> frozenset[str]:
    """Those of one operator and all its overloads."""
    stem = name.replace("::", "/")
    return frozenset(each for each in registered if each.startswith((f"{stem}/", f"{stem}.")))


def derivative_of(name: str) -> tuple[Any, ...]:
    """An operator that `torch.library.custom_op` made, and its derivative; empty for others."""
    try:
        from torch._library.custom_ops import OPDEFS  # not a module of every torch
    except ImportError:
        return ()
    found = OPDEFS.get(name)
    return () if found is None else (found, found._backward_fn, found._setup_context_fn)


def without_fake(target: Any) -> str | None:
    """The name of an operator of the program's that says nothing of its results; None: another."""
    name = library_operator(target)
    if name is None or with_fake(target) is not None:
        return None
    if derivative_of(name):
        return name
    if isinstance(target, torch._ops.OpOverloadPacket):
        target = getattr(target, target.overloads()[0])
    keys = ("Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
    if any(torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), key) for key in keys):
        return None
    return name


def with_fake(target: Any) -> str | None:
    """The name of an operator whose fake is a Python function of the program's; None: another."""
    name = library_operator(target)
    made = () if name is None else derivative_of(name)
    if name is None or made:
        return name if made and made[0]._abstract_fn is not None else None
    registry = getattr(torch._library, "simple_registry", None)
    known = None if registry is None else registry.singleton.find(name).fake_impl.kernel
    return None if known is None else name


def as_its_schema(operator: torch._ops.OpOverload, result: Any) -> bool:
    """Whether a result is as many values, and of the kinds, as the operator's schema says."""
    kinds = [str(one.type) for one in operator._schema.returns]
    found = result if len(kinds) > 1 else (result,) if kinds else ()
    if not isinstance(found, tuple | list) or len(found) != len(kinds):
        return False
    return all(map(_is_of_kind, found, kinds)) and (bool(kinds) or result is None)


def _is_of_kind(value: Any, kind: str) -> bool:
    if kind == "Tensor":
        return isinstance(value, torch.Tensor)
    if kind == "List[Tensor]":
        return isinstance(value, tuple | list) and all(_is_of_kind(x, "Tensor") for x in value)
    if kind in ("int", "float", "bool"):  # one that the fake knows would be a constant of the graph
        return type(value) not in (int, float, bool, type(None))
    return value is not None or kind.startswith("Optional")


def is_new(operator: torch._ops.OpOverload, given: Any, result: Any) -> bool:
    """Whether a result has memory of its own where the schema says so, on a device with memory."""
    found = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
    if any(x.device.type == "meta" for x in found):
        return False
    if any(one.alias_info is not None for one in operator._schema.returns):
        return True
    plain = [x for x in tree_leaves(given) if isinstance(x, torch.Tensor)]
    taken = {x.untyped_storage()._cdata for x in plain if x.layout is torch.strided}
    return all(x.untyped_storage()._cdata not in taken for x in found if x.layout is torch.strided)


SDP_BACKEND: Any = torch.nn.attention.SDPBackend


def _sdpa_kernel(backends: Any, set_priority: bool = False) -> Any:
    """`torch.nn.attention.sdpa_kernel`, with the backends by name."""
    chosen = [getattr(SDP_BACKEND, name) for name in backends]
    return torch.nn.attention.sdpa_kernel(chosen, set_priority)


# Context managers that choose torch's kernels: what the program calls, and the same on plain data.
CHOICES: dict[str, tuple[Any, Any]] = {
    "sdpa_kernel": (torch.nn.attention.sdpa_kernel, _sdpa_kernel),
    "cudnn.flags": (torch.backends.cudnn.flags, torch.backends.cudnn.flags),
}


def plain_choice(value: Any) -> Any:
    """An argument of one of them as a graph can hold it."""
    if isinstance(value, SDP_BACKEND):
        return (value.name,)
    if isinstance(value, list | tuple):
        return tuple(name for one in value for name in plain_choice(one))
    return value


def enter_choice(name: str, arguments: tuple[Any, ...]) -> Any:
    """Begin one: what the graph calls."""
    made = CHOICES[name][1](*arguments)
    made.__enter__()
    return made


def exit_choice(entered: Any) -> None:
    entered.__exit__(None, None, None)


#: what a graph calls to enter and to leave a mode
MODE_CALLS = frozenset(
    {
        state.set_grad_enabled, state.enter_autocast, state.exit_autocast, state.enter_inference,
        state.exit_inference, enter_choice, exit_choice,
    }
)  # fmt: skip
