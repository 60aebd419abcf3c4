"""Offsets of a nested tensor have no fake form: what is done with them happens in Python, with
eager's answer; so does what is done with a view that autograd refuses a history."""

import pytest
import torch
from flambeau_capture import optimize

PARTS = [torch.arange(8.0).reshape(2, 4), torch.arange(12.0).reshape(3, 4)]


def made_inside(x):
    made = torch.nested.nested_tensor(PARTS, layout=torch.jagged)
    return made.values() * x.sum()


def taken_inside(x):
    offsets = torch.nested.nested_tensor(PARTS, layout=torch.jagged).offsets()
    return offsets * 2 + x.shape[0], offsets.diff()


def given(x, offsets):
    return offsets + x.shape[0]


OFFSETS = torch.nested.nested_tensor(PARTS, layout=torch.jagged).offsets()


@pytest.mark.parametrize(
    ("f", "more"), [(made_inside, ()), (taken_inside, ()), (given, (OFFSETS,))]
)
def test_nested_tensors_and_their_offsets(f, more, backend):
    want = f(torch.ones(3), *more)
    compiled = optimize(backend)(f)
    for _ in range(2):
        found = compiled(torch.ones(3), *more)
        pairs = zip(found, want) if isinstance(want, tuple) else [(found, want)]
        assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize("write", ["v.add_(1)", "v.mul_(2).sub_(1)", "v[0] = 3", "v.zero_()"])
@pytest.mark.parametrize("leaves", ["v", "x.view(-1), v.view(1, -1)", "x[0] + v"])
def test_a_view_written_to_under_no_grad(write, leaves, backend):
    names = {}
    exec(f"def f(x):\n    v = x[0]\n    {write}\n    return {leaves}\n", names)
    f = names["f"]

    def outcome(call):
        x = torch.ones(2, 2, requires_grad=True)
        with torch.no_grad():
            call(x)
        y = x * 1
        call(y)
        y.sum().backward()
        return x.tolist(), y.tolist(), x.grad.tolist()

    assert outcome(optimize(backend)(f)) == outcome(f)
