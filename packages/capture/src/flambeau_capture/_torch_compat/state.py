"""Thread and tensor state that guards examine and graphs may change.

In: a tensor, or nothing. Out: plain data, and the functions that set it. Invariant: a question has
no side effect. Tried on torch 2.11, 2.13 and 2.14.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _pop_mode

T = TypeVar("T")

set_grad_enabled = torch._C._set_grad_enabled
enter_autocast = torch.amp.autocast_mode._enter_autocast
exit_autocast = torch.amp.autocast_mode._exit_autocast
# a context in which autocast sees no operator, unless it is entered inside
without_autocast = torch._C._DisableAutocast
# what a `torch.autocast` object was made of, in the order of its arguments
AUTOCAST_SETTINGS = ("device", "fast_dtype", "_enabled", "_cache_enabled")
enter_inference = torch.autograd.grad_mode._enter_inference_mode
exit_inference = torch.autograd.grad_mode._exit_inference_mode

_DEVICES = ("CPU", "CUDA", "Meta")
PLAIN_KEYS = frozenset(_DEVICES).union(
    (f"Autograd{device}" for device in _DEVICES),
    ("AutocastCPU", "AutocastCUDA", "ADInplaceOrView", "Conjugate", "Negative"),
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


def same_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors, of data or fake ones, are over the same storage."""
    if one is other:
        return True
    try:
        return bool(one.untyped_storage()._cdata == other.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):  # sparse tensors and the like have none
        return False


def implementation_address(tensor: torch.Tensor) -> int:
    """The address of a tensor's C++ object."""
    address: int = tensor._cdata
    return address


def in_plain_state(function: Callable[[], T]) -> T:
    """What the function returns on a thread of its own, where no mode of torch is on: modes, and
    all that they change, are the thread's."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def leave_modes(error: BaseException) -> None:
    """Leave, last first, the modes that the code of a graph had entered where this was raised."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        held: dict[Any, Any] = {**frame.f_locals}
        if not frame.f_code.co_filename.startswith(_GRAPH_FILES):
            runs = held.get("self")
            held = runs.env if isinstance(runs, torch.fx.Interpreter) else {}
        for mode in reversed([*held.values()]):
            if isinstance(mode, _MODES):
                mode.__exit__(None, None, None)
        held.clear()  # one that is run by its nodes has several frames


_GRAPH_FILES = "<eval_with_key>"
_MODES = (torch.autocast, torch._C._InferenceMode, contextlib._GeneratorContextManager)


def dispatch_key_sets() -> tuple[int, int]:
    """Keys that this thread adds to, and takes from, those of every tensor."""
    return (
        torch._C._dispatch_tls_local_include_set().raw_repr(),
        torch._C._dispatch_tls_local_exclude_set().raw_repr(),
    )


def end_guards(error: BaseException, traced: bool = True) -> None:
    """End what the frames of a failed operator hold. Torch keeps guards of the thread's dispatch
    keys in local variables, and a guard sets the keys to what they were at its own beginning: one
    that ends with the error, later, would leave the thread within a transform that is over.
    traced: whether the error and its causes still lead to their frames, and so to the callers'.
    An error that a caller is handling, while which this one was raised, is the caller's."""
    errors: list[BaseException | None] = [error]
    callers, frame = set(), getattr(_caught_in(error), "f_back", None)
    while frame is not None:
        callers.add(frame)
        frame = frame.f_back
    included = torch._C._dispatch_tls_local_include_set()
    excluded = torch._C._dispatch_tls_local_exclude_set()
    with torch._C._ForceDispatchKeyGuard(included, excluded):
        for each in errors:
            if each is None or _caught_in(each) in callers:
                continue
            traceback.clear_frames(each.__traceback__)
            each.__traceback__ = each.__traceback__ if traced else None
            errors += [e for e in (each.__cause__, each.__context__) if e not in errors]


