"""torch's loops over a dimension and its operators that call a function: one graph, as in eager."""

import pytest
import torch
from functorch.experimental.control_flow import map as map_slices
from torch._higher_order_ops import out_dtype
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.wrap import wrap, wrap_with_autocast, wrap_with_set_grad_enabled


@pytest.fixture(scope="module", autouse=True)
def started():
    """The first eager call imports what registers classes with torch's pytree, which guards see."""
    map_slices(torch.sin, torch.ones(1, 1))


scale = torch.tensor([1.0, 2.0, 3.0])


def both(x):
    return {"sin": x.sin() * scale, "sum": (x.sum(), x.cos())}


def step(carry, x):
    return carry * 0.5 + x, carry * x


def nested(carry, x):
    a, b = carry
    return (a + x["one"], b * 2 + x["two"]), {"out": a * x["two"], "more": [b + a]}


def pairs(x):
    return {"one": x, "two": x * 2}


PROGRAMS = {
    "map": lambda x: map_slices(lambda row: row.sin() + 1, x),
    "map with arguments": lambda x: map_slices(lambda row, y: row * y, x, x[0] * 2),
    "map to a tree": lambda x: map_slices(both, x),
    "map of a tree": lambda x: map_slices(lambda t: t["one"] * t["two"], pairs(x)),
    "map with a closure": lambda x: (lambda k: map_slices(lambda row: row * k, x))(x.mean()),
    "scan": lambda x: scan(step, torch.zeros(3), x),
    "scan back": lambda x: scan(step, torch.zeros(3), x, reverse=True),
    "scan along the second": lambda x: scan(step, torch.zeros(4), x, dim=1),
    "scan along the last": lambda x: scan(step, torch.zeros(4), x, dim=-1, reverse=True),
    "scan of trees": lambda x: scan(nested, (torch.zeros(3), torch.ones(3)), pairs(x)),
    "wrap": lambda x: wrap(lambda y, k: y.sin() * k, x, k=2),
    "without gradients": lambda x: wrap_with_set_grad_enabled(False, lambda y: y * 2, x) + x,
    "under autocast": lambda x: wrap_with_autocast(
        "cpu", torch.bfloat16, True, True, lambda y: y @ y.T, x
    ).float(),
}


@pytest.mark.sweep(8)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_it_is_what_eager_says(agree, program, grad):
    fn = PROGRAMS[program]
    agree(fn, torch.randn(4, 3).requires_grad_(grad))


REFUSED = {
    "no slices": lambda x: map_slices(lambda row: row + 1, x[:0]),
    "other counts": lambda x: map_slices(lambda t: t["a"] + t["b"], {"a": x, "b": x[:2]}),
    "another carry": lambda x: scan(lambda c, y: (c[:2], y + 0), torch.zeros(3), x),
    "no tensors": lambda x: map_slices(lambda row: row, [1, 2]),
}


@pytest.mark.parametrize("program", REFUSED)
def test_what_torch_refuses_it_refuses(capture, program):
    fn, x = REFUSED[program], torch.randn(4, 3)
    with pytest.raises(Exception) as wanted:
        fn(x)
    with pytest.raises(Exception) as raised:
        capture(fn)(x)
    assert type(raised.value) is type(wanted.value)


@pytest.mark.parametrize("grad", [False, True])
def test_one_that_is_not_known_runs_as_it_is(agree, grad):
    """Its Python asks whether torch compiles, and takes another way where that is the case."""

    def fn(x):
        y = (x * 2).to(torch.int8)
        return out_dtype.out_dtype(torch.ops.aten.mm.default, torch.int32, y, y.T) + x.sum()

    agree(fn, torch.randn(4, 3).requires_grad_(grad), graphs=None, backward=False)
    trained = torch.randn(4, 3).requires_grad_(grad)
    some = lambda c, y: ((c[0] + y, c[1] * 2), y * 2)  # noqa: E731
    agree(lambda x: scan(some, (torch.zeros(3), torch.ones(3)), x * 2), trained, graphs=None)
    long = torch.randn(200, 2).requires_grad_(grad)
    agree(lambda x: map_slices(lambda row: row.sin(), x * 2) + 1, long, graphs=None)


def raises_at_capture(x):
    raise ValueError("inside")


WRAPPERS = {
    "grad mode": (wrap_with_set_grad_enabled, False),
    "autocast": (wrap_with_autocast, "cpu", torch.bfloat16, True, True),
}


@pytest.mark.parametrize("raising", [raises_at_capture, lambda x: x[torch.tensor([9])]])
@pytest.mark.parametrize("caught", [False, True])
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_modes_after_a_wrapped_function_raises(capture, wrapper, caught, raising):
    """torch's wrapper of the grad mode leaves it as it was set; that of autocast restores it."""
    call, *given = WRAPPERS[wrapper]

    def program(x):
        try:
            call(*given, raising, x)
        except (ValueError, IndexError):
            if not caught:
                raise
        return x @ x.T, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")

    def observed(fn):
        try:
            product, *modes = fn(torch.ones(3, 4, requires_grad=True))
            found = product.requires_grad, product.dtype, *modes
        except (ValueError, IndexError) as error:
            found = str(error)
        after = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
        torch.set_grad_enabled(True)
        return found, after

    expected, ours = observed(program), capture(program)
    assert [observed(ours) for _ in range(2)] == [expected] * 2
