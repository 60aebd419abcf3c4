"""What is assumed of sizes and numbers that depend on data, which the graph checks: a call in which
it is not so is eager's."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import flambeau
from integration_tests.by_data import COUNTS, chosen, compared, numbered, rows
from integration_tests.programs_by_data.numbers_and_shapes import EXPERTS, LAYERS


def the_one_before(x: Tensor, t: Tensor) -> Any:
    n = t.item()
    y = x * 1
    y[n - 1] += 1
    return x[n - 1] * 2, y, x[n - 1]


def classes_below_four(x: Tensor, t: Tensor) -> Any:
    return x * 1, torch.bincount(torch.full((3,), t.item()), minlength=4).tolist()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("program", [the_one_before, classes_below_four])
def test_positions_and_counts_are_as_in_general(program: Any, backend: str) -> None:
    """Positions from the beginning, no class beyond those named: one graph; other calls, where
    Python counts from the end, finds more, or raises, are eager's."""
    torch.manual_seed(0)
    compiled = flambeau.compile(program, backend=backend)
    for count in (3, 1, 2, 0, 3, 2, 9, -2, 3):
        compared(program, compiled, numbered(count))
    assert (flambeau.report(compiled).graphs, flambeau.report(compiled).breaks) == (1, ())


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_mask_whose_size_is_found_to_be_another(backend: str) -> None:
    """Two open sizes are equal once the mask has chosen rows: one of them stands for both."""

    def loss(scores: Tensor, labels: Tensor) -> Tensor:
        kept = labels != -100
        return F.cross_entropy(scores[kept], labels[kept], label_smoothing=0.1)

    compiled = flambeau.compile(loss, backend=backend)
    for size in (9, 10, 12, 8):
        scores, labels = torch.randn(size, 5, requires_grad=True), torch.randint(0, 5, (size,))
        labels[::3] = -100
        found, expected = compiled(scores, labels), loss(scores, labels)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(
            torch.autograd.grad(found, scores), torch.autograd.grad(expected, scores)
        )
    report = flambeau.report(compiled)
    assert report.graphs <= 2 and report.breaks == () and report.narrowed == ()


