"""Every private or moving piece of torch that capture touches, in one place.

In: nothing. Out: functions and names with one meaning on every torch tried: 2.11, 2.13 and 2.14.
Invariant: no other module of this package imports a name of torch that begins with an underscore.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.nn.attention
from torch.nn.modules import module as _module

from flambeau_capture._torch_fakes import new_fake_mode as new_fake_mode

T = TypeVar("T")

# -- fake tensors --------------------------------------------------------------------------------


def to_fake(mode: Any, tensor: torch.Tensor) -> torch.Tensor:
    """A fake tensor like a real one. Torch reads `.grad` for it, also where that warns: the program
    has not asked, and may have made an error of warnings."""
    if tensor.is_leaf or not tensor.requires_grad:
        fake: torch.Tensor = mode.from_tensor(tensor, static_shapes=True)
        return fake
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf")
        made: torch.Tensor = mode.from_tensor(tensor, static_shapes=True)
    return made


@functools.cache
def data_dependent_errors() -> tuple[type[Exception], ...]:
    """What the fake mode raises where a result depends on data."""
    from torch._subclasses import fake_tensor

    return (fake_tensor.DataDependentOutputException,)


@functools.cache
def dynamic_shape_errors() -> tuple[type[Exception], ...]:
    from torch._subclasses import fake_tensor

    return (fake_tensor.DynamicOutputShapeException,)


@functools.cache
def unsupported_fake_errors() -> tuple[type[Exception], ...]:
    from torch._subclasses import fake_tensor

    return (
        fake_tensor.UnsupportedFakeTensorException,
        fake_tensor.UnsupportedOperatorException,
    )


# -- state that graphs may change ----------------------------------------------------------------

set_grad_enabled = torch._C._set_grad_enabled
enter_autocast = torch.amp.autocast_mode._enter_autocast
exit_autocast = torch.amp.autocast_mode._exit_autocast
enter_inference = torch.autograd.grad_mode._enter_inference_mode
exit_inference = torch.autograd.grad_mode._exit_inference_mode
is_size = torch.Size


def labels() -> tuple[Any, ...]:
    """Context managers that name a region for profilers."""
    return (torch.profiler.record_function, torch.autograd.profiler.record_function)


@functools.cache
def device_constructors() -> frozenset[Any]:
    """Functions that make tensors on the default device."""
    from torch.utils._device import _device_constructors

    return frozenset(_device_constructors())


# -- nn.Module -----------------------------------------------------------------------------------

HOOK_TABLES: tuple[str, ...] = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)


def global_hook_tables() -> tuple[dict[int, Any], ...]:
    """The hooks that every module calls."""
    return (
        _module._global_forward_hooks,
        _module._global_forward_pre_hooks,
        _module._global_backward_hooks,
        _module._global_backward_pre_hooks,
    )


CPU_AUTOCAST: Any = getattr(torch.cpu.amp, "autocast")  # noqa: B009 - not in its __all__
SCRIPTING_QUESTIONS: tuple[Any, ...] = tuple(
    getattr(torch.jit, name) for name in ("is_scripting", "is_tracing")
)

MODULE_CALL = torch.nn.Module.__call__
MODULE_CALLS: tuple[Any, ...] = (
    torch.nn.Module.__call__,
    torch.nn.Module._wrapped_call_impl,
    torch.nn.Module._call_impl,
)
MODULE_GETATTR = torch.nn.Module.__getattr__
MODULE_SETATTR = torch.nn.Module.__setattr__

# -- families of callables -----------------------------------------------------------------------

TENSOR_BASE: type = torch._C.TensorBase


@functools.cache
def operator_namespaces() -> tuple[Any, ...]:
    """Where every callable is an operator on tensors."""
    return (
        torch._C._VariableFunctions,
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
    found = (
        getattr(torch._jit_internal, "is_scripting", None),
        getattr(torch._C, "_get_tracing_state", None) and None,
        torch.overrides.has_torch_function,
        getattr(torch._C, "_has_torch_function", None),
        getattr(torch._C, "_has_torch_function_unary", None),
        getattr(torch._C, "_has_torch_function_variadic", None),
        getattr(torch.overrides, "has_torch_function_unary", None),
        getattr(torch.overrides, "has_torch_function_variadic", None),
        getattr(torch.compiler, "is_exporting", None),
        getattr(torch._C, "_is_torch_function_enabled", None) and None,
    )
    return tuple(fn for fn in found if fn is not None)


def nothing_under_capture() -> tuple[Any, ...]:
    """Calls without effect under capture: usage logging, tracing state."""
    return (torch._C._log_api_usage_once, torch._C._get_tracing_state)


def scripted_from(fn: Any) -> Any:
    """The Python function that torch.jit.script has made a function from, where it tells."""
    return getattr(fn, "_torchdynamo_inline", None)


def hidden_from_others(fn: Any) -> Any:
    """What torch keeps another compiler from looking into, by a wrapper; None if it is none."""
    if fn.__code__.co_filename == _COMPILE_FILE:
        return getattr(fn, "__wrapped__", None)
    if fn.__qualname__ in _BOOKKEEPING and fn.__module__ == "torch._dynamo.mutation_guard":
        return fn.__closure__[0].cell_contents  # of nn.Module, once that compiler has run
    return None


_BOOKKEEPING = frozenset(
    f"install_generation_tagging_init.<locals>.{name}"
    for name in ("patched_init", "patched_setstate")
)


_COMPILE_FILE = str(Path(torch.__file__).parent / "_compile.py")


def default_torch_function() -> Any:
    """`Tensor.__torch_function__`, as the function that its class method is made of."""
    found: Any = torch.Tensor.__dict__["__torch_function__"]
    return found.__func__


SYMBOLIC_SHAPES = "torch.fx.experimental.symbolic_shapes"
is_all_true: Any = torch._is_all_true
CHECKED_BY_GRAPH = str(Path("torch", "distributions", "distribution.py"))


#: groups tensors by device and dtype; in C
GROUP_TENSORS: Any = torch._C._group_tensors_by_device_and_dtype  # type: ignore[attr-defined]
disable_torch_function_subclass: Any = torch._C.DisableTorchFunctionSubclass
disabled_torch_function: Any = torch._C._disabled_torch_function_impl


def ignores_torch_function(kind: type) -> bool:
    """Whether torch works on instances of a tensor class as on plain tensors."""
    return getattr(kind, "__torch_function__", None) is disabled_torch_function


def has_own_dispatch(kind: type) -> bool:
    """Whether a tensor class answers operators below autograd."""
    own = getattr(kind, "__torch_dispatch__", None)
    return getattr(own, "__func__", own) is not getattr(
        torch.Tensor.__torch_dispatch__, "__func__", torch.Tensor.__torch_dispatch__
    )


def plain_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """The same data as a tensor without a class of its own; gradients flow through."""
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(torch.Tensor)


@functools.cache
def results_left_plain() -> frozenset[Any]:
    """What `Tensor.__torch_function__` calls without making the result one of the subclass."""
    return frozenset(torch.overrides.get_default_nowrap_functions())


make_subclass: Any = torch.Tensor._make_subclass
FOREIGN_MARKS = frozenset(
    {"mark_static_address", "mark_static", "mark_dynamic", "maybe_mark_dynamic"}
)


def is_foreign_mark(fn: Any) -> bool:
    """Whether a function does nothing but tell another compiler something about a tensor."""
    return fn.__name__ in FOREIGN_MARKS and (fn.__module__ or "").startswith("torch._dynamo")


# -- regions and functions with bodies ------------------------------------------------------------


def conditionals() -> tuple[Any, ...]:
    """torch.cond under its other names."""
    from torch._higher_order_ops import cond

    return tuple({cond, getattr(cond, "__wrapped__", cond)})


def loops() -> tuple[Any, ...]:
    """`while_loop`."""
    from torch._higher_order_ops import while_loop

    return (while_loop,)


def associative_scans() -> tuple[Any, ...]:
    """`associative_scan`, where torch has it."""
    try:
        from torch._higher_order_ops.associative_scan import associative_scan
    except ImportError:
        return ()
    return (associative_scan,)


def function_applies() -> tuple[Any, ...]:
    """`torch.autograd.Function.apply`, as the function that its class method is made of."""
    found: Any = torch.autograd.Function.__dict__["apply"]
    return (found.__func__,)


TORCH_FOLDER = str(Path(torch.__file__).parent)


def is_foreign_break(fn: Any, caller: str) -> bool:
    """Whether a call asks another compiler for a break that torch's own code does not need here."""
    named = fn.__name__ == "graph_break" and (fn.__module__ or "").startswith("torch._dynamo")
    return named and caller.startswith(TORCH_FOLDER)


