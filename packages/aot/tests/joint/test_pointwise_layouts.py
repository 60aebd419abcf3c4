"""Strides of pointwise operators' results along dimensions of one element and none."""

from __future__ import annotations

import itertools
import random

import flambeau_aot as aot
import flambeau_prims
import pytest
import torch
from flambeau_aot._torch_compat import hint
from flambeau_aot.joint.dispatch_mode import Attempt, JointTracer
from flambeau_aot.joint.metadata.fake_metadata import FakeValues
from flambeau_aot.joint.metadata.pointwise_layouts import _OTHERWISE
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

aten = torch.ops.aten

UNARY = [aten.sin.default, aten.neg.default, aten.logical_not.default, aten.relu.default]
BINARY = [
    *(aten.mul.Tensor, aten.add.Tensor, aten.sub.Tensor, aten.maximum.default),
    *(aten.eq.Tensor, aten.atan2.default, aten.sigmoid_backward.default, aten.div.Tensor),
    *(aten.leaky_relu_backward.default, aten.threshold_backward.default, aten.copysign.Tensor),
]
WITH_NUMBER = [aten.mul.Scalar, aten.lt.Scalar, aten.pow.Tensor_Scalar, aten.mul.Tensor]
TERNARY = [aten.where.self, aten.addcmul.default, aten.lerp.Tensor]


def drawn(draw: random.Random, shape: list[int]) -> torch.Tensor:
    """A tensor whose dimensions lie in any order, those of one at any distance."""
    order = draw.sample(range(len(shape)), len(shape))
    strides, step = [0] * len(shape), 1
    for dim in order:
        apart = shape[dim] == 1 and draw.random() < 0.2
        strides[dim] = draw.choice([1, 2, 3, 7]) if apart else step
        step *= max(shape[dim], 1) * draw.choice([1] * 9 + [2])
    return torch.empty_strided(shape, strides).fill_(0.5)


def operands(draw: random.Random, count: int) -> list[torch.Tensor]:
    shape = [draw.choice([1, 1, 2, 3] + [0] * (draw.random() < 0.1)) for _ in range(4)]
    shape = shape[draw.randrange(3) :]
    own = [[n if draw.random() < 0.85 else 1 for n in shape] for _ in range(count)]
    return [
        drawn(draw, sizes[draw.random() < 0.2 :] if at else sizes) for at, sizes in enumerate(own)
    ]


@pytest.mark.parametrize(
    ("ops", "count"),
    [(UNARY, 1), (WITH_NUMBER, 1), (BINARY, 2), (TERNARY, 3)],
    ids=["unary", "number", "binary", "ternary"],
)
def test_they_are_those_of_the_kernels(ops: list, count: int) -> None:
    draw, fakes = random.Random(0), FakeValues()
    for op in ops * 40:
        given = [*operands(draw, count), *[2.0] * (ops is WITH_NUMBER)]
        if op is aten.leaky_relu_backward.default:
            given += [0.1, False]
        if op is aten.threshold_backward.default:
            given += [0.0]
        if op is aten.where.self:
            given[0] = given[0] > 0
        described = fakes.run(
            op, tuple(fakes.like(x) if isinstance(x, torch.Tensor) else x for x in given), {}
        )
        where = op, [(x.shape, x.stride()) for x in given if isinstance(x, torch.Tensor)]
        assert described.stride() == op(*given).stride(), where


@pytest.mark.parametrize(
    ("ops", "count"),
    [(UNARY, 1), (WITH_NUMBER, 1), (BINARY, 2), (TERNARY, 3)],
    ids=["unary", "number", "binary", "ternary"],
)
def test_open_sizes_that_are_one_in_this_call(ops: list, count: int) -> None:
    draw = random.Random(0)
    # descriptions of other ternary ones take no open sizes
    for op in (ops[:1] if ops is TERNARY else ops[:4]) * 5:
        given = [x for x in operands(draw, count) if 0 not in x.shape]
        if len(given) < count:
            continue
        given = [x.clone() > 0 if op is aten.where.self and not at else x.clone()
                 for at, x in enumerate(given)]  # fmt: skip
        environment = ShapeEnv(specialize_zero_one=False)
        mode, fakes = FakeTensorMode(shape_env=environment), FakeValues(environment)
        numbers = [2.0] * (ops is WITH_NUMBER)
        opened = [
            fakes.like(mode.from_tensor(x, symbolic_context=StatelessSymbolicContext(
                dynamic_sizes=[DimDynamic.DYNAMIC] * x.dim()
            )))
            for x in given
        ]  # fmt: skip
        described = fakes.run(op, (*opened, *numbers), {})
        expected = op(*given, *numbers)
        where = op, [(x.shape, x.stride()) for x in given]
        assert tuple(map(hint, described.stride())) == expected.stride(), where


