"""vmap in chunks: the function runs once for each, with all that it does besides."""

import flambeau_capture as fc
import pytest
import torch
from torch import nn
from torch.func import grad, jacrev, vmap

ROWS = 5
CHUNKS = (1, 2, ROWS, ROWS + 2)
COUNT = [0]


def summed(a):
    return (a.sin() * a).sum()


def itself(a):
    return a


def structure(a):
    return {"twice": a * 2, "rest": [a.cumsum(0), (a > 0).sum()]}


def drawn(a):
    return a + torch.rand_like(a)


def written(a):
    made = torch.zeros_like(a)
    made[0] = 1
    made.add_(a)
    return made


def slope(a):
    return grad(summed)(a)


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("fn", [summed, itself, structure, drawn, written, slope])
def test_one_graph(fn, dim, chunk) -> None:
    def mapped(t):
        return vmap(fn, in_dims=dim, chunk_size=chunk, randomness="different")(t)

    x = torch.randn(ROWS, ROWS)
    compiled = fc.compile(mapped, backend="eager", fullgraph=True)
    for _ in range(2):
        torch.manual_seed(0)
        wanted = mapped(x)
        torch.manual_seed(0)
        found = compiled(x)
        torch.testing.assert_close(found, wanted)
        leaves = zip(*map(torch.utils._pytree.tree_leaves, (found, wanted)), strict=True)
        assert all((a is x) == (b is x) and a.stride() == b.stride() for a, b in leaves)


def without_derivative(a):
    with torch.no_grad():
        half = a / 2
    return half + a


@pytest.mark.parametrize("fn", [summed, written, slope, without_derivative, drawn])
def test_the_same_numbers_for_each_chunk(fn) -> None:
    """A graph sets no state of the generator back: it holds what draws nothing."""

    def mapped(t):
        return vmap(fn, chunk_size=2, randomness="same")(t)

    x = torch.randn(ROWS, ROWS)
    compiled = fc.compile(mapped, backend="eager", fullgraph=fn is not drawn)
    found = []
    for call in (mapped, compiled):
        torch.manual_seed(0)
        found.append(call(x))
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_gradients_and_what_is_not_mapped(chunk) -> None:
    layer = nn.Linear(3, 2)

    def loss(weight, sample, target):
        return ((sample @ weight.T - target) ** 2).sum()

    def fn(samples, targets):
        inside = vmap(grad(loss), in_dims=(None, 0, 0), chunk_size=chunk)
        return inside(layer.weight, samples, targets).sum() + layer(samples).sum()

    found = []
    for call in (fn, fc.compile(fn, backend="eager", fullgraph=True)):
        layer.zero_grad()
        made = call(torch.ones(ROWS, 3), torch.zeros(ROWS, 2))
        made.backward()
        found.append((made.detach(), layer.weight.grad, layer.bias.grad))
    torch.testing.assert_close(found[1], found[0])


def test_rows_of_a_jacobian(agree) -> None:
    agree(lambda t: jacrev(torch.sin, chunk_size=2)(t), torch.randn(ROWS))


def counts(a):
    COUNT[0] += 1
    return a * COUNT[0]


def collects(made):
    def fn(a):
        made.append(1)
        return a * len(made)

    return fn


def takes_next(numbers):
    def fn(a):
        return a * next(numbers)

    return fn


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("effect", ["global", "local", "iterator"])
def test_effects_happen_for_each_chunk(effect, chunk, before) -> None:
    def fn(t):
        made = []
        numbers = iter(range(100))
        if before:  # the same objects have changed already
            COUNT[0] += 1
            made.append(next(numbers))
        inner = {"global": counts, "local": collects(made), "iterator": takes_next(numbers)}
        return vmap(inner[effect], chunk_size=chunk)(t), len(made), next(numbers)

    seen = []
    for call in (fn, fc.compile(fn, backend="eager")):
        COUNT[0] = 0
        seen.append([(call(torch.ones(ROWS, 3)), COUNT[0]) for _ in range(2)])
    torch.testing.assert_close(seen[1], seen[0])


@pytest.mark.parametrize("chunk", [0, -1])
def test_no_chunk_is_empty(chunk) -> None:
    with pytest.raises(ValueError, match="chunk_size should be None or greater than 0"):
        fc.compile(lambda t: vmap(summed, chunk_size=chunk)(t), backend="eager")(torch.ones(2, 2))
