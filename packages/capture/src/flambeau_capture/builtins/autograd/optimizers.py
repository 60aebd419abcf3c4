"""State that one of torch's optimizers makes in its first step, made before the graph runs.

In: a call of `_init_group`, which makes what a parameter's state lacks. Out: nothing; the state is
there, and the graph of the first step is that of every other. Invariant: torch's own code makes it,
in the modes that the program is in; it is taken back where the graph that would have made it raises
or is not compiled, and left to the graph where the frame knows, or has changed, what it depends on.
"""

from __future__ import annotations

import collections
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.values.base import Args, Kwargs, Tracer
from flambeau_capture.values.constant import is_none
from flambeau_capture.values.containers.lists import ListValue
from flambeau_capture.values.functions.call_rules import RULES, Action, CallRule
from flambeau_capture.values.tensors.tensor import TensorValue

Optimizer = torch.optim.Optimizer


class _Made:
    """The state that a call has made. Calling this takes it back, unless it was used since."""

    def __init__(self, optimizer: Optimizer, before: dict[torch.Tensor, bool]) -> None:
        self._optimizer = weakref.ref(optimizer)
        new = [each for each in optimizer.state if not before.get(each)]
        self._new = [(weakref.ref(each), each in before) for each in new]
        made = [one for each in new for one in optimizer.state[each].values()]
        self.tensors = [(weakref.ref(one), one._version) for one in made]

    def __call__(self) -> None:
        optimizer, tensors = self._optimizer(), [(made(), then) for made, then in self.tensors]
        if optimizer is None or any(x is None or x._version != then for x, then in tensors):
            return
        for reference, was_there in self._new:
            parameter = reference()
            if parameter is not None and was_there:
                optimizer.state[parameter].clear()
            else:
                optimizer.state.pop(parameter, None)
        self._new.clear()


def _make_state(tx: Tracer, called: Any, args: Args, kwargs: Kwargs) -> None:
    """Let torch make the state of every group, where they are what they were before the frame."""
    optimizer = getattr(args[0], "real", None) if args else None
    lists = args[2:]
    if kwargs or not all(isinstance(each, ListValue) for each in lists):
        return
    if not isinstance(optimizer, Optimizer) or type(optimizer.state) is not collections.defaultdict:
        return
    groups, state = optimizer.param_groups, optimizer.state
    parameters = [each for group in groups for each in group["params"]]
    if all(map(state.get, parameters)) or not _is_as_before(tx, args[0], optimizer):
        return
    values = [tx.heap.find(each) for each in parameters]
    if not all(each is None or _keeps_its_data(each) for each in values):
        return
    written = [None if each is None else each.written_grad for each in values]
    gradients = dict(zip(parameters, written, strict=True))
    had, attributes = {each: bool(kept) for each, kept in state.items()}, {**vars(optimizer)}
    try:
        with _shown(gradients):
            for group in groups:
                called.real(optimizer, group, *([] for _ in lists))
    except Exception:  # it raises again where the call is interpreted, or is refused there
        whole = False
    else:
        now = vars(optimizer)
        whole = now.keys() == attributes.keys() and all(now[k] is v for k, v in attributes.items())
    made = _Made(optimizer, had)
    if whole and made.tensors:
        tx.graph.made_before.append(made)
    else:
        vars(optimizer).clear()
        vars(optimizer).update(attributes)
        made()


def _is_as_before(tx: Tracer, own: Any, optimizer: Optimizer) -> bool:
    """Whether nothing is known of an optimizer's state, and no choice of its groups has changed."""
    groups, heap = optimizer.param_groups, tx.heap
    choices = [one for group in groups for name, one in group.items() if name != "params"]
    known = [heap.find(one) for one in choices if isinstance(one, torch.Tensor)]
    read = [each for each in known if each is not None and each.in_graph()]
    parts = [groups, *groups, *(group["params"] for group in groups)]
    return (
        tx.graph is tx.graph.outermost
        and heap.find(optimizer.state) is None
        and own.written.keys().isdisjoint({"state", "param_groups", "defaults"})
        and not any(heap.is_changed(heap.find(each)) for each in parts)
        and not tx.graph.effects.writes_to([each.fake for each in read])
    )


def _keeps_its_data(value: Any) -> bool:
    if not isinstance(value, TensorValue) or value.calls or value.written_data is not None:
        return False
    gradient = value.written_grad
    return not isinstance(gradient, TensorValue) or compat.has_form(gradient.fake)


@contextmanager
def _shown(gradients: dict[torch.Tensor, Any]) -> Iterator[None]:
    """Parameters with the gradients that they have by now in the frame, of whatever values."""
    before = {each: each.grad for each in gradients}
    try:
        for parameter, written in gradients.items():
            if written is not None:
                parameter.grad = None if is_none(written) else compat.like_fake(written.fake)
        yield
    finally:
        for parameter, kept in before.items():
            parameter.grad = kept


for _kind in vars(torch.optim).values():
    _method = getattr(_kind, "_init_group", None) if isinstance(_kind, type) else None
    if _method is not None:
        RULES[_method] = CallRule(Action.INLINE, handler=_make_state, of_called=True)