#: numbers of Python's, and operators that read one, of a size that no longer depends on data
OF_A_SIZE = {
    "power": lambda x, n: x.sum() * n**0.5,
    "integer": lambda x, n: x.sum() + int(n / 2),
    "filled": lambda x, n: torch.full((2, n), n),
    "slice": lambda x, n: x[:, : n // 2],
    "comparison": lambda x, n: x.sum() + (n > 3),
    "row of each": lambda x, n: torch.eye(n, dtype=x.dtype) + x.sum(),
}


@pytest.mark.parametrize("name", OF_A_SIZE)
def test_a_size_that_is_found_not_to_depend_on_data_is_a_number(name: str) -> None:
    """As many rows as were chosen, and elements to fill them: the rest is as wide as before."""

    def program(x: Tensor, k: int) -> Any:
        chosen = x[x[:, 0] > 0]
        table = chosen.reshape(-1, chosen.shape[0])
        some = table[table[:, 0] > 0]
        return OF_A_SIZE[name](some, table.shape[0]), OF_A_SIZE[name](some, x.shape[1] + k % 9)

    compiled = flambeau.compile(program, backend="eager")
    for rows_, columns, k in ((8, 8, 0), (5, 5, 2), (7, 4, 10), (9, 12, 3)):
        x = torch.randn(rows_, columns)
        torch.testing.assert_close(compiled(x, k), program(x, k))
    report = flambeau.report(compiled)
    assert report.faults == () and report.breaks == () and report.graphs <= 3


SPREADS = {
    "std": lambda x: x.std(),
    "var of columns": lambda x: x.var(0),
    "std of rows, uncorrected": lambda x: x.std(1, correction=0),
    "var and mean": lambda x: sum(each.sum() for each in torch.var_mean(x, 0)),
    "standardised": lambda x: (x - x.mean(0)) / (x.std(0) + 1e-5),
}


@pytest.mark.sweep(4)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("chosen", [False, True], ids=["open size", "size by data"])
@pytest.mark.parametrize("spread", SPREADS)
def test_derivatives_of_spreads_divide_by_the_size(spread: str, chosen: bool, backend: str) -> None:
    """Which is open, or depends on data: one graph, whose gradients are eager's."""

    def program(x: Tensor, mask: Tensor) -> Tensor:
        made: Tensor = SPREADS[spread](x[mask] if chosen else x * 1.5)
        return made.square().sum()

    compiled = flambeau.compile(program, backend=backend, dynamic=True)
    for size in (8, 7, 12, 5):
        x, mask = torch.randn(size, 3, requires_grad=True), torch.arange(size) < size - 2
        found, expected = compiled(x, mask), program(x, mask)
        torch.testing.assert_close(found, expected)
        ours, theirs = (torch.autograd.grad(each, x) for each in (found, expected))
        torch.testing.assert_close(ours, theirs)
    assert (flambeau.report(compiled).graphs, flambeau.report(compiled).breaks) == (1, ())


@pytest.mark.parametrize("most", [-1, 7])
def test_classes_are_checked_as_eager_does(most: int) -> None:
    def program(y: Tensor, t: Tensor) -> Tensor:
        return F.one_hot(y, t.item())

    compiled = flambeau.compile(program, backend="inductor")
    for y in (torch.tensor([0, 3]), torch.tensor([most, 1]), torch.tensor([2, 1])):
        compared(program, compiled, (y, torch.tensor(4)))
    assert (flambeau.report(compiled).graphs, flambeau.report(compiled).breaks) == (1, ())


def test_a_result_that_is_a_view_by_a_number_shares_memory() -> None:
    compiled = flambeau.compile(lambda x, t: x[t.item() :], backend="inductor")
    for count in COUNTS:
        x, t = numbered(count)
        compiled(x, t).fill_(1)
        torch.testing.assert_close(x == 1, (torch.arange(8) >= count)[:, None].expand(8, 4))
    assert (flambeau.report(compiled).graphs, flambeau.report(compiled).breaks) == (1, ())


def test_a_loop_of_as_many_rounds_as_data_says_is_named() -> None:
    def program(x: Tensor, t: Tensor) -> Tensor:
        for place in range((x > t).sum().item() // 4):
            x = x * 1.5 + place
        return x

    compiled = flambeau.compile(program, backend="aot_eager")
    for count in COUNTS:
        compared(program, compiled, numbered(count))
    assert any("FB0002" in each and "range()" in each for each in flambeau.report(compiled).breaks)


def skips_what_is_empty(x: Tensor, mask: Tensor) -> Tensor:
    y = x[mask]
    if y.shape[0] == 0:
        return x.sum() - 1
    return y.square().sum() if len(y) > 0 else y.sum()


def loops_over_what_is_hit(x: Tensor, mask: Tensor) -> Tensor:
    out = x * 0
    for place in mask.nonzero():
        place = place[0]
        if place == 100:
            continue
        out = out + x[place] * LAYERS[place % EXPERTS].weight.sum()
    return out


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("program", [skips_what_is_empty, loops_over_what_is_hit])
def test_python_decides_as_in_general(program: Any, backend: str) -> None:
    """Not none, and all positions: one graph; a call where it is not so is eager's."""
    torch.manual_seed(0)
    compiled = flambeau.compile(program, backend=backend)
    for count in (8, 8, 0, 8, 3, 8, 1, 8):
        compared(program, compiled, rows(count))
    assert (flambeau.report(compiled).graphs, flambeau.report(compiled).breaks) == (1, ())


def test_what_seldom_holds_is_not_assumed_for_long() -> None:
    """A program that is mostly given nothing ends its graph at the question instead."""
    torch.manual_seed(0)
    compiled = flambeau.compile(skips_what_is_empty, backend="aot_eager")
    for count in (3, *[0] * 12, 3, 0, 5):
        compared(skips_what_is_empty, compiled, rows(count))
    report = flambeau.report(compiled)
    assert any("did not hold in most calls" in each for each in report.narrowed)
    assert any("FB0002" in each and "y.shape[0] == 0" in each for each in report.breaks)


NUMBERS_CHECKED = [
    "torch._check(n == 3)",
    "torch._check(n >= 3); torch._check(n <= 3)",
    "assert n == 3",
    "x = x[:n] * 1.0 + x[-n:][:n]",
    "x = x[mask][-2:] * n",
    "x = x[mask][:-2] * x[mask][2:] * n",
    "x = (x[mask] * 2.0)[-2:].exp() * n + x[mask][-2:]",
    "x = x[mask][:5] + n",
    "x = x[mask][1:] - x[mask][:-1]",
    "x = x[mask] + torch.ones(3, 4) * n",
]


@pytest.mark.sweep(20)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("line", NUMBERS_CHECKED)
def test_a_check_outlives_what_is_learnt_from_it(line: str, backend: str) -> None:
    """A condition that leaves one value for a number is true to whoever knows it, and yet to be
    checked by the graph."""
    names: dict[str, Any] = {"torch": torch}
    exec(
        "def program(x, count, mask):\n"
        f"    n = count.item()\n    {line}\n    return x * n, torch.ones(n)",
        names,
    )  # pytest writes the assertions of this file in another way
    program = names["program"]
    torch.manual_seed(0)
    compiled = flambeau.compile(program, backend=backend)
    for count in (3, 5, 0, 1, 8, 2):
        given = torch.randn(8, 4), torch.tensor(count), chosen(count)
        compared(program, compiled, given)
    assert flambeau.report(compiled).graphs == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_nothing_is_assumed_by_what_cannot_run_again(backend: str) -> None:
    """A graph that has written to its inputs when a check fails would leave that behind."""

    def program(x: Tensor, mask: Tensor) -> Tensor:
        x.add_(1)
        return x[mask].squeeze(0)

    compiled = flambeau.compile(program, backend=backend)
    for count in COUNTS:
        given = [torch.zeros(8, 4), chosen(count)]
        copy = [each.clone() for each in given]
        torch.testing.assert_close(compiled(*given), program(*copy))
        torch.testing.assert_close(given, copy)


def test_a_stage_that_does_not_take_sizes_by_data_is_named() -> None:
    @flambeau.register_backend(name="none_by_data")
    def backend(gm: Any, inputs: Any) -> Any:
        if any("nonzero" in str(n.target) or n.target == "item" for n in gm.graph.nodes):
            raise RuntimeError("no such sizes here")
        return gm.forward

    compiled = flambeau.compile(lambda x, t: x * t.sum().item(), backend="none_by_data")
    given = torch.randn(3), torch.tensor([1.0, 1.5])
    torch.testing.assert_close(compiled(*given), given[0] * 2.5)
    (told,) = flambeau.report(compiled).narrowed
    assert "ends its graphs where a size depends on data" in told and "no such sizes" in told
    assert f"made again: {told}" in str(flambeau.report(compiled))
    (ended,) = flambeau.report(compiled).breaks
    assert "no such sizes here" in ended and "x * t.sum().item()" in ended


def test_a_number_is_named_by_what_reads_it_and_where() -> None:
    def program(x: Tensor, mask: Tensor) -> Tensor:
        count = x[mask].shape[0]
        return x * 2 if count * 2 > 7 else x

    compiled = flambeau.compile(program, backend="aot_eager")
    for count in COUNTS:
        compared(program, compiled, rows(count))
    (told,) = flambeau.report(compiled).breaks
    assert "getitem() gives at `count = x[mask].shape[0]`" in told and "if count * 2 > 7" in told


def whole_numbers(x: Tensor, t: Tensor) -> Any:
    half = t.item() * 0.5
    kinds = int, round, math.floor, math.ceil, math.trunc
    return *(x[: kind(half)] * 2 for kind in kinds), int(half - 3.7), round(half - 2.5)


def slices_by_tensors(x: Tensor, t: Tensor) -> Any:
    y = x * 1
    y[:t] = 0
    return x[:t], x[:, : t.clamp(max=4)], y, [row[: t.clamp(max=3)] for row in x][0]


def resized_by_an_integer(x: Tensor, t: Tensor) -> Any:
    return F.interpolate(x[None, None], scale_factor=t.item() + 1)


def sums_of_counts(x: Tensor, t: Tensor) -> Any:
    ends = torch.bincount(t.clamp(max=3)[None], minlength=4).cumsum(0).tolist()
    return [x[low:high].sum() for low, high in zip([0, *ends], ends, strict=False)]


def weights_of_classes(x: Tensor, t: Tensor) -> Any:
    labels = torch.arange(8) % t.clamp(1, 4)
    weight = 1.0 / (torch.bincount(labels, minlength=4).float() + 1)
    return F.cross_entropy(x, labels, weight=weight)


def padded_by_a_number(x: Tensor, t: Tensor) -> Any:
    return F.pad(x, (0, 0, 0, t.item())).unfold(0, 4, 2).sum(-1)


def first_of_what_is_chosen(x: Tensor, t: Tensor) -> Any:
    return x[torch.arange(8) < t][:2] * 2, torch.max(x[torch.arange(8) < t, None], x)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize(
    "program",
    [
        whole_numbers,
        slices_by_tensors,
        resized_by_an_integer,
        sums_of_counts,
        weights_of_classes,
        padded_by_a_number,
        first_of_what_is_chosen,
    ],
)
def test_numbers_by_data_where_python_and_operators_take_them(program: Any, backend: str) -> None:
    """One graph, and no call of it is left to Python, not of nothing either."""
    torch.manual_seed(0)
    compiled = flambeau.compile(program, backend=backend)
    for count in COUNTS:
        compared(program, compiled, numbered(count))
    report = flambeau.report(compiled)
    assert (report.graphs, report.breaks, report.narrowed) == (1, (), ())
    assert "its graph raised" not in str(report)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("least", [0, 1, 1.0])
def test_the_maximum_of_a_count_and_a_number_is_the_count_in_general(
    least: float, first: bool
) -> None:
    def program(x: Tensor, mask: Tensor) -> Any:
        count = mask.sum()
        most = max(least, count) if first else max(count, least)
        return x[mask].sum() / most, most

    compiled = flambeau.compile(program, backend="aot_eager")
    for count in (3, 5, 2, 0, 1, 8, 4, 7):
        compared(program, compiled, rows(count))
    assert (flambeau.report(compiled).graphs, flambeau.report(compiled).breaks) == (1, ())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e30])
def test_a_float_that_is_no_integer_is_pythons(value: float) -> None:
    def program(x: Tensor, t: Tensor) -> Any:
        return x * 2, int(t.item())

    compiled = flambeau.compile(program, backend="aot_eager")
    for number in (2.5, -3.5, value, 1e15):
        compared(program, compiled, (torch.randn(3), torch.tensor(number)), trains=False)
    assert (flambeau.report(compiled).graphs, flambeau.report(compiled).breaks) == (1, ())
