"""Losses of segmentation and speech, heads of detectors, experts and searches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from integration_tests.by_data import Cases, chosen
from integration_tests.programs_by_data.detection import boxes_of, overlaps

case = CASES = Cases()


@torch.library.custom_op("flambeau_by_data::suppressed", mutates_args=())
def suppressed(boxes: Tensor, scores: Tensor, most: float) -> Tensor:
    """Non-maximum suppression, an operator of a library."""
    order, kept = scores.argsort(descending=True), []
    while order.numel():
        kept.append(order[:1])
        hit = overlaps(boxes[order[:1]], boxes[order])[0] > most
        hit[0] = True
        order = order[~hit]
    return torch.cat([order, *kept])


@suppressed.register_fake
def _(boxes: Tensor, scores: Tensor, most: float) -> Tensor:
    count = torch.library.get_ctx().new_dynamic_size()
    return scores.new_empty(count, dtype=torch.int64)


def candidates(count: int) -> Sequence[Tensor]:
    return boxes_of(8), torch.rand(8), torch.randint(0, max(count, 1), (8,))


def labelled(count: int) -> Sequence[Tensor]:
    ignored = torch.rand(2, 5, 5) < count / 9
    return torch.randn(2, 4, 5, 5), torch.randint(0, 4, (2, 5, 5)).masked_fill(ignored, 255)


def spoken(count: int) -> Sequence[Tensor]:
    lengths = torch.tensor([min(count, 6), 2, 1])
    return torch.randn(10, 3, 5), torch.randint(1, 5, (3, 6)), torch.tensor([10, 9, 8]), lengths


def routed(count: int) -> Sequence[Tensor]:
    return torch.randn(12, 4), torch.randn(5, 4, 4), torch.randint(0, min(count, 4) + 1, (12,))


@case(candidates, trains=False)
def kept_by_an_operator(boxes: Tensor, scores: Tensor, classes: Tensor) -> Any:
    kept = suppressed(boxes, scores, 0.3)
    return boxes[kept], scores[kept]


@case(candidates, trains=False)
def best_of_each_class_by_offsets(boxes: Tensor, scores: Tensor, classes: Tensor) -> Any:
    apart = classes.to(boxes) * (boxes.max() + 1)
    kept = suppressed(boxes + apart[:, None], scores, 0.3)[:5]
    return boxes[kept], scores[kept], classes[kept]


@case(labelled)
def hardest_half(scores: Tensor, target: Tensor) -> Tensor:
    loss = F.cross_entropy(scores, target, ignore_index=255, reduction="none").view(-1)
    loss = loss[target.view(-1) != 255]
    top, _ = loss.topk(min(max(1, int(0.5 * loss.numel())), loss.numel()))
    return top.mean()


@case(labelled)
def dice_of_what_is_labelled(scores: Tensor, target: Tensor) -> Tensor:
    mask = target < 255
    wanted = F.one_hot(target[mask], 4).float()
    likely = scores.permute(0, 2, 3, 1)[mask].softmax(-1)
    return 1 - (2 * (likely * wanted).sum(0) + 1) / ((likely + wanted).sum(0) + 1)


@case(lambda count: (torch.randn(40), (torch.rand(40) < count / 8).float()))
def lovasz_hinge(scores: Tensor, labels: Tensor) -> Tensor:
    errors, order = torch.sort(1.0 - scores * (2.0 * labels - 1.0), dim=0, descending=True)
    there = labels[order]
    union = there.sum() + (1 - there).cumsum(0)
    jaccard = 1.0 - (there.sum() - there.cumsum(0)) / union
    jaccard[1:] = jaccard[1:] - jaccard[:-1]
    return torch.dot(F.relu(errors), jaccard)


@case(lambda count: (torch.randn(48), (torch.rand(48) < count / 8).float()))
def three_negatives_for_a_positive(scores: Tensor, target: Tensor) -> Tensor:
    loss = F.binary_cross_entropy_with_logits(scores, target, reduction="none")
    positive = target > 0
    count = torch.clamp(3 * positive.sum(), max=(~positive).sum())
    negative, _ = loss[~positive].sort(descending=True)
    whole = loss[positive].sum() + negative[:count].sum()
    return whole / (positive.sum() + count).clamp(min=1)


@case(lambda count: (torch.randn(8, 16), (torch.rand(16) * count).long()))
def instances_pulled_and_pushed(x: Tensor, ids: Tensor) -> Tensor:
    x = x.t()
    distinct, which = torch.unique(ids, return_inverse=True)
    counts = torch.bincount(which, minlength=distinct.numel())[:, None]
    mean = torch.zeros(distinct.numel(), 8).index_add(0, which, x) / counts
    pull = ((x - mean[which]).norm(dim=1) - 0.5).clamp(min=0).pow(2).mean()
    apart = torch.cdist(mean, mean) + 10 * torch.eye(distinct.numel())
    return pull + (1.5 - apart).clamp(min=0).pow(2).sum()


@case(spoken)
def alignment_loss(x: Tensor, targets: Tensor, steps: Tensor, lengths: Tensor) -> Tensor:
    return F.ctc_loss(x.log_softmax(2), targets, steps, lengths)


@case(spoken)
def alignment_loss_of_joined_targets(
    x: Tensor, targets: Tensor, steps: Tensor, lengths: Tensor
) -> Tensor:
    joined = targets[torch.arange(6)[None] < lengths[:, None]]
    return F.ctc_loss(x.log_softmax(2), joined, steps // 2, lengths, 0, "sum", True)


@case(spoken)
def alignment_loss_by_lists(x: Tensor, targets: Tensor, steps: Tensor, lengths: Tensor) -> Tensor:
    given = [int(n) for n in lengths]
    return F.ctc_loss(x.log_softmax(2), targets, (10, 10, 10), given, reduction="none")


@case(lambda count: (torch.rand(16) * count, torch.randn(16, 3)))
def mean_of_each_voiced_segment(energy: Tensor, x: Tensor) -> Tensor:
    end = torch.zeros(1, dtype=torch.int)
    edge = torch.diff((energy > 1.0).int(), prepend=end, append=end)
    begins, ends = (edge == 1).nonzero().squeeze(1), (edge == -1).nonzero().squeeze(1)
    total = torch.cat([torch.zeros(1, 3), x.cumsum(0)])
    return (total[ends] - total[begins]) / (ends - begins).unsqueeze(1)


@case(lambda count: (torch.randn(5, 8), torch.randint(0, 8, (5,)).clamp(max=max(count, 1))))
def statistics_over_lengths(x: Tensor, lengths: Tensor) -> Any:
    longest = int(lengths.max())
    there = x[:, :longest] * (torch.arange(longest)[None] < lengths[:, None])
    return there.sum(1) / lengths.clamp(min=1), (there**2).sum(1)


@case(routed)
def experts_written_back_by_index(x: Tensor, weights: Tensor, expert: Tensor) -> Tensor:
    order = expert.argsort(stable=True)
    counts = torch.bincount(expert, minlength=5).tolist()
    parts = [part @ weight for part, weight in zip(x[order].split(counts), weights)]
    out = torch.empty_like(x)
    out[order] = torch.cat(parts)
    return out


@case(routed)
def experts_written_back_by_scatter(x: Tensor, weights: Tensor, expert: Tensor) -> Tensor:
    order = expert.argsort(stable=True)
    counts = torch.bincount(expert, minlength=5).tolist()
    parts = [part @ weight for part, weight in zip(x[order].split(counts), weights)]
    return torch.zeros_like(x).scatter(0, order[:, None].expand(-1, 4), torch.cat(parts))


@case(routed, trains=False)
def experts_that_are_hit(x: Tensor, weights: Tensor, expert: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    hit = F.one_hot(expert, 5).t()
    for each in torch.greater(hit.sum(-1), 0).nonzero():
        (token,) = torch.where(hit[each[0]])
        out.index_add_(0, token, x[token] @ weights[each[0]])
    return out


@case(lambda count: (torch.randn(12, 4), torch.arange(12) < count, torch.randint(0, 12, (2, 20))))
def pooled_subgraph(x: Tensor, kept: Tensor, edges: Tensor) -> Tensor:
    nodes = kept.nonzero().view(-1)
    renamed = torch.full((12,), -1)
    renamed[nodes] = torch.arange(nodes.numel())
    source, target = renamed[edges[0]], renamed[edges[1]]
    inside = (source >= 0) & (target >= 0)
    x = x[nodes]
    return x + torch.zeros_like(x).index_add(0, target[inside], x[source[inside]])


@case(lambda count: (torch.randn(12, 3) * count,))
def voxels_of_a_cloud(points: Tensor) -> Tensor:
    cells = torch.floor(points).long()
    cells = cells - cells.min(0).values
    counts = cells.max(0).values + 1
    key = (cells[:, 0] * counts[1] + cells[:, 1]) * counts[2] + cells[:, 2]
    distinct, which, many = key.unique(return_inverse=True, return_counts=True)
    return torch.zeros(distinct.numel(), 3).index_add(0, which, points) / many[:, None]


@case(lambda count: (torch.randn(7, 5), chosen(count)[:5]), trains=False)
def beams_over_steps(scores: Tensor, allowed: Tensor) -> Any:
    likely = scores.masked_fill(~allowed, -1e4).log_softmax(-1)
    beams, total = torch.zeros(1, 0, dtype=torch.int64), torch.zeros(1)
    for step in range(7):
        total, best = (total[:, None] + likely[step]).flatten().topk(min(3, 5 * len(total)))
        beams = torch.cat([beams[best // 5], (best % 5)[:, None]], 1)
    return beams, total
