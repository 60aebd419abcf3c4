"""What eager refuses by the kinds of its operands, a decomposition refuses in eager's words."""

import contextlib
import itertools

import pytest
import torch
from flambeau_prims import PrimError, decompositions
from flambeau_prims.conformance import Decomposing
from flambeau_prims.decomp.pointwise import arithmetic
from flambeau_prims.decomp.pointwise.arithmetic import pow_scalar
from flambeau_prims.eager_limits import NOT_ON_CUDA
from flambeau_prims.sweep import database
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree

KINDS = (torch.bool, torch.uint8, torch.int64, torch.float32, torch.complex64)
OPERANDS = (*(torch.tensor([1, 0, 1]).to(kind) for kind in KINDS), True, 2, 1.5)
EXPONENTS = (-3, -2, -1, -1.0, -0.5, 0, 1, 2, True, False)
ENDS = (-3, -1.0, 0, 2, 2.5)


def outcome(call, *args, **kwargs):
    """The answer's dtype, or how it is refused."""
    try:
        return call(*args, **kwargs).dtype
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("name", ["add", "sub", "rsub"])
def test_sums_are_refused_as_eager_refuses_them(name):
    seen = set()
    for a, b, alpha in itertools.product(OPERANDS[: len(KINDS)], OPERANDS, (1, 2, 1.5, True)):
        expected = outcome(getattr(torch, name), a, b, alpha=alpha)
        assert outcome(getattr(arithmetic, name), a, b, alpha) == expected, (a, b, alpha)
        seen.add(type(expected))
    assert seen == {torch.dtype, str}


def test_whole_numbers_have_no_negative_powers():
    for x, exponent in itertools.product(OPERANDS[: len(KINDS)], EXPONENTS):
        expected = outcome(torch.pow, x, exponent)
        assert outcome(pow_scalar, x, exponent) == expected, (x.dtype, exponent)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32])
@pytest.mark.parametrize(("base", "exponent"), [("cuda", "cuda"), ("cuda", "cpu"), ("cpu", "cpu")])
def test_a_power_that_a_kernel_is_chosen_by_is_left(base, exponent, dtype):
    """A GPU's kernels for whole numbers take no -1, which is known when it runs."""
    power = decompositions()[torch.ops.aten.pow.Tensor_Tensor]
    with FakeTensorMode():
        x = torch.ones(3, dtype=dtype, device=base)
        n = torch.ones((), dtype=torch.int64, device=exponent)
        answer = power(x, n)
    left = base != exponent and dtype != torch.float32
    assert (answer is NotImplemented) is left


MEMBERS = {
    "a row": ((6,), (1,)),
    "steps": ((6,), (3,)),
    "rows": ((2, 3), (3, 1)),
    "every other": ((2, 3), (6, 2)),
    "ones": ((2, 1, 3), (3, 7, 1)),
    "nothing": ((0, 3), (1, 5)),
    "columns": ((2, 3), (1, 2)),
    "repeated": ((2, 3), (1, 0)),
    "gaps": ((2, 3), (4, 1)),
}


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("layout", MEMBERS)
def test_members_that_are_no_row_are_a_kernels(layout, device):
    """A GPU's kernel views what is looked for as one row, and is refused that by the view."""
    shape, steps = MEMBERS[layout]
    refused = outcome(torch.empty_strided(shape, steps).view, -1 if 0 not in shape else 0)
    with FakeTensorMode():
        tests = torch.empty_strided(shape, steps, device=device)
        isin = decompositions()[torch.ops.aten.isin.Tensor_Tensor]
        answer = isin(torch.ones((), device=device), tests)
    assert (answer is NotImplemented) is (device == "cuda" and isinstance(refused, str))


def test_a_range_goes_the_way_of_its_step():
    arange = decompositions()[torch.ops.aten.arange.start_step]
    for start, end, step in itertools.product(ENDS, ENDS, (-1, -0.5, 0, 1, 2)):
        expected = outcome(torch.arange, start, end, step)
        assert outcome(arange, start, end, step) == expected, (start, end, step)
        if not isinstance(expected, str):
            answer = arange(start, end, step)
            assert torch.equal(answer, torch.arange(start, end, step))


# Of the database's own: products of bfloat16 need a generation of devices; no decomposition.
GENERATION = {torch.bfloat16}
HALVES = {torch.float16, torch.bfloat16}
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
WITHOUT = {"histogram", "histogramdd", "linalg.multi_dot", "scatter_reduce.prod"}
WITHOUT |= {"scatter_reduce.amin", "scatter_reduce.amax"}  # of booleans: by the kernel's own words
WITHOUT |= {"nn.functional.local_response_norm"}  # pads an image of integers first

WITHOUT_SUM = {"einsum"}  # whose first sample has nothing to add up


