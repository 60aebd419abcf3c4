"""Every private or moving torch API this package touches.

What comes in: tensors and dispatch modes. What goes out: the same few operations under names
of our own. Tried on torch 2.11 and 2.13.

Invariant: no other module of this package uses a name of torch that begins with an underscore,
`torch._C` included (`torch.utils._pytree` and `torch.utils._python_dispatch` come from here).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode_stack,
    is_traceable_wrapper_subclass,
)

__all__ = [
    "DATA_DEPENDENT_ERRORS",
    "FakeTensor",
    "FakeTensorMode",
    "TorchDispatchMode",
    "UnsupportedOperatorException",
    "pytree",
]

DATA_DEPENDENT_ERRORS: tuple[type[Exception], ...] = (
    DataDependentOutputException,
    DynamicOutputShapeException,
)

DEVICE_QUERY = torch.ops.prim.device.default


@contextmanager
def functionalization() -> Iterator[None]:
    """Mutations and views on functional tensors become pure operations inside this block."""
    torch._enable_functionalization(reapply_views=True)
    try:
        yield
    finally:
        torch._disable_functionalization()


@contextmanager
def beside_tracing() -> Iterator[None]:
    """Neither the dispatch modes nor the functionalization of a trace inside this block."""
    with torch.utils._python_dispatch._disable_current_modes():
        torch._disable_functionalization()
        try:
            yield
        finally:
            torch._enable_functionalization(reapply_views=True)


def beside_modes() -> Any:
    """Context in which no dispatch mode sees an operator."""
    return torch.utils._python_dispatch._disable_current_modes()


def flattens(value: object) -> bool:
    """Whether a value is a tensor subclass that consists of other tensors."""
    return isinstance(value, torch.Tensor) and is_traceable_wrapper_subclass(value)


def has_subclass(types: Sequence[type]) -> bool:
    """Whether an operator's tensors are in part of a subclass that consists of other tensors."""
    return any(hasattr(item, "__tensor_flatten__") for item in types)


@contextmanager
def functionalized_again() -> Iterator[None]:
    """Functionalization inside an operator that functionalization has handed on."""
    key = torch._C.DispatchKey.Functionalize
    included = torch._C._dispatch_tls_local_include_set() | torch._C.DispatchKeySet(key)
    excluded = torch._C._dispatch_tls_local_exclude_set().remove(key)
    with torch._C._ForceDispatchKeyGuard(included, excluded):
        yield


def left_alone(call: Callable[..., Any]) -> Callable[..., Any]:
    """The callable, which torch's own capture does not look into where the program has started it:
    `torch.cond` does so when it is called by Python code."""
    if "torch._dynamo" not in sys.modules:
        return call
    return cast(Callable[..., Any], torch.compiler.disable(call))


@contextmanager
def no_saved_tensor_hooks() -> Iterator[None]:
    """The caller's hooks on saved tensors do not see what autograd saves inside this block."""
    hooks: list[tuple[Any, Any]] = []
    while (top := torch._C._autograd._top_saved_tensors_default_hooks(False)) is not None:
        hooks.append(top)
        torch._C._autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(hooks):
            torch._C._autograd._push_saved_tensors_default_hooks(pack, unpack)


def functional_tensor(value: torch.Tensor) -> torch.Tensor:
    """Wrap a value in a functional tensor with a storage of its own."""
    return torch._to_functional_tensor(value)


def is_functional(value: object) -> bool:
    """Whether `value` is a functional tensor."""
    return isinstance(value, torch.Tensor) and bool(torch._is_functional_tensor(value))


def current_value(wrapper: torch.Tensor) -> torch.Tensor:
    """The pure value a functional tensor stands for now, pending mutations applied."""
    torch._functionalize_sync(wrapper)  # type: ignore[no-untyped-call]
    return torch._from_functional_tensor(wrapper)


def replace_value(wrapper: torch.Tensor, value: torch.Tensor) -> None:
    """Let a functional tensor, and all that share its memory, stand for another value."""
    torch._functionalize_replace(wrapper, value)
    torch._functionalize_commit_update(wrapper)
    torch._functionalize_sync(wrapper)  # type: ignore[no-untyped-call]


def keep_value(wrapper: torch.Tensor, value: torch.Tensor) -> None:
    """Let a functional tensor take its metadata from the value that it stands for."""
    torch._functionalize_replace(wrapper, value)


