"""Sample calls of every primitive.

In: a seed. Out: `Case`s, whose eager result a backend's result can be compared with.
Invariant: every primitive has at least one case; pointwise ones have several layouts and dtypes,
an empty operand and a 0-d one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flambeau_prims._op import PRIMS, Prim
from flambeau_prims.ops.pointwise import FLOATS, POINTWISE_DTYPES

F32, F64, BF16, I64, BOOL = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.int64,
    torch.bool,
)
CPU = torch.device("cpu")
_DTYPES = (F32, F64, BF16, I64, BOOL)


@dataclass(frozen=True)
class Case:
    """One call: `prim.overload(*args, **kwargs)`."""

    prim: Prim
    label: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def run(self) -> Any:
        """The eager result."""
        return self.prim.overload(*self.args, **self.kwargs)


def tensor(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Numbers around 1: positive, so that logarithms and powers are defined, and never 0."""
    if dtype == BOOL:
        return torch.rand(shape, generator=generator) > 0.5
    if not dtype.is_floating_point:
        return torch.randint(1, 7, shape, dtype=dtype, generator=generator)
    return (torch.rand(shape, generator=generator, dtype=F64) * 0.9 + 0.05).to(dtype)


def layouts(dtype: torch.dtype, g: torch.Generator) -> dict[str, Tensor]:
    """One dtype in shapes and layouts that a kernel might get wrong."""
    return {
        "contiguous": tensor((3, 4, 5), dtype, g),
        "permuted": tensor((5, 3, 4), dtype, g).permute(1, 2, 0),
        "strided": tensor((3, 4, 10), dtype, g)[:, :, ::2],
        "expanded": tensor((3, 1, 5), dtype, g).expand(3, 4, 5),
        "channels_last": tensor((2, 3, 4, 5), dtype, g).contiguous(
            memory_format=torch.channels_last
        ),
        "scalar": tensor((), dtype, g),
        "empty": tensor((3, 0, 5), dtype, g),
    }


