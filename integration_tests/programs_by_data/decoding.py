"""Decoding and sampling: penalties, nuclei, beams, trees, speculation, mixtures."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from integration_tests.by_data import Cases, chosen

case = CASES = Cases()

torch.manual_seed(0)
EXPERTS = [torch.randn(4, 4) * 0.3 for _ in range(3)]


@case(lambda count: (torch.randn(2, 12), torch.randint(0, 12, (2, 8)), torch.tensor(count)))
def repetition_penalty(scores: Tensor, written: Tensor, length: Tensor) -> Tensor:
    ids = written[:, : int(length)]
    score = torch.gather(scores, 1, ids)
    score = torch.where(score < 0, score * 1.2, score / 1.2)
    return scores.scatter(1, ids, score)


@case(lambda count: (torch.randn(12), torch.randint(0, max(count, 1), (9,))))
def penalty_of_distinct_tokens(scores: Tensor, ids: Tensor) -> Tensor:
    scores = scores.clone()
    seen, times = ids.unique(return_counts=True)
    scores[seen] -= 0.3 + 0.1 * times
    return scores


@case(lambda count: (torch.randn(2, 12), torch.tensor(0.12 * count)))
def nucleus(scores: Tensor, share: Tensor) -> Tensor:
    ordered, places = scores.sort(descending=True)
    remove = ordered.softmax(-1).cumsum(-1) > share.item()
    remove[..., 1:] = remove[..., :-1].clone()
    remove[..., 0] = False
    return scores.masked_fill(remove.scatter(1, places, remove), float("-inf")).softmax(-1)


@case(lambda count: (torch.randn(2, 12), torch.tensor(max(count, 1))))
def best_k(scores: Tensor, k: Tensor) -> Tensor:
    worst = scores.topk(k.item()).values[..., -1, None]
    return torch.where(scores < worst, float("-inf"), scores).softmax(-1)


@case(lambda count: (torch.randn(8, 12), chosen(count)), trains=False, eager_at=[8])
def unfinished_rows(scores: Tensor, done: Tensor) -> Any:
    left = ~done
    tokens = torch.zeros(8, dtype=torch.long)
    tokens[left] = scores[left].argmax(-1)
    return tokens, left.sum(), scores[left].logsumexp(-1)


@case(lambda count: (torch.randn(6, 8), torch.randint(0, 8, (6,))), trains=False)
def accepted_drafts(scores: Tensor, drafts: Tensor) -> Any:
    """Speculation: the drafts before the first that the model would not make."""
    own = scores.argmax(-1)
    agree = (own == drafts).long().cumprod(0)
    n = int(agree.sum())
    return torch.cat([drafts[:n], own[n : n + 1]]), n


@case(lambda count: (torch.randn(3, 10), torch.randn(3), torch.arange(10) < max(count, 2)))
def beams_of_allowed_tokens(scores: Tensor, total: Tensor, allowed: Tensor) -> Any:
    tokens = allowed.nonzero().squeeze(-1)
    each = scores.log_softmax(-1)[:, tokens] + total[:, None]
    best, flat = each.view(-1).topk(3)
    beam = torch.div(flat, tokens.shape[0], rounding_mode="floor")
    return best, beam, tokens[flat % tokens.shape[0]]


@case(lambda count: (torch.randn(3, 5, 4), torch.randint(0, 3, (8,)), chosen(count)))
def cache_by_beam(cache: Tensor, beams: Tensor, alive: Tensor) -> Tensor:
    beams = beams[alive]
    return torch.cat([cache.index_select(0, beams), cache[beams] * 2], 1)


@case(lambda count: (torch.randn(8, 4), torch.randint(-1, max(count, 1), (8,)).clamp(max=7)))
def parents_of_a_tree(x: Tensor, parent: Tensor) -> Tensor:
    for _ in range(3):
        inner = parent >= 0
        x = x.index_add(0, parent[inner].clamp(max=7), x[inner] * 0.5)
    return x


@case(lambda count: (torch.randn(8), torch.randint(0, 4, (8,))))
def children_of_the_best_node(value: Tensor, visits: Tensor) -> Any:
    upper = value + (visits.sum() + 1).sqrt() / (1 + visits)
    node = int(upper.argmax())
    children = torch.arange(8)[(torch.arange(8) - 1) // 2 == node]
    return value[children].sum(), children, upper[node]


@case(lambda count: (torch.randn(4, 12), torch.tensor(count)), trains=False)
def positions_after_the_past(x: Tensor, past: Tensor) -> Any:
    n = past.item()
    position = torch.arange(n, n + 4)
    mask = torch.full((4, n + 4), float("-inf")).triu(n + 1)
    angle = position[:, None] / 100 ** (torch.arange(0, 12, 2) / 12)
    return torch.cat([x[:, ::2] * angle.cos(), x[:, 1::2] * angle.sin()], 1), mask


@case(lambda count: (torch.randn(8, 4) + 3 * (count in (0, 8)),))
def experts_by_counts(x: Tensor) -> Tensor:
    best, expert = x[:, :3].softmax(-1).max(-1)
    order = expert.argsort(stable=True)
    counts = expert.bincount(minlength=3).tolist()
    parts = zip(x[order].split(counts), EXPERTS, strict=True)
    made = torch.cat([part @ weight for part, weight in parts])
    return torch.zeros_like(x).index_copy(0, order, made) * best[:, None]


@case(lambda count: (torch.randn(8, 4),))
def experts_of_a_capacity(x: Tensor) -> Any:
    likely, expert = x[:, :3].softmax(-1).max(-1)
    hot = F.one_hot(expert, 3)
    place = (hot.cumsum(0) - 1).gather(1, expert[:, None])[:, 0]
    kept = place < 2
    slots = x.new_zeros(3, 2, 4).index_put((expert[kept], place[kept]), x[kept])
    made = torch.stack([one @ weight for one, weight in zip(slots, EXPERTS, strict=True)])
    out = torch.zeros_like(x).index_put(
        (kept.nonzero()[:, 0],), made[expert[kept], place[kept]] * likely[kept, None]
    )
    return out, (~kept).sum()


@case(lambda count: (torch.randn(8, 4),))
def experts_by_offsets(x: Tensor) -> Tensor:
    expert = x[:, :3].argmax(-1)
    order = expert.argsort(stable=True)
    ends = torch.bincount(expert, minlength=3).cumsum(0)
    out = torch.empty_like(x)
    start = 0
    for place, end in enumerate(ends.tolist()):
        out[order[start:end]] = x[order[start:end]] @ EXPERTS[place]
        start = end
    return out