def storage_key(tensor: torch.Tensor) -> int:
    """A number equal for two tensors exactly if they share a storage (both being alive)."""
    return int(tensor.untyped_storage()._cdata)


def storage_was_replaced(wrapper: torch.Tensor) -> bool:
    """Whether `set_` or `resize_` gave a functional tensor another storage."""
    return bool(torch._functionalize_was_storage_changed(wrapper))


def new_fake(mode: FakeTensorMode, meta: torch.Tensor, device: torch.device) -> FakeTensor:
    """A fake tensor on `device` over a tensor of the meta device."""
    return FakeTensor(mode, meta, device)


def run_fake(mode: FakeTensorMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run one operator on fake tensors, no dispatch mode being active."""
    return mode.__torch_dispatch__(func, (), args, kwargs)


def sequence_number() -> int:
    """The number the next autograd node of this thread will get."""
    return int(torch._C._autograd._get_sequence_nr())


def current_backward_sequence() -> int | None:
    """The sequence number of the autograd node being run, None outside a backward pass."""
    node = torch._C._current_autograd_node()
    return None if node is None else int(node._sequence_nr())


def node_sequence(node: Any) -> int:
    """The sequence number of an autograd node."""
    return int(node._sequence_nr())


def is_of_python(node: Any) -> bool:
    """Whether an autograd node is that of a `torch.autograd.Function`."""
    return isinstance(node, torch.autograd.function.BackwardCFunction)


def autograd_nodes(roots: Sequence[Any]) -> list[tuple[Any, tuple[Any, ...]]]:
    """The nodes of an autograd graph with those that follow, each after all that lead to it."""
    following: dict[Any, tuple[Any, ...]] = {}
    leading: dict[Any, int] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in following:
            continue
        following[node] = tuple(other for other, _ in node.next_functions if other is not None)
        for other in following[node]:
            leading[other] = leading.get(other, 0) + 1
            stack.append(other)
    ready = [node for node in following if node not in leading]
    order: list[tuple[Any, tuple[Any, ...]]] = []
    while ready:
        node = ready.pop()
        order.append((node, following[node]))
        for other in following[node]:
            leading[other] -= 1
            if not leading[other]:
                ready.append(other)
    return order


def backward_keeps_graph() -> bool:
    """Whether the backward pass being run was asked to retain its graph."""
    return bool(torch._C._autograd._get_current_graph_task_keep_graph())


def saved_where_checked(
    ctx: Any, checked: Sequence[bool], before: Sequence[int]
) -> list[torch.Tensor]:
    """The saved tensors of an autograd node, of which some may have been written to.

    before: their versions when they were saved. Raises what `ctx.saved_tensors` does if one that is
    checked was written to, if hooks have packed one, or if this torch hands out no single ones.
    """
    try:
        return list(ctx.saved_tensors)
    except RuntimeError:
        found = []
        for raw, known, was in zip(ctx._raw_saved_tensors, checked, before, strict=True):
            if getattr(raw, "unpack_hook", None) is not None or not hasattr(raw, "data"):
                raise
            tensor = raw.data
            if known and version(tensor) != was:
                raise
            found.append(tensor)
        return found


def saved_tensors_released(ctx: Any) -> None:
    """Drop the references an autograd node holds to its saved tensors, ahead of the engine."""
    release = getattr(ctx, "maybe_clear_saved_tensors", None)
    if release is not None:
        release()


def copy_all_(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    """Copy many tensors, one by one or in one launch."""
    if len(targets) == 1:
        targets[0].copy_(sources[0])
    else:
        torch._foreach_copy_(targets, sources)


def no_torch_function() -> Any:
    """Context in which neither modes nor subclasses intercept torch functions."""
    return torch._C.DisableTorchFunction()


def decomposes_itself(func: Any) -> bool:
    """Whether an operator is composite: defined by other operators at every dispatch key."""
    return bool(func._can_decompose())


def is_conj_or_neg(tensor: torch.Tensor) -> bool:
    """Whether a tensor carries a lazy conjugation or negation."""
    return bool(tensor.is_conj() or tensor.is_neg())


def is_view_op(func: Any) -> bool:
    """Whether an operator's results alias its first argument without writing to it."""
    return isinstance(func, torch._ops.OpOverload) and bool(func.is_view)


def is_operator(target: object) -> bool:
    """Whether a node's target is an operator overload."""
    return isinstance(target, torch._ops.OpOverload)


def operator_named(name: str) -> Any:
    """The operator overload whose text is `aten.view.default`. Raises LookupError."""
    try:
        namespace, operator, overload = name.split(".")
        return getattr(getattr(getattr(torch.ops, namespace), operator), overload)
    except (ValueError, AttributeError) as error:
        raise LookupError(f"there is no operator {name}") from error


def is_higher_order(target: object) -> bool:
    """Whether something is an operator that takes functions, as `cond` does."""
    return isinstance(target, torch._ops.HigherOrderOperator)


def is_custom_op(func: Any) -> bool:
    """Whether an operator was made by `torch.library.custom_op`, as far as torch tells."""
    try:
        from torch._library.custom_ops import OPDEFS  # not a module of every torch
    except ImportError:
        return False
    return func._schema.name in OPDEFS


def is_operator_packet(target: object) -> bool:
    """Whether something is an operator whose overload is not chosen yet."""
    return isinstance(target, torch._ops.OpOverloadPacket)


def has_metadata_mutation(wrapper: torch.Tensor) -> bool:
    """Whether an in-place operator changed a functional tensor's shape or strides."""
    return bool(torch._functionalize_has_metadata_mutation(wrapper))


# What an autograd function's context is told by its methods `save_for_backward`,
# `set_materialize_grads` and `mark_non_differentiable`, each of which sets one of these.
CTX_TO_SAVE = "to_save"
CTX_MATERIALIZE = "materialize_grads"
CTX_NON_DIFFERENTIABLE = "non_differentiable"


def appliers(
    function: type[torch.autograd.Function],
) -> tuple[Callable[..., Any], Callable[..., Any], Callable[[], bool]]:
    """`function.apply`, the same without the Python frame that serves `torch.func`, and a
    callable that says whether a transform of `torch.func` is active, so that the first is needed.
    """
    direct = super(torch.autograd.Function, function).apply  # type: ignore[misc]
    return function.apply, direct, torch._C._are_functorch_transforms_active


def kernel_of(target: Any) -> Any:
    """What an operator overload calls: the overload itself adds a Python frame."""
    return target._op if isinstance(target, torch._ops.OpOverload) else target


def versions(tensors: Sequence[torch.Tensor]) -> list[int]:
    """How often each tensor has been written to in place."""
    return [tensor._version for tensor in tensors]


def no_view(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a tensor that is a view of nothing: one made with grad disabled must not
    be written to afterwards."""
    return tensor.detach() if tensor._is_view() else tensor


def base_of(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor of which this one is a view, or itself."""
    return tensor if tensor._base is None else tensor._base


def is_view_of_leaf(tensor: torch.Tensor) -> bool:
    """Whether autograd knows a tensor as a view of a leaf that requires grad."""
    base = tensor._base
    return base is not None and bool(base.is_leaf and base.requires_grad)


def version(tensor: torch.Tensor) -> int:
    """How often a tensor was written to; inference tensors do not count."""
    return 0 if tensor.is_inference() else int(tensor._version)


def share_version_counter(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether autograd counts writes to these two together.

    Nothing in torch says so; one counter is raised and set back to find out.
    """
    if one.is_inference() or other.is_inference():
        return False
    before, raised = one._version, other._version
    torch.autograd.graph.increment_version(one)
    shared = other._version != raised
    torch._C._autograd._unsafe_set_version_counter((one,), (before,))
    return bool(shared)


def raise_version(tensor: torch.Tensor) -> None:
    """Count a write that autograd was not told of."""
    if not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)


def made_without_grad(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a view made with grad disabled."""
    if not tensor._is_view():
        return False
    autograd = torch._C._autograd  # type: ignore[attr-defined]
    return bool(autograd._get_creation_meta(tensor) == autograd.CreationMeta.NO_GRAD_MODE)


def one_of_several(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one of several views that one operator gave, as by `split`."""
    if not tensor._is_view():
        return False
    autograd = torch._C._autograd  # type: ignore[attr-defined]
    return bool(autograd._get_creation_meta(tensor) == autograd.CreationMeta.MULTI_OUTPUT_NODE)


def leaves_reached(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The leaves that a backward pass from these tensors would accumulate gradients in."""
    found: list[torch.Tensor] = []
    seen: set[Any] = set()
    stack: list[Any] = [tensor.grad_fn for tensor in tensors]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        stack.extend(following for following, _ in node.next_functions)
    return found


@contextmanager
def compiling() -> Iterator[None]:
    """`torch.compiler.is_compiling()` inside this block: optimizers then keep their count of
    steps in tensors on any device. Torch has one flag for the process; it is set for the time of
    a trace, and what another thread's optimizer does meanwhile is the same by tensors.
    """
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before


def checkpoint_hooks_on_top() -> bool:
    """Whether the hooks on saved tensors in force are those of `torch.utils.checkpoint`."""
    top = torch._C._autograd._top_saved_tensors_default_hooks(False)
    if top is None:
        return False
    pack = top[0]
    return pack.__module__ == "torch.utils.checkpoint" and "_checkpoint_hook" in pack.__qualname__


def top_hooks_are(pack: Any) -> bool:
    """Whether the hooks on saved tensors in force begin with this function."""
    top = torch._C._autograd._top_saved_tensors_default_hooks(False)
    return top is not None and top[0] is pack


def swap_top_hooks(pack: Any, unpack: Any) -> None:
    """Put these hooks on saved tensors in place of those in force."""
    torch._C._autograd._pop_saved_tensors_default_hooks()
    torch._C._autograd._push_saved_tensors_default_hooks(pack, unpack)


def guard_top_hooks(guarded: Callable[[Any], Any]) -> None:
    """Put `guarded(hook)` in place of the hooks on saved tensors in force, where they are not."""
    top = torch._C._autograd._top_saved_tensors_default_hooks(False)
    if top is not None and not hasattr(top[0], "guarded"):
        swap_top_hooks(guarded(top[0]), guarded(top[1]))


def engine_gradients(
    outputs: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    cotangents: Sequence[torch.Tensor],
) -> Sequence[torch.Tensor | None]:
    """`torch.autograd.grad` with unused inputs allowed, which no torch function mode sees: a mode
    that is in force stays so for what the backward pass calls."""
    run = torch.autograd.Variable._execution_engine.run_backward  # type: ignore[attr-defined]
    found: Sequence[torch.Tensor | None] = run(
        tuple(outputs),
        tuple(cotangents),
        False,
        False,
        tuple(inputs),
        allow_unreachable=True,
        accumulate_grad=False,
    )
    return found


def watch_checkpoint_policy(note: Any) -> None:
    """Let `note(policy)` be told, for every operator, what the policy of the checkpoint around it
    says: the name of a `CheckpointPolicy`, in lower case."""
    for mode in _get_current_dispatch_mode_stack():
        asked = getattr(mode, "policy_fn", None)
        if asked is None or type(mode).__name__ != "_CachingTorchDispatchMode":
            continue

        def policy(*args: Any, _asked: Any = asked, **kwargs: Any) -> Any:
            given = _asked(*args, **kwargs)
            if isinstance(given, bool):
                note("must_save" if given else "prefer_recompute")
            else:
                note(given.name.lower())
            return given

        mode.policy_fn = policy  # type: ignore[attr-defined]


# -- symbolic sizes --------------------------------------------------------------------------------


def expression_of(number: Any) -> Any:
    """The sympy expression of a symbolic number, with what its environment has learnt since."""
    return number.node.expr


def environment_of(number: Any) -> Any:
    """The shape environment that a symbolic number belongs to."""
    return number.node.shape_env


def symbolic_integer(expression: Any, like: torch.SymInt) -> Any:
    """A symbolic integer for an expression over the symbols of `like`'s environment."""
    environment = environment_of(like)
    values = values_of(environment)
    known = expression.xreplace(values)
    hint = int(known) if known.is_Integer else None
    return environment.create_symintnode(expression, hint=hint)


def symbolic_number(expression: Any, like: Any) -> Any:
    """A symbolic number, an integer where the expression is one, of `like`'s environment."""
    if expression.is_integer:
        return symbolic_integer(expression, like)
    environment = environment_of(like)
    values = values_of(environment)
    return environment.create_symfloatnode(expression, hint=float(expression.xreplace(values)))


def python_dispatcher() -> Any:
    """Context in which composite operators on symbolic sizes run their Python forms."""
    return torch._C._EnablePythonDispatcher()


def hint(number: Any) -> int:
    """The value of a size in this compile, for estimates: nothing is assumed by asking."""
    if isinstance(number, torch.SymInt):
        known = number.node.hint
        return 0 if known is None else int(known)
    return int(number)


def values_of(environment: Any) -> Any:
    """The values of symbols in this compile; 2.13 has another name for them than 2.11."""
    name = "backed_var_to_val" if hasattr(environment, "backed_var_to_val") else "var_to_val"
    return getattr(environment, name)
