"""Sizes and numbers that depend on data: one graph for all counts, as eager, with gradients."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flambeau
from integration_tests.by_data import COUNTS, Cases, Make, chosen, numbered, ran, rows

case = CASES = Cases()


def routed(count: int) -> Sequence[Tensor]:
    return torch.randn(8, 4), torch.tensor([count, 8 - count])


@case(rows)
def masked_rows(x: Tensor, mask: Tensor) -> Tensor:
    return (x[mask] * 2).tanh().sum()


@case(rows)
def masked_elements(x: Tensor, mask: Tensor) -> Tensor:
    return torch.masked_select(x, mask[:, None]).square().sum()


@case(rows)
def written_under_a_mask(x: Tensor, mask: Tensor) -> Tensor:
    y = x * 1.5
    y[mask] = y[mask].exp()
    return y.sum()


@case(rows)
def both_sides_of_a_mask(x: Tensor, mask: Tensor) -> Tensor:
    return torch.cat([x[mask], (x * 2)[~mask]]).cumsum(0).square().sum()


@case(rows)
def a_mean_of_what_is_chosen(x: Tensor, mask: Tensor) -> Tensor:
    return F.layer_norm(x[mask], (4,)).sum(0).square().sum() + x[mask].mean()


@case(rows)
def positions(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    where = mask.nonzero().squeeze(1)
    return x.index_select(0, where).square().sum(), where


@case(numbered, trains=False)
def positions_in_a_number(x: Tensor, count: Tensor) -> tuple[Tensor, ...]:
    return count.nonzero(), x * 2, torch.argwhere(count) + 1


@case(lambda count: (torch.randn(8, 4), torch.randint(0, count + 1, (8,))))
def repeated(x: Tensor, repeats: Tensor) -> Tensor:
    return torch.repeat_interleave(x, repeats, 0).cos().sum()


@case(lambda count: (torch.randint(0, count + 1, (60,)),), trains=False)
def distinct(labels: Tensor) -> tuple[Tensor, ...]:
    values, places, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    return values * 2, places + 1, counts.float().mean(), torch.bincount(labels, minlength=4)


@case(numbered)
def cut_by_a_number(x: Tensor, count: Tensor) -> Tensor:
    n = count.item()
    return (x[:n] * 2).sum() + x[n:].cos().sum() + (x * n).sum() / (n + 1)


@case(numbered, trains=False)
def made_by_a_number(x: Tensor, count: Tensor) -> tuple[Any, ...]:
    n = int(count)
    torch._check_is_size(n)
    torch._check(n <= 8)
    return torch.arange(n) * 2, torch.zeros(n, 2) + x.sum(), n, {"next": n + 1}


@case(routed)
def split_by_counts(x: Tensor, counts: Tensor) -> Tensor:
    first, second = torch.split(x, counts.tolist())
    return (first * 2).sum() + second.cos().sum()


# -- families ------------------------------------------------------------------------------------


@case(lambda count: (torch.randn(8, 4), torch.randint(0, 4, (8,)), chosen(count)))
def segmentation_loss(scores: Tensor, labels: Tensor, valid: Tensor) -> Tensor:
    """Cross entropy and dice over the valid pixels alone."""
    kept, wanted = scores[valid], labels[valid]
    entropy = F.cross_entropy(kept, wanted, reduction="sum") / valid.sum().clamp(min=1)
    likely, target = kept.softmax(-1), F.one_hot(wanted, 4).to(kept.dtype)
    both, either = (likely * target).sum(0), (likely + target).sum(0)
    return entropy + (1 - (2 * both + 1) / (either + 1)).mean()


@case(lambda count: (torch.randn(8, 4), torch.randn(8, 4), chosen(count)))
def detection_head(deltas: Tensor, anchors: Tensor, positive: Tensor) -> Tensor:
    """Boxes of the positive anchors, and a loss on their overlap with the anchors."""
    centre = anchors[positive, :2] + deltas[positive, :2] * anchors[positive, 2:].abs()
    size = anchors[positive, 2:].abs() * deltas[positive, 2:].clamp(max=2).exp()
    low, high = centre - size / 2, centre + size / 2
    other_low = anchors[positive, :2] - anchors[positive, 2:].abs() / 2
    other_high = anchors[positive, :2] + anchors[positive, 2:].abs() / 2
    inside = (torch.minimum(high, other_high) - torch.maximum(low, other_low)).clamp(min=0)
    overlap = inside.prod(1)
    union = size.prod(1) + anchors[positive, 2:].abs().prod(1) - overlap
    return (1 - overlap / union.clamp(min=1e-6)).sum() / positive.sum().clamp(min=1)


def boxes(count: int) -> Sequence[Tensor]:
    return torch.rand(8, 4), torch.rand(8) * 0.5 + torch.arange(8).lt(count) * 0.51


@case(boxes, trains=False)
def best_boxes(boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """What passes a threshold, and what no better box overlaps."""
    keep = scores > 0.55
    corners = torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)[keep]
    kept = scores[keep]
    low = torch.maximum(corners[:, None, :2], corners[None, :, :2])
    high = torch.minimum(corners[:, None, 2:], corners[None, :, 2:])
    both = (high - low).clamp(min=0).prod(2)
    own = (corners[:, 2:] - corners[:, :2]).prod(1)
    overlap = both / (own[:, None] + own[None, :] - both)
    better = kept[None, :] > kept[:, None]
    alone = ~((overlap > 0.5) & better).any(1)
    return corners[alone], kept[alone]


@case(lambda count: (torch.randn(8, 4), torch.randint(0, max(count, 1), (2, 24))))
def message_passing(nodes: Tensor, edges: Tensor) -> Tensor:
    """A layer of a graph network; edges to themselves are left out."""
    proper = edges[0] != edges[1]
    source, target = edges[0][proper], edges[1][proper]
    messages = torch.tanh(nodes[source] - nodes[target])
    summed = torch.zeros_like(nodes).index_add(0, target, messages)
    degree = torch.zeros(8).index_add(0, target, torch.ones_like(target, dtype=nodes.dtype))
    return (nodes + summed / degree.clamp(min=1)[:, None]).square().sum()


@case(lambda count: (torch.randn(20, 4), torch.randint(0, count + 1, (8,)).clamp(max=2)))
def ragged_batch(nodes: Tensor, sizes: Tensor) -> Tensor:
    """The mean over each graph of a batch whose sizes are data."""
    graph = torch.repeat_interleave(torch.arange(8), sizes)
    kept = nodes[: graph.shape[0]]
    total = torch.zeros(8, 4).index_add(0, graph, kept.sin())
    return (total / sizes.clamp(min=1)[:, None]).square().sum()


@case(lambda count: (torch.randn(1, 50), torch.tensor(0.1 * count + 0.01)), trains=False)
def top_p(scores: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """The most likely tokens that together have a share of the probability."""
    likely, tokens = scores.softmax(-1).sort(descending=True)
    keep = likely.cumsum(-1) - likely < share
    left = likely[keep]
    return tokens[keep], left / left.sum()


class Experts(nn.Module):
    """Tokens sorted by expert, each expert's part by its count."""

    def __init__(self) -> None:
        super().__init__()
        self.route = nn.Linear(4, 3)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor, shift: Tensor) -> Tensor:
        scores = (self.route(x) + shift).softmax(-1)
        best, expert = scores.max(-1)
        order = expert.argsort(stable=True)
        counts = torch.zeros(3, dtype=torch.long).index_add(0, expert, torch.ones_like(expert))
        parts = torch.split(x[order], counts.tolist())
        made = torch.cat([layer(part) for layer, part in zip(self.experts, parts, strict=True)])
        return torch.zeros_like(x).index_add(0, order, made) * best[:, None]


