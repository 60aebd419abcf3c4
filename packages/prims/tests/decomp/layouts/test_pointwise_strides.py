"""Strides and values of the results of pointwise operators, and which operands they refuse, for
operands in every order of memory, with dimensions of size 1 and 0: alone, with a number, with what
is broadcast, with another dtype.

Cases are drawn by the operator's name; `FLAMBEAU_SWEEPS=1` draws so many times more.
"""

import os
import random

import pytest
import torch
from flambeau_prims.conformance import Decomposing
from flambeau_prims.sweep import database
from torch.nn import functional as F

WHOLE = os.environ.get("FLAMBEAU_SWEEPS") == "1"
CASES = 400 if WHOLE else 5
SHAPES = [
    (1, 3, 2),
    (2, 1, 3),
    (3, 2, 1),
    (1, 1, 4),
    (1, 4, 1, 2),
    (2, 1, 1, 2),
    (1, 1),
    (3,),
    (1,),
]
SHAPES += [(), (2, 3, 2, 1), (0, 1, 2), (2, 0, 3)]
POINTWISE = ("UnaryUfuncInfo", "BinaryUfuncInfo")
OPERATORS = {n: e for n, e in database.by_name().items() if type(e).__name__ in POINTWISE}
OPERATORS |= {
    "where": lambda x, y: torch.where(x > 0.5, x, y),
    "addcmul": lambda x, y: torch.addcmul(x, x, y),
    "lerp": lambda x, y: torch.lerp(x, y, 0.5),
    "lerp by a tensor": lambda x, y: torch.lerp(x, x, y),
    "masked_fill": lambda x, y: x.masked_fill(y > 0.5, 2),
    "clamp": torch.clamp,
    "clamp by a number": lambda x: x.clamp(0.2),
    "square": lambda x: x**2,
    "a power of two": lambda x: 2**x,
    "gelu": F.gelu,
    "dropout": F.dropout,
    "leaky_relu": F.leaky_relu,
    "prelu": lambda x: F.prelu(x, torch.rand(1)),
    "mse_loss": lambda x, y: F.mse_loss(x, y, reduction="none"),
    "huber_loss": lambda x, y: F.huber_loss(x, y, reduction="none"),
    "one minus": lambda x: 1 - x,
    "cast": lambda x: x.to(torch.float64),
    "clone": torch.clone,
    "zeros_like": torch.zeros_like,
    "rand_like": torch.rand_like,
    "softmax": lambda x: x.softmax(-1),
}


DRAWN = ("rand_like", "dropout")


def laid_out(shape, draw):
    """A tensor in an order of memory, dense, cut out of more, repeated, or with odd steps."""
    dtype = draw.choice((torch.float32, torch.float32, torch.int64, torch.bool))
    rand = lambda *sizes: torch.rand(*sizes).to(dtype)  # noqa: E731
    order = draw.sample(range(len(shape)), len(shape))
    inverse = sorted(range(len(shape)), key=order.__getitem__)
    sizes = [shape[d] for d in order]
    kind = draw.choice(("dense", "ordered", "cut", "odd", "repeated"))
    if kind == "ordered":
        return rand(sizes).permute(inverse)
    if kind == "cut":
        return rand([n + 1 for n in sizes])[tuple(slice(n) for n in sizes)].permute(inverse)
    if kind == "repeated" and shape:
        return rand((*shape[:-1], 1)).expand(shape)
    x = rand(shape)
    if kind == "odd":
        steps = [draw.choice((1, 2, 7)) if n == 1 else s for n, s in zip(shape, x.stride())]
        return rand(200).as_strided(shape, steps)
    return x


def operands(draw):
    """One tensor, or two, or a tensor and a number."""
    shape = draw.choice(SHAPES)
    x = laid_out(shape, draw)
    kind = draw.choice(("one", "number", "0-d", "same", "same", "narrow", "low", "wide", "dtype"))
    if kind == "one":
        return (x,)
    if kind == "number":
        return x, 2
    if kind == "0-d":
        return x, torch.tensor(0.5)
    y = laid_out(shape, draw)
    if kind == "narrow" and y.numel() and shape:
        return x, y.narrow(draw.randrange(len(shape)), 0, 1)
    if kind == "low":
        return x, torch.rand(shape[1:])
    if kind == "wide":
        return x, laid_out([3 if n == 1 else n for n in shape], draw)
    return x, y.to(draw.choice((torch.float64, torch.int64))) if kind == "dtype" else y


def facts(function, given):
    torch.manual_seed(0)
    result = function(*given)
    if result is given[0]:  # whoever records the call copies it
        result = result.clone()
    return (result.dtype, tuple(result.shape), result.stride()), result


def answer(function, given):
    """What eager gives; or that it raises."""
    try:
        return facts(function, given)
    except Exception:
        return "refused", None


def near(found, expected):
    """Whether values are equal, but for rounding."""
    return torch.allclose(found, expected, rtol=1e-4, atol=1e-6, equal_nan=True)


@pytest.mark.filterwarnings("ignore")
def test_as_eager():
    wrong, asked, refused = [], 0, 0
    for name, function in OPERATORS.items():
        draw = random.Random(name)
        for _ in range(CASES):
            state = draw.getstate()
            torch.manual_seed(state[1][0])
            expected, values = answer(function, operands(draw))
            draw.setstate(state)
            torch.manual_seed(state[1][0])
            given = operands(draw)  # again: some functions write to what they are given
            with Decomposing():
                found, made = answer(function, given)
            asked += values is not None
            refused += values is None
            same = found == expected and (values is None or name in DRAWN or near(made, values))
            if not same:
                shown = [
                    (x.dtype, tuple(x.shape), x.stride())
                    for x in given
                    if isinstance(x, torch.Tensor)
                ]
                wrong.append(f"{name} of {shown}, {len(given)} operands: {found} for {expected}")
    print("\n".join(wrong))
    assert wrong == []
    assert asked > CASES / 10 * len(OPERATORS)
    assert refused
