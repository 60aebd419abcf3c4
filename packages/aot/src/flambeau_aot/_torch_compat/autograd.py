"""Autograd graph internals: nodes, order, saved tensors.

In: tensors with a history, contexts of autograd functions, the backward pass being run. Out: what
is needed of them. Invariant: the graph is read; only what a node saved is ever released.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch.autograd import forward_ad
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
    release = getattr(ctx, "maybe_clear_saved_tensors", None)
    if release is not None:
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


class _Definedness:
    """Which results of a node have a gradient that eager computes, by backward pass: hooks on all
    of them that are put there before any other note it. runs: whether eager comes to one."""

    def __init__(self, order: Sequence[int], runs: Callable[[int], bool]) -> None:
        self.first, self.runs = order[0], runs
        self.passes: dict[int, set[int]] = {}
        self.settled: set[tuple[int, int]] = set()
        self.hooks: dict[int, _WhereDefined] = {}

    def note(self, at: int, grad: Any) -> None:
        """A gradient comes to a result."""
        number = current_backward_pass()
        if at == self.first:
            self.passes = dict([*self.passes.items()][-_NESTED:])
            self.settled = {item for item in self.settled if item[1] in self.passes}
            self.passes[number] = set()
        if grad is not None and self.runs(at):
            self.passes[number].add(at)

    def settle(self, counts: Any, nodes: Sequence[Any], called: bool = False) -> None:
        """Count the hooks of one `register_multi_grad_hook`, on results of these nodes, where they
        have no gradient in this pass, unless no result has one that it is put on: eager's have
        nodes of their own, which are not run. called: one of the hooks is, at another node."""
        number = current_backward_pass()
        if (id(counts), number) in self.settled:
            return
        members = [
            (at, hook)
            for at, hooks in self.hooks.items()
            for key, (own, hook) in hooks.counted.items()
            if own is counts and key in hooks
        ]
        defined = self.passes[number]
        if not (called or counts.get(number) or any(at in defined for at, _ in members)):
            return
        self.settled.add((id(counts), number))
        for at, hook in members:
            if at not in defined:
                hook(None)
        for other in (getattr(node, "definedness", None) for node in nodes):
            if other is not None and number in other.passes:  # the pass has come to it before
                other.settle(counts, nodes, called=True)


_NESTED = 8
"""How many backward passes are remembered besides the one being run."""


class _WhereDefined(OrderedDict[int, Any]):
    """The hooks of one result of a node, none of them called but where `_Definedness` has it."""

    def __init__(self, definedness: _Definedness, at: int) -> None:
        super().__init__()
        self.definedness, self.at = definedness, at
        self.counted: dict[int, tuple[Any, Any]] = {}

    def __setitem__(self, key: int, hook: Any) -> None:
        counts, nodes = _counts_of_passes(hook)
        if counts is not None:
            self.counted[key] = counts, hook

        def call(grad: Any) -> Any:
            if counts is not None:
                self.definedness.settle(counts, nodes)
            defined = self.definedness.passes[current_backward_pass()]
            return hook(grad) if grad is not None and self.at in defined else None

        super().__setitem__(key, call)


def unseen_where_undefined(node: Any, found: Sequence[Any]) -> None:
    """Let hooks on leaves that a node has no gradient for be called only for one: the engine comes
    to such a leaf all the same, with None. In eager no node would lead there. Numbers, which come
    after all tensors, have no edge."""
    for (end, _), gradient in zip(node.next_functions, found, strict=False):
        hooks = getattr(getattr(end, "variable", None), "_backward_hooks", None)
        if gradient is None and hooks:
            for key, hook in hooks.items():
                if not isinstance(hook, _Defined):
                    hooks[key] = _Defined(hook)


@dataclass(frozen=True)
class _Defined:
    """A hook that is not called for a gradient that is undefined."""

    hook: Callable[[torch.Tensor], Any]

    def __call__(self, gradient: torch.Tensor | None) -> Any:
        return None if gradient is None else self.hook(gradient)


def _counts_of_passes(hook: Any) -> tuple[Any, Sequence[Any]]:
    """How often the hooks of a `register_multi_grad_hook(mode="all")`, one of which this is, have
    been called, by backward pass, and the nodes of what they are on; None for other hooks."""
    code = getattr(hook, "__code__", None)
    if code is None or hook.__module__ != torch.autograd.graph.__name__:
        return None, ()
    cells = dict(zip(code.co_freevars, hook.__closure__ or (), strict=True))
    if not {"count", "buffer", "grad_fns"} <= cells.keys():
        return None, ()
    return cells["count"].cell_contents, cells["grad_fns"].cell_contents


def separate_hooks(
    function: type[torch.autograd.Function], order: Sequence[int], runs: Callable[[Any, int], bool]
) -> None:
    """Let the results of an autograd function have hooks as results of nodes of their own have, run
    in this order: an engine that runs a node for one result calls the hooks of all, with None, and
    those first that were put there first. runs: of a node and a result, whether the backward pass
    would come to a node of that alone.

    `Tensor.register_hook` calls the node at the first hook that a tensor gets; that of a node puts
    hooks on all of its results, of which a tensor takes its own.
    """
    node: Any = function._backward_cls  # type: ignore[attr-defined]
    usual = node._register_hook_dict

    def register(self: Any, tensor: torch.Tensor) -> None:
        if not hasattr(self, "hooks"):
            places = _Places.apply(max(order) + 1, torch.empty(0, requires_grad=True))  # type: ignore[no-untyped-call]
            node = ref(self)  # whose end frees what it keeps
            definedness = _Definedness(order, lambda at: runs(node(), at))
            for at in order:
                places[at]._backward_hooks = OrderedDict({0: partial(definedness.note, at)})
                usual(self, places[at])
            self.definedness, self.hooks = definedness, definedness.hooks
            for at in order:
                self.hooks[at] = places[at]._backward_hooks = _WhereDefined(definedness, at)
                usual(self, places[at])
        tensor._backward_hooks = self.hooks[tensor.output_nr]
        self.hooked = {*hooked(self), tensor.output_nr}

    node._register_hook_dict = register


class _Places(torch.autograd.Function):
    """Tensors that are the first, second, ... result of a node."""

    @staticmethod
    def forward(ctx: Any, count: int, anchor: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(anchor.new_empty(0) for _ in range(count))


def in_order(nodes: Sequence[Any]) -> bool:
    """Let these nodes be run as if they had been made in this order; whether they were."""
    numbers = [node_sequence(node) for node in nodes]
    if all(before < after for before, after in pairwise(numbers)):
        return True
    for node, number in zip(nodes, sorted(numbers), strict=True):
        node._set_sequence_nr(number)
    return False


def hooked(node: Any) -> Collection[int]:
    """The results of such a node that have had hooks."""
    found: Collection[int] = getattr(node, "hooked", ())
    return found


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