def cases(seed: int = 0) -> Iterator[Case]:
    """Sample calls of every primitive, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    for name, prim in PRIMS.items():
        if "pointwise" in prim.tags:
            yield from _pointwise(prim, generator)
        else:
            for number, (args, kwargs) in enumerate(_SAMPLES[name](generator)):
                yield Case(prim, f"{name}-{number}", args, kwargs)


def _pointwise(prim: Prim, g: torch.Generator) -> Iterator[Case]:
    count = prim.schema.count("Tensor") - 1
    for dtype in _DTYPES:
        if not _accepts(prim, dtype):
            continue
        first, second = layouts(dtype, g), layouts(dtype, g)
        for label, a in first.items():
            # operands that disagree about the layout, where there is another of this shape
            other = second["permuted" if label in ("contiguous", "strided") else label]
            name = f"{prim.name}-{str(dtype).removeprefix('torch.')}-{label}"
            if prim.name == "where":
                yield Case(prim, name, (tensor(tuple(a.shape), BOOL, g), a, other), {})
            elif prim.name == "cast":
                for target in (F32, BF16, I64, BOOL):
                    to = str(target).removeprefix("torch.")
                    yield Case(prim, f"{name}-{to}", (a,), {"dtype": target})
            else:
                yield Case(prim, name, (a, other)[:count], {})


def _accepts(prim: Prim, dtype: torch.dtype) -> bool:
    kind = POINTWISE_DTYPES.get(prim.name)
    return kind is None or dtype in kind


_Call = tuple[tuple[Any, ...], dict[str, Any]]


def _call(*args: Any, **kwargs: Any) -> _Call:
    return args, kwargs


def _reductions(*dtypes: torch.dtype) -> Any:
    def samples(g: torch.Generator) -> Iterator[_Call]:
        for dtype in dtypes:
            for a in (tensor((3, 4, 5), dtype, g), tensor((5, 3, 4), dtype, g).permute(1, 2, 0)):
                for dims in ([2], [0, 2], [0, 1, 2], []):
                    yield _call(a, dims)
            yield _call(tensor((), dtype, g), [])

    return samples


def _positions(g: torch.Generator) -> Iterator[_Call]:
    for dtype in (F32, I64):
        yield _call(tensor((3, 7), dtype, g), 1)
        yield _call(tensor((7, 3), dtype, g).t(), 0)


def _var_mean(g: torch.Generator) -> Iterator[_Call]:
    for dtype in (F32, F64):
        for dims in ([1], [0, 2]):
            yield _call(tensor((3, 4, 5), dtype, g), dims, correction=1.0)
            yield _call(tensor((3, 4, 5), dtype, g).transpose(0, 1), dims, correction=0.0)


def _scans(g: torch.Generator) -> Iterator[_Call]:
    for dtype in (F32, I64):
        yield _call(tensor((3, 7), dtype, g), 1)
        yield _call(tensor((7, 3), dtype, g).t(), 0)


def _sorts(g: torch.Generator) -> Iterator[_Call]:
    for descending in (False, True):
        yield _call(torch.randperm(21, generator=g).view(3, 7).float(), 1, descending, True)
        yield _call(torch.randperm(21, generator=g).view(7, 3).t(), 0, descending, True)


def _topk(g: torch.Generator) -> Iterator[_Call]:
    yield _call(torch.randperm(21, generator=g).view(3, 7).float(), 3, 1, True, True)
    yield _call(torch.randperm(21, generator=g).view(7, 3).t(), 2, 0, False, True)


def _index(*shape: int, below: int, g: torch.Generator) -> Tensor:
    return torch.randint(below, shape, generator=g)


def _gather(g: torch.Generator) -> Iterator[_Call]:
    yield _call(tensor((4, 5), F32, g), 1, _index(4, 3, below=5, g=g))
    yield _call(tensor((5, 4), F32, g).t(), 0, _index(2, 5, below=4, g=g))


def _scatter(g: torch.Generator) -> Iterator[_Call]:
    order = torch.stack([torch.randperm(5, generator=g)[:3] for _ in range(4)])
    yield _call(tensor((4, 5), F32, g), 1, order, tensor((4, 3), F32, g))
    yield _call(tensor((5, 4), F32, g).t(), 1, order, tensor((3, 4), F32, g).t())


def _indexing(g: torch.Generator) -> Iterator[_Call]:
    a = tensor((4, 5, 6), F32, g)
    rows, columns = _index(3, below=4, g=g), _index(2, 1, below=6, g=g)
    yield _call(a, [rows])
    yield _call(a, [None, _index(2, 3, below=5, g=g)])
    yield _call(a, [rows, None, columns])
    yield _call(a.transpose(0, 2), [_index(3, below=6, g=g) - 6, rows])


def _index_put(g: torch.Generator) -> Iterator[_Call]:
    a = tensor((4, 5), F32, g)
    order = torch.randperm(4, generator=g)[:3]
    yield _call(a, [order], tensor((3, 5), F32, g), False)
    yield _call(a, [_index(7, below=4, g=g)], tensor((7, 5), F32, g), True)
    yield _call(a.t(), [None, order], tensor((3,), F32, g), True)


def _convolutions(g: torch.Generator) -> Iterator[_Call]:
    a, w = tensor((2, 4, 9, 8), F32, g), tensor((6, 4, 3, 3), F32, g)
    plain = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    yield _call(a, w, tensor((6,), F32, g), *plain)
    yield _call(a.contiguous(memory_format=torch.channels_last), w, None, *plain)
    yield _call(a, tensor((6, 2, 3, 3), F32, g), None, [2, 1], [0, 1], [1, 2], False, [0, 0], 2)
    yield _call(a, tensor((4, 3, 3, 3), F32, g), None, [2, 2], [1, 1], [1, 1], True, [1, 0], 1)
    yield _call(
        tensor((2, 4, 9), F32, g), tensor((6, 4, 3), F32, g), None, [1], [1], [1], False, [0], 1
    )


def _convolution_gradients(g: torch.Generator) -> Iterator[_Call]:
    for args, _ in _convolutions(g):
        out = torch.ops.aten.convolution.default(*args)
        rest = args[3:]
        for mask in ([True, True, True], [False, True, False]):
            yield _call(torch.ones_like(out), args[0], args[1], None, *rest, mask)


def _max_pools(g: torch.Generator) -> Iterator[_Call]:
    a = tensor((2, 3, 8, 9), F32, g)
    yield _call(a, [3, 3], [2, 2], [1, 1], [1, 1], False)
    yield _call(
        a.contiguous(memory_format=torch.channels_last), [2, 2], [2, 2], [0, 0], [1, 1], True
    )


def _max_pool_gradients(g: torch.Generator) -> Iterator[_Call]:
    for args, _ in _max_pools(g):
        values, positions = torch.ops.aten.max_pool2d_with_indices.default(*args)
        yield _call(torch.ones_like(values), *args, positions)


def _average_pools(g: torch.Generator) -> Iterator[_Call]:
    a = tensor((2, 3, 8, 9), F32, g)
    yield _call(a, [3, 3], [2, 2], [1, 1], False, False, None)
    yield _call(
        a.contiguous(memory_format=torch.channels_last), [2, 2], [2, 2], [0, 0], True, True, 3
    )


def _average_pool_gradients(g: torch.Generator) -> Iterator[_Call]:
    for args, _ in _average_pools(g):
        out = torch.ops.aten.avg_pool2d.default(*args)
        yield _call(torch.ones_like(out), *args)


def _attentions(g: torch.Generator) -> Iterator[_Call]:
    q, k, v = (tensor((2, 4, 6, 8), F32, g) for _ in range(3))
    yield _call(q, k, v, None, 0.0, True)
    yield _call(q, k, v, tensor((2, 1, 6, 6), F32, g), 0.0, False, scale=0.3)
    turned = [tensor((2, 6, 4, 8), F32, g).transpose(1, 2) for _ in range(3)]
    yield _call(*turned, None, 0.0, False)


def _attention_gradients(g: torch.Generator) -> Iterator[_Call]:
    for (q, k, v, bias, *rest), kwargs in _attentions(g):
        out, lse = PRIMS["attention"].overload(q, k, v, bias, *rest, **kwargs)
        yield _call(torch.ones_like(out), q, k, v, out, lse, bias, *rest, **kwargs)


def _shapes(g: torch.Generator) -> dict[str, list[_Call]]:
    a = tensor((3, 4, 5), F32, g)
    turned = tensor((5, 3, 4), F32, g).permute(1, 2, 0)
    image = tensor((2, 3, 4, 5), F32, g).contiguous(memory_format=torch.channels_last)
    part = ([0, 1, 2], [3, 4, 5], [2, 1, 2])
    return {
        "broadcast_in_dim": [
            _call(a, [2, 3, 4, 5], [1, 2, 3]),
            _call(tensor((4, 1), F32, g), [4, 3, 5], [0, 2]),
            _call(tensor((), F32, g), [2, 3], []),
            _call(turned, [3, 1, 4, 5], [0, 2, 3]),
        ],
        "reshape": [_call(a, [12, 5]), _call(turned, [3, 20]), _call(turned, [3, 2, 2, 5])],
        "permute": [_call(a, [2, 0, 1]), _call(turned, [0, 2, 1])],
        "slice": [_call(a, *part), _call(turned, [1, 1, 1], [1, 3, 4], [1, 1, 1])],
        "cat": [_call([a, turned], 0), _call([image, image], 1), _call([a, a[:, :2]], 1)],
        "pad": [_call(a, [1, 0, 2], [0, 3, 1], 7), _call(image, [0] * 4, [0, 1, 0, 2], 0.5)],
        "flip": [_call(a, [0, 2]), _call(turned, [1])],
        "clone": [_call(turned), _call(a, order=[2, 0, 1])],
        "as_strided": [_call(a, [2, 2], [1, 7], 3)],
        "slice_scatter": [
            _call(a, tensor((2, 3, 2), F32, g), *part),
            _call(turned, tensor((2, 3, 2), F32, g), *part),
        ],
        "device_put": [_call(a, device=CPU), _call(turned, device=CPU)],
        "copy_": [_call(torch.empty(3, 4, 5), turned)],
    }


def _of_shape(name: str) -> Any:
    return lambda g: _shapes(g)[name]


_SAMPLES: dict[str, Any] = {
    **{name: _of_shape(name) for name in _shapes(torch.Generator())},
    "sum": _reductions(F32, F64, I64),
    "prod": _reductions(F32, F64, I64),
    "amax": _reductions(F32, I64),
    "amin": _reductions(F32, I64),
    "any": _reductions(BOOL),
    "all": _reductions(BOOL),
    "argmax": _positions,
    "argmin": _positions,
    "var_mean": _var_mean,
    "cumsum": _scans,
    "cumprod": _scans,
    "sort": _sorts,
    "topk": _topk,
    "gather": _gather,
    "index_select": lambda g: [
        _call(tensor((4, 5), F32, g), 0, _index(6, below=4, g=g)),
        _call(tensor((4, 5), F32, g).t(), 0, _index(6, below=5, g=g)),
    ],
    "index": _indexing,
    "scatter": _scatter,
    "scatter_add": _scatter,
    "index_put": _index_put,
    "full": lambda g: [
        _call([2, 3], 1.5, dtype=F32, device=CPU),
        _call([], 3, dtype=I64, device=CPU),
        _call([4], True, dtype=BOOL, device=CPU),
    ],
    "iota": lambda g: [
        _call(5, 2, 3, dtype=I64, device=CPU),
        _call(4, 0.5, -0.25, dtype=F32, device=CPU),
        _call(0, 0, 1, dtype=I64, device=CPU),
    ],
    "seed": lambda g: [_call(device=CPU)],
    "philox_uniform": lambda g: [
        _call([3, 5], torch.tensor(1234), 0, dtype=d, device=CPU) for d in sorted(FLOATS, key=str)
    ],
    "philox_normal": lambda g: [
        _call([3, 5], torch.tensor(-7), 2, dtype=d, device=CPU) for d in sorted(FLOATS, key=str)
    ],
    "mm": lambda g: [
        _call(tensor((3, 4), d, g), tensor((5, 4), d, g).t()) for d in (F32, BF16, I64)
    ],
    "bmm": lambda g: [_call(tensor((2, 3, 4), F32, g), tensor((2, 5, 4), F32, g).mT)],
    "convolution": _convolutions,
    "convolution_backward": _convolution_gradients,
    "max_pool2d_with_indices": _max_pools,
    "max_pool2d_with_indices_backward": _max_pool_gradients,
    "avg_pool2d": _average_pools,
    "avg_pool2d_backward": _average_pool_gradients,
    "attention": _attentions,
    "attention_backward": _attention_gradients,
}