def _caught_in(error: BaseException) -> Any:
    """The frame, the last that the error has come to, that handles it."""
    return getattr(error.__traceback__, "tb_frame", None)


def torch_function_state() -> int:
    """0: __torch_function__ works; 1: not for subclasses; 2: not at all."""
    if torch._C._is_torch_function_all_disabled():
        return 2
    return 0 if torch._C._is_torch_function_enabled() else 1


def torch_function_set(state: int) -> AbstractContextManager[Any]:
    """The state for the extent of a block; 0 is what it is without any."""
    subclass, whole = torch._C.DisableTorchFunctionSubclass, torch._C.DisableTorchFunction
    return (nullcontext, subclass, whole)[state]()


class _Aside(threading.local):
    """Modes of this thread that `default_device_aside` has taken off its stack, outermost first."""

    modes: tuple[Any, ...] = ()


_aside = _Aside()


def _mode_stack() -> list[Any]:
    stack = torch._C._len_torch_function_stack()
    return [torch._C._get_function_stack_at(place) for place in range(stack)]


def torch_function_modes() -> tuple[Any, ...]:
    """The program's modes on this thread; a default device is one, known by its device."""
    modes = (*_aside.modes, *_mode_stack())
    return tuple((DeviceContext, m.device) if type(m) is DeviceContext else m for m in modes)


def default_device() -> torch.device | None:
    """The device that the program has set for tensors made without one."""
    modes = torch_function_modes()
    return modes[-1][1] if modes and isinstance(modes[-1], tuple) else None


@contextlib.contextmanager
def default_device_aside() -> Iterator[None]:
    """In the block, what is made without a device is made where torch makes it by default: the
    program's default device is off, and known to the two queries above."""
    before, stack = _aside.modes, _mode_stack()
    if any(type(mode) is not DeviceContext for mode in stack):
        stack = []
    for _ in stack:
        torch._C._pop_torch_function_stack()
    _aside.modes = (*before, *stack)
    try:
        yield
    finally:
        _aside.modes = before
        for mode in stack:
            torch._C._push_on_torch_function_stack(mode)


def deterministic_algorithms() -> tuple[bool, bool, bool]:
    """Whether they are requested, whether by a warning, whether `empty` fills what it gives."""
    return (
        torch._C._get_deterministic_algorithms(),
        torch._C._get_deterministic_algorithms_warn_only(),
        torch._C._get_deterministic_fill_uninitialized_memory(),
    )


def library_path(name: str) -> str:
    """The file of one of torch's shared libraries."""
    return str(Path(torch.__file__).parent / "lib" / f"lib{name}.so")


# Functions without side effects that return a small number, by the name the linker knows them by:
# (library, symbol). A name that a release lacks is not an error: the state is read in Python.
STATE_SYMBOLS: dict[str, tuple[str, str]] = {
    "grad_mode": ("c10", "_ZN3c108GradMode10is_enabledEv"),
    "inference_mode": ("c10", "_ZN3c1013InferenceMode10is_enabledEv"),
    "default_dtype": ("c10", "_ZN3c1031get_default_dtype_as_scalartypeEv"),
    "torch_function": ("torch_cpu", "_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv"),
    "torch_function_modes": ("torch_cpu", "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv"),
    "autocast_enabled": ("torch_cpu", "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE"),
    "autocast_dtype": ("torch_cpu", "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE"),
    "autocast_cache": ("torch_cpu", "_ZN2at8autocast25is_autocast_cache_enabledEv"),
    "context": ("torch_cpu", "_ZN2at13globalContextEv"),
    "deterministic": ("torch_cpu", "_ZNK2at7Context23deterministicAlgorithmsEv"),
    "deterministic_warn_only": ("torch_cpu", "_ZNK2at7Context31deterministicAlgorithmsWarnOnlyEv"),
    "deterministic_fill": ("torch_cpu", "_ZNK2at7Context36deterministicFillUninitializedMemoryEv"),
}
# The thread's dispatch key sets: two words.
KEY_SETS_VARIABLE = ("c10", "_ZN3c104impl26raw_local_dispatch_key_setE")


