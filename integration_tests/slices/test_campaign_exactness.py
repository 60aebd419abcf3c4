"""What the judge of random programs lets pass, and what not: numbers that eager leaves open."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from flambeau_prims.sweep import database

from integration_tests.campaign.exactness import UNSET_OF_NAN
from integration_tests.campaign.families import operators
from integration_tests.campaign.judging import Judge
from integration_tests.campaign.nearness import far
from integration_tests.campaign.observing import Setting, played
from integration_tests.campaign.program import Call
from integration_tests.slices.test_campaign import planted_sine, program

INF, NAN = (float("inf"), float("nan"))

POLYNOMIALS = [name for name in dir(torch.special) if "polynomial" in name]


@pytest.mark.parametrize("steps", [True, False])
@pytest.mark.parametrize("name", POLYNOMIALS)
def test_what_eager_leaves_undefined_is_judged_by_no_one(name, steps):
    call = f"v = torch.special.{name}(torch.stack([x, x + float('nan')]), torch.arange(4.0))"
    whole = program(call, steps=steps)
    judge, eager = Judge(whole, Setting()), played(whole, lambda f: f)
    fn, degrees = getattr(torch.special, name), torch.arange(4.0)

    def planted(value, first, row):
        def compiled(x):
            found = fn(torch.stack([x, x + float("nan")]), degrees)
            found[row, ..., first] = value
            return (found,)

        return judge.differences(eager, played(whole, lambda f: compiled))

    undefined = name in {n.removeprefix("special_") for n in UNSET_OF_NAN}
    for value in (0.0, 7.0):
        assert bool(planted(value, slice(2, None), 1)) is not undefined
    assert planted(-12345.0, slice(2, None), 0) and planted(-12345.0, slice(2), 1)


@pytest.mark.parametrize("label", ["linalg.ldl_solve", "linalg.lu_solve", "lu_solve"])
def test_pivots_are_those_of_a_factorization(label):
    """LAPACK reads and writes where they point, in eager too: the whole process is undefined by
    others, and drawing runs what is drawn."""
    entry, (own, samples) = database.by_name()[label], operators.samples(label)
    pivots = {str(x.tolist()) for s in samples for x in s.args if x.dtype == torch.int32}
    for number, sample in itertools.product(range(30), samples):
        drawing = operators.Drawing(random.Random(number))
        drawing.dtypes = {own: own}
        text = drawing.called(entry, sample)
        known = [text, *drawing.inputs.values()]
        assert not any("int32" in each and "make(" in each for each in known[1:])
        whole = [each for each in known if "int32" in each]
        assert whole and all(any(p in each or "zeros((" in each for p in pivots) for each in whole)


WRITES = {
    "the same result": ("v0 = torch.sin(x)", "v1 = torch.zero_(v0)", "v2 = torch.sin(x)"),
    "a part of it": ("v0 = torch.sin(x)", "v1 = v0[0].fill_(2.0)", "v2 = torch.sin(x)"),
    "one of several": ("v0 = x.max(1)", "v1 = torch.zero_(v0[1])", "v2 = torch.sin(x)"),
}


@pytest.mark.parametrize("what", WRITES)
def test_a_result_that_is_written_to_later_is_judged_as_it_ends(what):
    whole = program(*WRITES[what], results=("v0", "v1", "v2"), steps=True)
    judge, eager = Judge(whole, Setting()), played(whole, lambda f: f)
    assert not judge.differences(eager, played(whole, lambda f: f))
    assert "v2 = torch.sin(x)" in planted_sine(whole)

    def unwritten(function):
        def call(x):
            first, written, last = function(x)
            return (first, written + 1, last)

        return call

    assert judge.differences(eager, played(whole, unwritten))


NUMBERS = [2147483647, 2147483646, 3, 7, 100, 32766]


@pytest.mark.parametrize("name", ["bessel_j0", "bessel_y0", "bessel_j1", "bessel_y1", "digamma"])
def test_functions_of_whole_numbers_are_judged_by_double_precision(name):
    """Eager rounds a whole number, or what it makes of it, to float32; the right value passes."""
    steps = f"n = torch.tensor({NUMBERS}, dtype=torch.int32)", f"v = torch.special.{name}(n)"
    whole = program(*steps, results=("n", "v"), steps=True)
    judge, eager = Judge(whole, Setting()), played(whole, lambda f: f)
    function = getattr(torch.special, name)

    def compiled(change):
        n = torch.tensor(NUMBERS, dtype=torch.int32)
        return lambda f: lambda x: (n, change(function(n.float().double())).float())

    assert not judge.differences(eager, played(whole, compiled(lambda t: t)))
    assert judge.differences(eager, played(whole, compiled(lambda t: t * 1.001 + 1e-3)))


@pytest.mark.parametrize("steps", [True, False])
@pytest.mark.parametrize("name", ["remainder", "fmod"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_remainder_that_eager_has_of_an_element_alone(dtype, name, steps):
    """A vector of eager's has NaN where the quotient is large: the remainder passes, no other."""
    most, least = torch.finfo(dtype).max / 1e4, torch.finfo(dtype).tiny * 3
    operands = (
        f"n = x.repeat(6, 1).to({dtype}).exp() * {most}",
        f"m = torch.full_like(n, {least})",
    )
    names = ("n", "m", "v")
    whole = program(*operands, f"v = torch.{name}(n, m)", results=names, steps=steps)
    judge, eager = Judge(whole, Setting()), played(whole, lambda f: f)
    n, m, given = (eager[0].leaves[f"result[{k}]"].value for k in range(3))
    assert given.isnan().any()
    each = zip(n.flatten(), m.flatten(), strict=True)
    right = torch.stack([getattr(torch, name)(*pair) for pair in each]).reshape(n.shape)

    def compiled(value):
        found = torch.where(given.isnan(), right if value is None else value, given)
        return judge.differences(eager, played(whole, lambda f: lambda x: (n, m, found)))

    assert not compiled(None)
    assert compiled(torch.tensor(least, dtype=dtype)) and compiled(torch.tensor(0.5, dtype=dtype))