# -- what guards read ----------------------------------------------------------------------------

PLAIN_KEYS = frozenset(
    (
        "CPU",
        "CUDA",
        "Meta",
        "ADInplaceOrView",
        "AutogradCPU",
        "AutogradCUDA",
        "AutogradMeta",
        "AutocastCPU",
        "AutocastCUDA",
        "Conjugate",
        "Negative",
    )
)


def dispatch_keys(tensor: torch.Tensor) -> int:
    """The tensor's own dispatch keys, as one number."""
    keys: int = torch._C._dispatch_keys(tensor).raw_repr()
    return keys


@functools.cache
def is_plain_dense(keys: int) -> bool:
    """Whether only dense tensors of the usual devices, wrapped in nothing, have these keys."""
    text = str(torch._C.DispatchKeySet.from_raw_repr(keys))
    names = text.removeprefix("DispatchKeySet(").removesuffix(")").split(", ")
    return PLAIN_KEYS.issuperset(names)


def is_plain_strided(tensor: torch.Tensor) -> bool:
    """Whether sizes and strides are all that there is to a tensor's layout."""
    return tensor.layout is torch.strided and is_plain_dense(dispatch_keys(tensor))


def implementation_address(tensor: torch.Tensor) -> int:
    """The address of the C++ object behind a tensor."""
    address: int = tensor._cdata
    return address


