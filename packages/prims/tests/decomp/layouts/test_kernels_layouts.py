"""What kernels of a CPU have of their own, each over a family of calls: layouts that eager's result
has or refuses, dtypes of losses, and the derivative of softmax at infinities."""

import itertools

import pytest
import torch
from flambeau_prims.conformance import Decomposing

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
ORDERS = list(itertools.permutations(range(4)))


def turned(shape, order, dtype=torch.float32):
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return torch.randn([shape[d] for d in order], dtype=dtype).permute(inverse)


def both(call):
    """(eager's, the decompositions') results; the refusals in their place."""
    found = [refusable(call)]
    with Decomposing():
        found.append(refusable(call))
    return found


def refusable(call):
    try:
        return call()
    except RuntimeError as error:
        return type(error)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 1, 3, 3), (1, 3, 1, 3)])
def test_stacks_of_images(shape):
    for order, dim, count in itertools.product(ORDERS, range(5), (1, 2)):
        x = turned(shape, order)
        for parts in ([x] * count, [x, x.contiguous()]):
            expected, found = both(lambda parts=parts, dim=dim: torch.stack(parts, dim))
            assert torch.equal(expected, found)
            wide = [d for d, n in enumerate(expected.shape) if n > 1]
            assert [expected.stride(d) for d in wide] == [found.stride(d) for d in wide]


def test_angles_of_complex_numbers():
    for order in ORDERS:
        for x in (turned((2, 3, 4, 5), order, torch.complex64), turned((2, 3, 4, 5), order)):
            for given in (x, x[:, :, ::2], x[:, :1].expand(2, 3, 4, 5)):
                expected, found = both(lambda given=given: given.angle())
                torch.testing.assert_close(found, expected)
                assert found.stride() == expected.stride()


@pytest.mark.parametrize("name", ["soft_margin_loss", "huber_loss"])
def test_losses_have_the_dtype_of_what_is_judged(name):
    loss = getattr(torch.nn.functional, name)
    for one, other, how in itertools.product(FLOATS, FLOATS, ("none", "sum", "mean")):
        x, target = torch.randn(5, dtype=one), torch.randn(5, dtype=other)
        expected, found = both(lambda x=x, t=target, how=how: loss(x, t, reduction=how))
        assert found.dtype == expected.dtype


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_derivative_of_softmax_at_infinities(dtype):
    values = torch.tensor([0.0, 1.0, -2.5, torch.inf, -torch.inf, torch.nan], dtype=dtype)
    rows = torch.cartesian_prod(values, values, values)
    grad = torch.tensor([0.5, -1.0, 2.0], dtype=dtype).expand(rows.shape)
    for g, y, dim in ((grad, rows, 1), (grad.t(), rows.t(), 0)):
        given = (g, y, dim, dtype)
        expected, found = both(lambda given=given: torch._softmax_backward_data(*given))
        torch.testing.assert_close(found, expected, equal_nan=True)


def test_refused_layouts_and_kinds():
    seen = set()
    for order in ORDERS:
        x, one = turned((2, 6, 3, 4), order), torch.ones(6)
        given = (x, one, one, 2, 6, 12, 2, 0.5)
        expected, found = both(lambda given=given: torch.ops.aten.native_group_norm(*given))
        assert (expected is RuntimeError) == (found is RuntimeError), order
        seen.add(expected is RuntimeError)
    for shape, dtype in itertools.product(
        [(3, 3), (3, 4), (3,), (2, 3, 3), (0, 0)], (torch.float64, torch.int64, torch.half)
    ):
        factor = torch.ones(shape).to(dtype)
        expected, found = both(lambda factor=factor: torch.cholesky_inverse(factor))
        assert isinstance(expected, type) == isinstance(found, type), (shape, dtype)
        seen.add(isinstance(expected, type))
    assert seen == {True, False}


@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_group_norm_keeps_the_format_of_one_image_too(format):
    for images, height, groups in itertools.product((1, 2), (1, 3), (1, 3, 6)):
        x = torch.randn(images, 6, height, 4).contiguous(memory_format=format)
        given = (x, torch.ones(6), None, images, 6, height * 4, groups, 0.5)
        expected, found = both(lambda given=given: torch.ops.aten.native_group_norm(*given))
        assert [y.stride() for y in found] == [y.stride() for y in expected], (x.shape, groups)


@pytest.mark.parametrize("transposed", [False, True])
def test_slopes_of_convolutions_of_a_line(transposed):
    """The weights decide, as of images; of the line eager takes a row-major copy."""
    orders = [(0, 1, 2), (0, 2, 1), (2, 1, 0)]
    for image, weights, slope, groups in itertools.product(orders, orders, orders, (1, 2)):
        shape = (4, 6 // groups, 3) if transposed else (6, 4 // groups, 3)
        x, w = turned((2, 4, 6), image), turned(shape, weights)
        rest = ([1], [0], [1], transposed, [0], groups)
        grad = turned(torch.ops.aten.convolution(x, w, None, *rest).shape, slope)
        expected, found = both(
            lambda grad=grad, x=x, w=w, rest=rest: torch.ops.aten.convolution_backward(
                grad, x, w, [6], *rest, [True] * 3
            )
        )
        assert [y.stride() for y in found] == [y.stride() for y in expected]
