"""Metadata of results, as the CPU's kernels make them."""

import itertools

import flambeau_aot as aot
import pytest
import torch
from flambeau_aot.intercept.writes import running_statistics
from flambeau_aot.joint.metadata.corrections import CORRECTIONS
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F


def linear(norm: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), norm, torch.nn.ReLU())


@pytest.mark.parametrize(
    "options", [{}, {"affine": False}, {"track_running_stats": False}], ids=str
)
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_batch_norm_under_autocast(options: dict, training: bool) -> None:
    x = torch.randn(8, 3)
    seen = []
    for wrap in (lambda m: m, lambda m: aot.aot_module(m, aot.run_as_is)):
        module = linear(torch.nn.BatchNorm1d(4, **options)).train(training)
        with torch.autocast("cpu", torch.bfloat16):
            y = wrap(module)(x)
        (y.float() * torch.arange(32.0).reshape(8, 4)).sum().backward()
        seen.append([y, *(p.grad for p in module.parameters()), *module.buffers()])
    assert [t.dtype for t in seen[0]] == [t.dtype for t in seen[1]]
    for expected, given in zip(*seen, strict=True):
        torch.testing.assert_close(given, expected)


_ENDS = ("layer_norm", "group_norm", "batch_norm", "_legit", "_functional", "_no_training")
NORMS = sorted(name for name in CORRECTIONS if name.endswith(_ENDS))


@pytest.mark.parametrize("name", NORMS)
def test_a_correction_says_what_the_kernel_does(name: str) -> None:
    if name == "aten::native_batch_norm":
        op = torch.ops.aten.native_batch_norm.default
    else:
        op = getattr(torch.ops.aten, name.removeprefix("aten::")).default
    x, one = torch.randn(8, 4).bfloat16(), torch.ones(4)
    training = () if name.endswith("_no_training") else (True,)
    args = (x, one, one.clone(), torch.zeros(4), one.clone(), *training, 0.1, 1e-5)
    if name == "aten::native_layer_norm":
        args = (x, [4], one, one.clone(), 1e-5)
    if name == "aten::native_group_norm":
        args = (x, one, one.clone(), 8, 4, 1, 2, 1e-5)
    real = op(*args)
    told = CORRECTIONS[name](args, x.device)
    assert {place: real[place].dtype for place in told} == {p: t.dtype for p, t in told.items()}
    assert not CORRECTIONS[name]((x.float(), *args[1:]), x.device)


@pytest.mark.parametrize("name", ["_unique2", "unique_dim", "unique_consecutive"])
def test_places_and_counts_are_whole_numbers(name: str) -> None:
    x = torch.tensor([2.0, 2.0, 1.0])
    dim = [0] if name.endswith("dim") else []
    real = getattr(torch.ops.aten, name).default(x, *dim, return_inverse=True, return_counts=True)
    told = CORRECTIONS[f"aten::{name}"]((x, *dim), x.device)
    assert {place: real[place].dtype for place in (1, 2)} == {p: t.dtype for p, t in told.items()}


def losses() -> list[tuple[str, object]]:
    found = []
    for reduction in ("none", "mean", "sum"):
        for target in (torch.tensor(1), torch.tensor([1])):
            found.append((reduction, lambda x, r=reduction, t=target: F.multi_margin_loss(
                x, t, reduction=r)))  # fmt: skip
        for batch in (False, True):
            target = torch.tensor([[0, 2, -1]] if batch else [0, 2, -1])
            found.append((reduction, lambda x, r=reduction, t=target: F.multilabel_margin_loss(
                x.view(t.shape), t, reduction=r)))  # fmt: skip
    return found


@pytest.mark.parametrize(("reduction", "fn"), losses())
def test_losses_of_one_sample_have_the_kernels_shape(reduction, fn) -> None:
    x = torch.randn(3)
    expected, got = fn(x), aot.aot_function(fn, aot.run_as_is)(x)
    torch.testing.assert_close(got, expected)
    assert got.shape == expected.shape


