"""Autograd graph internals: nodes, order, saved tensors.

In: tensors with a history, contexts of autograd functions, the backward pass being run. Out: what
is needed of them. Invariant: the graph is read; only what a node saved is ever released.

Saved-tensor hooks in force, those of checkpoints among them. In: the hooks of the thread. Out: what
they are, or others in their place. Invariant: what a context takes away it puts back in the same
order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils.checkpoint import CheckpointFunction

from flambeau_aot._torch_compat.tensors import version

REENTRANT = "checkpoint with use_reentrant=True"
"""Metadata key of the nodes that such a checkpoint has made, where its body alone is traced."""

FREED = "freed by a derivative"
"""Metadata key of the nodes that a derivative inside of the traced program runs without keeping."""


def sequence_number() -> int:
    """The number the next autograd node of this thread will get."""
    return int(torch._C._autograd._get_sequence_nr())


def current_backward_sequence() -> int | None:
    """The sequence number of the autograd node being run, None outside a backward pass."""
    node = torch._C._current_autograd_node()
    return None if node is None else int(node._sequence_nr())


_WRITES_ITS_OWN = (
    *("DistBackward", "LinalgVectorNormBackward", "NormBackward", "RenormBackward"),
    *("MaximumBackward", "MinimumBackward"),
)


def derivative_fills_in_place() -> bool:
    """Whether the autograd node being run is that of a norm or of the greater of two: its formula
    writes zeros in place to what it has computed, whose strides that keeps."""
    node = torch._C._current_autograd_node()
    return node is not None and node.name().startswith(_WRITES_ITS_OWN)


def node_sequence(node: Any) -> int:
    """The sequence number of an autograd node."""
    return int(node._sequence_nr())


def is_of_python(node: Any) -> bool:
    """Whether an autograd node is that of a `torch.autograd.Function`."""
    return isinstance(node, torch.autograd.function.BackwardCFunction)


def accumulates_only(node: Any) -> bool:
    """Whether a backward pass through this node must be one that accumulates in all leaves: that of
    a checkpoint with use_reentrant=True, or one that says so in its metadata."""
    kind = getattr(type(node), "_forward_cls", None)
    return kind is CheckpointFunction or REENTRANT in node.metadata


def pass_accumulates() -> bool:
    """Whether the backward pass being run accumulates in all leaves."""
    engine: Any = torch.autograd.Variable._execution_engine
    return bool(engine.is_checkpoint_valid())


def sees_layout(node: Any) -> bool:
    """Whether the strides of a gradient matter to the autograd node it goes to: to any but a leaf's
    without hooks, which lays it out as the leaf."""
    if node is None:
        return False
    leaf = node.variable if node.name() == "torch::autograd::AccumulateGrad" else None
    return leaf is None or bool(leaf._backward_hooks)


def raises_when_run(node: Any) -> bool:
    """Whether an autograd node is there to raise where a backward pass comes to it."""
    return type(node).__name__ in ("Error", "DelayedError", "NotImplemented")


def keeps_undefined(node: Any) -> bool:
    """Whether an autograd node is that of a function of the program's that may ask for None in
    place of zeros: torch does not say so, the function's own code does."""
    kind = getattr(type(node), "_forward_cls", None)
    if kind is None or not is_of_python(node) or kind.__module__.startswith("flambeau_aot."):
        return False
    methods = (getattr(kind, name, None) for name in ("forward", "setup_context"))
    codes = (getattr(method, "__code__", None) for method in methods)
    return any(code is not None and "set_materialize_grads" in code.co_names for code in codes)


def of_a_user(node: Any) -> bool:
    """Whether an autograd node is that of a derivative of a user's: an autograd function of Python,
    one of C++, or that of a custom operator."""
    kind = getattr(type(node), "_forward_cls", None)
    own = kind is not None and kind.__module__.startswith("flambeau_aot.")
    return _by_function(node) and not own


