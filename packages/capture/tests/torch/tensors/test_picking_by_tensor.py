"""`x[i]` of a tensor `i` of no dimension: a copy where nobody can tell it from a view."""

import pytest
import torch


def path(scores, moves):
    best, back = scores[0], []
    for step in range(1, len(scores)):
        found, index = (best[:, None] + moves).max(0)
        best = found + scores[step]
        back.append(index)
    last = best.argmax()
    states = [last]
    for index in reversed(back):
        last = index[last]
        states.append(last)
    return torch.stack(states[::-1])


def picked(x, y):
    i = y.argmax()
    return x[i] * 2, x[i, 0] + 1, x[i - 2].sum(), x[i, :2].sum()


@pytest.mark.parametrize("fn", [path, picked])
def test_one_graph(agree, fn):
    agree(fn, torch.randn(4, 4), torch.randn(4, 4)[: 4 if fn is path else 1, :4], calls=3)


def returned(x, y):
    z = x[y.argmax()]
    return z, x


def written(x, y):
    z = x[y.argmax()]
    z.mul_(2)
    return x + 0


def written_below(x, y):
    z = x[y.argmax()]
    x.mul_(2)
    return z + 0


def detached(x, y):
    z = x[y.argmax()]
    return z.detach(), z.view(1, -1), x


def strided(x, y):
    z = x[:, y.argmax()]
    return z.stride(), z + 1


@pytest.mark.parametrize("fn", [returned, written, written_below, detached, strided])
def test_where_it_shows_it_is_a_view(capture, same, fn):
    def used(run, x, y):
        found = run(x, y)
        if fn in (returned, detached):
            found[0].add_(1)
        return found, x

    compiled = capture(fn)
    for _ in range(2):
        x, y = torch.randn(4, 3), torch.randn(3)
        same(used(compiled, x.clone(), y), used(fn, x.clone(), y))


def test_gradients_and_errors(agree, capture):
    def fn(x, y):
        return (x[y.argmax()] ** 2).sum()

    agree(fn, torch.randn(4, 3, requires_grad=True), torch.randn(4))
    compiled = capture(lambda x, y: x[y.argmax() + 7] + 1)
    with pytest.raises(IndexError, match="out of bounds"):
        compiled(torch.randn(4, 3), torch.randn(4))
