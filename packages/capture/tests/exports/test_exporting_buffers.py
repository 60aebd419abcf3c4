"""Buffers that a module sets anew: an exported graph writes them where they are."""

import copy

import flambeau_capture
import pytest
import torch
from flambeau_capture.errors import ExportError


def module(forward, a=None):
    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("a", torch.zeros(3) if a is None else a)
            self.register_buffer("b", torch.ones(3))
            self.inner = torch.nn.BatchNorm1d(3)

        def forward(self, x):
            return forward(self, x)

    return Module()


def added(m, x):
    m.a = m.a + x
    return m.a * 2


def old_is_returned(m, x):
    old = m.a
    m.a = m.a + x
    return old, old[1:], m.a, x


def swapped(m, x):
    m.a, m.b = m.b, m.a + x
    return m.a - m.b


def the_argument(m, x):
    m.a = x
    return x + 1


def written_and_set(m, x):
    m.a = m.a + 1
    m.b.add_(m.a)
    m.a = m.a * x
    return {"both": [m.a + m.b, None, 3]}


def of_an_inner_module(m, x):
    m.inner.running_mean = m.inner.running_mean * 0.9 + x
    return m.inner(x.expand(2, 3)) + m.a


def set_in_a_condition(m, x):
    if x.shape[0] > 2:
        m.a = torch.where(x > 0, x, m.a)
    return m.a.sum()


WRITTEN = [
    added, old_is_returned, swapped, the_argument, written_and_set, of_an_inner_module,
    set_in_a_condition,
]  # fmt: skip


@pytest.mark.parametrize("forward", WRITTEN, ids=lambda f: f.__name__)
def test_calls_of_the_graph_leave_buffers_and_results_as_eager_does(forward):
    own = module(forward)
    eager = copy.deepcopy(own)
    before = {name: (buffer, buffer.clone()) for name, buffer in own.named_buffers()}
    exported = flambeau_capture.export(own, torch.randn(3))
    for name, buffer in own.named_buffers():
        assert buffer is before[name][0] and torch.equal(buffer, before[name][1])
    for _ in range(3):
        x = torch.randn(3)
        torch.testing.assert_close(exported(x), eager(x))
        for one, other in zip(own.buffers(), eager.buffers(), strict=True):
            torch.testing.assert_close(one, other)


def grown(m, x):
    m.a = torch.cat([m.a, x])
    return m.a


def no_tensor(m, x):
    m.a = None
    return x + 1


def another_dtype(m, x):
    m.a = m.a.double() + 1
    return m.a


def a_new_name(m, x):
    m.register_buffer("c", x * 2)
    return m.c


def another_attribute(m, x):
    m.a = m.a + 1
    m.calls = 1
    return x * m.a


@pytest.mark.parametrize(
    "forward", [grown, no_tensor, another_dtype, a_new_name, another_attribute],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_what_cannot_be_written_in_place_is_refused_and_changes_nothing(forward):
    own = module(forward)
    before = dict(own.named_buffers())
    with pytest.raises(ExportError, match=r"sets a buffer|changes"):
        flambeau_capture.export(own, torch.ones(3))
    after = dict(own.named_buffers())
    assert after.keys() == before.keys() and all(after[name] is before[name] for name in before)


def test_a_buffer_of_two_names_is_refused():
    own = module(added)
    own.register_buffer("same", own.a)
    with pytest.raises(ExportError, match="two names"):
        flambeau_capture.export(own, torch.ones(3))