CANCELLING = {
    "tanhshrink": ("torch.nn.functional.tanhshrink(n)", lambda n: n - n.tanh()),
    "ndtr": ("torch.special.ndtr(n)", lambda n: ((n * 0.5**0.5).erf() + 1) * 0.5),
}


@pytest.mark.parametrize("name", CANCELLING)
def test_what_a_sum_leaves_of_a_rounded_function(name):
    """As far off as the function's rounding, whatever eager happens to be off."""
    text, right = CANCELLING[name]
    whole = program("n = x.abs() * -0.1 - 0.05", f"v = {text}", results=("n", "v"), steps=True)
    judge, eager = Judge(whole, Setting()), played(whole, lambda f: f)
    unit = 2.0**-23

    def compiled(units):
        def run(x):
            n = x.abs() * -0.1 - 0.05
            return n, (right(n.double()) + units * unit * n).float()

        return judge.differences(eager, played(whole, lambda f: run))

    assert not compiled(0) and not compiled(1)
    assert compiled(16)


def test_the_parts_of_a_complex_product_are_off_beside_its_modulus():
    step = "c = torch.complex(x, x + 1e-3)", "v = c / c"
    whole = program(*step, results=("c", "v"), steps=True)
    judge, eager = Judge(whole, Setting()), played(whole, lambda f: f)

    def compiled(units):
        def run(x):
            c = torch.complex(x, x + 1e-3)
            return c, c / c + 1j * units * 2.0**-23

        return judge.differences(eager, played(whole, lambda f: run))

    assert not compiled(1)
    assert compiled(64)


def test_large_operands_are_what_they_are():
    """The sine of a number is known, however far its neighbours' sines are from it."""
    steps = "n = x.abs() * 1e30 + 1e30", "v = torch.sin(n)"
    whole = program(*steps, results=("n", "v"), steps=True)
    judge, eager = Judge(whole, Setting()), played(whole, lambda f: f)

    def compiled(change):
        return lambda f: lambda x: (f(x)[0], change(f(x)[0].double().sin()).float())

    assert not judge.differences(eager, played(whole, compiled(lambda t: t)))
    assert judge.differences(eager, played(whole, compiled(lambda t: t + 0.1)))


OUT_OF_RANGE = {
    # eager's, compiled, in double: whether a sum may be so, with an overflow on the way, pointwise
    "an order that overflows": ((INF, 3e38, INF), (False, True, False)),
    "a value for an infinity": ((INF, 5.0, INF), (False, True, False)),
    "an infinity where two met": ((NAN, -INF, NAN), (False, True, False)),
    "eager alone overflows": ((INF, 2.0, 2.0), (True, True, True)),
    "both overflow elsewhere": ((INF, NAN, 2.0), (True, True, True)),
    "far from what eager missed": ((INF, 7.0, 2.0), (True, True, False)),
    "far from a finite value": ((2.0, 7.0, 2.0), (False, False, False)),
    "an infinity for a value": ((2.0, INF, 2.0), (False, False, False)),
}


def test_room_that_is_no_number_allows_as_much_as_none():
    want = torch.tensor([-0.468611389])
    wide = torch.tensor([-0.468611428], dtype=torch.float64)
    rooms = [torch.tensor([NAN], dtype=torch.float64)]
    for value, same in ((-0.468611419, True), (-0.4687, False)):
        found = far(want, torch.tensor([value]), wide, [], more=rooms)
        assert (found is None) == same == (far(want, torch.tensor([value]), wide, []) is None)


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_what_leaves_the_range(name):
    (want, got, wide), passes = OUT_OF_RANGE[name]
    of = torch.tensor([want]), torch.tensor([got]), torch.tensor([wide], dtype=torch.float64)
    kinds = {"mixing": True}, {"mixing": True, "overflows": True}, {"mixing": False}
    assert tuple(far(*of, [], **kind) is None for kind in kinds) == passes