def of_custom_operator(node: Any) -> bool:
    """Whether an autograd node is the one that `torch.library` makes around a custom operator."""
    return is_of_python(node) and type(node).__name__.startswith("GeneratedBackwardFor_")


def _by_function(node: Any) -> bool:
    return is_of_python(node) or type(node).__name__ == "CppFunction"


def detour(result: torch.Tensor, origin: torch.Tensor) -> bool:
    """Whether the gradient of a view goes, on its way to what it is a view of, through a derivative
    of a user's: an autograd function of Python, one of C++, or that of a custom operator. What it
    is a view of may be another result of the same."""
    node, number, end = result.grad_fn, result.output_nr, origin.grad_fn
    while node is not None and node is not end and not _by_function(node):
        following = node.next_functions
        node, number = following[0] if following else (None, 0)
    return node is not None and (node is not end or number != origin.output_nr)


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


def kept_values(node: Any) -> list[torch.Tensor]:
    """The tensors that an autograd node keeps, whatever was written to them since."""
    kind = type(node)
    if kind not in _SAVED:
        _SAVED[kind] = [name for name in dir(kind) if name.startswith("_raw_saved_")]
    found = []
    for name in _SAVED[kind]:
        raws = getattr(node, name)
        for raw in raws if isinstance(raws, (list, tuple)) else (raws,):
            tensor = getattr(raw, "data", None)
            if isinstance(tensor, torch.Tensor):
                found.append(tensor)
    return found


def writes_to_view(node: Any) -> bool:
    """Whether an autograd node is that of a write to a view, of which torch does not show what the
    operator has kept."""
    return type(node).__name__ == "CopySlices"


def keeps_something(node: Any) -> bool:
    """Whether an autograd node keeps tensors, which a backward pass frees; taken for granted of one
    of C++, which shows none."""
    return type(node).__name__ == "CppFunction" or bool(kept_values(node))


def was_freed(node: Any) -> bool:
    """Whether the program has freed what an autograd node keeps, where it keeps something."""
    return FREED in node.metadata and keeps_something(node)


def watch_unpacking(node: Any, note: Callable[[Any], None]) -> None:
    """Let `note(node)` be called where the backward of a function of Python, whose node this is,
    reads `saved_tensors`: autograd looks at their versions there, and nowhere else."""
    kind = type(node)

    def saved_tensors(self: Any) -> Any:
        note(self)
        return kind.saved_tensors.__get__(self)

    node.__class__ = type(kind.__name__, (kind,), {"saved_tensors": property(saved_tensors)})


_SAVED: WeakKeyDictionary[type, list[str]] = WeakKeyDictionary()
"""By the class of a node, the attributes that hold what it keeps."""


def will_run(node: Any) -> bool:
    """Whether the backward pass being run comes to this node, or ends there: that of a leaf, of
    which the engine only says so by an error, too."""
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError as error:
        if "leaf node" not in str(error):
            raise
        return True


def backward_keeps_graph() -> bool:
    """Whether the backward pass being run retains its graph."""
    return bool(torch._C._autograd._get_current_graph_task_keep_graph())


def current_backward_pass() -> int:
    """The number of the backward pass being run."""
    return int(torch._C._current_graph_task_id())


def saved_where_checked(
    ctx: Any, checked: Sequence[bool], before: Sequence[int]
) -> list[torch.Tensor]:
    """The saved tensors of an autograd node, of which some may have been written to.

    before: their versions when they were saved. Raises what `ctx.saved_tensors` does if one that is
    checked was written to, if they are freed, if hooks have packed one, or if this torch hands out
    no single ones.
    """
    try:
        return list(ctx.saved_tensors)
    except RuntimeError:
        found, written = [], False
        for raw, known, was in zip(ctx._raw_saved_tensors, checked, before, strict=True):
            if getattr(raw, "unpack_hook", None) is not None or not hasattr(raw, "data"):
                raise
            tensor = raw.data
            changed = version(tensor) != was
            if known and changed:
                raise
            written = written or changed
            found.append(tensor)
        if not written:
            raise
        return found