def in_plain_state(function: Callable[[], T]) -> T:
    """What the function returns on a thread of its own, where no mode of torch is on: modes, and
    all that they change, are the thread's."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def dispatch_key_sets() -> tuple[int, int]:
    """Keys that this thread adds to, and takes from, those of every tensor."""
    return (
        torch._C._dispatch_tls_local_include_set().raw_repr(),
        torch._C._dispatch_tls_local_exclude_set().raw_repr(),
    )


def torch_function_state() -> int:
    """0: __torch_function__ works; 1: not for subclasses; 2: not at all."""
    if torch._C._is_torch_function_all_disabled():
        return 2
    return 0 if torch._C._is_torch_function_enabled() else 1


def torch_function_set(state: int) -> AbstractContextManager[Any]:
    """The state for the extent of a block; 0 is what it is without any."""
    if state == 0:
        return nullcontext()
    return (
        torch._C.DisableTorchFunctionSubclass() if state == 1 else torch._C.DisableTorchFunction()
    )


def torch_function_modes() -> tuple[Any, ...]:
    """The modes on this thread's stack; a default device is one, known by its device."""
    from torch.utils._device import DeviceContext

    modes = [
        torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())
    ]
    return tuple((DeviceContext, m.device) if type(m) is DeviceContext else m for m in modes)


def deterministic_algorithms() -> tuple[bool, bool]:
    return (
        torch._C._get_deterministic_algorithms(),
        torch._C._get_deterministic_algorithms_warn_only(),
    )


def library_path(name: str) -> str:
    """The file of one of torch's shared libraries."""
    return str(Path(torch.__file__).parent / "lib" / f"lib{name}.so")


# Functions without side effects that return a small number, by the name the linker knows them by:
# (library, symbol). A name that a release lacks is not an error: the state is asked from Python.
STATE_SYMBOLS: dict[str, tuple[str, str]] = {
    "grad_mode": ("c10", "_ZN3c108GradMode10is_enabledEv"),
    "inference_mode": ("c10", "_ZN3c1013InferenceMode10is_enabledEv"),
    "default_dtype": ("c10", "_ZN3c1031get_default_dtype_as_scalartypeEv"),
    "torch_function": (
        "torch_cpu",
        "_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv",
    ),
    "torch_function_modes": ("torch_cpu", "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv"),
    "autocast_enabled": (
        "torch_cpu",
        "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE",
    ),
    "autocast_dtype": ("torch_cpu", "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE"),
    "autocast_cache": ("torch_cpu", "_ZN2at8autocast25is_autocast_cache_enabledEv"),
    "context": ("torch_cpu", "_ZN2at13globalContextEv"),
    "deterministic": ("torch_cpu", "_ZNK2at7Context23deterministicAlgorithmsEv"),
    "deterministic_warn_only": (
        "torch_cpu",
        "_ZNK2at7Context31deterministicAlgorithmsWarnOnlyEv",
    ),
}
# The thread's dispatch key sets: two words.
KEY_SETS_VARIABLE = ("c10", "_ZN3c104impl26raw_local_dispatch_key_setE")