def symbolically_traced() -> bool:
    """Whether torch.fx traces the program: its values stand for what it will be called with."""
    return torch.fx._symbolic_trace._is_fx_tracing_flag


# The variables of modules of torch that a state is: the module's dict and the name.
STATE_VARIABLES: dict[str, tuple[dict[str, Any], str]] = {
    "forward_ad": (vars(forward_ad), "_current_level")
}


def forward_ad_level() -> int:
    """The level of forward-mode differentiation at work, -1 for none; it is the process's own."""
    return int(forward_ad._current_level)


def mark_history(tensors: Iterable[torch.Tensor], word: str) -> None:
    """Leave a word in the metadata of the autograd nodes that have made these tensors."""
    for tensor in tensors:
        node: Any = tensor.grad_fn
        if node is not None:
            node.metadata[word] = True


def keep_in_history(tensors: Iterable[torch.Tensor], word: str, value: Any) -> None:
    """Leave a value in the metadata of the autograd nodes that have made these tensors."""
    with torch._C.DisableTorchFunction():  # the mode that traces has its own answers
        for tensor in tensors:
            node: Any = tensor.grad_fn
            if node is not None:
                node.metadata[word] = value


def kept_in_history(tensors: Iterable[torch.Tensor], word: str) -> Any:
    """What `keep_in_history` has left there."""
    with torch._C.DisableTorchFunction():
        nodes: list[Any] = [x.grad_fn for x in tensors if x.grad_fn is not None]
    return next(node.metadata[word] for node in nodes if word in node.metadata)


def mark_run(outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], word: str) -> None:
    """Leave a word in the metadata of the autograd nodes that a derivative of these outputs by
    these inputs runs: those from which the engine goes on to an input."""
    with torch._C.DisableTorchFunction():  # the mode that traces has its own answers
        ends = {torch.autograd.graph.get_gradient_edge(tensor).node for tensor in inputs}
        stack: list[tuple[Any, bool]] = [(tensor.grad_fn, False) for tensor in outputs]
    order: list[Any] = []
    seen: set[Any] = set()
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif node is not None and node not in seen:
            seen.add(node)
            stack += [(node, True), *((other, False) for other in following(node))]
    run: set[Any] = set()
    for node in order:
        if any(other in ends or other in run for other in following(node)):
            run.add(node)
            node.metadata[word] = True


_OLDER_VMAP = torch._C._dispatch_key_parse("VmapMode")


def foreign_modes() -> bool:
    """Whether a transform of functorch, a `vmap` of the older kind, forward-mode differentiation, a
    dispatch mode, a function mode other than a default device, torch.jit.trace or torch.fx is at
    work."""
    return bool(
        forward_ad_level() >= 0  # a tensor's tangent is seen by torch's operators alone
        or torch._C._functorch.maybe_current_level() is not None
        or torch._C._dispatch_tls_is_dispatch_key_included(_OLDER_VMAP)
        or torch._C._get_tracing_state() is not None
        or torch._C._len_torch_dispatch_stack()
        or any(type(mode) is not DeviceContext for mode in _mode_stack())
        or symbolically_traced()
    )


@contextlib.contextmanager
def foreign_modes_left() -> Iterator[None]:
    """Whatever ends the block, no mode of tensors is entered after it: an exception out of a signal
    handler may come between the entering of one and the block that leaves it, or be caught there.
    None is entered before it."""
    grad, lifted = torch.is_grad_enabled(), torch._C._only_lift_cpu_tensors()
    try:
        yield
    finally:
        while torch._C._len_torch_dispatch_stack():
            _pop_mode()
        while any(type(mode) is not DeviceContext for mode in _mode_stack()):
            torch.overrides._pop_mode()
        torch._C._set_only_lift_cpu_tensors(lifted)  # which a mode of fake tensors sets
        torch._C._set_grad_enabled(grad)


