"""Hooks that a module calls even where its forward raises."""

import pytest
import torch
from torch import nn
from torch.nn.modules import module as of_all


def raises(*_):
    raise IndexError("of the program")


class Model(nn.Module):
    """Raises where it is said to, and counts the calls of its hooks."""

    def __init__(self, where, table, kwargs):
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.seen, self.width = [], 4 if where == "forward" else 3
        if where == "before":
            self.inner.register_forward_pre_hook(raises)
        if where == "after":
            self.inner.register_forward_hook(raises)
        options = {"with_kwargs": True} if kwargs else {}
        if table == "module":
            self.inner.register_forward_hook(self.note, always_call=True, **options)
        if table == "late":
            self.inner.register_forward_hook(lambda *_: self.seen.append("late"))

    def note(self, *given):
        self.seen.append(len(given))

    def forward(self, t):
        return self.inner(t) + 1


def outcomes(call, model):
    found = []
    for round_ in range(3):
        if round_ == 2:
            model.inner.register_forward_hook(model.note, always_call=True)
        try:
            call(torch.ones(2, model.width))
            found.append("")
        except (IndexError, RuntimeError) as error:
            found.append(type(error).__name__)
    return found, model.seen


@pytest.mark.parametrize("where", ("nowhere", "before", "after", "forward"))
@pytest.mark.parametrize("table", ("none", "module", "late", "all"))
@pytest.mark.parametrize("kwargs", (False, True))
def test_they_are_called(capture, where, table, kwargs):
    ours, eager = Model(where, table, kwargs), Model(where, table, kwargs)
    handles = []
    if table == "all":
        for model in (ours, eager):
            handles.append(
                of_all.register_module_forward_hook(
                    lambda m, *_, model=model: model.seen.append(0) if m is model.inner else None,
                    always_call=True,
                )
            )
    try:
        assert outcomes(capture(ours), ours) == outcomes(eager, eager)
    finally:
        for handle in handles:
            handle.remove()