def grids(draw: random.Random) -> tuple[torch.Tensor, ...]:
    """Operands of one shape, laid out each by itself."""
    shape = [draw.choice([1, 1, 2, 3] + [0] * (draw.random() < 0.3)) for _ in range(4)]
    shape = shape[draw.randrange(3) :]
    return tuple(drawn(draw, shape) for _ in range(3))


LIKE_AN_ARGUMENT = {
    **{
        f"{name}_like": lambda x, *_, n=name: (f"{n}_like.default", x) for name in ("ones", "zeros")
    },
    "full_like": lambda x, *_: ("full_like.default", x, 2.0),
    "fill": lambda x, *_: ("fill.Scalar", x, 2.0),
    "flip": lambda x, *_: ("flip.default", x, [0]),
    "nan_to_num": lambda x, *_: ("nan_to_num.default", x),
    "hardtanh": lambda x, *_: ("hardtanh.default", x, -1.0, 1.0),
    "rad2deg": lambda x, *_: ("rad2deg.default", x),
    "deg2rad": lambda x, *_: ("deg2rad.default", x),
    "conj": lambda x, *_: ("_conj_physical.default", torch.complex(x, x)),
    "abs": lambda x, *_: ("abs.default", torch.complex(x, x)),
    "prelu": lambda x, *_: ("_prelu_kernel.default", x, torch.ones([1] * x.dim())),
    "prelu backward": lambda x, y, w: ("_prelu_kernel_backward.default", y, x, w),
    "log_sigmoid_backward": lambda x, y, z: ("log_sigmoid_backward.default", x, y, z),
    "sort": lambda x, *_: ("sort.default", x, 0),
    "stable sort": lambda x, *_: ("sort.default", x, -1, True),
    "frexp": lambda x, *_: ("frexp.Tensor", x),
    "turned once": lambda x, *_: ("rot90.default", x, 1, [0, -1]),
    "turned twice": lambda x, *_: ("rot90.default", x, 2, [0, -1]),
    "turned round": lambda x, *_: ("rot90.default", x, 4, [0, -1]),
    "huber_loss": lambda x, y, _: ("huber_loss.default", x, y, 0),
    "masked_fill": lambda x, y, _: ("masked_fill.Scalar", x, y > 0, 1.0),
    "noise": lambda x, y, z: ("rrelu_with_noise_backward.default", x, y, z, 0.1, 0.5, True, False),
    "leak": lambda x, y, z: ("rrelu_with_noise_backward.default", x, y, z, 0.1, 0.5, False, False),
    "entropy": lambda x, y, z: ("binary_cross_entropy_backward.default", x, y, z),
    "complex": lambda x, y, _: ("complex.default", x, y),
    "polar": lambda x, y, _: ("polar.default", x, y),
    "softplus_backward": lambda x, y, _: ("softplus_backward.default", x, y, 1, 20),
    "softplus_backward of a sum": lambda x, *_: (
        "softplus_backward.default",
        torch.ones(()).expand(x.shape),
        x,
        1,
        20,
    ),
    "sum": lambda x, *_: ("sum.dim_IntList", x, [0], True),
    "norm": lambda x, *_: ("linalg_vector_norm.default", x, 2, [0], True),
}


@pytest.mark.parametrize("name", sorted(LIKE_AN_ARGUMENT))
def test_results_like_an_argument_keep_all_its_strides(name: str) -> None:
    draw, fakes = random.Random(name), FakeValues()
    for _ in range(25):
        given = grids(draw)
        if name.startswith("turned") and given[0].dim() < 2:
            continue
        overload, *args = LIKE_AN_ARGUMENT[name](*given)
        operator, _, kind = overload.partition(".")
        op = getattr(getattr(aten, operator), kind)
        found, real = (
            [y.stride() for y in (made if isinstance(made, tuple) else (made,))]
            for made in (
                fakes.run(op, tuple(fakes.like(x) if torch.is_tensor(x) else x for x in args), {}),
                op(*args),
            )
        )
        where = op, [(tuple(x.shape), x.stride()) for x in args if torch.is_tensor(x)]
        assert found == real, where


