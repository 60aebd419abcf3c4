"""Wrapper subclasses as programs write them, and what the tests compare of one."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

aten = torch.ops.aten


class Wrapper(torch.Tensor):
    """What the classes below share: `NAMES` of inner tensors, `scale` as the context; outside it is
    as the first of them."""

    NAMES: tuple[str, ...] = ()
    scale = 1.0

    @staticmethod
    def __new__(cls, first, other, scale=1.0):
        return torch.Tensor._make_wrapper_subclass(
            cls, first.shape, strides=first.stride(), dtype=first.dtype, device=first.device
        )

    def __repr__(self):
        inner = ", ".join(str(getattr(self, name)) for name in self.NAMES)
        return f"{type(self).__name__}({inner}, {self.scale})"

    def __tensor_flatten__(self):
        return list(self.NAMES), self.scale

    @classmethod
    def __tensor_unflatten__(cls, inner, context, size, stride):
        return cls(*(inner[name] for name in cls.NAMES), context)


class Mixed(Wrapper):
    """One value in two dtypes."""

    NAMES = ("low", "high")

    def __init__(self, low, high, scale=1.0):
        self.low, self.high, self.scale = low, high, scale

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = next(x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Mixed))
        parts = []
        for name in cls.NAMES:
            own, named = pytree.tree_map_only(Mixed, lambda x: getattr(x, name), (args, kwargs))  # noqa: B023
            parts.append(func(*own, **named))

        def both(low, high):
            return cls(low, high, given.scale) if isinstance(low, torch.Tensor) else low

        made = pytree.tree_map(both, *parts)
        return return_and_correct_aliasing(func, args, kwargs, made)


class Masked(Wrapper):
    """Data and a mask of another dtype; what is masked out counts as zero in reductions."""

    NAMES = ("data_", "mask")

    def __init__(self, data_, mask, scale=1.0):
        self.data_, self.mask, self.scale = data_, mask, scale

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        leaves = pytree.tree_leaves((args, kwargs))
        given = [x for x in leaves if isinstance(x, Masked)]
        data, named = pytree.tree_map_only(Masked, lambda x: x.data_, (args, kwargs))
        if func in (aten.sum.default, aten.mean.default):
            kept = torch.where(given[0].mask, data[0], torch.zeros_like(data[0]))
            return func(kept, *data[1:], **named)
        mask = given[0].mask
        for other in given[1:]:
            mask = mask & other.mask
        out = func(*data, **named)
        scale = given[0].scale
        if out.shape != mask.shape or func is aten.t.default:  # it goes where the data goes
            mask = func(mask.to(out.dtype), *data[1:], **named) != 0
        made = cls(out, mask, scale)
        return return_and_correct_aliasing(func, args, kwargs, made)


class Quantized(Wrapper):
    """Integers and a scale for each row: as a weight, products take it as it is."""

    NAMES = ("q", "s")

    @staticmethod
    def __new__(cls, q, s, scale=1.0):
        return torch.Tensor._make_wrapper_subclass(cls, q.shape, dtype=s.dtype, device=q.device)

    def __init__(self, q, s, scale=1.0):
        self.q, self.s, self.scale = q, s, scale

    def dequantize(self):
        return self.q.to(self.s.dtype) * self.s * self.scale

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func in (aten.detach.default, aten.clone.default, aten.alias.default):
            return return_and_correct_aliasing(
                func, args, kwargs or {}, cls(func(args[0].q), func(args[0].s), args[0].scale)
            )
        plain, named = pytree.tree_map_only(
            Quantized, lambda x: x.dequantize(), (args, kwargs or {})
        )
        return func(*plain, **named)


class QuantizedLinear(Quantized):
    """The same, with `F.linear` as `__torch_function__` has it."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is F.linear:
            x, weight, bias = [*args, *kwargs.values(), None][:3]
            out = x @ weight.q.to(x.dtype).t() * weight.s.t() * weight.scale
            return out if bias is None else out + bias
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)


def two(seed=0, size=(3, 4)):
    draw = torch.Generator().manual_seed(seed)
    return TwoTensor(*(torch.randn(size, generator=draw) for _ in range(2)))


def masked(seed=0, size=(3, 4)):
    draw = torch.Generator().manual_seed(seed)
    data = torch.randn(size, generator=draw)
    return Masked(data, torch.rand(size, generator=draw) > 0.3, 2.0)


def mixed(seed=0, size=(3, 4)):
    draw = torch.Generator().manual_seed(seed)
    low = torch.randn(size, generator=draw)
    return Mixed(low, torch.randn(size, generator=draw, dtype=torch.float64), 2.0)


def nested(seed=0, size=(3, 4)):
    return TwoTensor(mixed(seed, size), mixed(seed + 10, size))


def nested_masked(seed=0, size=(3, 4)):
    return TwoTensor(masked(seed, size), masked(seed + 10, size))


def quantized(seed=0, size=(3, 4), cls=Quantized):
    draw = torch.Generator().manual_seed(seed)
    q = torch.randint(-9, 9, size, generator=draw, dtype=torch.int8)
    return cls(q, torch.rand((size[0], 1), generator=draw), 0.5)


def quantized_linear(seed=0, size=(3, 4)):
    return quantized(seed, size, QuantizedLinear)


def same(given, expected):
    """Class, context, metadata, inner tensors and values, at every level."""
    assert type(given) is type(expected)
    if isinstance(expected, tuple | list):
        assert len(given) == len(expected)
        for one, other in zip(given, expected, strict=True):
            same(one, other)
    elif isinstance(expected, torch.Tensor):
        for name in ("shape", "dtype", "requires_grad", "is_leaf"):
            assert getattr(given, name) == getattr(expected, name), name
        assert given.stride() == expected.stride()
        if not hasattr(expected, "__tensor_flatten__"):
            torch.testing.assert_close(given, expected)
            return
        assert given.__tensor_flatten__() == expected.__tensor_flatten__()
        for name in expected.__tensor_flatten__()[0]:
            same(getattr(given, name), getattr(expected, name))
    else:
        assert given == expected