def hold(
    program: Callable[..., Any], make: Make, trains: bool, backend: str, in_parts: bool = False
) -> None:
    """As eager for every count, by one graph that is made once and never left."""
    torch.manual_seed(0)
    compiled = flambeau.compile(program, backend=backend)
    for count in COUNTS:
        given = make(count)
        want, got = (ran(fn, given, trains) for fn in (program, compiled))
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, equal_nan=True)
    report = flambeau.report(compiled)
    if in_parts:
        assert any("FB0004" in each for each in report.breaks)
        return
    assert (report.graphs, report.breaks) == (1, ())
    assert "left to Python" not in str(report)


@pytest.mark.sweep(9)
@pytest.mark.parametrize(("name", "backend"), CASES.by_backend())
def test_one_graph_for_every_count(name: str, backend: str) -> None:
    one = CASES[name]
    hold(one.program, one.make, one.trains, backend, backend in one.in_parts)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_tokens_are_routed_by_counts(backend: str) -> None:
    torch.manual_seed(1)
    model = Experts()

    def make(count: int) -> Sequence[Tensor]:
        shift = torch.tensor([0.0, 9.0, -9.0]) if count in (0, 8) else torch.randn(3)
        return torch.randn(8, 4), shift

    hold(model, make, True, backend)


# -- what is decided by 0 and 1, and in Python ---------------------------------------------------