def test_a_sum_that_cancels_may_be_its_rounding_error():
    """The gradient of a softmax whose cotangents are equal: eager has 0 of some rows."""
    call = Call({"x": "leaf(make((3, 4), torch.float32, 79, 'normal'))"}, (), (AFTER,))
    whole = program("v = x.softmax(-1)", calls=(call,))
    eager = played(whole, lambda f: f)

    def compiled(error):
        def run(f):
            def with_error(x):
                x.register_hook(lambda g: torch.where(g == 0, error, g))
                return f(x)

            return with_error

        return played(whole, run)

    kept = eager[0].leaves["argument x.grad"].value
    assert (kept == 0).any()
    assert not Judge(whole, Setting()).differences(eager, compiled(1e-9))
    assert Judge(whole, Setting()).differences(eager, compiled(1e-5))


AFTER = "(out[0] * 2).sum().backward()"


NORMALIZED = {
    f"{name} of {shape}": (text, shape)
    for name, text in {
        "layer norm": "torch.nn.functional.layer_norm(x, x.shape[-1:])",
        "group norm": "torch.nn.functional.group_norm(x, 1)",
        "instance norm": "torch.nn.functional.instance_norm(x)",
        "softmax": "x.softmax(-1)",
        "differences from the mean": "x - x.mean(-1, keepdim=True)",
    }.items()
    for shape in ((3, 2, 4), (2, 2, 16), (3, 2, 64))
}


@pytest.mark.parametrize("name", NORMALIZED)
def test_what_equal_cotangents_cancel_is_judged_by_their_rounding(name):
    """Eager may have 0 of every element, whatever the operand: a rounding error is as good."""
    text, shape = NORMALIZED[name]
    call = Call({"x": f"leaf(make({shape}, torch.float32, 5))"}, (), ("weighed(out).backward()",))
    whole = program(f"v = {text}", calls=(call,))
    eager = played(whole, lambda f: f)

    def off_by(error):
        def run(f):
            def with_error(x):
                x.register_hook(lambda g: g + error)
                return f(x)

            return with_error

        return Judge(whole, Setting()).differences(eager, played(whole, run))

    assert not off_by(1e-8 if "softmax" not in name else 1e-9)
    assert off_by(1e-4)


BEYOND = {
    "a batch norm of fewer weights": (
        "v = torch.native_batch_norm(x1, x2, x2, x2, x2, False, 0.1, 1.0)[0]"
    ),
    "segments of fewer rows": (
        "v = torch._segment_reduce(x2, 'prod', offsets=torch.tensor([0, 0, 1, 3, 5]), axis=0)"
    ),
}


@pytest.mark.parametrize("name", BEYOND)
def test_what_eager_reads_beyond_its_operands_is_judged_by_no_one(name):
    given = {
        "x1": "make((3, 5), torch.float32, 1, 'positive')",
        "x2": "make((64,), torch.float32, 2, 'positive')[:3]",  # what lies there is the same again
    }
    statement = BEYOND[name]
    whole = program(statement, steps=True, calls=(Call(given),))
    judge, eager = Judge(whole, Setting()), played(whole, lambda f: f)

    def compiled(change):
        return played(whole, lambda f: lambda *args: (change(f(*args)[0].clone()),))

    def beyond(v):
        v[..., 3:] = 7.0
        return v

    assert not judge.differences(eager, compiled(beyond))
    assert judge.differences(eager, compiled(lambda v: v + 1))
    assert judge.differences(eager, compiled(lambda v: beyond(v) + 1))


ORDERS = {
    # elements of a row, what is compiled of it: whether eager's own sum is so by their order
    "a part that overflows": ((3e38, 3e38, -3e38), 3e38, True),
    "a sum that overflows": ((3e38, 3e38, 3e38), 3e38, False),
    "an infinite element": ((1.0, INF, 2.0), NAN, False),
}


@pytest.mark.parametrize("name", ORDERS)
def test_what_the_order_of_terms_decides(name, monkeypatch):
    row, value, same = ORDERS[name]
    monkeypatch.setattr("integration_tests.campaign.judging.may_overflow", lambda t: False)
    given = {"x1": f"torch.tensor([{list(row)}])".replace("inf", "float('inf')")}
    whole = program("v = x1.sum(1)", steps=True, calls=(Call(given),))
    eager = played(whole, lambda f: f)
    ours = played(whole, lambda f: lambda x1: (torch.tensor([value]),))
    assert not Judge(whole, Setting()).differences(eager, ours) == same


@pytest.mark.parametrize("read", ["1 / v", "torch.atan2(v, v)", "v.atan2(v).nonzero()"])
@pytest.mark.parametrize("by", ["torch.nn.functional.softshrink(x)", "torch.relu(x) * -0.0"])
def test_zeros_whose_sign_a_lane_decides_are_judged_by_no_one(by, read):
    """What is read of them either, sizes too; of zeros whose sign is eager's, all is judged."""
    whole = program(f"v = {by}", f"v = {read}")
    eager = played(whole, lambda f: f)

    def compiled(x):
        v = eval(by, {"torch": torch, "x": x})
        v = torch.where(v == 0, -v, v)
        return (eval(read, {"torch": torch, "v": v}),)

    found = Judge(whole, Setting()).differences(eager, played(whole, lambda f: compiled))
    assert bool(found) is ("softshrink" not in by)
