"""Iterations that data ends, losses that data chooses, and rows of a ragged batch one by one."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from integration_tests.by_data import COUNTS, Cases, chosen, numbered
from integration_tests.programs_by_data.detection import boxes_of, overlaps

case = CASES = Cases()

torch.manual_seed(0)
MIXED = nn.ModuleList(nn.Linear(4, 4) for _ in range(4)).requires_grad_(False)
GATE = nn.Linear(4, 4, bias=False).requires_grad_(False)
SPOKEN = nn.LSTM(3, 4, batch_first=True, bidirectional=True).requires_grad_(False)


def square(count: int) -> tuple[Tensor, Tensor]:
    return torch.randn(4, 4), torch.tensor(count * 0.1)


def labelled(count: int) -> tuple[Tensor, Tensor]:
    return torch.randn(8, 4), torch.randint(0, max(count, 1), (8,))


@case(square, trains=False, branches=True, backends=("aot_eager",))
def inverse_by_newton(a: Tensor, most: Tensor) -> Tensor:
    a = a @ a.t() * 0.2 + torch.eye(4)
    x = a / a.norm() ** 2
    for _ in range(10):
        residual = a @ x - torch.eye(4)
        if residual.norm() < most + 0.1:
            break
        x = x - x @ residual
    return x


@case(square, trains=False, branches=True)
def power_iteration(a: Tensor, most: Tensor) -> Any:
    v, gap, rounds = torch.ones(4) / 2, torch.tensor(1.0), 0
    while gap > most + 1e-3 and rounds < 12:
        w = F.normalize(a @ v, dim=0)
        gap = (w - v).abs().max()
        v = w
        rounds += 1
    return v, rounds


@case(square, trains=False, branches=True)
def conjugate_gradients(a: Tensor, most: Tensor) -> Tensor:
    a = a @ a.t() + torch.eye(4)
    x, r = torch.zeros(4), torch.ones(4)
    p, square_of = r.clone(), r @ r
    for _ in range(8):
        along = a @ p
        step = square_of / (p @ along)
        x, r = x + step * p, r - step * along
        now = r @ r
        if now.sqrt() < most:
            break
        p, square_of = r + (now / square_of) * p, now
    return x


@case(numbered, branches=True)
def left_early(x: Tensor, limit: Tensor) -> Any:
    for layer in range(4):
        x = torch.tanh(x @ (torch.eye(4) * 1.1))
        if x.abs().mean() > limit * 0.1:
            return x, layer
    return x, -1


@case(lambda count: (torch.randn(6, 4),), trains=False, branches=True)
def adaptive_computation(x: Tensor) -> Any:
    halted, alive = torch.zeros(6), torch.ones(6, dtype=torch.bool)
    total, rounds = torch.zeros_like(x), 0
    while alive.any() and rounds < 5:
        p = x.mean(-1).sigmoid() * alive
        halted, total = halted + p, total + p[:, None] * x
        alive, x = halted < 0.99, torch.sin(x + 1)
        rounds += 1
    return total, rounds


@case(lambda count: (torch.randn(2, 1, 6, 6), (torch.rand(2, 1, 6, 6) < count / 8).float()),
      branches=True)  # fmt: skip
def focal_loss_of_centres(x: Tensor, target: Tensor) -> Tensor:
    likely, positive = x.sigmoid(), target.eq(1).float()
    of_positive = (-(likely + 1e-6).log() * (1 - likely) ** 2 * positive).sum()
    of_others = (-(1 - likely + 1e-6).log() * likely**2 * (1 - positive)).sum()
    count = positive.sum()
    if count == 0:
        return of_others + of_positive * 0
    return (of_positive + of_others) / count


@case(lambda count: (torch.randn(8, 4), torch.randn(8, 4) * (count + 1)), branches=True)
def step_with_clipped_gradient(x: Tensor, gradient: Tensor) -> Tensor:
    norm = gradient.norm()
    if norm > 5.0:
        gradient = gradient * (5.0 / norm)
    return x - 0.1 * gradient


@case(lambda count: (torch.randn(16), torch.rand(16) < count / 8), trains=False)
def average_precision(scores: Tensor, relevant: Tensor) -> Tensor:
    relevant = relevant[scores.argsort(descending=True)]
    precision = relevant.cumsum(0) / torch.arange(1, 17)
    return (precision * relevant).sum() / relevant.sum().clamp(min=1)


@case(lambda count: (torch.randn(8, 4), torch.randn(3, 4)),
      trains=False, eager_at=COUNTS, backends=("aot_eager",))  # fmt: skip
def k_means(x: Tensor, centres: Tensor) -> Any:
    for _ in range(3):
        label = torch.cdist(x, centres).argmin(1)
        found = []
        for k in range(3):
            part = x[label == k]
            found.append(part.sum(0) / max(len(part), 1) if len(part) > 0 else centres[k])
        centres = torch.stack(found)
    return centres, label


@case(lambda count: (boxes_of(8), torch.rand(8), torch.randint(0, 3, (8,))),
      trains=False, eager_at=COUNTS, backends=("eager",))  # fmt: skip
def suppressed_within_classes(boxes: Tensor, scores: Tensor, labels: Tensor) -> Tensor:
    found = []
    for each in range(3):
        own = (labels == each).nonzero(as_tuple=True)[0]
        if own.numel() == 0:
            continue
        corners, likely = boxes[own], scores[own]
        order = likely.argsort(descending=True)
        overlap = overlaps(corners[order], corners[order]).triu(1)
        kept = order[(overlap > 0.5).sum(0) == 0]
        found.append(torch.cat([corners[kept], likely[kept, None]], 1))
    return torch.cat(found)[:5]


@case(lambda count: (torch.randn(3, 8, 4), torch.rand(3, 8) + (count - 4) * 0.1), trains=False,
      backends=("eager",))  # fmt: skip
def detections_of_each_picture(boxes: Tensor, scores: Tensor) -> Any:
    found = []
    for corners, likely in zip(boxes, scores):
        kept = likely > 0.5
        corners, likely = corners[kept], likely[kept]
        likely, places = likely.topk(min(likely.numel(), 3))
        found.append({"boxes": corners[places], "scores": likely})
    return found


@case(lambda count: (torch.randn(6, 3), boxes_of(6), torch.randint(0, 3, (4,)), boxes_of(4),
                     torch.arange(4) < max(min(count, 4), 1)))  # fmt: skip
def matched_set(
    logits: Tensor, boxes: Tensor, labels: Tensor, truth: Tensor, there: Tensor
) -> Tensor:
    labels, truth = labels[there], truth[there]
    cost = torch.cdist(boxes, truth) - logits.softmax(-1)[:, labels]
    source = cost.argmin(0)
    target = torch.full((6,), 2)
    target[source] = labels
    apart = F.l1_loss(boxes[source], truth, reduction="sum") / max(len(truth), 1)
    return F.cross_entropy(logits, target) + apart


@case(lambda count: (torch.rand(8, 3), torch.rand(3, 3), torch.tensor(count * 0.2)),
      trains=False, eager_at=COUNTS)  # fmt: skip
def points_within_a_ball(x: Tensor, centres: Tensor, radius: Tensor) -> Tensor:
    found = []
    for centre in centres:
        near = ((x - centre).norm(dim=-1) < radius).nonzero().squeeze(-1)
        found.append(torch.zeros(3) if len(near) == 0 else x[near].max(0).values)
    return torch.stack(found)


@case(lambda count: (torch.randn(8, 4), torch.tensor([count, 8 - count])),
      backends=("aot_eager",))  # fmt: skip
def attention_within_sequences(x: Tensor, lengths: Tensor) -> Tensor:
    found, start = [], 0
    for n in lengths.tolist():
        own = x[start : start + n][None]
        found.append(F.scaled_dot_product_attention(own, own, own)[0])
        start += n
    return torch.cat(found)


@case(lambda count: (torch.randn(8, 4), torch.tensor([0, count, 8])))
def attention_by_offsets(x: Tensor, offsets: Tensor) -> Tensor:
    lengths = offsets[1:] - offsets[:-1]
    own = torch.repeat_interleave(torch.arange(lengths.numel()), lengths)
    mask = own[:, None] == own[None]
    return F.scaled_dot_product_attention(x[None], x[None], x[None], attn_mask=mask[None])[0]


@case(lambda count: (torch.randn(8, 4),))
def two_experts_of_each_token(x: Tensor) -> Tensor:
    weight, best = GATE(x).softmax(-1).topk(2)
    weight = weight / weight.sum(-1, keepdim=True)
    out = torch.zeros_like(x)
    hit = F.one_hot(best, 4).permute(2, 1, 0)
    for place, expert in enumerate(MIXED):
        rank, token = torch.where(hit[place])
        out.index_add_(0, token, expert(x[token]) * weight[token, rank, None])
    return out


@case(lambda count: (torch.randn(5, 8, 3), torch.randint(1, max(count, 1) + 1, (5,)).clamp(max=8)),
      backends=("eager",))  # fmt: skip
def attention_over_packed_speech(x: Tensor, lengths: Tensor) -> Tensor:
    rnn = nn.utils.rnn
    packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    out, many = rnn.pad_packed_sequence(SPOKEN(packed)[0], batch_first=True, total_length=8)
    there = torch.arange(8)[None] < many[:, None]
    weight = out.sum(-1).masked_fill(~there, -1e9).softmax(1)
    return (out * weight[..., None]).sum(1)


@case(lambda count: (torch.randn(2, 4, 6), torch.randint(0, count + 1, (2, 6))))
def sounds_as_long_as_said(x: Tensor, durations: Tensor) -> Tensor:
    rows = [torch.repeat_interleave(row.t(), many, dim=0) for row, many in zip(x, durations)]
    longest = max(row.shape[0] for row in rows)
    return torch.stack([F.pad(row, (0, 0, 0, longest - row.shape[0])) for row in rows])


@case(lambda count: (torch.randn(2, 12, 5), torch.tensor([12, count + 1])), trains=False)
def best_alignment_of_each_row(x: Tensor, lengths: Tensor) -> Any:
    found = []
    for row, n in zip(x.argmax(-1), lengths.tolist()):
        distinct = torch.unique_consecutive(row[:n])
        found.append(distinct[distinct != 0])
    return found


@case(labelled)
def contrast_with_labels(x: Tensor, labels: Tensor) -> Tensor:
    x = F.normalize(x, dim=1)
    alike, own = x @ x.t() / 0.1, torch.eye(8, dtype=torch.bool)
    positive = (labels[:, None] == labels[None]) & ~own
    some = positive.any(1)
    likely = alike - torch.logsumexp(alike.masked_fill(own, -1e9), 1, keepdim=True)
    return -((likely * positive).sum(1)[some] / positive.sum(1)[some]).sum()


@case(labelled)
def hardest_triplets(x: Tensor, labels: Tensor) -> Tensor:
    apart, same = torch.cdist(x, x), labels[:, None] == labels[None]
    margin = (apart * same).max(1).values - (apart + 1e6 * same).min(1).values
    loss = F.relu(margin + 0.3)
    kept = loss > 1e-6
    return loss[kept].sum() / (kept.sum() + 1e-8)


@case(lambda count: (torch.randn(15), torch.randint(0, 5, (15,))), trains=False)
def descent_of_a_tree(value: Tensor, visits: Tensor) -> Tensor:
    node = torch.tensor(0)
    path = [node]
    for _ in range(3):
        children = torch.stack([2 * node + 1, 2 * node + 2])
        upper = value[children] + visits[node].float().sqrt() / (1 + visits[children])
        node = children[upper.argmax()]
        path.append(node)
    return value.index_add(0, torch.stack(path), torch.ones(4))


@case(lambda count: (torch.randn(8, 4), chosen(count), torch.rand(8)),
      backends=("aot_eager",))  # fmt: skip
def kept_tokens_and_the_rest(x: Tensor, kept: Tensor, weight: Tensor) -> Tensor:
    rest = (x[~kept] * weight[~kept, None]).sum(0, keepdim=True)
    tokens = torch.cat([x[kept], rest])
    return ((tokens @ tokens.t()).softmax(-1) @ tokens).sum(0)
