"""Numbers that are read, shapes that are made of them, and what heads and experts do with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from integration_tests.by_data import Cases, numbered, rows

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
