"""Operands of any two dtypes: tensors with and without dimensions, and numbers of Python.

Every pair of kinds and dtypes that eager takes is held to eager, dtype and bits.
"""

import itertools
import warnings

import pytest
import torch
from flambeau_prims import PrimError
from flambeau_prims.conformance import Decomposing
from flambeau_prims.conformance.samples.special_values import same

REAL = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32),
    *(torch.int16, torch.int8, torch.uint8, torch.bool),
)
COMPLEX = (torch.complex64, torch.complex128)
WHOLE = {torch.int64: 70001, torch.int32: 3001, torch.int16: 3001}
NUMBERS = (2, 0, -1, 0.5, -2.5, True, False, 300, -300, 1e-3)
BINARY = {
    **{name: getattr(torch, name) for name in ("add", "sub", "rsub", "mul", "div", "remainder")},
    **{name: getattr(torch, name) for name in ("fmod", "floor_divide", "pow", "copysign")},
    **{name: getattr(torch, name) for name in ("eq", "lt", "bitwise_and", "bitwise_xor")},
    **{name: getattr(torch, name) for name in ("bitwise_left_shift", "hypot")},
    "twice": lambda a, b: torch.add(a, b, alpha=2),
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "product and sum": lambda a, b: torch.addcmul(a, b, b),
    "where": lambda a, b: torch.where(torch.as_tensor(a) != 0, a, b),
}


def drawn(dtype, shape, seed):
    """Values of a dtype; whole ones beyond what half precision holds, scalars far from zero."""
    g = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=g).bool()
    if not dtype.is_floating_point:
        low = 0 if dtype == torch.uint8 else -3
        return torch.randint(low, WHOLE.get(dtype, 6), shape, generator=g).to(dtype)
    values = torch.randn(shape, generator=g, dtype=torch.float64)
    return (values if shape else values.abs() + 0.3).to(dtype)


def pairs():
    """All pairs of operands of which one is a tensor."""
    for a, shape in itertools.product(REAL, ((19,), ())):
        x = drawn(a, shape, 1)
        for b, other in itertools.product(REAL, ((19,), ())):
            yield x, drawn(b, other, 2)
        for number in NUMBERS:
            yield x, number
            yield number, x


def told(x):
    return f"{x.dtype} {tuple(x.shape)}" if isinstance(x, torch.Tensor) else repr(x)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", sorted(BINARY))
def test_any_two_operands(name):
    run, taken, wrong = BINARY[name], 0, []
    for a, b in pairs():
        try:
            expected = run(a, b)
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            continue  # what eager does not take
        with Decomposing():
            given = run(a, b)
        taken += 1
        if given.dtype != expected.dtype or not bool(same(expected, given).all()):
            wrong.append((told(a), told(b), expected.dtype, given.dtype))
    assert taken > 50
    assert not wrong


@pytest.mark.parametrize("name", ["pow", "clamp_min", "clamp_max", "isin", "add"])
def test_a_number_out_of_range_is_refused_as_by_eager(name):
    for dtype, number in itertools.product((torch.int8, torch.uint8, torch.int16), (300, 1 << 20)):
        run, x = getattr(torch, name), torch.ones(3, dtype=dtype)
        try:
            expected = run(x, number)
        except RuntimeError:
            with pytest.raises(PrimError), Decomposing():
                run(x, number)
        else:
            with Decomposing():
                assert bool(same(expected, run(x, number)).all())


@pytest.mark.parametrize("make", [torch.linspace, torch.logspace])
def test_spaced_numbers_have_the_default_dtype(make):
    bounds = [torch.ones((), dtype=dtype) for dtype in (*REAL, *COMPLEX)]
    for x, end in itertools.product(bounds, (3, 2.5, 2j, *bounds)):
        for a, b in ((x, end), (end, x)):
            expected = make(a, b, 4)
            with Decomposing():
                assert make(a, b, 4).dtype == expected.dtype, (told(a), told(b))
            if expected.is_complex():
                with pytest.raises(RuntimeError), warnings.catch_warnings(), Decomposing():
                    make(a, b, 4, dtype=torch.float32)


def test_roots_of_float16_are_powers():
    x = torch.tensor([-0.0, 0.0, -float("inf"), 2.0, -1.0], dtype=torch.float16)
    with Decomposing():
        given = x**0.5
    assert bool(same(x**0.5, given).all())


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_a_loss_by_logits_has_the_dtype_of_eager(reduction):
    loss, taken = torch.nn.functional.binary_cross_entropy_with_logits, 0
    for given, wanted, weight, positive in itertools.product(
        REAL[:6], REAL, *[(None, *REAL[:3])] * 2
    ):
        x, target = torch.ones(2, dtype=given), torch.ones(2, dtype=wanted)
        of = [dtype and torch.ones(2, dtype=dtype) for dtype in (weight, positive)]
        try:
            expected = loss(x, target, of[0], reduction=reduction, pos_weight=of[1])
        except RuntimeError:
            continue
        with Decomposing():
            found = loss(x, target, of[0], reduction=reduction, pos_weight=of[1])
        assert found.dtype == expected.dtype, (given, wanted, weight, positive)
        taken += 1
    assert taken > 100


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor", "eq", "lt"])
def test_a_scalar_that_is_0_in_the_common_dtype(name):
    wide = (2**32, 2**31, 2**16, 256, -(2**63), 1e-300, 1e-40, 1e-5, 0.4, -0.0)
    for dtype, value, second in itertools.product(REAL, wide, (False, True)):
        kind = torch.int64 if isinstance(value, int) else torch.float64
        operands = (drawn(dtype, (19,), 1), torch.tensor(value, dtype=kind))
        a, b = operands[::-1] if second else operands
        with Decomposing() as seen:
            found = getattr(torch, name)(a, b)
        assert seen.decomposed
        assert torch.equal(found, getattr(torch, name)(a, b)), (dtype, value, second)