def state_questions() -> tuple[Any, ...]:
    """Questions about the build and the state of this thread, beside the public ones."""
    names = ("_is_autocast_available", "_get_privateuse1_backend_name", "_get_cudnn_enabled")
    found = [getattr(torch._C, name, None) for name in names]
    return tuple(fn for fn in found if fn is not None)


def index_operator() -> Any:
    """aten's `index`, which takes a list of tensors."""
    return torch.ops.aten.index.Tensor


def zero_under_capture() -> tuple[Any, ...]:
    """Sizes of stacks of modes: a frame with modes in force is not captured."""
    names = ("_len_torch_dispatch_stack", "_len_torch_function_stack")
    found = [getattr(torch._C, name, None) for name in names]
    return tuple(fn for fn in found if fn is not None)


# -- states in which capture does not work -------------------------------------------------------


def foreign_modes() -> bool:
    """Whether a transform of functorch, a dispatch mode or a function mode is in force."""
    functorch = torch._C._functorch.maybe_current_level() is not None
    return bool(
        functorch or torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack()
    )


def own_saved_tensors() -> AbstractContextManager[Any]:
    """Keep the hooks that the program has on saved tensors from seeing those of capture."""
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is None:
        return contextlib.nullcontext()
    return torch.autograd.graph.saved_tensors_hooks(_as_it_is, _as_it_is)


def _as_it_is(value: Any) -> Any:
    return value


# -- symbols: sizes and numbers that a graph leaves open. All of this is imported late: the shape
# -- environment brings sympy with it ------------------------------------------------------------


class _Name(str):
    """A name that is an attribute in some releases and a method in others."""

    def __call__(self) -> str:
        return str(self)


@functools.cache
def _source_class() -> type:
    from torch._guards import Source

    class Named(Source):  # type: ignore[misc]
        _flambeau_name: _Name

        def __init__(self, name: str) -> None:
            object.__setattr__(self, "_flambeau_name", _Name(name))

        @property
        def name(self) -> Any:
            return self._flambeau_name

        def __hash__(self) -> int:
            return hash(self._flambeau_name)

        def __eq__(self, other: object) -> bool:
            return type(other) is type(self) and other.name == self.name

    return Named


@functools.cache
def _environment_class() -> Any:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    class Environment(ShapeEnv):
        """One that decides nothing new once its conditions have become guards."""

        closed = False

        def _check_frozen(self, expr: Any, concrete_val: Any) -> None:
            # torch asks this before it assumes anything (2.11 to 2.14), and only logs if frozen
            if self.closed:
                raise RuntimeError(
                    f"guards are taken: {expr} cannot be assumed to be {concrete_val} any more"
                )
            super()._check_frozen(expr, concrete_val)

    return Environment


def _shape_environment(mode: Any) -> Any:
    """The environment of a fake mode; one without gets one that has sizes of inputs alone."""
    if mode.shape_env is None:
        mode.shape_env = _environment_class()(
            allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False
        )
        mode.static_shapes = False
        # what operators answered is kept for the process, and would keep every environment with it
        mode.cache_enabled = False
    return mode.shape_env


