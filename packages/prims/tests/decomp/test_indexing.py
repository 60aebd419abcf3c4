"""Reading, writing and combining by positions: against eager, with masks, None and 0-d tensors."""

import flambeau_prims
import pytest
import torch
from flambeau_prims import lower
from flambeau_prims.conformance import Decomposing
from flambeau_prims.sweep.measure import compare
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn import functional as F

aten = torch.ops.aten
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.complex64)

ROWS = torch.tensor([3, 0, -1])
COLUMNS = torch.tensor([[1], [-2]])
FEW = torch.tensor([0, 2, 0])
MASK = torch.tensor([True, False, True, True])
WIDE_MASK = torch.arange(24).reshape(4, 6) % 3 == 0
INDEX = torch.tensor([[0, 3, 2, 1, 1, 0], [2, 2, 0, 0, 3, 1]])

READS = {
    "rows": lambda x: x[ROWS],
    "columns": lambda x: x[:, COLUMNS],
    "apart": lambda x: x[None, :, ROWS, None][ROWS * 0, :, :, torch.tensor([0])],
    "both": lambda x: x[ROWS, COLUMNS],
    "mask": lambda x: x[MASK],
    "mask_and_index": lambda x: x[MASK, torch.tensor([0, 5, 5])],
    "wide_mask": lambda x: x[WIDE_MASK],
    "mask_behind_none": lambda x: x[None][:, MASK],
    "byte_mask": lambda x: aten.index(x, [MASK.to(torch.uint8)]),
    "int32": lambda x: aten.index(x, [ROWS.int()]),
    "none_at_the_end": lambda x: aten.index(x, [ROWS, None]),
    "empty": lambda x: x[torch.tensor([], dtype=torch.int64)],
    "empty_mask": lambda x: x[torch.zeros(4, dtype=torch.bool)],
    "scalar_mask": lambda x: x[torch.tensor(True)],
    "take": lambda x: x.take(torch.tensor([[5, -1], [0, 23]])),
    "take_along_dim": lambda x: x.take_along_dim(INDEX, 0),
    "index_select": lambda x: x.index_select(-1, torch.tensor([5, 0, 5])),
    "index_select_0d": lambda x: x[0, 0].index_select(0, torch.tensor([0])),
    "gather": lambda x: x.gather(0, INDEX),
    "gather_0d": lambda x: x[0, 0].gather(0, torch.tensor(0)),
    "gather_of_0d": lambda x: x[0, 0].gather(0, torch.tensor([0, 0])),
    "gather_nothing": lambda x: x.gather(1, torch.empty(0, dtype=torch.int64)),
    "masked_select": lambda x: x.masked_select(WIDE_MASK[0]),
    "nonzero": lambda x: (x * WIDE_MASK).nonzero(),
    "nonzero_static": lambda x: torch.nonzero_static(x * WIDE_MASK, size=10, fill_value=-7),
    "nonzero_static_few": lambda x: torch.nonzero_static(x, size=3),
    "unsafe_masked": lambda x: aten._unsafe_masked_index(
        x, torch.tensor([True, False]), [torch.tensor([1, 99]), torch.tensor([-2, 0])], 7
    ),
}

