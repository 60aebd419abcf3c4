"""Detection: matching, heads, boxes that are kept, regions, masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from integration_tests.by_data import Cases, chosen

case = CASES = Cases()


def boxes_of(n: int) -> Tensor:
    low = torch.rand(n, 2)
    return torch.cat([low, low + torch.rand(n, 2) + 0.05], 1)


def area(boxes: Tensor) -> Tensor:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def overlaps(a: Tensor, b: Tensor) -> Tensor:
    low = torch.max(a[:, None, :2], b[:, :2])
    high = torch.min(a[:, None, 2:], b[:, 2:])
    size = (high - low).clamp(min=0)
    both = size[:, :, 0] * size[:, :, 1]
    return both / (area(a)[:, None] + area(b) - both)


def candidates(count: int) -> Sequence[Tensor]:
    return boxes_of(8), torch.rand(8) * 0.4 + 0.5 * chosen(count)


def matched(count: int) -> Sequence[Tensor]:
    return boxes_of(8), torch.randn(8, 3), boxes_of(4), torch.arange(4) < min(count, 4)


@case(candidates, trains=False)
def suppressed_by_a_fixed_loop(boxes: Tensor, scores: Tensor) -> Any:
    """As accelerators do it: a mask of what is kept, one step for each place."""
    order = scores.argsort(descending=True)
    boxes = boxes[order]
    overlap = overlaps(boxes, boxes)
    keep = torch.ones(8, dtype=torch.bool)
    for place in range(8):
        hit = (overlap[place] > 0.5) & (torch.arange(8) > place)
        keep = torch.where(hit & keep[place], False, keep)
    return order[keep], boxes[keep]


@case(candidates, trains=False)
def decayed_softly(boxes: Tensor, scores: Tensor) -> Any:
    overlap = overlaps(boxes, boxes)
    alive = torch.ones(8, dtype=torch.bool)
    found = []
    for _ in range(4):
        best = scores.masked_fill(~alive, -1).argmax()
        found.append(best)
        scores = scores * torch.exp(-(overlap[best] ** 2) / 0.5)
        alive = alive & (torch.arange(8) != best)
    kept = torch.stack(found)
    kept = kept[scores[kept] > 0.05]
    return kept, scores[kept]


@case(candidates, trains=False)
def suppressed_by_matrix(boxes: Tensor, scores: Tensor) -> Any:
    keep = scores > 0.5
    boxes, scores = boxes[keep], scores[keep]
    scores, order = scores.sort(descending=True)
    boxes = boxes[order]
    overlap = overlaps(boxes, boxes).triu(1)
    return boxes[overlap.sum(0) < 0.5], scores[overlap.sum(0) < 0.5]


@case(candidates, trains=False)
def best_hundred_above_a_threshold(boxes: Tensor, scores: Tensor) -> Any:
    keep = torch.where(scores > 0.45)[0]
    scores, boxes = scores[keep], boxes[keep]
    count = min(3, scores.shape[0])
    best, places = scores.topk(count)
    return best, boxes[places]


@case(candidates, trains=False)
def without_small_boxes(boxes: Tensor, scores: Tensor) -> Any:
    size = boxes[:, 2:] - boxes[:, :2]
    keep = ((size >= 0.3) & (scores > 0.45)[:, None]).all(1)
    keep = torch.nonzero(keep).squeeze(1)
    return boxes[keep].clamp(0, 1), scores[keep], keep.numel()


@case(matched, eager_at=[0])
def assigned_by_overlap(anchors: Tensor, logits: Tensor, truth: Tensor, there: Tensor) -> Tensor:
    truth = torch.cat([truth[there], truth[:1]])
    best, which = overlaps(anchors, truth).max(1)
    positive = best > 0.3
    wanted = truth[which[positive]]
    box = F.smooth_l1_loss(anchors[positive], wanted, reduction="sum", beta=0.1)
    label = F.binary_cross_entropy_with_logits(logits[:, 0], positive.float(), reduction="sum")
    return (box + label) / max(1, positive.sum())


@case(matched)
def encoded_and_sampled(anchors: Tensor, logits: Tensor, truth: Tensor, there: Tensor) -> Tensor:
    labels = torch.where((overlaps(anchors, truth) * there).max(1).values > 0.3, 1, 0)
    positive = torch.where(labels == 1)[0][:2]
    negative = torch.where(labels == 0)[0][:4]
    taken = torch.cat([positive, negative])
    return F.cross_entropy(logits[taken], labels[taken], reduction="sum")


@case(matched)
def generalised_overlap(anchors: Tensor, logits: Tensor, truth: Tensor, there: Tensor) -> Tensor:
    a, b = anchors[:4][there], truth[there]
    low, high = torch.max(a[:, :2], b[:, :2]), torch.min(a[:, 2:], b[:, 2:])
    both = (high - low).clamp(min=0).prod(1)
    union = area(a) + area(b) - both
    hull = (torch.max(a[:, 2:], b[:, 2:]) - torch.min(a[:, :2], b[:, :2])).prod(1)
    return (1 - both / union + (hull - union) / hull).sum() + logits.sum() * 0


@case(lambda count: (torch.randn(2, 3, 8, 8), torch.rand(8, 4) * 4, torch.arange(8) < count))
def regions_by_grid(features: Tensor, boxes: Tensor, there: Tensor) -> Tensor:
    kept = boxes[there]
    step = torch.linspace(0, 1, 3)
    x = kept[:, None, 0:1] + step[None, None] * kept[:, None, 2:3]
    y = kept[:, 1:2, None] + step[None, :, None] * kept[:, 3:4, None]
    grid = torch.stack([x.expand(-1, 3, 3), y.expand(-1, 3, 3)], -1) / 4 - 1
    rows = features[:1].expand(grid.shape[0], -1, -1, -1)
    return F.grid_sample(rows, grid, align_corners=False)


@case(lambda count: (torch.randn(1, 2, 6, 6), torch.rand(1, 2, 6, 6) < count / 30))
def peaks_of_a_heat_map(heat: Tensor, allowed: Tensor) -> Any:
    peak = (F.max_pool2d(heat, 3, 1, 1) == heat) & allowed
    batch, label, y, x = peak.nonzero(as_tuple=True)
    return heat[batch, label, y, x], torch.stack([x, y], 1), label


@case(lambda count: (torch.randn(8, 5, 5), torch.randint(0, 3, (8,)), chosen(count)))
def masks_of_the_positive(masks: Tensor, labels: Tensor, positive: Tensor) -> Tensor:
    index = positive.nonzero().squeeze(1)
    chosen_masks = masks[index].sigmoid()
    target = (labels[index][:, None, None] > 0).float().expand_as(chosen_masks)
    return F.binary_cross_entropy(chosen_masks, target, reduction="sum") / max(len(index), 1)


@case(lambda count: (torch.randn(8, 5), torch.tensor([count // 2, 0, count - count // 2])))
def queries_of_each_picture(x: Tensor, counts: Tensor) -> Tensor:
    found = []
    for part in x[: counts.sum()].split(counts.tolist()):
        found.append(F.pad(part, (0, 0, 0, 8 - part.shape[0])))
    return torch.stack(found)


@case(lambda count: (torch.randn(3, 6, 6), torch.tensor(count)))
def pasted_crop(image: Tensor, place: Tensor) -> Any:
    top = place.item() // 2
    crop = image[:, top:, : top + 1]
    return F.pad(crop, (1, 1)), crop.shape[1], crop.amax(dim=(0, 2))


@case(lambda count: (torch.randn(8, 4), torch.randn(8, 3)))
def levels_of_a_pyramid(boxes: Tensor, features: Tensor) -> Tensor:
    level = (boxes.abs().sum(1) > 3).long() + (boxes.abs().sum(1) > 5).long()
    out = torch.zeros_like(features)
    for each in range(3):
        index = torch.where(level == each)[0]
        out[index] = features[index] * (each + 1.0)
    return out