def only_on_a_cpu():
    for name, entry in database.by_name().items():
        missing = entry.supported_dtypes("cpu") - entry.supported_dtypes("cuda")
        if "scaled_mm" in name or name in WITHOUT:
            continue
        own = missing - {torch.complex32}
        if not own <= GENERATION:
            yield name, own if own <= HALVES else own - GENERATION


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("name", "dtypes"), only_on_a_cpu())
def test_a_gpu_refuses_what_its_kernels_do_not_take(name, dtypes):
    """By the database: what only a CPU takes is left to eager's kernel for CUDA."""
    entry = database.by_name()[name]
    refused, answered = set(), set()
    for dtype in sorted(dtypes | ({torch.float32} & entry.supported_dtypes("cpu")), key=str):
        for call in database.calls(entry, dtype, 1, False):
            with FakeTensorMode():
                args, kwargs = _pytree.tree_map(on_cuda, (call.args, call.kwargs))
                ended = False
                with Decomposing() as seen, contextlib.suppress(Exception):
                    entry(*args, **kwargs)
                    ended = True
            if not ended:
                continue  # what only memory or a library could answer
            left, made = (set(each) & decided() for each in (seen.left, seen.decomposed))
            if left or made:
                assert bool(left) == (dtype in dtypes), (dtype, left, made)
            (refused if left else answered).add(dtype)
    assert name in WITHOUT_SUM or not (answered & dtypes) - refused


PROMOTED = ("igamma", "igammac")


@pytest.mark.parametrize("name", PROMOTED)
def test_a_gpu_refuses_what_operands_are_promoted_to(name):
    """Whichever operand is of that dtype, a row or a number beside a row of another."""
    function = decompositions()[getattr(torch.ops.aten, name).default]
    seen = set()
    for first, second in itertools.product(FLOATS, repeat=2):
        for shapes in itertools.product([(3,), ()], repeat=2):
            with FakeTensorMode():
                operands = [
                    torch.ones(shape, dtype=dtype, device="cuda")
                    for shape, dtype in zip(shapes, (first, second), strict=True)
                ]
                answer = function(*operands)
            refused = torch.result_type(*operands) in NOT_ON_CUDA[name]
            assert (answer is NotImplemented) == refused, (first, second, shapes)
            seen.add(refused)
    assert seen == {True, False}


def decided():
    """The overloads that the table speaks of."""
    return {
        f"aten.{name}.{overload}"
        for name in NOT_ON_CUDA
        for overload in getattr(torch.ops.aten, name).overloads()
    }


def on_cuda(value):
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda")
    return value


NO_ELEMENTS = {
    "cholesky": lambda: (torch.ops.aten.cholesky.default, (torch.zeros(1, 0, 3),)),
    "searchsorted": lambda: (
        torch.ops.aten.searchsorted.Tensor,
        (torch.tensor([1, 2]).to(torch.complex128), torch.zeros(0, 3, dtype=torch.complex128)),
    ),
}


@pytest.mark.parametrize("name", NO_ELEMENTS)
def test_what_has_no_elements_is_left_to_eager(name):
    """It does not ask of what sort they are."""
    op, args = NO_ELEMENTS[name]()
    op(*args)
    full = tuple(torch.ones([n or 4 for n in each.shape], dtype=each.dtype) for each in args)
    with FakeTensorMode() as mode:
        assert decompositions()[op](*map(mode.from_tensor, args)) is NotImplemented
        with pytest.raises(PrimError):
            decompositions()[op](*map(mode.from_tensor, full))


LAYOUTS = {
    "dense": lambda x: x,
    "transposed": lambda x: x.mT.contiguous().mT,
    "sliced": lambda x: torch.stack([x, x], -1).flatten(-2)[..., ::2],
    "expanded": lambda x: x[..., :1].expand(x.shape),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "a row": lambda x: x[..., :1, :],
    "a column": lambda x: x[..., :1],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_channels_are_shuffled_on_a_gpu_of_what_has_a_view(layout, groups):
    """Eager views the channels by groups and all places as one; the result is row-major."""
    x = LAYOUTS[layout](torch.randn(2, 6, 4, 4))
    try:
        viewed = x.view(2, groups, 6 // groups, -1)
    except RuntimeError as error:
        viewed = str(error)
    with FakeTensorMode():
        fake = torch.empty_strided(x.shape, x.stride(), device="cuda")
        made = outcome(decompositions()[torch.ops.aten.channel_shuffle.default], fake, groups)
    if isinstance(viewed, str):
        assert made == viewed
    else:
        assert made == x.dtype


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("shape", [(), (4,), (2, 3, 4)], ids=str)
def test_a_logarithm_of_a_sum_over_no_dimensions(shape, keepdim):
    def call():
        return torch.logsumexp(torch.ones(shape), dim=(), keepdim=keepdim)

    expected = outcome(call)
    with Decomposing():
        assert outcome(call) == expected