WRITES = {
    "index_put": lambda x: x.index_put((ROWS,), x[:3] * 2),
    "index_put_broadcast": lambda x: aten.index_put(x, [None, COLUMNS], x[0, 0]),
    "index_put_mask": lambda x: x.index_put((MASK,), x[:3]),
    "index_put_mask_number": lambda x: x.index_put((MASK,), x[0, 0]),
    "index_put_mask_add": lambda x: x.index_put((MASK,), x[0, 0], accumulate=True),
    "index_put_wide_mask": lambda x: x.index_put((WIDE_MASK,), x.flatten()[:8]),
    "index_put_turned": lambda x: aten.index_put(x.t(), [None, ROWS], x[0, 0]),
    "index_copy": lambda x: x.index_copy(1, torch.tensor([5, 0]), x[:, :2]),
    "index_copy_0d": lambda x: x[0, 0].index_copy(0, torch.tensor([0]), x[1, :1]),
    "index_fill": lambda x: x.index_fill(1, torch.tensor([5, 0]), 3),
    "index_fill_tensor": lambda x: x.index_fill(0, torch.tensor(2), x[0, 0]),
    "put": lambda x: x.put(torch.tensor([1, -1]), x[0, :2]),
    "masked_scatter": lambda x: x.masked_scatter(WIDE_MASK, x.flatten() * 2),
    "masked_scatter_broadcast": lambda x: x.masked_scatter(MASK[:, None], x.t()),
    "masked_scatter_backward": lambda x: aten.masked_scatter_backward(x, WIDE_MASK, [3, 4]),
    "scatter": lambda x: x.scatter(0, INDEX[:1], x[1:]),
    "scatter_value": lambda x: x.scatter(1, INDEX[:, :2], 7),
    "scatter_0d": lambda x: x[0, 0].scatter(0, torch.tensor(0), 7),
    "scatter_nothing": lambda x: x.scatter(0, INDEX[:0], 7),
    "diagonal_scatter": lambda x: x.diagonal_scatter(x[0, :3], 3),
    "as_strided_scatter": lambda x: x.as_strided_scatter(x[:2, :2], (2, 2), (1, 7)),
    "as_strided_scatter_behind": lambda x: x.as_strided_scatter(x[:2, :2], (2, 2), (1, 7), 3),
    "as_strided_scatter_whole": lambda x: x.as_strided_scatter(x.exp2(), (4, 6), (6, 1)),
    "as_strided_scatter_turned": lambda x: x.as_strided_scatter(x.t(), (6, 4), (1, 6), 0),
    "as_strided_scatter_ones": lambda x: x.as_strided_scatter(x[None], (1, 4, 6), (2, 6, 1)),
}

