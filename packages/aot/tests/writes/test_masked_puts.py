"""Writes under masks: every call, every form of the values, with and without gradients."""

import itertools

import flambeau_aot as aot
import pytest
import torch

aten = torch.ops.aten
X = torch.randn(3, 2, 4)
MASKS = {
    "rows": ((0,), torch.tensor([True, False, True])),
    "none": ((0,), torch.tensor([False, False, False])),
    "of two dimensions": ((0,), torch.tensor([[True, False], [True, True], [False, False]])),
    "of elements": ((0,), X > 0),
    "of the last": ((2,), torch.tensor([False, True, True, True])),
}
CALLS = {
    "[]=": lambda x, at, m, v: x.__setitem__((*[slice(None)] * at, m), v),
    "index_put_": lambda x, at, m, v: aten.index_put_.default(x, [*[None] * at, m], v),
    "accumulate": lambda x, at, m, v: aten.index_put_.default(x, [*[None] * at, m], v, True),
    "index_put": lambda x, at, m, v: x.mul_(aten.index_put.default(x, [*[None] * at, m], v)),
}


def forms(shape):
    """Values that broadcast to what is under a mask, and some that do not."""
    yield shape
    yield (1,)
    yield ()
    for place in range(len(shape)):
        yield (*shape[:place], 1, *shape[place + 1 :])
        yield shape[place + 1 :]
    yield (1, *shape)
    yield (shape[0] + 1, *shape[1:])


@pytest.mark.sweep(3)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", MASKS)
def test_as_eager(name, call, grad) -> None:
    (at,), mask = MASKS[name]
    shape = X[(*[slice(None)] * at, mask)].shape
    met = set()
    for form in dict.fromkeys(map(tuple, forms(tuple(shape)))):
        values = torch.randn(form)

        def fn(x, m, v):
            y = x * 1
            CALLS[call](y, at, m, v)
            return y.sin()

        both = []
        for run in (fn, aot.aot_function(fn, aot.run_as_is)):
            x, v = X.clone().requires_grad_(grad), values.clone().requires_grad_(grad)
            try:
                y = run(x, mask, v)
            except (RuntimeError, IndexError) as error:
                both.append(type(error))
                continue
            if grad:
                (y * torch.linspace(0.5, 2, y.numel()).view_as(y)).sum().backward()
            both.append((y, x.grad, v.grad))
        expected, given = both
        met.add(isinstance(expected, tuple))
        if not isinstance(expected, tuple):
            assert not isinstance(given, tuple), form
            continue
        torch.testing.assert_close(given, expected)
    assert True in met


def test_twice_differentiated() -> None:
    def fn(x, m, v):
        y = x * 1
        y[m] = v * v
        return (y**3).sum()

    mask = torch.tensor([True, False, True])
    both = []
    for run in (fn, aot.aot_function(fn, aot.run_as_is)):
        x = torch.tensor([1.0, 2, 3], requires_grad=True)
        v = torch.tensor([2.0, 3], requires_grad=True)
        first = torch.autograd.grad(run(x, mask, v), [x, v], create_graph=True)
        both.append(torch.autograd.grad(sum(g.sum() for g in first), [x, v]))
    torch.testing.assert_close(both[1], both[0])


FILLS = {
    "index_fill": lambda x, dim, at, v: x.index_fill(dim, at, v),
    "index_fill_": lambda x, dim, at, v: (x * 1).index_fill_(dim, at, v),
    "by name": lambda x, dim, at, v: torch.index_fill(x, dim=dim, index=at, value=v),
    "operator": lambda x, dim, at, v: aten.index_fill_.int_Tensor(x * 1, dim, at, v),
    "of a view": lambda x, dim, at, v: (y := x * 1, y[1].index_fill_(min(dim, 1), at % 2, v))[0],
}


@pytest.mark.parametrize("call", FILLS)
def test_one_value_at_some_indices(call) -> None:
    """Indices that repeat, or count from the end; one that is out of bounds; a value of another
    dtype, of a tensor's own elements, or of several elements, which eager refuses."""
    indices = [[0], [1, 0, 1], [-1], [], [7]]
    values = {"number": lambda v, x: v[0], "wide": lambda v, x: v[0].double()}
    values |= {"own": lambda v, x: x.flatten()[0] * 1, "row": lambda v, x: v}
    refused = 0
    for dim, at, (name, value) in itertools.product((0, 1, -1), indices, values.items()):

        def fn(x, v, dim=dim, at=at, value=value):
            return FILLS[call](x, dim, torch.tensor(at, dtype=torch.int64), value(v, x)).sin()

        both = []
        for run in (fn, aot.aot_function(fn, aot.run_as_is)):
            x, v = X.clone().requires_grad_(), torch.ones(2).requires_grad_()
            try:
                y = run(x, v)
                y.sum().backward()
            except (RuntimeError, IndexError) as error:
                both.append(type(error))
                continue
            both.append((y.detach(), x.grad, v.grad))
        expected, found = both
        if at == [-1] and isinstance(expected, type):  # of eager's derivative
            continue
        if isinstance(expected, type):
            refused += 1
            assert isinstance(found, type), (dim, at, name)
        else:
            assert not isinstance(found, type), (dim, at, name)
            torch.testing.assert_close(found, expected)
    assert refused