@pytest.mark.parametrize(
    ("program", "eager_at"),
    [
        (lambda x, mask: x[mask].squeeze(0), (1,)),
        (lambda x, mask: x[mask].max() * 2, (0,)),
        (lambda x, mask: x[mask].amax(0), (0,)),
        (lambda x, mask: x[mask] + x, (0, 1, 2, 3, 5)),
        (lambda x, mask: x[mask][0], (0,)),
        (lambda x, mask: x[mask].softmax(0), ()),
        (lambda x, mask: x[mask].sort(0).values, ()),
    ],
)
def test_sizes_that_mean_something_else_run_eagerly(
    program: Callable[..., Any], eager_at: Sequence[int]
) -> None:
    """What an operator does with none or with one is eager's, errors too."""
    torch.manual_seed(0)
    compiled = flambeau.compile(program, backend="aot_eager")
    compiled(*rows(8))
    for count in COUNTS:
        given = rows(count)
        before = str(flambeau.report(compiled)).count("its graph raised")
        try:
            want = program(*given)
        except Exception as error:
            with pytest.raises(type(error)):
                compiled(*given)
            assert count in eager_at
            continue
        torch.testing.assert_close(compiled(*given), want)
        left = str(flambeau.report(compiled)).count("its graph raised") > before
        assert not left or count in eager_at
    assert flambeau.report(compiled).graphs == 1


def test_a_branch_on_a_number_is_the_break() -> None:
    def program(x: Tensor, labels: Tensor) -> Tensor:
        n = int(labels.sum())
        y = x * n
        if n > 30:
            y = y + 1
        return y.sum() / (n + 1)

    compiled = flambeau.compile(program, backend="aot_eager")
    for _ in range(6):
        given = torch.randn(5), torch.randint(0, 3, (40,))
        torch.testing.assert_close(compiled(*given), program(*given))
    (told,) = flambeau.report(compiled).breaks
    assert "FB0002" in told and "if n > 30" in told


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_checks_of_the_program_are_made_by_the_graph(backend: str) -> None:
    text = """
def program(x, count):
    n = count.item()
    torch._check(n <= 4, lambda: "too many")
    torch._check_is_size(n)
    assert n != 2, "two"
    return torch.zeros(n) + x.sum()
"""
    names: dict[str, Any] = {"torch": torch}
    exec(text, names)  # pytest writes the assertions of this file in another way
    program = names["program"]
    compiled = flambeau.compile(program, backend=backend)
    for count in (3, 5, 0, 1, 2, -1):
        given = torch.randn(8), torch.tensor(count)
        try:
            want = program(*given)
        except (AssertionError, RuntimeError) as error:
            with pytest.raises(type(error), match=str(error).partition(" ")[0]):
                compiled(*given)
        else:
            torch.testing.assert_close(compiled(*given), want)
    assert (flambeau.report(compiled).graphs, flambeau.report(compiled).breaks) == (1, ())


