"""Stride rules against torch, on layouts drawn at random."""

import random

import pytest
import torch
from flambeau_prims.shape_rules import (
    TensorMeta,
    elementwise_strides,
    is_channels_last,
    is_contiguous,
    is_dense,
    preserved_strides,
    suggests_channels_last,
    view_strides,
)


def draw(rng, shape):
    """A tensor of `shape` that is permuted, sliced, or expanded somewhere."""
    order = rng.sample(range(len(shape)), len(shape))
    grown = [shape[d] * rng.choice([1, 1, 2]) for d in order]
    steps = [g // shape[d] if shape[d] else 1 for g, d in zip(grown, order, strict=True)]
    base = torch.zeros(grown)[tuple(slice(None, None, s) for s in steps)]
    x = base.permute([order.index(d) for d in range(len(shape))])
    if shape and rng.random() < 0.3:
        dim = rng.randrange(len(shape))
        x = x.narrow(dim, 0, min(1, shape[dim])).expand(shape) if shape[dim] else x
    return x


def same(shape, a, b):
    return all(n <= 1 or p == q for n, p, q in zip(shape, a, b, strict=True)) or 0 in shape


@pytest.mark.parametrize("seed", range(8))
def test_elementwise_and_copies(seed):
    rng = random.Random(seed)
    for _ in range(60):
        shape = [
            rng.choice([1, 2, 3, 4, 0] if rng.random() < 0.1 else [1, 2, 3, 4])
            for _ in range(rng.randint(0, 5))
        ]
        xs = [draw(rng, shape) for _ in range(rng.randint(1, 3))]
        metas = [TensorMeta.of(x) for x in xs]
        expected = (
            torch.where(xs[0] == 0, xs[1], xs[2])
            if len(xs) == 3 and xs[0].is_contiguous()
            else torch.add(xs[0], xs[1])
            if len(xs) > 1
            else torch.neg(xs[0])
        )
        used = metas if len(xs) == 3 and xs[0].is_contiguous() else metas[:2]
        assert same(shape, elementwise_strides(used), expected.stride()), metas
        for x, m in zip(xs, metas, strict=True):
            assert same(shape, preserved_strides(m), x.clone().stride()), m
            assert is_contiguous(m.shape, m.stride) == x.is_contiguous()
            if x.ndim == 4 and x.numel():
                cl = x.is_contiguous(memory_format=torch.channels_last)
                assert is_channels_last(m.shape, m.stride) == cl
            if x.numel():
                dense = x.clone().untyped_storage().nbytes() == x.numel() * 4
                assert dense and is_dense(m.shape, x.clone().stride())


@pytest.mark.parametrize("seed", range(4))
def test_views(seed):
    rng = random.Random(seed)
    found = 0
    for _ in range(200):
        shape = [rng.choice([1, 2, 3, 4, 6]) for _ in range(rng.randint(0, 4))]
        x = draw(rng, shape)
        flat, target = x.numel(), []
        while flat > 1:
            part = rng.choice([d for d in range(1, flat + 1) if flat % d == 0])
            target.append(part)
            flat //= part
        target += [1] * rng.choice([0, 1])
        rng.shuffle(target)
        got = view_strides(tuple(x.shape), tuple(x.stride()), target)
        try:
            expected = x.view(target).stride()
        except RuntimeError:
            assert got is None, (x.shape, x.stride(), target)
        else:
            found += 1
            assert got is not None and same(target, got, expected), (x.shape, x.stride(), target)
    assert found > 20


def test_suggested_format():
    w = torch.randn(2, 3, 1, 1)
    for x in (
        torch.randn(2, 3, 4, 5),
        torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        torch.randn(2, 4, 5, 6).permute(0, 3, 1, 2)[:, :3],
        torch.randn(2, 3, 1, 1),
    ):
        got = suggests_channels_last(TensorMeta.of(x))
        out = torch.nn.functional.avg_pool2d(x, 1)
        assert got == (not out.is_contiguous()), x.stride()
    assert w.is_contiguous()