def saved_tensors_released(ctx: Any) -> None:
    """Drop the references an autograd node holds to its saved tensors, ahead of the engine."""
    if (release := getattr(ctx, "maybe_clear_saved_tensors", None)) is not None:
        release()


# What an autograd function sets on its context by the methods `save_for_backward`,
# `set_materialize_grads` and `mark_non_differentiable`, each of which sets one of these.
CTX_TO_SAVE = "to_save"

CTX_MATERIALIZE = "materialize_grads"

CTX_NON_DIFFERENTIABLE = "non_differentiable"

# The level of forward-mode differentiation that is at work, below 0 for none, as an expression.
FORWARD_AD_LEVEL = "forward_ad._current_level"


def appliers(
    function: type[torch.autograd.Function],
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`function.apply`, and the same without the Python frame that serves `torch.func`: for where
    no transform of it is active."""
    return function.apply, super(torch.autograd.Function, function).apply  # type: ignore[misc]


def in_order(nodes: Sequence[Any]) -> bool:
    """Let these nodes be run as if they had been made in this order; whether they were."""
    numbers = [node_sequence(node) for node in nodes]
    if all(before < after for before, after in pairwise(numbers)):
        return True
    for node, number in zip(nodes, sorted(numbers), strict=True):
        node._set_sequence_nr(number)
    return False


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


@contextmanager
def without_tangents_in_texts() -> Iterator[None]:
    """Around a call of torch's own, which reads no level of Python: the text of a tensor has no
    tangent. Where it picks an overload, torch puts the arguments into the error of each that does
    not fit; below autograd, the text of one with a tangent fails an assertion (2.11)."""
    level = forward_ad._current_level
    forward_ad._current_level = -1
    try:
        yield
    finally:
        forward_ad._current_level = level


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


class SavesNoted:
    """What autograd saves inside a block, counted, with hooks that change nothing."""

    guarded = True

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> SavesNoted:
        torch._C._autograd._push_saved_tensors_default_hooks(self, _unchanged)
        return self

    def __exit__(self, *error: object) -> None:
        torch._C._autograd._pop_saved_tensors_default_hooks()

    def __call__(self, saved: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return saved

    @staticmethod
    def are_forbidden_by(error: BaseException | None) -> bool:
        """Whether an exception comes of a transform of `torch.func` that no hooks may be around."""
        seen = set[int]()  # causes may lead in a circle
        while error is not None and id(error) not in seen:
            if "support saved tensor hooks" in str(error):
                return True
            seen.add(id(error))
            error = error.__cause__ or error.__context__
        return False


def _unchanged(saved: torch.Tensor) -> torch.Tensor:
    return saved


def checkpoint_hooks_on_top() -> bool:
    """Whether the hooks on saved tensors in force are those of `torch.utils.checkpoint`."""
    top = torch._C._autograd._top_saved_tensors_default_hooks(False)
    if top is None:
        return False
    pack = top[0]
    if isinstance(pack, SavesNoted):
        return False
    return pack.__module__ == "torch.utils.checkpoint" and "_checkpoint_hook" in pack.__qualname__


def hooks_may_change_values() -> bool:
    """Whether there are hooks on saved tensors in force, other than those of torch's own that give
    back what they were given."""
    top = torch._C._autograd._top_saved_tensors_default_hooks(False)
    if top is None:
        return False
    name = f"{getattr(top[0], '__module__', '')}.{getattr(top[0], '__qualname__', '')}"
    return not name.startswith(("torch.autograd.graph.save_on_cpu.", "torch.utils.checkpoint."))


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


def watch_checkpoint_policy(note: Any) -> None:
    """Let `note(policy)` be called, for every operator, with what the policy of the checkpoint
    around it says: the name of a `CheckpointPolicy`, in lower case."""
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
