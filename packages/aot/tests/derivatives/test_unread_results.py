"""Operators that raise by data or dtype, whose results nothing reads: eager's error is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import flambeau_prims
import pytest
import torch
from flambeau_aot.joint.metadata.data_dependent import INDEXING, may_raise
from torch.nn import functional as F

BAD = torch.tensor([0, 9, 1])
GOOD = torch.tensor([0, 2, 1])

UNREAD: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "index": lambda x, i: x[i],
    "index of columns": lambda x, i: x[:, i],
    "index_put": lambda x, i: x.index_put((i,), x),
    "index_select": lambda x, i: x.index_select(0, i),
    "index_add": lambda x, i: x.index_add(0, i, x),
    "index_copy": lambda x, i: x.index_copy(0, i, x),
    "index_fill": lambda x, i: x.index_fill(0, i, 1.0),
    "gather": lambda x, i: x.gather(0, i[None]),
    "take": lambda x, i: x[0].take(i),
    "scatter": lambda x, i: x.scatter(0, i[None], x),
    "scatter_add": lambda x, i: x.scatter_add(0, i[None], x),
    "embedding": lambda x, i: F.embedding(i, x),
    "nll_loss": lambda x, i: F.nll_loss(x, i),
    "cross_entropy": lambda x, i: F.cross_entropy(x, i),
    "one_hot": lambda x, i: F.one_hot(i, 3),
    "a chain": lambda x, i: x[i].sin() * 2,
}

t = torch.tensor
X, MASK, FULL, IDLE = t([4.0, 5.0, 6.0]), t([True, True, False]), t([True] * 3), t([0, 0, 1])
#: an operator, what it takes, what it refuses
BY_DATA: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "as many values": (lambda k: X.index_put((k,), X[:2]), MASK, FULL),
    "values of columns": (
        lambda k: torch.stack([X, X]).transpose(0, 1).index_put((k,), X[:2, None]),
        MASK,
        FULL,
    ),
    "written values": (lambda k: (k * 1.0).__setitem__(k, k[:2] * 1.0), MASK, FULL),
    "no value": (lambda k: X.index_put((k,), X[:0]), ~FULL, FULL),
    "masked_scatter": (lambda k: X.masked_scatter(k, X[:2]), MASK, FULL),
    "masked_scatter of one": (lambda k: X.masked_scatter(k, X[:1]), ~FULL, FULL),
    "floor division": (lambda k: GOOD // k, t([1, 2, 3]), GOOD),
    "div": (lambda k: GOOD.div(k, rounding_mode="trunc"), t([1, 2, 3]), GOOD),
    "remainder": (lambda k: GOOD % k, t([1, 2, 3]), GOOD),
    "fmod": (lambda k: GOOD.fmod(k), t([1, 2, 3]), GOOD),
    "svd": (torch.linalg.svd, torch.eye(2), torch.full((2, 2), torch.nan)),
    "svdvals": (torch.linalg.svdvals, torch.eye(2), torch.full((2, 2), torch.nan)),
    "searchsorted": (lambda k: torch.searchsorted(X, X, sorter=k), GOOD, BAD),
    "segment_reduce": (lambda k: torch.segment_reduce(X, "sum", lengths=k), t([3]), t([9])),
    "lu_unpack": (lambda k: torch.lu_unpack(torch.eye(3), k)[0], t([1, 2, 3]).int(), IDLE.int()),
    "histc": (lambda k: k.histc(2), X, X / 0),
}


def outcome(call: Callable[..., Any], *args: Any) -> Any:
    try:
        return call(*args)
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", UNREAD)
def test_an_error_of_an_unread_result(name: str, grad: bool) -> None:
    def fn(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        UNREAD[name](x, i)
        return x * 2

    x = torch.randn(3, 3, requires_grad=grad)
    compiled = aot.aot_function(fn, aot.run_as_is)
    assert torch.equal(compiled(x, GOOD), fn(x, GOOD))
    (entry,) = compiled.compiled.values()
    assert len(entry.joint.plan.results) == 1
    assert outcome(compiled, x, BAD) is outcome(fn, x, BAD)
    if grad:
        compiled(x, GOOD).sum().backward()
        assert torch.equal(x.grad, torch.full((3, 3), 2.0))


@pytest.mark.parametrize("name", BY_DATA)
def test_a_check_of_data_whose_result_is_unread(name: str) -> None:
    operator, good, bad = BY_DATA[name]

    def fn(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        operator(k)
        return x * 2

    compiled = aot.aot_function(fn, aot.run_as_is)
    assert torch.equal(compiled(X, good), fn(X, good))
    wrong = outcome(fn, X, bad)
    assert issubclass(wrong, RuntimeError) and outcome(compiled, X, bad) is wrong


#: operators that eager's kernels do not take for whole numbers, or masks
BY_DTYPE: dict[str, Callable[[torch.Tensor], Any]] = {
    **{name: getattr(F, name) for name in ("gelu", "silu", "mish", "softplus")},
    "frac": lambda i: i.frac(),
    "softmax": lambda i: torch._softmax(i, 0, False),
    "lerp": lambda i: i.lerp(i, 0.5),
    "logaddexp": lambda i: torch.logaddexp(i, i),
    "bmm of masks": lambda i: torch.bmm((i > 1)[None], (i > 1).t()[None]),
    "amax of complex numbers": lambda i: (i * 1j).amax(),
    "ceil of complex numbers": lambda i: (i * 1j).ceil(),
    "batched": lambda i: torch.func.vmap(F.gelu)(i),
}


def test_kernels_that_are_given_sizes_as_numbers_are_not_tried() -> None:
    def fn(x: torch.Tensor, h: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        layer = torch.ops.aten.mkldnn_rnn_layer.default
        return layer(x, *weights, h, h, False, [], 2, 16, 1, True, False, False, False)[0]

    lstm = torch.nn.LSTM(8, 16)
    given = torch.randn(5, 3, 8), torch.zeros(1, 3, 16), *lstm.parameters()
    with torch.no_grad():
        made = aot.aot_function(fn, aot.run_as_is)(*given)
        torch.testing.assert_close(made, lstm(given[0])[0])


@pytest.mark.parametrize("decomposed", [False, True])
@pytest.mark.parametrize("name", BY_DTYPE)
def test_a_dtype_that_eager_refuses_of_an_unread_result(name: str, decomposed: bool) -> None:
    def fn(i: torch.Tensor) -> torch.Tensor:
        BY_DTYPE[name](i)
        return i + 1

    table = flambeau_prims.decompositions() if decomposed else {}
    compiled = aot.aot_function(fn, aot.run_as_is, decompositions=table)
    i = torch.arange(6).reshape(3, 2)
    assert outcome(fn, i) is NotImplementedError
    assert outcome(compiled, i) is NotImplementedError


OUTSIDE: dict[str, Callable[[torch.Tensor], Any]] = {
    "of a sum": lambda x: x.sum().as_strided((3, 4), (4, 1)),
    "of a copy": lambda x: x.clone().as_strided((3, 4), (4, 1), 1),
    "of a part": lambda x: (x + 1)[0].as_strided((3, 4), (4, 1), 4),
    "of a written one": lambda x: x.clone().mul_(2).as_strided((13,), (1,)),
}


@pytest.mark.parametrize("decomposed", [False, True])
@pytest.mark.parametrize("name", OUTSIDE)
def test_a_view_of_memory_that_is_not_there(name: str, decomposed: bool) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        OUTSIDE[name](x)
        return x + 1

    x = torch.ones(3, 4)
    assert outcome(fn, x) is RuntimeError
    table = flambeau_prims.decompositions() if decomposed else {}
    with pytest.raises(Exception, match="AO0046"):
        aot.aot_function(fn, aot.run_as_is, decompositions=table)(x)


def test_what_a_decomposition_leaves_is_computed_though_unread() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        torch.mm(x, x)
        return x + 1

    seen: list[bool] = []

    def compiler(gm: Any, inputs: Any, info: Any) -> Any:
        seen.append(any(node.target is mm for node in gm.graph.nodes))
        return aot.run_as_is(gm, inputs, info)

    mm = torch.ops.aten.mm.default
    tables: list[dict[Any, Any]] = [{mm: lambda *args: NotImplemented}, {}]
    for table in tables:
        x = torch.ones(2, 2)
        assert torch.equal(aot.aot_function(fn, compiler, decompositions=table)(x), fn(x))
    assert seen == [True, False]


def test_what_cannot_raise_by_its_data_is_no_check() -> None:
    aten, one = torch.ops.aten, torch.ones(())
    assert not may_raise(aten.index_put.default, (X, [MASK], one), {})
    assert not may_raise(aten.floor_divide.default, (X, X), {})
    assert not may_raise(aten.remainder.Scalar, (GOOD, 2), {})
    assert not may_raise(aten.searchsorted.Tensor, (X, X), {})


def test_nothing_is_kept_of_what_is_read_or_cannot_raise() -> None:
    def fn(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        x.sin()
        return x[i] + F.embedding(i, x)

    compiled = aot.aot_function(fn, aot.run_as_is)
    compiled(torch.randn(3, 3), GOOD)
    (entry,) = compiled.compiled.values()
    assert entry.joint.plan.visible == 1


def test_the_table_is_read_off_the_schemas() -> None:
    aten, x = torch.ops.aten, torch.ones(3, 3)
    for name in ("gather", "index_select", "index_add", "scatter", "scatter_reduce", "take"):
        packet = getattr(aten, name)
        for func in (getattr(packet, each) for each in packet.overloads()):
            named = [each.name for each in func._schema.arguments]
            if INDEXING & set(named) and "dimname" not in func._schema.overload_name:
                args = tuple(BAD if each in INDEXING else x for each in named)
                assert may_raise(func, args, {})
                assert not may_raise(func, tuple(x for _ in named), {})
    assert not may_raise(aten.mse_loss.default, (x, x), {})
    assert not may_raise(aten._unsafe_index.Tensor, (x, [BAD]), {})


IN_PLACE = ("mvlgamma_", "sin_", "cumsum_", "tril_", "clamp_", "logit_", "addcmul_")
TRANSFORMS: dict[str, Callable[..., Any]] = {
    "vmap": lambda g: torch.func.vmap(g, in_dims=2),
    "jvp": lambda g: lambda x: torch.func.jvp(g, (x,), (torch.ones_like(x),)),
    "both": lambda g: torch.func.vmap(
        lambda x: torch.func.jvp(g, (x,), (torch.ones_like(x),)), in_dims=1
    ),
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", IN_PLACE)
def test_what_a_transform_hides_keeps_its_strides(name: str, transform: str) -> None:
    def written(x: torch.Tensor) -> torch.Tensor:
        given = {"mvlgamma_": (1,), "cumsum_": (0,), "clamp_": (0.1, 3), "addcmul_": (x, x)}
        return getattr(x.clone(), name)(*given.get(name, ()))

    def fn(x: torch.Tensor) -> Any:
        return TRANSFORMS[transform](written)(x)

    x = torch.rand(2, 4, 3).permute(1, 2, 0).mul(0.5).add(0.2)
    for one, other in zip(
        torch.utils._pytree.tree_leaves(fn(x)),
        torch.utils._pytree.tree_leaves(aot.aot_function(fn, aot.run_as_is)(x)),
        strict=True,
    ):
        assert one.stride() == other.stride()
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("place", [((4, 4), (4, 1), 8), ((13,), (1,), 0), ((2, 3), (9, 2), None)])
def test_places_outside_of_an_input(place: tuple[Any, ...], read: bool, grad: bool) -> None:
    """Eager raises where a place leaves the memory, which only a call knows."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        other = x.as_strided(*place)
        return x + other.sum() if read else x + 1

    table = flambeau_prims.decompositions()
    run = aot.aot_function(fn, aot.run_as_is, decompositions=table)
    inside = torch.arange(48.0).view(12, 4)[:3]
    short = torch.arange(12.0).view(3, 4)
    for given in (inside, short, inside):
        x = given.detach().requires_grad_(grad)
        try:
            expected = fn(x)
        except RuntimeError as error:
            with pytest.raises(RuntimeError) as raised:
                run(x)
            assert str(raised.value) == str(error)
            assert given is short
        else:
            torch.testing.assert_close(run(x), expected)
            assert given is inside