def test_operators_left_out_are_there() -> None:
    for name in _OTHERWISE:
        assert hasattr(aten, name.removeprefix("aten::")), name


@pytest.mark.parametrize("cotangent", ["expanded", "reversed"])
def test_a_leaf_takes_the_strides_of_dimensions_of_one(cotangent: str) -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.permute(1, 0, 2) * w, x.sin()

    seen = []
    for call in (program, aot.aot_function(program, aot.run_as_is)):
        x = torch.ones(2, 1, 3, requires_grad=True)
        for result in call(x, torch.ones(2, 3)):
            shape = result.shape
            g = torch.ones(()).expand(shape)
            if cotangent == "reversed":
                g = torch.ones(shape[::-1]).permute(2, 1, 0)
            result.backward(g, retain_graph=True)
            seen.append(x.grad.stride())
            x.grad = None
    assert seen[:2] == seen[2:]


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_slopes_of_the_greater_lie_as_their_formula_writes_them(name: str) -> None:
    draw, call = random.Random(name), getattr(torch, name)
    compiled = aot.aot_function(call, aot.run_as_is)
    for _ in range(20):
        x, y, g = (each[..., :2, :1] for each in grids(draw))
        if 0 in x.shape or x.dim() < 2:
            continue
        found = []
        for each in (call, compiled):
            leaf = torch.empty_strided(x.shape, x.stride()).fill_(1).requires_grad_()
            each(leaf, y).backward(g)
            found.append(leaf.grad.stride())
        assert found[0] == found[1], (x.shape, x.stride(), y.stride(), g.stride())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("decomposed", [False, True], ids=["whole", "primitives"])
def test_prelu_of_more_slopes_than_elements(decomposed: bool) -> None:
    """As a batch of slopes for one sample is: the kernel resizes what it made like the sample."""
    table = flambeau_prims.decompositions() if decomposed else {}
    for shape, slopes in itertools.product(
        [(5,), (1,), (5, 2), (1, 2), (2, 1)], [(1,), (1, 1), (3, 1, 1), (1, 1, 1), (1, 1, 1, 1)]
    ):
        for x in (torch.randn(shape), torch.randn(shape[::-1]).t(), torch.randn(*shape, 3)[..., 0]):
            weight = torch.randn(slopes)
            expected = aten._prelu_kernel.default(x, weight)
            tracer = JointTracer(Attempt(table, {}, all_defined=True, grad_mode=False))
            given = [tracer.fakes.like(each) for each in (x, weight)]
            for each in given:
                tracer.placeholder("x", each)
            with tracer:
                found = aten._prelu_kernel.default(*given)
            assert (found.shape, found.stride()) == (expected.shape, expected.stride())


@pytest.mark.parametrize("op", [aten.mul.Tensor, aten.add.Tensor, aten.maximum.default])
def test_none_and_one_are_of_every_call_beside_open_strides(op) -> None:
    environment = ShapeEnv()
    mode, fakes = FakeTensorMode(shape_env=environment), FakeValues(environment)
    image = torch.randn(4, 5)
    opened = mode.from_tensor(
        image, symbolic_context=StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * 2)
    )
    for shape in ((0, 1), (1, 0), (0, 1, 1), (1, 3), (3, 1)):
        other = torch.randn(shape[::-1]).permute(*range(len(shape) - 1, -1, -1))
        described = fakes.run(op, (fakes.like(other), fakes.like(opened[:1, :1])), {})
        assert described.stride() == op(other, image[:1, :1]).stride(), shape


def test_an_open_number_is_an_operand_of_another_shape() -> None:
    environment = ShapeEnv()
    number = environment.create_unbacked_symint()
    fakes = FakeValues(environment)
    ops = [aten.mul.Tensor, aten.add.Tensor, aten.sub.Tensor, aten.div.Tensor, aten.gt.Scalar]
    for op, shape in itertools.product(ops, [(0, 1), (0, 1, 1), (1, 0, 1), (2, 0, 1), (3, 1)]):
        x = torch.ones(shape)
        for given in (5, number):
            described = fakes.run(op, (fakes.like(x), given), {})
            assert described.stride() == op(x, 5).stride(), (op, shape)