SUMS = {
    "index_put_add": lambda x: x.index_put((ROWS * 0,), x[:3], accumulate=True),
    "index_add": lambda x: x.index_add(0, ROWS.abs() // 3, x[:3], alpha=2),
    "index_add_0d": lambda x: x[0, 0].index_add(0, torch.tensor([0]), x[0, 0]),
    "put_add": lambda x: x.put(torch.tensor([1, 1]), x[0, :2], accumulate=True),
    "scatter_add": lambda x: x.scatter_add(0, INDEX, x[:2]),
    "scatter_add_name": lambda x: x.scatter(0, INDEX, x[:2], reduce="add"),
    "scatter_multiply": lambda x: x.scatter(0, INDEX[:1], 3, reduce="multiply"),
}
REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


def sample(dtype):
    torch.manual_seed(0)
    if dtype == torch.int64:
        return torch.randint(1, 9, (4, 6))
    return torch.randn(4, 6, dtype=torch.complex128 if dtype.is_complex else None).to(dtype)


def check(function, x):
    expected = function(x)
    with Decomposing() as seen:
        got = function(x)
    assert seen.decomposed
    wrong = compare(got, expected, None).wrong
    assert wrong is None, wrong
    return seen


@pytest.mark.parametrize("name", sorted({**READS, **WRITES, **SUMS}))
def test_like_eager(name):
    for dtype in DTYPES:
        function = {**READS, **WRITES, **SUMS}[name]
        check(function, sample(dtype))
        if name in WRITES or name in SUMS:
            assert torch.equal(sample(dtype), sample(dtype))  # the operand is as it was


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("include_self", [True, False])
def test_scatter_reduce(reduce, include_self):
    for dtype in (torch.float32, torch.float64, torch.int64):
        x = sample(dtype)
        check(lambda y: y.scatter_reduce(0, INDEX, y[:2], reduce, include_self=include_self), x)
        check(lambda y: y[0, 0].scatter_reduce(0, torch.tensor(0), y[1, 1], reduce,
                                               include_self=include_self), x)  # fmt: skip
        if reduce != "sum":
            check(lambda y: y.index_reduce(0, FEW, y[:3], reduce,
                                           include_self=include_self), x)  # fmt: skip


@pytest.mark.parametrize("reduce", ["amax", "amin", "sum"])
def test_scatter_reduce_of_nan(reduce):
    x = sample(torch.float32)
    x[1, 2] = x[3, 4] = float("nan")
    check(lambda y: y.scatter_reduce(0, INDEX, y[:2], reduce), x)


def test_gradients():
    def losses(x):
        yield x[MASK, :3].square().sum()
        yield x.index_put((ROWS[:2],), x[:2] ** 2).sum()
        yield x.masked_scatter(WIDE_MASK, x.flatten() ** 2).square().sum()
        yield x.scatter_reduce(0, INDEX, x[:2] * 2, "prod").sum()
        yield x.scatter_reduce(0, INDEX, x[:2] * 2, "amax").square().sum()
        yield x.unfold(1, 3, 2).square().sum()
        yield x.diagonal(1).square().sum()
        yield x.take(torch.tensor([1, 1, 5])).square().sum()

    def grads():
        x = sample(torch.float64).requires_grad_()
        return [torch.autograd.grad(loss, x)[0] for loss in losses(x)]

    expected = grads()
    with Decomposing():
        got = grads()
    assert compare(got, expected, None).wrong is None


def test_a_size_that_depends_on_elements_lowers_to_a_symbol():
    def program(x, mask):
        return torch.masked_select(x, mask)

    mode = FakeTensorMode(shape_env=ShapeEnv())
    x = sample(torch.float32)
    inputs = [mode.from_tensor(t, static_shapes=True) for t in (x, WIDE_MASK)]
    gm = lower(fx.symbolic_trace(program), inputs)
    calls = [n for n in gm.graph.nodes if n.op == "call_function"]
    assert [n.target.name() for n in calls] == ["flambeau_prims::masked_select"]
    assert isinstance(calls[0].meta["val"].shape[0], torch.SymInt)
    assert torch.equal(gm(x, WIDE_MASK), x[WIDE_MASK])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: aten.index(x, [MASK[:3]]), IndexError, "shape of the mask"),
        (lambda x: aten.index(x, [ROWS] * 3), IndexError, "too many indices"),
        (lambda x: x.index_put((ROWS,), x[:3].double()), RuntimeError, "dtypes match"),
        (lambda x: x.scatter_reduce(0, INDEX, x.double(), "sum"), RuntimeError, "dtype"),
        (lambda x: x.gather(2, INDEX), IndexError, "out of range"),
        (lambda x: x.index_add(0, ROWS, x.double()), RuntimeError, "scalar type"),
        (lambda x: x.index_add(0, ROWS, x[:3]), RuntimeError, "-1 is out of bounds"),
        (lambda x: x.index_add(0, ROWS, x[:3], alpha=2), IndexError, "out of range"),
        (lambda x: x.index_add(0, ROWS.int(), x[:3]), IndexError, "out of range"),
        (lambda x: x.index_add(0, ROWS.byte(), x[:3]), RuntimeError, "Expected dtype"),
        (lambda x: x.index_add(0, INDEX, x), IndexError, "vector"),
        (lambda x: x.index_add(0, FEW, x[:2]), RuntimeError, "Number of indices"),
        (lambda x: x.index_add(0, FEW, x[:1, :1].expand(3, 1)), RuntimeError, "shape must match"),
        (lambda x: x[0].index_add(0, FEW, x[0, 0]), IndexError, "Number of indices|no dimensions"),
        (lambda x: x.index_add(1, FEW, x[0, :3]), RuntimeError, "out of bounds of the source"),
        (lambda x: x.index_copy(0, ROWS, x[:3]), IndexError, "-1 is out of bounds"),
        (lambda x: x.index_copy(0, FEW.int(), x[:3]), RuntimeError, "Expected"),
        (lambda x: x.index_copy(0, FEW, x[0]), IndexError, "dimensionality must match"),
        (lambda x: x.index_copy(0, FEW, x[:3, :1]), RuntimeError, "same slice shapes"),
        (lambda x: x.index_copy(0, FEW, x[:2]), IndexError, "Number of indices"),
        (lambda x: x[0].index_copy(0, FEW, x[0, 0]), IndexError, "should have one element"),
        (lambda x: x.index_fill(0, FEW.int(), 1), IndexError, "Expected dtype int64"),
        (lambda x: x.index_reduce(0, ROWS, x[:3], "amax"), IndexError, "out of range"),
        (lambda x: x.take(FEW.int()), RuntimeError, "Expected"),
        (lambda x: x.put(FEW.int(), x[0, :3]), RuntimeError, "Expected"),
        (lambda x: x.gather(0, INDEX.byte()), RuntimeError, "Expected dtype int32/int64"),
        (lambda x: x.masked_scatter(MASK[:, None], x[0]), RuntimeError, "Number of elements"),
        (lambda x: x.masked_scatter(MASK[:, None], x[:0]), RuntimeError, "Number of elements"),
        (lambda x: F.nll_loss(x, MASK.long() - 1), IndexError, "Target -1"),
        (lambda x: F.nll_loss(x, MASK.int()), RuntimeError, "int64|Long"),
        (lambda x: F.multi_margin_loss(x, MASK * 9), RuntimeError, "target out of range"),
        (lambda x: F.multilabel_margin_loss(x, INDEX.repeat(2, 1) - 2), RuntimeError, "target"),
        (lambda x: torch.arange(0, 0, 0), RuntimeError, "step must be nonzero"),
    ],
)
def test_refused_as_by_eager(call, error, message):
    x = sample(torch.float32)
    with pytest.raises(error):
        call(x)
    with pytest.raises(error, match=message), Decomposing():
        call(x)