def test_a_size_that_divides_may_be_nothing() -> None:
    """A kernel computes a remainder by it before it goes through no element."""

    def turned(x: Tensor, mask: Tensor, by: int) -> Tensor:
        return x[mask].roll(by, 0)

    compiled = flambeau.compile(turned)
    for count, by in ((3, 10), (0, 4), (5, 1), (0, 0)):
        x, mask = torch.randn(8, 4), chosen(count)
        torch.testing.assert_close(compiled(x, mask, by), turned(x, mask, by))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_results_of_no_columns_have_eagers_strides(backend: str) -> None:
    """A size of 0 that data decide counts as 1 in a stride, in what is computed, joined or seen."""

    def columns(x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        y = x[:, mask]
        joined = torch.cat([y, x[:, :, None][:, mask].squeeze(2)], 1)
        return y, y * 2, y.t(), y[None], torch.stack([y, y]), joined, y.sort(0).values, y.mT @ y

    compiled = flambeau.compile(columns, backend=backend)
    for x in (torch.randn(2, 3), torch.randn(2, 3, 4).transpose(1, 2)[:, 1]):
        for count in (2, 0, 3, 1):
            given = x, torch.arange(3) < count
            got, want = compiled(*given), columns(*given)
            torch.testing.assert_close(got, want)
            assert [r.stride() for r in got] == [r.stride() for r in want]
    assert flambeau.report(compiled).fallbacks == ()


def test_without_open_sizes_the_graph_ends_as_before() -> None:
    compiled = flambeau.compile(masked_rows, dynamic=False, backend="aot_eager")
    given = torch.randn(80, 4), torch.randn(80) > 0
    torch.testing.assert_close(compiled(*given), masked_rows(*given))
    assert any("FB0004" in told for told in flambeau.report(compiled).breaks)


# -- two counts that one operator is given --------------------------------------------------------


def _filled(x: Tensor, key: Any, values: Tensor) -> Tensor:
    y = x * 1.0
    y[key] = values
    return y


def _places(mask: Tensor) -> Tensor:
    return mask.nonzero()[:, 0]


@pytest.mark.sweep(4)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize(
    "program",
    [
        lambda x, v, m, k: _filled(x, m, v[k] * 2),
        lambda x, v, m, k: _filled(x, _places(m), v[k] * 2),
        lambda x, v, m, k: _filled(x, torch.arange(3), v[k] * 2),
        lambda x, v, m, k: (x * 1.0).index_put((_places(m),), v[k] * 2, accumulate=True),
        lambda x, v, m, k: x.index_add(0, _places(m), v[k]),
        lambda x, v, m, k: x.scatter_add(0, _places(m)[:, None].expand(-1, 4), v[k]),
        lambda x, v, m, k: x.masked_scatter(m[:, None], v[k]),
        lambda x, v, m, k: torch.where(x[m] > 0, x[m], v[k]),
        lambda x, v, m, k: x[m] + v[k],
        lambda x, v, m, k: x[m].masked_fill(v[k] > 0, 0.0),
        lambda x, v, m, k: torch.cat([x[m], v[k]], 1),
    ],
    ids="mask places few accumulated added scattered under chosen sum filled joined".split(),
)
def test_two_counts_that_differ_are_eagers(program: Callable[..., Any], backend: str) -> None:
    """One row is repeated for many, others are refused: results, gradients and errors."""
    torch.manual_seed(0)
    compiled = flambeau.compile(program, backend=backend)
    for one, other in ((3, 3), (5, 1), (1, 5), (5, 3), (3, 5), (0, 1), (1, 0), (1, 1), (0, 0)):
        given = torch.randn(8, 4), torch.randn(8, 4), chosen(one), chosen(other)
        try:
            want = ran(program, given, True)
        except Exception as error:
            with pytest.raises(type(error)):
                ran(compiled, given, True)
        else:
            got = ran(compiled, given, True)
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_what_a_trace_meets_and_handles_is_not_logged() -> None:
    """No rule of torch takes a factor of open sizes in this backward pass: sizes stay constant."""
    told: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = told.append  # type: ignore[method-assign]
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    logger.addHandler(handler)

    def larger(x: Tensor) -> Tensor:
        return F.interpolate(x.reshape(1, 1, -1), scale_factor=2).sum()

    compiled = flambeau.compile(larger, backend="aot_eager", dynamic=True)
    x, y = (torch.ones(4, 3, requires_grad=True) for _ in "xy")
    try:
        compiled(x).backward()
    finally:
        logger.removeHandler(handler)
    larger(y).backward()
    torch.testing.assert_close(x.grad, y.grad)
    assert not told
