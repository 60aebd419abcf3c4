"""Losses over what data chooses: pixels, pairs, triplets, tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from integration_tests.by_data import Cases, chosen

case = CASES = Cases()


def scored(count: int) -> Sequence[Tensor]:
    return torch.randn(8, 4), torch.randint(0, 4, (8,)).masked_fill(~chosen(count), -1)


def embedded(count: int) -> Sequence[Tensor]:
    return torch.randn(8, 4), torch.randint(0, max(count, 1), (8,))


def maps(count: int) -> Sequence[Tensor]:
    ignored = torch.rand(2, 3, 4, 4) < count / 8
    return torch.randn(2, 3, 4, 4), ignored.any(1), torch.rand(2, 4, 4)


@case(scored)
def class_weights_by_count(scores: Tensor, labels: Tensor) -> Tensor:
    weight = 1.0 / (torch.bincount(labels.clamp(min=0), minlength=4).float() + 1)
    return F.cross_entropy(scores, labels, weight=weight, ignore_index=-1, reduction="sum")


@case(scored, eager_at=[0, 1])
def focal_loss_of_what_is_labelled(scores: Tensor, labels: Tensor) -> Tensor:
    kept = labels >= 0
    scores, target = scores[kept], F.one_hot(labels[kept], 4).float()
    each = F.binary_cross_entropy_with_logits(scores, target, reduction="none")
    right = scores.sigmoid() * target + (1 - scores.sigmoid()) * (1 - target)
    return (each * (1 - right) ** 2).sum() / max(1, kept.sum())


@case(scored)
def hard_negatives(scores: Tensor, labels: Tensor) -> Tensor:
    """Three negatives for a positive, as single-shot detectors take them."""
    each = F.cross_entropy(scores, labels.clamp(min=0), reduction="none")
    positive = labels > 0
    count = positive.sum()
    negative = each.detach().masked_fill(positive, 0)
    rank = negative.sort(descending=True).indices.sort().indices
    taken = positive | (rank < 3 * count)
    return each[taken].sum() / count.clamp(min=1)


@case(scored)
def online_hard_examples(scores: Tensor, labels: Tensor) -> Tensor:
    each = F.cross_entropy(scores, labels, ignore_index=-1, reduction="none")
    valid = each[labels != -1]
    count = int(0.7 * valid.numel())
    hardest, _ = valid.sort(descending=True)
    return hardest[:count].sum()


@case(embedded)
def supervised_contrastive(x: Tensor, labels: Tensor) -> Tensor:
    x = F.normalize(x, dim=1)
    logits = x @ x.T / 0.1
    own = torch.eye(len(x), dtype=torch.bool)
    logits = logits.masked_fill(own, -1e9)
    likely = logits - logits.logsumexp(1, keepdim=True)
    same = (labels[:, None] == labels[None]) & ~own
    count = same.sum(1)
    found = count > 0
    mean = (likely * same).sum(1)[found] / count[found]
    return -mean.sum()


@case(embedded)
def contrastive_by_mask(x: Tensor, labels: Tensor) -> Tensor:
    apart = torch.cdist(x, x + 0.01)
    same = labels[:, None] == labels[None]
    near, far = apart[same.triu(1)], apart[~same]
    return near.pow(2).sum() + F.relu(1.0 - far).pow(2).sum()


@case(embedded)
def triplets_of_all_kinds(x: Tensor, labels: Tensor) -> Tensor:
    apart = (x[:, None] - x[None]).pow(2).sum(2)
    same = labels[:, None] == labels[None]
    same_other = same & ~torch.eye(len(x), dtype=torch.bool)
    anchor, positive, negative = torch.where(same_other[:, :, None] & ~same[:, None, :])
    loss = F.relu(apart[anchor, positive] - apart[anchor, negative] + 1.0)
    hard = loss[loss > 1e-12]
    return hard.sum() / max(hard.numel(), 1)


@case(embedded)
def hardest_triplet_of_each(x: Tensor, labels: Tensor) -> Tensor:
    apart = (x[:, None] - x[None]).pow(2).sum(2)
    same = labels[:, None] == labels[None]
    furthest = (apart * same).max(1).values
    nearest = apart.masked_fill(same, 1e9).min(1).values
    valid = (~same).any(1)
    return F.relu(furthest[valid] - nearest[valid] + 0.3).sum()


@case(embedded)
def triplet_margin_of_mined(x: Tensor, labels: Tensor) -> Tensor:
    a, p = torch.nonzero((labels[:, None] == labels[None]).triu(1), as_tuple=True)
    n = (a + p) % 8
    return F.triplet_margin_loss(x[a], x[p], x[n], margin=0.5, reduction="sum")


@case(maps)
def dice_of_valid_pixels(scores: Tensor, ignored: Tensor, target: Tensor) -> Tensor:
    likely = scores.softmax(1)[:, 0][~ignored]
    wanted = target[~ignored]
    return 1 - (2 * (likely * wanted).sum() + 1) / (likely.sum() + wanted.sum() + 1)


@case(maps)
def boundary_pixels(scores: Tensor, ignored: Tensor, target: Tensor) -> Tensor:
    edge = (F.max_pool2d(ignored[:, None].float(), 3, 1, 1)[:, 0] > 0) & ~ignored
    batch, row, column = edge.nonzero(as_tuple=True)
    found = scores[batch, :, row, column]
    return (found.log_softmax(1)[:, 0] * target[batch, row, column]).sum()


@case(maps)
def depth_of_the_measured(scores: Tensor, ignored: Tensor, target: Tensor) -> Tensor:
    valid = ~ignored & (target > 0.2)
    difference = torch.log(scores[:, 0].exp()[valid]) - torch.log(target[valid])
    n = valid.sum().clamp(min=1)
    return difference.pow(2).sum() / n - 0.85 * difference.sum().pow(2) / n**2


@case(maps)
def points_by_uncertainty(scores: Tensor, ignored: Tensor, target: Tensor) -> Tensor:
    """As rendering by points: the k least certain of what is valid."""
    flat = scores[:, 0][~ignored]
    k = flat.shape[0] // 2
    least = (-flat.detach().abs()).topk(k).indices
    return F.binary_cross_entropy_with_logits(flat[least], target[~ignored][least], reduction="sum")


@case(scored, eager_at=[0])
def lovasz_of_what_is_valid(scores: Tensor, labels: Tensor) -> Tensor:
    valid = labels >= 0
    likely, wanted = scores.softmax(1)[valid], labels[valid]
    losses = []
    for label in range(4):
        there = (wanted == label).float()
        error, order = (there - likely[:, label]).abs().sort(descending=True)
        there = there[order]
        union = there.sum() + (1 - there).cumsum(0)
        jaccard = 1.0 - (there.sum() - there.cumsum(0)) / union
        step = torch.cat([jaccard[:1], jaccard[1:] - jaccard[:-1]])
        losses.append(torch.dot(error, step))
    return torch.stack(losses).mean()


@case(lambda count: (torch.randn(2, 6, 5), torch.randint(0, 5, (2, 6)), torch.tensor([count, 3])))
def language_model_without_padding(logits: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
    there = torch.arange(6)[None] < lengths[:, None]
    shifted, wanted = logits[:, :-1], ids[:, 1:]
    kept = there[:, 1:]
    return F.cross_entropy(shifted[kept], wanted[kept], reduction="sum") / kept.sum().clamp(min=1)


@case(lambda count: (torch.randn(8), torch.randint(0, 3, (8,)), chosen(count)))
def pairwise_ranking(scores: Tensor, grades: Tensor, shown: Tensor) -> Any:
    s, g = scores[shown], grades[shown]
    better = g[:, None] > g[None]
    apart = (s[:, None] - s[None])[better]
    return F.softplus(-apart).sum(), better.sum()