@pytest.mark.parametrize("asked", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("op", [torch._softmax_backward_data, torch._log_softmax_backward_data])
def test_derivatives_of_softmax_have_the_kernels_dtype(op, given, asked) -> None:
    x, seen = torch.ones(4, 5, dtype=given), []
    for call in (op, aot.aot_function(op, aot.run_as_is)):
        try:
            seen.append(call(x, x, 1, asked))
        except RuntimeError:
            seen.append(None)
    assert (seen[0] is None) == (seen[1] is None)
    if seen[0] is not None:
        torch.testing.assert_close(seen[1], seen[0])


@pytest.mark.parametrize("order", [(1, 0), (2, 0, 1), (0, 2, 1)])
@pytest.mark.parametrize("training", [True, False])
def test_rrelu_has_the_kernels_strides(order, training) -> None:
    def fn(x):
        return F.rrelu(x - 0.5, training=training)

    x, seen = torch.rand(tuple(range(3, 3 + len(order)))).permute(order), []
    for call in (fn, aot.aot_function(fn, aot.run_as_is)):
        torch.manual_seed(0)
        seen.append(call(x))
    torch.testing.assert_close(seen[1], seen[0])
    assert seen[0].stride() == seen[1].stride()


@pytest.mark.parametrize("turned", [*itertools.product([False, True], repeat=2)], ids=str)
def test_derivatives_of_elu_have_the_kernels_strides(turned) -> None:
    def fn(grad, x):
        return torch.ops.aten.elu_backward(grad, 1.0, 1.0, 1.0, False, x)

    given = [torch.randn(2, 3, 4).mT if t else torch.randn(2, 4, 3) for t in turned]
    expected, found = fn(*given), aot.aot_function(fn, aot.run_as_is)(*given)
    assert found.stride() == expected.stride()
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("order", [(1, 0), (2, 0, 1), (0, 2, 3, 1), (3, 0, 2, 1)])
def test_batch_norm_of_a_batch_in_another_order_has_the_kernels_strides(order) -> None:
    def fn(x, mean, var):
        return torch.nn.functional.batch_norm(x, mean, var, training=True)

    compiled = aot.aot_function(fn, aot.run_as_is)
    x = torch.randn(tuple(range(3, 3 + len(order)))).permute(order)
    found = []
    for call in (fn, compiled):
        mean, var = torch.zeros(x.shape[1]), torch.ones(x.shape[1])
        found.append((call(x.detach().requires_grad_(), mean, var), mean, var))
    for one, other in zip(*found):
        torch.testing.assert_close(other, one)
        assert one.stride() == other.stride()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("of_statistics", [torch.float32, torch.float64, torch.int64], ids=str)
def test_mixed_dtypes_are_refused_though_nobody_reads_the_result(dtype, of_statistics) -> None:
    def fn(x, mean):
        torch.nn.functional.batch_norm(x, mean, mean.abs() + 1, training=True)
        return x.sin()

    said = []
    for call in (fn, aot.aot_function(fn, aot.run_as_is)):
        try:
            call(torch.randn(4, 3).to(dtype), torch.zeros(3).to(of_statistics))
            said.append("")
        except RuntimeError as error:
            said.append(str(error))
    assert bool(said[0]) == bool(said[1]) and said[0] in said[1]


LOSSES = [
    getattr(torch.nn, name)
    for name in ("MultiLabelMarginLoss", "MultiMarginLoss", "MultiLabelSoftMarginLoss")
]
LOSSES += [torch.nn.NLLLoss, torch.nn.CrossEntropyLoss]


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("make", LOSSES)
def test_a_loss_of_one_sample_has_the_kernels_shape(make: type, reduction: str) -> None:
    x = torch.randn(5)
    target = torch.tensor([1, 0, -1, 2, 3]) if "Label" in make.__name__ else torch.tensor(2)
    target = target.float() if "Soft" in make.__name__ else target
    loss = make(reduction=reduction)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return loss(x, target).relu()

    gradients = []
    for call in (fn, aot.aot_function(fn, aot.run_as_is)):
        leaf = x.clone().requires_grad_()
        result = call(leaf)
        result.sum().backward()
        gradients.append((result.detach(), leaf.grad))
    for one, other in zip(*gradients):
        assert one.shape == other.shape
        torch.testing.assert_close(other, one)


@pytest.mark.parametrize("of_library", [True, False])
@pytest.mark.parametrize("dims", [2, 3, 4, 5])
def test_batch_norm_for_a_gpu_is_laid_out_by_who_computes_it(
    dims: int, of_library: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a format by cuDNN, as the batch by torch's own kernels."""
    chosen = torch._C._BatchNormBackend
    monkeypatch.setattr(
        torch._C,
        "_select_batch_norm_backend",
        lambda *given: chosen.Cudnn if of_library else chosen.Native,
    )
    shape = tuple(range(2, 2 + dims))
    with FakeTensorMode():
        turned = torch.empty(shape[::-1], device="cuda").permute(*range(dims)[::-1])
        one = torch.empty(shape[1], device="cuda")
        made = running_statistics.batch_norm(turned, one, one, None, None, True, 0.1, 1e-5)
        plain = running_statistics.batch_norm(turned, None, None, None, None, True, 0.1, 1e-5)
    assert made.is_contiguous() == of_library
    assert (made if not of_library else plain).stride() == turned.stride()


SHAPES = [(0,), (3,), (1,), (1, 0), (1, 3), (2, 3), (1, 0, 3), (0, 3, 1), (1, 3, 1), (2, 3, 1)]
SHAPES += [(1, 3, 2), (0, 0, 2), (2, 3, 2, 2), (1, 3, 1, 1), (1, 0, 1, 1)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["batch_norm", "instance_norm"])
def test_norms_of_every_size_answer_or_are_refused_as_in_eager(name: str, shape) -> None:
    norm = getattr(torch.nn.functional, name)
    chosen = {"training" if name == "batch_norm" else "use_input_stats": True}

    def fn(x: torch.Tensor) -> torch.Tensor:
        return norm(x, None, None, **chosen)

    x = torch.rand(shape)
    try:
        expected = fn(x)
    except (ValueError, RuntimeError, IndexError) as error:
        with pytest.raises((ValueError, RuntimeError, IndexError)) as refused:
            aot.aot_function(fn, aot.run_as_is)(x)
        if isinstance(error, ValueError):
            assert str(error) in str(refused.value)
        return
    found = aot.aot_function(fn, aot.run_as_is)(x)
    torch.testing.assert_close(found, expected, equal_nan=True)
    assert found.stride() == expected.stride()


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("shape", [(1, 10, 5), (1, 0, 3), (4,), ()], ids=str)
@pytest.mark.parametrize("name", ["nansum", "nanmean", "sum", "mean", "amax", "amin", "logsumexp"])
def test_reductions_over_no_dimensions(name: str, shape: tuple[int, ...], keepdim: bool) -> None:
    x, reduce = torch.randn(shape), getattr(torch, name)
    try:
        expected = reduce(x, dim=(), keepdim=keepdim)
    except (IndexError, RuntimeError):
        return
    compiled = aot.aot_function(lambda x: reduce(x, dim=(), keepdim=keepdim), aot.run_as_is)
    torch.testing.assert_close(compiled(x), expected, equal_nan=True)


@pytest.mark.parametrize("shape", [(1, 0, 3), (0, 10, 3), (0, 4), (5, 0, 2, 2), (5, 5, 3)], ids=str)
@pytest.mark.parametrize("places", [1, 2])
def test_a_masked_index_of_no_elements(shape: tuple[int, ...], places: int) -> None:
    indices = [torch.zeros(6, 1, dtype=torch.int64), torch.zeros(1, 7, dtype=torch.int64)][:places]
    mask = torch.ones(6, 7 if places == 2 else 1, dtype=torch.bool)
    mask = mask.reshape(*mask.shape, *[1] * (len(shape) - places))

    def index(x: torch.Tensor) -> torch.Tensor:
        return torch._unsafe_masked_index(x, mask, indices, -0.5)

    try:
        expected = index(torch.zeros(shape))
    except (IndexError, RuntimeError):
        return
    found = aot.aot_function(index, aot.run_as_is)(torch.zeros(shape))
    assert found.shape == expected.shape and torch.equal(found, expected)


ROLES = ("mean var", "mean weight", "var weight", "mean var weight", "mean bias", "var bias")


@pytest.mark.parametrize("roles", [*ROLES, "weight bias", ""])
@pytest.mark.parametrize("part", [False, True], ids=["whole", "part"])
def test_statistics_over_what_a_norm_reads(roles: str, part: bool) -> None:
    """A kernel writes them first; only memory that nothing writes may be one."""

    def norm(x: torch.Tensor, one: torch.Tensor, *own: torch.Tensor) -> torch.Tensor:
        given = dict(zip(("mean", "var", "weight", "bias"), own, strict=True))
        shared = one[:3] if part else one
        given.update(dict.fromkeys(roles.split(), shared))
        return F.batch_norm(
            x, given["mean"], given["var"], given["weight"], given["bias"], True, 0.5
        )

    def made() -> list[torch.Tensor]:
        torch.manual_seed(0)
        own = [torch.full((3,), value) for value in (0.1, 0.9, 1.3, 0.2)]
        return [torch.randn(4, 3, 2), torch.full((5 if part else 3,), 0.7), *own]

    compiled, args = aot.aot_function(norm, aot.run_as_is), made()
    if roles in ROLES:
        with pytest.raises(aot.Unsupported, match="AO0165"):
            compiled(*args)
        return
    wanted = made()
    torch.testing.assert_close(compiled(*args), norm(*wanted))
    torch.testing.assert_close(args, wanted)


@pytest.mark.parametrize("dims", [(), (2,), (2, 3)], ids=str)
@pytest.mark.parametrize("others", itertools.product(*[["float64", "bfloat16", "int32"]] * 2))
def test_blocks_have_the_dtype_that_matrices_promote_to(dims, others) -> None:
    given = [torch.ones((), dtype=torch.float64), torch.ones(2, 2, dtype=getattr(torch, others[0]))]
    given.append(torch.ones(dims, dtype=getattr(torch, others[1])))
    expected, found = (
        torch.block_diag(*given),
        aot.aot_function(torch.block_diag, aot.run_as_is)(*given),
    )
    torch.testing.assert_close(found, expected)


def test_a_vector_beside_a_product_of_nothing_keeps_its_shape() -> None:
    given = torch.ones(()), torch.ones(5, 0), torch.ones(0)
    expected, found = torch.addmv(*given), aot.aot_function(torch.addmv, aot.run_as_is)(*given)
    torch.testing.assert_close(found, expected)
    assert found.shape == expected.shape