class _Quiet(logging.Filter):
    """Keeps torch from logging, traceback and all, that an operator refuses fake tensors: capture
    takes that as an answer, and the program sees torch's error when it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.asking = threading.local()

    def filter(self, record: logging.LogRecord) -> bool:
        return not getattr(self.asking, "now", False)


_quiet = _Quiet()
logging.getLogger("torch._subclasses.fake_tensor").addFilter(_quiet)


@contextlib.contextmanager
def asking() -> Iterator[None]:
    """An operator is asked what it does with fake tensors; a refusal is no news on this thread."""
    before = getattr(_quiet.asking, "now", False)
    _quiet.asking.now = True
    try:
        yield
    finally:
        _quiet.asking.now = before


def symbolic_kernels(mode: Any) -> contextlib.AbstractContextManager[Any]:
    """Operators are asked for their results by kernels that take symbols, where they have any."""
    if mode.shape_env is None:
        return contextlib.nullcontext()
    return torch._C._EnablePythonDispatcher()  # type: ignore[no-any-return]


def close_environment(mode: Any) -> None:
    """Nothing that is not known yet can be decided about the symbols of a fake mode any more."""
    if mode.shape_env is not None:
        mode.shape_env.closed = True


def reopen_environment(fake: Any) -> None:
    """The sizes of a fake tensor may be decided about again: nobody has made guards for good."""
    environment = fake.fake_mode.shape_env
    if environment is not None:
        environment.closed = False


def forget_environments() -> None:
    """Empty the tables of answers that torch keeps by environment for the life of the process."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    for method in vars(ShapeEnv).values():
        clear = getattr(method, "cache_clear", None)
        if clear is not None:
            clear()


def to_symbolic_fake(mode: Any, tensor: torch.Tensor, dims: Any) -> torch.Tensor:
    """A fake tensor whose sizes in `dims` (a mapping to bounds) are symbols."""
    from torch.fx.experimental import symbolic_shapes

    _shape_environment(mode)
    kinds = symbolic_shapes.DimDynamic
    rank = tensor.dim()
    context: Any = symbolic_shapes.StatelessSymbolicContext(
        dynamic_sizes=[kinds.DYNAMIC if i in dims else kinds.STATIC for i in range(rank)],
        constraint_sizes=[None] * rank,
    )
    fake: torch.Tensor = mode.from_tensor(tensor, static_shapes=False, symbolic_context=context)
    for dim, (least, most) in dims.items():
        size = fake.shape[dim]
        within = (least is None or least <= tensor.size(dim)) and (
            most is None or tensor.size(dim) <= most
        )
        if isinstance(size, torch.SymInt) and within and (least, most) != (None, None):
            symbolic_shapes.constrain_range(size, min=least, max=most)
    return fake


def symbolic_number(mode: Any, value: int | float, name: str) -> Any:
    """A symbol for an integer or a float."""
    from torch.fx.experimental.symbolic_shapes import DimDynamic

    environment = _shape_environment(mode)
    source = _source_class()(name)
    symbol = environment.create_unspecified_symbol(
        value, source=source, dynamic_dim=DimDynamic.DYNAMIC
    )
    make = environment.create_symintnode
    if isinstance(value, float):
        make = environment.create_symfloatnode
    return make(symbol, hint=value, source=source)


def symbolic_integer(mode: Any, symbol: Any, value: int) -> Any:
    """The integer that a symbol of a size is."""
    return mode.shape_env.create_symintnode(symbol, hint=value)


def expression(number: Any) -> Any:
    """The symbolic expression that a number was made as."""
    return number.node._expr


def hint(number: Any) -> Any:
    """The value that a symbolic number has in this capture."""
    return number.node.hint


@dataclass(frozen=True)
class ShapeConditions:
    """What an environment has assumed: conditions, symbols that equal expressions, and ranges."""

    guards: tuple[Any, ...]
    equal: tuple[tuple[Any, Any], ...]
    ranges: tuple[tuple[Any, int | None, int | None], ...]


def shape_conditions(mode: Any) -> ShapeConditions:
    """The assumptions of a fake mode's environment."""
    environment = mode.shape_env
    return ShapeConditions(
        tuple(guard.expr for guard in environment.guards),
        tuple(environment.replacements.items()),
        tuple(
            (
                symbol,
                int(bounds.lower) if bounds.lower.is_Integer else None,
                int(bounds.upper) if bounds.upper.is_Integer else None,
            )
            for symbol, bounds in environment.var_to_range.items()
        ),
    )


def same(one: Any, other: Any) -> Any:
    """The condition that two symbolic expressions are equal."""
    from torch.utils._sympy import functions  # the expressions are of its classes

    module: Any = functions
    return module.sympy.Eq(one, other)


def forget_source(filename: str) -> None:
    """Drop the source text that torch.fx keeps of a generated function, for the debugger's sake."""
    from torch.fx import graph_module

    graph_module._loader.eval_cache.pop(filename, None)
    linecache.cache.pop(filename, None)


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
