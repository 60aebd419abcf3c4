"""Programs whose sizes and numbers depend on data, as they are written: each at several data, one
graph, eager's values, gradients and errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flambeau
from integration_tests.by_data import COUNTS, Cases, chosen, numbered, ran, rows

case = CASES = Cases()


def scaled(count: int) -> Sequence[Tensor]:
    return torch.randn(8, 4), torch.tensor(count * 0.75)


def pixels(count: int) -> Sequence[Tensor]:
    labels = torch.randint(0, 4, (2, 3, 3)).masked_fill(torch.rand(2, 3, 3) > count / 8, 255)
    return torch.randn(2, 4, 3, 3), labels


def grouped(count: int) -> Sequence[Tensor]:
    return torch.randn(8, 4), torch.randint(0, count + 1, (8,))


def boxed(count: int) -> Sequence[Tensor]:
    low = torch.rand(8, 2)
    sure = torch.arange(8).lt(count)[:, None] * 0.5
    return torch.cat([low, low + torch.rand(8, 2)], 1), torch.rand(8, 3) * 0.5 + sure


def tokens(count: int) -> Sequence[Tensor]:
    return (torch.randn(12, WIDTH) * (count != 1) + torch.randn(WIDTH),)


# -- numbers that are read ------------------------------------------------------------------------


@case(scaled)
def a_float_scales(x: Tensor, t: Tensor) -> Any:
    return x * t.item(), (x + t.item()) / (t.item() + 1.0), t.item()


@case(numbered)
def an_integer_divides(x: Tensor, t: Tensor) -> Any:
    n = t.item()
    return x / (n + 1) - n * x + x * (n / 2), x.sum() / max(n, 1), x * abs(n - 4), float(n)


@case(scaled)
def computed_in_python(x: Tensor, t: Tensor) -> Any:
    a = float(t)
    b = min(a, 3.0) - max(-a, 0.5) * 0.1
    return x * math.sqrt(a + 1), x.clamp(max=b), x * abs(a - 4.0) + a * 0.1 * 3.0


@case(lambda count: (torch.randn(8, 4) * (count + 1), torch.randn(8, 4)))
def clipped_by_a_norm(x: Tensor, y: Tensor) -> Any:
    norm = torch.cat([x, y]).detach().norm().item()
    scale = min(1.0, 1.0 / max(norm, 1e-6))
    return x * scale, y * scale


@case(lambda count: (torch.randn(8, 4) * (count + 1),))
def quantised(x: Tensor) -> Tensor:
    scale = x.detach().abs().max().item() / 127
    return torch.round(x / scale).clamp(-128, 127) * scale + x


@case(lambda count: (torch.randint(0, 9, (8, 4)), torch.tensor(count * 0.5)), trains=False)
def integers_and_a_float(x: Tensor, t: Tensor) -> Any:
    return x * t.item(), x + t.item(), torch.full((3,), t.item())


@case(lambda count: (torch.randn(8, 4), torch.tensor([0.1 * count, 2.0])))
def a_list_of_floats(x: Tensor, t: Tensor) -> Tensor:
    slope, shift = t.tolist()
    return x * slope + shift


# -- shapes ---------------------------------------------------------------------------------------


@case(numbered)
def made_of_a_number(x: Tensor, t: Tensor) -> Any:
    n = t.item()
    made = torch.cat([torch.zeros(n, 4), x]), x.new_full((n, 1), 3.0), torch.eye(n)
    return *made, torch.arange(1, n + 1), torch.full((n, 3), n), torch.randn(n).shape[0]


@case(rows)
def joined_and_seen_otherwise(x: Tensor, mask: Tensor) -> Any:
    y = x[mask]
    joined = torch.cat([y, x[~mask]]).sum(0), torch.vstack([y, x]), torch.stack([y, y * 2])
    views = y.reshape(2, -1), y.view(-1, 2), y.flatten(), y.unflatten(1, (2, 2))
    return *joined, *views, y.view(-1, 2, 2).transpose(1, 2).reshape(-1, 4), y.t()


@case(numbered)
def parts_written_by_a_number(x: Tensor, t: Tensor) -> Tensor:
    n = t.item()
    y = x * 2
    y[:n] = 1.0
    y[n:] += 1
    return y


@case(lambda count: (torch.randn(4, 9), torch.tensor(count)))
def picked_by_a_number(x: Tensor, t: Tensor) -> Any:
    n = t.item()
    y = x * 2
    y[:, n] = y[:, n + 0] + 1
    return y, x[:, n] * 2, x[1, n], x[..., n].sum(), (x * 3)[None, :, n], x[None, :, n][0, 1:]


@case(numbered)
def returned_as_views(x: Tensor, t: Tensor) -> Any:
    n, y = t.item(), x * 2
    return x[:n], x[n:], y[:n], y[:, 1:][n:], x.t()[:, n:]


@case(lambda count: (torch.randint(0, count + 1, (6,)), torch.tensor(count + 1)), trains=False)
def classes_that_are_counted(y: Tensor, t: Tensor) -> Any:
    return F.one_hot(y), F.one_hot(y[y > 0] - 1, t.item()), F.one_hot(y).float().sum(0)


@case(lambda count: (torch.randn(20, 4), torch.randint(0, min(count, 4) or 1, (20,))))
def split_by_counted_classes(x: Tensor, classes: Tensor) -> Tensor:
    sizes = torch.bincount(classes, minlength=4).tolist()
    return torch.stack([part.sum(0) for part in x[classes.argsort()].split(sizes)])


@case(lambda count: (torch.randn(8, 4), torch.tensor([count // 2, count - count // 2, 8 - count])))
def summed_by_a_running_offset(x: Tensor, lengths: Tensor) -> Tensor:
    found, start = [], 0
    for length in lengths.tolist():
        found.append(x[start : start + length].sum(0))
        start += length
    return torch.stack(found)


@case(rows)
def padded_to_the_longest(x: Tensor, mask: Tensor) -> Any:
    parts, pad = [x[mask], x[~mask] * 2, x], nn.utils.rnn.pad_sequence
    left = pad([x[mask].sin(), x[~mask]], True, 1.0, padding_side="left")
    return pad(parts, batch_first=True), pad(parts[:2], padding_value=-1.0), left


@case(numbered)
def padded_slices(x: Tensor, t: Tensor) -> Tensor:
    return nn.utils.rnn.pad_sequence([x[: t.item()], x[t.item() :]], batch_first=True)


@case(rows)
def distances(x: Tensor, mask: Tensor) -> Any:
    return torch.cdist(x[mask], x[~mask]), torch.cdist(x[mask], x + 1, p=1.0).sum()


@case(numbered, trains=False)
def evenly_spaced(x: Tensor, t: Tensor) -> Any:
    n = t.item()
    return torch.linspace(0, 1, n), torch.linspace(-2.5, 3, n + 1, dtype=torch.float64), x * n


@case(lambda count: (torch.randn(1, 2, 4, 4), torch.tensor(count + 1)))
def resized(x: Tensor, t: Tensor) -> Any:
    n = t.item()
    return F.interpolate(x, size=(n, n)), F.interpolate(x, size=(n, 4), mode="bilinear")


@case(rows)
def one_of_two_sides(x: Tensor, mask: Tensor) -> Any:
    n = mask.sum().item()
    first = torch.cond(n > 3, lambda x: x * 2, lambda x: x.exp(), (x,))
    second = torch.cond(x[mask].shape[0] < 2, lambda x: x - 1, lambda x: x * x, (x,))
    return (
        first,
        second,
        torch.cond(n == 8, lambda x: (x * 3, x.sum()), lambda x: (-x, x.mean()), (x,)),
    )


# -- losses and heads -----------------------------------------------------------------------------


@case(pixels)
def segmentation_over_valid_pixels(scores: Tensor, labels: Tensor) -> Tensor:
    valid = labels != 255
    kept = scores.permute(0, 2, 3, 1)[valid]
    return F.cross_entropy(kept, labels[valid], reduction="sum") / max(valid.sum().item(), 1)


@case(pixels)
def hardest_pixels(scores: Tensor, labels: Tensor) -> Tensor:
    loss = F.cross_entropy(scores, labels, ignore_index=255, reduction="none").view(-1)
    count = (labels != 255).sum().item() // 2
    return loss.topk(count).values.sum() / max(count, 1)


@case(lambda count: (torch.randn(4, 6), torch.randint(0, 6, (4, 6)), torch.rand(4, 6) < count / 8))
def masked_tokens(x: Tensor, ids: Tensor, masked: Tensor) -> Tensor:
    scores = (F.one_hot(ids, 6).float() * x[:, :, None])[masked]
    return F.cross_entropy(scores, ids[masked], reduction="sum")


@case(lambda count: (torch.randn(8, 4), torch.randn(8, 4), torch.randint(0, count + 1, (8,))))
def pairs_of_one_class(a: Tensor, b: Tensor, classes: Tensor) -> Tensor:
    pairs = (classes[:, None] == classes[None]).triu(1).nonzero()
    return (a[pairs[:, 0]] - b[pairs[:, 1]]).pow(2).sum() / max(len(pairs), 1)


def without_overlaps(boxes: Tensor, scores: Tensor) -> Tensor:
    order = scores.argsort(descending=True)
    boxes = boxes[order]
    own = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    low = torch.maximum(boxes[:, None, :2], boxes[None, :, :2])
    both = (torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:]) - low).clamp(min=0).prod(2)
    overlap = both / (own[:, None] + own[None] - both)
    return order[(overlap > 0.5).triu(1).sum(0) == 0]


@case(boxed, trains=False, backends=["inductor"])
def best_boxes_of_each_class(boxes: Tensor, scores: Tensor) -> Any:
    found = []
    for label in range(3):
        keep = scores[:, label] > 0.5
        own, likely = boxes[keep], scores[keep, label]
        best = without_overlaps(own, likely)
        found.append(torch.cat([own[best], likely[best, None]], 1))
    return torch.cat(found)


# -- graphs, sequences, sampling ------------------------------------------------------------------


@case(grouped)
def means_by_distinct_ids(x: Tensor, ids: Tensor) -> Tensor:
    distinct, places = ids.unique(return_inverse=True)
    total = x.new_zeros(distinct.shape[0], 4).index_add(0, places, x)
    return total / torch.bincount(places).clamp(min=1)[:, None]


@case(grouped)
def attention_over_edges(x: Tensor, target: Tensor) -> Tensor:
    scores, count = x.sum(1), int(target.max()) + 1
    most = torch.full((count,), -1e9).scatter_reduce(0, target, scores, "amax")
    weight = (scores - most[target]).exp()
    total = torch.zeros(count).index_add(0, target, weight)
    return x * (weight / total[target])[:, None]


@case(lambda count: (torch.randn(20, 3), torch.randint(0, count + 1, (20, 3))), trains=False)
def voxels(points: Tensor, cells: Tensor) -> Any:
    distinct, places, counts = torch.unique(cells, dim=0, return_inverse=True, return_counts=True)
    total = points.new_zeros(distinct.shape[0], 3).index_add(0, places, points)
    return distinct, total / counts[:, None]


@case(lambda count: (torch.randn(6, 4), torch.randint(0, count + 1, (6,))))
def length_regulator(x: Tensor, durations: Tensor) -> Tensor:
    repeated = torch.repeat_interleave(x, durations, dim=0)
    return repeated * (torch.arange(repeated.shape[0])[:, None] + 1).float().rsqrt()


@case(lambda count: (torch.randn(3, 8, 4), torch.tensor([count, 3, 5])))
def pooled_by_lengths(x: Tensor, lengths: Tensor) -> Any:
    there = torch.arange(x.shape[1])[None] < lengths[:, None]
    return (x * there[..., None]).sum(1) / lengths.clamp(min=1)[:, None], x[there].sum(0)


@case(lambda count: (torch.randn(3, 8, 4), torch.randn(3, 8) + count / 4 - 1))
def pruned_tokens(x: Tensor, scores: Tensor) -> Tensor:
    return torch.stack([x[place][scores[place] > 0].sum(0) for place in range(3)])


@case(lambda count: (torch.randint(0, max(count, 1), (12,)),), trains=False)
def collapsed(ids: Tensor) -> Any:
    kept, counts = torch.unique_consecutive(ids, return_counts=True)
    return kept[kept != 0], counts[kept != 0]


@case(lambda count: (torch.randn(50), torch.tensor(max(count, 1))), trains=False)
def sampled_from_the_best(scores: Tensor, count: Tensor) -> Any:
    best, tokens_of_best = scores.topk(count.item())
    likely, order = scores.softmax(-1).sort(descending=True)
    keep = likely.cumsum(-1) - likely < 0.6
    return tokens_of_best, best.softmax(-1), order[keep], likely[keep] / likely[keep].sum()


@case(rows)
def halves_by_confidence(x: Tensor, done: Tensor) -> Tensor:
    out = torch.empty_like(x)
    out[done] = x[done].tanh()
    out[~done] = x[~done] * 3
    return out


@case(lambda count: (torch.randn(8, 4), torch.randint(0, count + 1, (8,))))
def mean_of_each_graph(x: Tensor, graph: Tensor) -> Tensor:
    n = int(graph.max()) + 1
    total = x.new_zeros(n, 4).index_add(0, graph, x)
    return total / torch.bincount(graph, minlength=n).clamp(min=1)[:, None]


@case(lambda count: (torch.randn(8), torch.randn(8, 4)))
def best_child(scores: Tensor, x: Tensor) -> Any:
    best = scores.argmax().item()
    return x[best] * scores[best], x[:best].sum(), x[best + 1 :].sum()


@case(
    lambda count: (torch.randn(4, 20), torch.randn(4), torch.arange(4) < max(count, 1)),
    trains=False,
)
def beams_that_are_alive(scores: Tensor, so_far: Tensor, alive: Tensor) -> Any:
    left = alive.nonzero().squeeze(1)
    total = (scores.log_softmax(-1)[left] + so_far[left, None]).flatten()
    found, places = total.topk(2)
    return left[places // 20], places % 20, found


# -- experts --------------------------------------------------------------------------------------

WIDTH, INNER, EXPERTS, TOP = 8, 16, 4, 2
torch.manual_seed(0)
GATE = torch.randn(EXPERTS, WIDTH) * 0.3
UP, DOWN = torch.randn(EXPERTS, 2 * INNER, WIDTH) * 0.1, torch.randn(EXPERTS, WIDTH, INNER) * 0.1
LAYERS = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS))


def routed(x: Tensor) -> tuple[Tensor, Tensor]:
    weights, experts = F.linear(x, GATE).softmax(-1).topk(TOP, dim=-1)
    return weights / weights.sum(-1, keepdim=True), experts


@case(tokens)
def each_expert_its_tokens(x: Tensor) -> Tensor:
    weights, expert = F.linear(x, GATE).softmax(-1).max(-1)
    out = torch.zeros_like(x)
    for place, layer in enumerate(LAYERS):
        index = torch.where(expert == place)[0]
        out.index_add_(0, index, layer(x[index]) * weights[index, None])
    return out


@case(tokens)
def experts_by_a_mask(x: Tensor) -> Tensor:
    weights, experts = routed(x)
    mask = F.one_hot(experts, num_classes=EXPERTS).permute(2, 1, 0)
    out = torch.zeros_like(x)
    for place in range(EXPERTS):
        rank, token = torch.where(mask[place])
        gate, up = F.linear(x[token], UP[place]).chunk(2, dim=-1)
        made = F.linear(F.silu(gate) * up, DOWN[place]) * weights[token, rank, None]
        out.index_add_(0, token, made)
    return out


def compared(program: Any, compiled: Any, given: Sequence[Tensor], trains: bool = True) -> None:
    """As eager: results and gradients, or the error."""
    try:
        want = ran(program, given, trains)
    except Exception as error:
        with pytest.raises(type(error)):
            ran(compiled, given, trains)
        return
    got = ran(compiled, given, trains)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize(("name", "backend"), CASES.by_backend())
def test_one_graph(name: str, backend: str) -> None:
    one = CASES[name]
    torch.manual_seed(0)
    compiled = flambeau.compile(one.program, backend=backend)
    for count in COUNTS:
        compared(one.program, compiled, one.make(count), one.trains)
    report = flambeau.report(compiled)
    assert (report.graphs, report.breaks, report.narrowed) == (1, (), ())
    assert "its graph raised" not in str(report)


# -- what is assumed, and checked -----------------------------------------------------------------


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


SPREADS = {
    "std": lambda x: x.std(),
    "var of columns": lambda x: x.var(0),
    "std of rows, uncorrected": lambda x: x.std(1, correction=0),
    "var and mean": lambda x: sum(each.sum() for each in torch.var_mean(x, 0)),
    "standardised": lambda x: (x - x.mean(0)) / (x.std(0) + 1e-5),
}


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


# -- whole models ---------------------------------------------------------------------------------

SMALL = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "num_experts_per_tok": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("Mixtral", {"num_local_experts": 4}),
        ("Phimoe", {"num_local_experts": 4}),
        ("GraniteMoe", {"num_local_experts": 4}),
    ],
)
def test_a_mixture_of_experts_is_one_graph(name: str, more: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SMALL, **more)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()

    def program(ids: Tensor) -> Tensor:
        loss: Tensor = model(input_ids=ids, labels=ids, use_cache=False).loss
        return loss

    compiled = flambeau.compile(program, backend="aot_eager")
    for _ in range(2):
        ids, found = torch.randint(0, 64, (2, 40)), []
        for fn in (program, compiled):
            model.zero_grad()
            loss = fn(ids)
            loss.backward()
            found.append((loss.detach(), [p.grad for p in model.parameters()]))
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
    assert (flambeau.report(compiled).graphs, flambeau.report(compiled).breaks) == (1, ())