@pytest.mark.parametrize(("size", "stride"), [((24,), (1,)), ((6, 4), (1, 6)), ((2, 12), (12, 1))])
def test_a_view_that_fills_its_memory_is_written_by_its_shape(size, stride):
    """As the gradient of a pooling to one pixel is, beside images channels-last."""
    x, src = torch.zeros(4, 6), torch.randn(size)

    def write(x, src):
        return x.as_strided_scatter(src, size, stride)

    gm = flambeau_prims.lower(torch.fx.symbolic_trace(write), [x, src])
    names = {str(node.target) for node in gm.graph.nodes if node.op == "call_function"}
    assert not any("as_strided_scatter" in name for name in names)
    assert torch.equal(gm(x, src), write(x, src))


@pytest.mark.parametrize(("shape", "expanded"), [((1,), (16,)), ((4, 1), (4, 4)), ((1, 4), (4, 4))])
@pytest.mark.parametrize("offset", [None, 0, 2])
def test_a_base_that_repeats_its_elements_is_written_as_a_copy(shape, expanded, offset):
    x, src = torch.rand(shape).expand(expanded), torch.rand(2, 5)
    expected = x.as_strided_scatter(src, (2, 5), (5, 1), offset)
    with Decomposing():
        found = x.as_strided_scatter(src, (2, 5), (5, 1), offset)
    assert torch.equal(found, expected) and found.stride() == expected.stride()


@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 3, 2)])
@pytest.mark.parametrize("fn", [torch.nonzero, torch.argwhere], ids=lambda f: f.__name__)
def test_positions_lie_side_by_side_as_in_eager(fn, shape):
    x = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    wanted = fn(x)
    (got,) = lower(fx.symbolic_trace(lambda x: (fn(x),)), [x])(x)
    assert torch.equal(got, wanted) and got.stride() == wanted.stride()
