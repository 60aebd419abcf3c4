"""Size policies: as many graphs as they say, eager's answer with gradients, strides and memory, and
errors that name the place. What cannot be padded exactly is not, and the report says why."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import flambeau
from flambeau import Bucket, PadTo

WEIGHT = torch.rand(4, 4)
LENGTHS = (3, 5, 8, 9, 12, 1, 2, 17)


def _watched(fn: Callable[..., Any], given: Sequence[Tensor]) -> list[Any]:
    own = [x.clone().requires_grad_(x.is_floating_point()) for x in given]
    found = pytree.tree_leaves(fn(*own))
    results = [x for x in found if isinstance(x, Tensor)]
    ends = [x.sum() for x in results if x.requires_grad]
    wanted = [x for x in own if x.requires_grad]
    grads = torch.autograd.grad(sum(ends), wanted, allow_unused=True) if ends else ()
    places = [(x.stride(), x.storage_offset(), x.untyped_storage().size()) for x in results]
    same = [next((n for n, x in enumerate(own) if x is each), None) for each in results]
    return [found, grads, places, same]


def _same(compiled: Callable[..., Any], fn: Callable[..., Any], *given: Tensor) -> None:
    (got, ours, *where), (want, theirs, *wanted) = _watched(compiled, given), _watched(fn, given)
    torch.testing.assert_close((got, ours), (want, theirs), rtol=1e-5, atol=1e-6)
    assert where == wanted


#: functions whose rows follow from the same row and those before it
BY_ROWS: dict[str, Callable[[Tensor], Any]] = {
    "a layer": lambda x: (x @ WEIGHT).relu(),
    "transposed": lambda x: (x @ WEIGHT).mT,
    "several": lambda x: ((x @ WEIGHT).relu(), x.cumsum(0), x.shape[0] * 2, x, x.sum(0)),
    "in three dimensions": lambda x: x[None, :, :, None].expand(2, -1, -1, 3) * 2,
    "positions": lambda x: x * torch.arange(x.shape[0])[:, None],
}


@pytest.mark.parametrize("name", BY_ROWS)
def test_one_graph_a_bucket(name: str) -> None:
    fn = BY_ROWS[name]
    for policy, graphs in ((Bucket(), 6), (Bucket(pad=0), 6), (PadTo(16, 0.0), 3), ("open", 2)):
        compiled = flambeau.compile(fn, sizes={"x": {0: policy}}, backend="aot_eager")
        for length in LENGTHS:
            _same(compiled, fn, torch.rand(length, 4))
        report = flambeau.report(compiled)
        assert (report.graphs, report.breaks, report.fallbacks) == (graphs, (), ()), policy
        assert report.unpadded == ()


MADE: dict[str, Callable[[int], Tensor]] = {
    "transposed": lambda n: torch.rand(4, n).mT,
    "sliced": lambda n: torch.rand(n, 9)[:, 1::2],
}


@pytest.mark.parametrize("policy", [Bucket(pad=0), PadTo(4, 1)])
@pytest.mark.parametrize("name", MADE)
def test_results_are_laid_out_as_of_the_call(name: str, policy: Any) -> None:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        column = x[:, :1].flip(-1)
        return x * 2, (x + 1) @ WEIGHT, torch.where(x > 0.5, x, x.cumsum(0)), x, column

    compiled = flambeau.compile(fn, sizes={"x": {0: policy}}, backend="aot_eager")
    for length in (3, 4, 8, 6):
        _same(compiled, fn, MADE[name](length))
    report = flambeau.report(compiled)
    assert (report.graphs, report.unpadded, report.fallbacks) == (2, (), ())


def test_padded_sizes_are_constants_of_the_kernels() -> None:
    shapes: list[Any] = []

    def backend(module: torch.fx.GraphModule, given: list[Tensor]) -> Callable[..., Any]:
        nodes = module.graph.find_nodes(op="placeholder")
        shapes.append([tuple(node.meta["val"].shape) for node in nodes])
        assert [tuple(x.shape) for x in given] == shapes[-1]
        return module.forward

    sizes = {"x": {0: Bucket(pad=0), -1: PadTo(8, 1.0)}}
    compiled = flambeau.compile(lambda x: x * 2, sizes=sizes, backend=backend)
    for rows, columns in ((5, 3), (6, 8), (8, 2), (9, 9)):
        x = torch.rand(rows, columns)
        assert torch.equal(compiled(x), x * 2)
    assert shapes == [[(8, 8)], [(16, 16)]]
    assert all(type(size) is int for (shape,) in shapes for size in shape)


def test_policies_of_parts_and_modules() -> None:
    class Scaled(torch.nn.Module):
        def forward(self, batch: Any, *more: Tensor, **named: Tensor) -> Tensor:
            return batch["a"][0].sum() + more[0].sum() + named["z"].sum()

    of_z = {"named": {"z": {0: Bucket()}}}
    sizes = {"batch": {"a": [{0: "open"}]}, "more": [{0: PadTo(8, 0)}], **of_z}
    compiled = flambeau.compile(Scaled(), sizes=sizes, backend="eager")
    for a, b, c in ((3, 4, 5), (9, 7, 8), (12, 8, 6), (5, 5, 12)):
        given = {"a": [torch.rand(a)]}, torch.rand(b)
        want = given[0]["a"][0].sum() + given[1].sum() + c
        torch.testing.assert_close(compiled(*given, z=torch.ones(c)), want)
    assert flambeau.report(compiled).graphs == 2


#: what is not padded, and a word of the reason
NOT_PADDED: dict[str, tuple[Callable[..., Any], str]] = {
    "another size": (lambda x, y: x[1:] * 2, "a result has a size of"),
    "a view": (lambda x, y: x.view(-1, 4), "is a view of x"),
    "a transposed view": (lambda x, y: (x.mT, x * 2), "is a view of x"),
    "a number of Python's": (lambda x, y: x / x.shape[0] ** 0.5, "Python computes a number"),
    "random numbers": (lambda x, y: torch.nn.functional.dropout(x, 0.5), "random"),
    "another argument": (lambda x, y: x + y, "follows from a padded size"),
    "a write": (lambda x, y: y.add_(x.sum()), "writes to a tensor"),
    "gaps": (lambda x, y: (x * 2)[:, :3], "gaps or overlaps"),
    "shared memory": (lambda x, y: (lambda z: (z, z.mT))(x * 2), "share memory"),
    "no elements": (lambda x, y: x[:, :0] - 5, "has no elements"),
}


@pytest.mark.parametrize("name", NOT_PADDED)
def test_what_cannot_be_cut_exactly_is_not_padded(name: str) -> None:
    fn, why = NOT_PADDED[name]
    sizes = {"x": {0: Bucket(pad=0)}, "y": {0: "open"}}
    compiled = flambeau.compile(fn, sizes=sizes, backend="aot_eager")
    for length in (5, 7):
        given = [torch.rand(length, 4), torch.rand(length, 4)]
        torch.manual_seed(0)
        with pytest.warns(flambeau.FlambeauWarning) if length == 5 else _nothing():
            got = compiled(*[x.clone() for x in given])
        torch.manual_seed(0)
        torch.testing.assert_close(got, fn(*[x.clone() for x in given]))
    report = flambeau.report(compiled)
    assert report.graphs == 1
    (told,) = report.unpadded
    assert why in told and "not padded" in str(report)


def test_a_result_that_is_dense_at_some_sizes_alone_is_not_padded() -> None:
    sizes = {"x": {0: Bucket(pad=0), 1: "open"}}
    compiled = flambeau.compile(lambda x: (x * 2)[:, :5], sizes=sizes, backend="eager")
    with pytest.warns(flambeau.FlambeauWarning, match="gaps or overlaps"):
        for shape in ((5, 5), (6, 8), (7, 4)):
            x = torch.rand(shape)
            found, expected = compiled(x), (x * 2)[:, :5]
            assert torch.equal(found, expected) and found.stride() == expected.stride()


#: results of one column that lie as their operand does
OF_A_COLUMN: dict[str, Callable[[Tensor], Tensor]] = {
    "flipped": lambda column: column.flip(-1),
    "rolled": lambda column: column.roll(1, 1),
    "doubled": lambda column: column * 2,
    "copied": lambda column: column.clone(),
    "with a dimension": lambda column: column[:, None].exp(),
}


@pytest.mark.parametrize("name", OF_A_COLUMN)
def test_dimensions_of_one_are_cut_to_the_strides_of_eager(name: str) -> None:
    fn = OF_A_COLUMN[name]
    pad = {"x": {0: Bucket(pad=0)}}
    compiled = flambeau.compile(lambda x: fn(x[:, :1]), sizes=pad, backend="eager")
    for rows, layout in itertools.product((5, 7, 8), ("dense", "transposed", "sliced")):
        x = torch.rand(3, rows).mT if layout == "transposed" else torch.rand(rows, 3)
        x = torch.rand(rows, 6)[:, ::2] if layout == "sliced" else x
        found, expected = compiled(x), fn(x[:, :1])
        assert torch.equal(found, expected) and found.stride() == expected.stride()
    assert flambeau.report(compiled).unpadded == ()


def test_a_function_with_a_break_is_not_padded() -> None:
    def fn(x: Tensor) -> Tensor:
        y = x * 2
        flambeau.graph_break()
        return y + 1

    compiled = flambeau.compile(fn, sizes={"x": {0: Bucket(pad=0)}}, backend="eager")
    x = torch.rand(5, 4)
    with pytest.warns(flambeau.FlambeauWarning, match="ends at a break"):
        assert torch.equal(compiled(x), x * 2 + 1)


def test_a_broken_promise_is_found_by_verifying() -> None:
    sizes = {"x": {0: Bucket(pad=0)}}
    compiled = flambeau.compile(lambda x: x.mean(0) * 2, sizes=sizes, verify=True, backend="eager")
    for length in (5, 6):
        x = torch.rand(length, 4)
        with pytest.warns(flambeau.WrongAnswer, match="padding") if length == 5 else _nothing():
            torch.testing.assert_close(compiled(x), x.mean(0) * 2)
    assert len(flambeau.report(compiled).fallbacks) == 1


class _nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "no parameter": (lambda: {"y": {0: "open"}}, "'y', which is no parameter of .*: there are 'x'"),
    "no policy": (lambda: {"x": {0: "opn"}}, "'opn' for dimension 0 of x: give 'open', 'fixed'"),
    "a class": (lambda: {"x": {0: Bucket}}, "for dimension 0 of x"),
    "no dimension": (lambda: {"x": {"a": "open"}}, "'a' for a dimension of x"),
    "for all of it": (lambda: {"x": "open"}, "'open' for x: give a dict by dimension"),
    "a list": (lambda: ["x"], "sizes is a list"),
    "a part": (lambda: {"x": {"a": [{0: 3}]}}, r"3 for dimension 0 of x\['a'\]\[0\]"),
    "text for a pad": (lambda: {"x": {0: Bucket(pad="0")}}, "pad is a number"),  # type: ignore[arg-type]
    "a multiple of one": (lambda: {"x": {0: PadTo(1, 0)}}, "an integer of 2 or more"),
    "no pad": (lambda: {"x": {0: PadTo(8, None)}}, "pad is the number"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_policy_is_named(name: str) -> None:
    make, words = BAD[name]
    with pytest.raises(flambeau.SizePolicyError, match=words):
        flambeau.compile(lambda x: x, sizes=make())


def test_a_dimension_that_is_not_there_is_named() -> None:
    compiled = flambeau.compile(lambda x: x * 2, sizes={"x": {2: "open"}})
    with pytest.raises(flambeau.SizePolicyError, match="dimension 2 of x, which is a tensor of 2"):
        compiled(torch.rand(3, 4))


def test_an_open_size_is_never_a_constant() -> None:
    def fn(x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] == 5 else x

    compiled = flambeau.compile(fn, sizes={"x": {0: "open"}}, backend="eager")
    with pytest.raises(flambeau.ConstraintViolation, match=r"if x\.shape"):
        compiled(torch.rand(5, 4))


def test_fixed_is_a_graph_a_size_and_a_mark_counts_for_more() -> None:
    compiled = flambeau.compile(lambda x: x * 2, sizes={"x": {0: "fixed"}}, backend="eager")
    for length in (3, 4, 5):
        compiled(torch.rand(length))
    assert flambeau.report(compiled).graphs == 3
    marked = torch.rand(6)
    flambeau.mark_dynamic(marked, 0)
    compiled(marked)
    for length in (7, 8, 9):
        compiled(torch.rand(length))
    assert flambeau.report(compiled).graphs == 4


def test_a_compiled_function_keeps_its_policies_when_it_is_pickled() -> None:
    compiled = pickle.loads(
        pickle.dumps(flambeau.compile(_row_sums, sizes=_SIZES, backend="eager"))
    )
    for length in (5, 6, 7, 8):
        compiled(torch.rand(length, 4))
    assert flambeau.report(compiled).graphs == 1


_SIZES = {"x": {0: Bucket(pad=0)}}


def _row_sums(x: Tensor) -> Tensor:
    return x.sum(-1)