def saved_tensors_hooked() -> bool:
    """Whether hooks of the program's on saved tensors are in force."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def own_saved_tensors() -> AbstractContextManager[Any]:
    """Keep the hooks that the program has on saved tensors from seeing those of capture."""
    top = torch._C._autograd._top_saved_tensors_default_hooks(True)
    if top is None:
        return contextlib.nullcontext()
    return torch.autograd.graph.saved_tensors_hooks(_Over(top[0]), _as_it_is)


@dataclasses.dataclass(frozen=True)
class _Over:
    """A hook that changes nothing, over one of the program's."""

    theirs: Any

    def __call__(self, value: Any) -> Any:
        return value


def _as_it_is(value: Any) -> Any:
    return value


def saved_tensors_may_change() -> bool:
    """Whether the program has hooks on saved tensors in force, other than those of torch's own that
    give back what they were given."""
    top = torch._C._autograd._top_saved_tensors_default_hooks(True)
    if top is None:
        return False
    pack = top[0].theirs if isinstance(top[0], _Over) else top[0]
    name = f"{getattr(pack, '__module__', '')}.{getattr(pack, '__qualname__', '')}"
    return not name.startswith(("torch.autograd.graph.save_on_cpu.", "torch.utils.checkpoint."))


def saved_tensors_stay(_: Any = None) -> bool:
    """Whether it has none."""
    return not saved_tensors_may_change()


def are_processes_together() -> bool:
    """Whether this process is one of several that `torch.distributed` holds together."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def nobody_watches(leaf: torch.Tensor) -> bool:
    """Whether nothing holds the autograd node at which derivatives by a leaf end. Who does may have
    hooks there, which the leaf does not show: the reducer of `DistributedDataParallel` has."""
    if not leaf.requires_grad:
        return True
    by_torch = torch._C.DisableTorchFunctionSubclass(), torch._C._DisableTorchDispatch()
    with by_torch[0], by_torch[1], torch.enable_grad():
        _accumulator(leaf).metadata[_MARK] = True  # lives as long as the node
        return _accumulator(leaf).metadata.pop(_MARK, None) is None


def _accumulator(leaf: torch.Tensor) -> Any:
    """The autograd node at which derivatives by a leaf end. The view is of no class: what
    one makes of it costs more than all else."""
    return leaf.view_as(leaf).grad_fn.next_functions[0][0]  # type: ignore[union-attr]


_MARK = "flambeau.watched"


def can_be_timed() -> bool:
    """Whether a call may run in either form, and be waited for: not under a mode or a transform,
    not where results are to be the same to the bit from run to run, not where other processes go
    on in step, and not while work is recorded for a CUDA graph."""
    if foreign_modes() or torch.are_deterministic_algorithms_enabled():
        return False
    if are_processes_together():
        return False
    return not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def wait_for_devices() -> None:
    """Wait until the work that was given to a device is done."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def requires_grad(result: Any) -> bool:
    """Whether a tensor among the results of a call requires grad."""
    leaves = torch.utils._pytree.tree_leaves(result)
    return any(issubclass(type(each), torch.Tensor) and each.requires_grad for each in leaves)


def owns_memory(tensor: Any) -> bool:
    """Whether a tensor's memory is torch's own: not that of an array, a buffer, a file."""
    if not issubclass(type(tensor), torch.Tensor) or tensor.device.type != "cpu":
        return True
    try:
        return bool(tensor.untyped_storage().resizable())
    except (NotImplementedError, RuntimeError):  # it has no storage of its own, or several
        return False


def following(node: Any) -> list[Any]:
    """The autograd nodes that a node of autograd's hands gradients to, by its arguments."""
    return [other for other, _ in node.next_functions if other is not None]


def sequence_number(node: Any) -> int:
    """When an autograd node was made: the engine runs those made last first."""
    return int(node._sequence_nr())
