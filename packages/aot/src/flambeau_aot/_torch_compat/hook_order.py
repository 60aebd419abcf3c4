"""Hooks on the results and the leaves of one autograd node, called in the order of several nodes.

In: autograd functions, nodes, the order in which eager would come to what they lead from and to.
Out: hooks that are called in that order, and where eager calls them. Invariant: a gradient is as it
would be without this; a leaf's node is as it was after the backward pass.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import ref

import torch

from flambeau_aot._torch_compat.autograd import current_backward_pass


class _Definedness:
    """Which results of a node have a gradient that eager computes, by backward pass: hooks on all
    of them that are put there before any other note it. runs: whether eager comes to one. defers:
    whether hooks are called later in the pass being run, by `_WhereDefined.called`."""

    def __init__(
        self, order: Sequence[int], runs: Callable[[int], bool], defers: Callable[[], bool]
    ) -> None:
        self.first, self.runs, self.defers = order[0], runs, defers
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
        self.late = False

    def called(self, grad: torch.Tensor) -> torch.Tensor:
        """The gradient after these hooks, which were deferred in the pass being run."""
        self.definedness.passes.setdefault(current_backward_pass(), set()).add(self.at)
        self.late = True
        try:
            for hook in [*self.values()]:
                changed = hook(grad)
                grad = grad if changed is None else changed
        finally:
            self.late = False
        return grad

    def __setitem__(self, key: int, hook: Any) -> None:
        counts, nodes = _counts_of_passes(hook)
        if counts is not None:
            self.counted[key] = counts, hook

        def call(grad: Any) -> Any:
            if not self.late and self.definedness.defers():
                return None
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
        leaf = getattr(end, "variable", None)
        if gradient is not None or leaf is None:
            continue
        for key, hook in (leaf._backward_hooks or {}).items():
            if not isinstance(hook, _Defined):
                leaf._backward_hooks[key] = _Defined(hook)
        after = leaf._post_accumulate_grad_hooks
        if after:
            for key, hook in after.items():
                if not isinstance(hook, _AfterDefined):
                    after[key] = _AfterDefined(hook)
            with_first_hook(leaf, partial(_note_undefined, [*after.values()]))


@dataclass(eq=False)
class _AfterDefined:
    """A hook after accumulation that is not called in a pass without a gradient."""

    hook: Callable[[torch.Tensor], Any]
    undefined: int = -1

    def __call__(self, leaf: torch.Tensor) -> Any:
        return None if self.undefined == current_backward_pass() else self.hook(leaf)


def _note_undefined(hooks: Sequence[_AfterDefined], gradient: Any) -> None:
    for hook in hooks:
        hook.undefined = current_backward_pass() if gradient is None else -1


@dataclass(frozen=True)
class _Defined:
    """A hook that is not called for a gradient that is undefined."""

    hook: Callable[[torch.Tensor], Any]

    def __call__(self, gradient: torch.Tensor | None) -> Any:
        if gradient is not None:
            return self.hook(gradient)
        counts, nodes = _counts_of_passes(self.hook)
        if counts is not None:  # of several tensors: called with None where another one has some
            number, buffer = current_backward_pass(), _cells(self.hook)["buffer"].cell_contents
            last = counts.get(number, 0) + 1 == sum(map(torch._C._will_engine_execute_node, nodes))
            if not last or any(x is not None for x in buffer.get(number, ())):
                self.hook(None)  # type: ignore[arg-type]
            else:
                counts.pop(number, None)
                buffer.pop(number, None)
        return None


def _counts_of_passes(hook: Any) -> tuple[Any, Sequence[Any]]:
    """How often the hooks of a `register_multi_grad_hook(mode="all")`, one of which this is, have
    been called, by backward pass, and the nodes of what they are on; None for other hooks."""
    code = getattr(hook, "__code__", None)
    if code is None or hook.__module__ != torch.autograd.graph.__name__:
        return None, ()
    cells = _cells(hook)
    if not {"count", "buffer", "grad_fns"} <= cells.keys():
        return None, ()
    return cells["count"].cell_contents, cells["grad_fns"].cell_contents


def _cells(function: Any) -> dict[str, Any]:
    return dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))


def separate_hooks(
    function: type[torch.autograd.Function],
    order: Sequence[int],
    place: Callable[[Any, int], tuple[Any, int]],
    runs: Callable[[Any, int], bool],
    defers: Callable[[Any], bool],
) -> None:
    """Let the results of an autograd function have hooks as results of nodes of their own have, run
    in this order: an engine that runs a node for one result calls the hooks of all, with None, and
    those first that were put there first. place: of a node and a result, the node of the call and
    which of its outputs it is. runs: of these, whether the backward pass would come to a node of
    that alone. defers: of a call's node, whether hooks are called later.

    `Tensor.register_hook` calls the node at the first hook that a tensor gets; that of a node puts
    hooks on all of its results, of which a tensor takes its own.
    """
    node: Any = function._backward_cls  # type: ignore[attr-defined]
    usual = node._register_hook_dict

    def register(self: Any, tensor: torch.Tensor) -> None:
        if not hasattr(self, "hooks"):
            places = _Places.apply(max(order) + 1, torch.empty(0, requires_grad=True))  # type: ignore[no-untyped-call]
            node = ref(self)  # whose end frees what it keeps
            definedness = _Definedness(
                order, lambda at: runs(*place(node(), at)), lambda: defers(place(node(), 0)[0])
            )
            for at in order:
                places[at]._backward_hooks = OrderedDict({0: partial(definedness.note, at)})
                usual(self, places[at])
            self.definedness, self.hooks = definedness, definedness.hooks
            for at in order:
                self.hooks[at] = places[at]._backward_hooks = _WhereDefined(definedness, at)
                usual(self, places[at])
        tensor._backward_hooks = self.hooks[tensor.output_nr]
        self.hooked = {*hooked(self), tensor.output_nr}
        main, at = place(self, tensor.output_nr)
        main.__dict__.setdefault("result_hooks", {})[at] = self.hooks[tensor.output_nr]

    node._register_hook_dict = register


def result_hooks(main: Any) -> dict[int, _WhereDefined]:
    """The hooks on the results of a call, by output; there may be none left."""
    found: dict[int, _WhereDefined] = main.__dict__.get("result_hooks", {})
    return found


class _Places(torch.autograd.Function):
    """Tensors that are the first, second, ... result of a node."""

    @staticmethod
    def forward(ctx: Any, count: int, anchor: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(anchor.new_empty(0) for _ in range(count))


LeafOrder = Sequence[tuple[int, Sequence[tuple[int, frozenset[int]]]]]
"""For each leaf that a node leads to, the nodes after which eager comes to it with the cotangents
that lead to these, those that are run last first."""


def leaf_numbers(order: LeafOrder, given: Sequence[Any]) -> dict[int, int]:
    """By leaf, the node after which eager comes to it where these cotangents are given."""
    found = dict[int, int]()
    for place, leading in order:
        for number, own in leading:
            if any(given[at] is not None for at in own):
                found.setdefault(place, number)
    return found


def with_first_hook(leaf: torch.Tensor, hook: Callable[[torch.Tensor], Any]) -> None:
    """Let a hook on a leaf be called before all others in the backward pass being run."""
    number = current_backward_pass()

    def once(grad: torch.Tensor) -> Any:
        handle.remove()
        return hook(grad) if current_backward_pass() == number else None

    handle = leaf.register_hook(once)
    hooks: Any = leaf._backward_hooks
    for key in [*hooks][:-1]:  # the engine calls them in the order of their being put there
        hooks[key] = hooks.pop(key)


def leaf_has_hooks(end: Any) -> bool:
    """Whether a node is that of a leaf with hooks."""
    leaf = getattr(end, "variable", None)
    return leaf is not None and bool(leaf._backward_hooks or leaf._post_accumulate_grad_hooks)


def leaves_in_order(node: Any, order: LeafOrder, given: Sequence[Any]) -> None:
    """Let the engine come to the leaves with hooks that a node leads to in this order, of all of
    which it knows the gradients at once."""
    ends, found = node.next_functions, list[tuple[int, Any]]()
    numbers = leaf_numbers(order, given)
    for place, _ in order:
        if leaf_has_hooks(ends[place][0]):
            found.append((numbers.get(place, _OF_LEAVES), ends[place][0]))
    if len(found) < 2:
        return
    for number, (_, end) in enumerate(sorted(found, key=lambda item: item[0])):
        end._set_sequence_nr(_OF_LEAVES - len(found) + 1 + number)
    over = _Over([end for _, end in found])
    torch.autograd.Variable._execution_engine.queue_callback(over)  # type: ignore[attr-defined]


class _Over:
    """What a backward pass holds until it is over, or has failed: nodes of leaves are then run as
    soon as they may be again."""

    def __init__(self, ends: Sequence[Any]) -> None:
        self.ends = ends

    def __call__(self) -> None:
        """Nothing is left to do in the pass."""

    def __del__(self) -> None:
        for end in self.ends:
            end._set_sequence_nr(_OF_LEAVES)


_OF_LEAVES = 2**64 - 1
"""The sequence number that nodes of leaves have: they are run as soon as they may be."""


def hooked(node: Any) -> Collection[int]:
    """The results of such a node that have had hooks."""
    found: Collection[int] = getattr(node, "hooked", ())
    return found
