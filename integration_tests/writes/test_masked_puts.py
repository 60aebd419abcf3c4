"""Writes under masks stay in the graph, through the whole stack."""

import pytest
import torch

import flambeau

CALLS = {
    "rows": lambda x, m, v: x.__setitem__(m, v),
    "a row": lambda x, m, v: x.__setitem__(m, v[0]),
    "one of each": lambda x, m, v: x.__setitem__(m, v[:, :1]),
    "one row in two dimensions": lambda x, m, v: x.__setitem__(m, v[:1]),
    "a number": lambda x, m, v: x.__setitem__(m, v[0, 0]),
    "added": lambda x, m, v: x.index_put_((m,), v, accumulate=True),
    "added to all": lambda x, m, v: x.index_put_((m,), v[1], accumulate=True),
    "too many": lambda x, m, v: x.__setitem__(m, torch.cat([v, v])),
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_as_eager(name, grad) -> None:
    def fn(x, m, v):
        y = torch.relu(x * 2).clone()
        CALLS[name](y, m, v * 2)
        return y.sum(-1) + 1

    mask = torch.tensor([True, False, True, False, True])
    both = []
    compiled = flambeau.compile(fn, fullgraph=True)
    torch.manual_seed(0)
    x, v = torch.randn(5, 4), torch.randn(3, 4)
    for run in (fn, compiled):
        x, v = (t.detach().clone().requires_grad_(grad) for t in (x, v))
        try:
            y = run(x, mask, v)
        except RuntimeError as error:
            both.append(str(error))
            continue
        if grad:
            (y * torch.arange(5)).sum().backward()
        both.append((y, x.grad, v.grad))
    if name == "too many":
        assert "shape mismatch" in both[0]
        assert "shape mismatch" in both[1]
    else:
        torch.testing.assert_close(both[1], both[0])
    assert flambeau.report(compiled).graphs == 1
