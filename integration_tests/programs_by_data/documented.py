"""Operators of torch whose results are sized by data, as its documentation uses each.

What is made with such a size is one expression, or a few lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from integration_tests.by_data import Case, Cases, chosen

CASES = Cases()

#: of eight rows: which are chosen, a group of each, how often each is repeated
Program = Callable[[Tensor, Tensor, Tensor, Tensor], Any]


def grouped(count: int) -> Sequence[Tensor]:
    groups = torch.randint(0, max(count, 1), (8,))
    times = torch.randint(0, 3, (8,)) if count else torch.zeros(8, dtype=torch.int64)
    return torch.randn(8, 4), chosen(count), groups, times


def _distinct(x: Tensor, m: Tensor, g: Tensor, t: Tensor) -> Any:
    values, places, counts = torch.unique(g, return_inverse=True, return_counts=True)
    return torch.zeros(len(values), 4).index_add(0, places, x) / counts[:, None], values


def _runs(x: Tensor, m: Tensor, g: Tensor, t: Tensor) -> Any:
    values, counts = torch.unique_consecutive(g.sort()[0], return_counts=True)
    return torch.repeat_interleave(values, counts) + 0.5


def _rows_that_differ(x: Tensor, m: Tensor, g: Tensor, t: Tensor) -> Any:
    rows, places = torch.unique((x > 0).float(), dim=0, return_inverse=True)
    return rows.sum(1)[places]


def _places_within_repeats(x: Tensor, m: Tensor, g: Tensor, t: Tensor) -> Any:
    before = torch.repeat_interleave(t.cumsum(0) - t, t)
    return torch.arange(before.shape[0]) - before


def _split_by_a_tensor(x: Tensor, m: Tensor, g: Tensor, t: Tensor) -> Any:
    first, second = torch.tensor_split(x, m.sum()[None])
    return first.sum(0) - second.sum(0)


def _split_by_three(x: Tensor, m: Tensor, g: Tensor, t: Tensor) -> Any:
    return torch.cat(torch.tensor_split(x.t(), t[:3].cumsum(0).clamp(max=8), dim=1)[::-1], 1)


def _split_by_a_list(x: Tensor, m: Tensor, g: Tensor, t: Tensor) -> Any:
    one, other = x.split(torch.stack([m.sum(), (~m).sum()]).tolist())
    return torch.cat([other, one]) * 2


def _assigned(x: Tensor, m: Tensor, g: Tensor, t: Tensor) -> Any:
    y = x.clone()
    y[m] = 0
    y[~m] *= 2
    y[m, 1:3] = x[m, 0:2] * 3
    return y


def _by_group(x: Tensor, m: Tensor, g: Tensor, t: Tensor) -> Any:
    count = g.max().item() + 1
    sums = torch.zeros(count, 4).index_add(0, g, x.exp())
    largest = torch.full((count, 4), -9.0).scatter_reduce(0, g[:, None].expand(-1, 4), x, "amax")
    return x.exp() / sums[g], largest


def _edges(x: Tensor, m: Tensor, g: Tensor, t: Tensor) -> Any:
    here, there = ((x @ x.t() > 0) & m[:, None]).nonzero().t()
    return torch.zeros_like(x).index_add(0, there, x[here] * 0.5)


def _experts_in_order(x: Tensor, m: Tensor, g: Tensor, t: Tensor) -> Any:
    counts, rows = torch.bincount(g, minlength=8), x[g.argsort(stable=True)]
    parts, start = [], 0
    for expert in range(3):
        count = counts[expert].item()
        parts.append(rows[start : start + count] * (expert + 1))
        start += count
    return torch.cat(parts)


def _hard_examples(x: Tensor, m: Tensor, g: Tensor, t: Tensor) -> Any:
    losses = F.cross_entropy(x, g % 4, reduction="none")
    return losses.sort(descending=True)[0][: int(m.sum())].sum()


def _beams(x: Tensor, m: Tensor, g: Tensor, t: Tensor) -> Any:
    values, places = x.log_softmax(1).flatten().topk(4)
    alive = m[places // 4]
    return values[alive].cumsum(0), (places // 4)[alive]


def _counted_twice(x: Tensor, m: Tensor, g: Tensor, t: Tensor) -> Any:
    rows = x[: int(m.sum())]
    count = (rows[:, 0] > 0).sum().item()
    return rows[:count].sum(0) + rows[count:].sum(0) * 2


def _a_loop_over_counts(x: Tensor, m: Tensor, g: Tensor, t: Tensor) -> Any:
    total = x.new_zeros(4)
    for count in t[:3].tolist():
        total = total + x[:count].sum(0) * count
    return total


def _bags(x: Tensor, m: Tensor, g: Tensor, t: Tensor) -> Any:
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), t.cumsum(0)[:-1]])
    return F.embedding_bag(torch.repeat_interleave(g, t), x, starts, mode="sum")


def _signal(x: Tensor, m: Tensor, g: Tensor, t: Tensor) -> Any:
    window = torch.hann_window(16)
    spectrum = torch.stft(x.flatten().repeat(4), 16, window=window, return_complex=True)
    return torch.istft(spectrum, 16, window=window)[: int(m.sum()) * 4 + 16]


def _labels(x: Tensor, m: Tensor, g: Tensor, t: Tensor) -> Any:
    best = torch.unique_consecutive(x.argmax(1))
    return best[best != 0]


def _sized(make: Callable[[int, Tensor], Any]) -> Program:
    return lambda x, m, g, t: make(int(m.sum()), x)


def _selected(use: Callable[[Tensor], Any]) -> Program:
    return lambda x, m, g, t: use(x[m])


PROGRAMS: dict[str, Program] = {
    "nonzero of a tuple": lambda x, m, g, t: x[torch.nonzero(x * m[:, None] > 0, as_tuple=True)],
    "masked_select": lambda x, m, g, t: torch.masked_select(x, m[:, None]).view(-1, 4).softmax(1),
    "unique with counts": _distinct,
    "unique_consecutive": _runs,
    "unique of rows": _rows_that_differ,
    "bincount": lambda x, m, g, t: torch.bincount(g) / 8,
    "repeat_interleave": lambda x, m, g, t: torch.repeat_interleave(x, t, dim=0).cumsum(0),
    "repeat_interleave of places": _places_within_repeats,
    "tensor_split by a tensor": _split_by_a_tensor,
    "tensor_split by three": _split_by_three,
    "split by tolist": _split_by_a_list,
    "masks that are assigned": _assigned,
    "segments": _by_group,
    "edges": _edges,
    "experts in order": _experts_in_order,
    "hard examples": _hard_examples,
    "beams": _beams,
    "counted twice": _counted_twice,
    "a loop over counts": _a_loop_over_counts,
    "bags": _bags,
    "a signal": _signal,
    "labels": _labels,
    "arange": _sized(lambda n, x: torch.arange(n) * x[:n, 0]),
    "eye": _sized(lambda n, x: torch.eye(n) @ x[:n]),
    "tril": _sized(lambda n, x: torch.ones(n, n).tril() @ x[:n]),
    "linspace": _sized(lambda n, x: torch.linspace(0, 1, n)[:, None] * x[:n]),
    "topk": _sized(lambda n, x: torch.topk(x[:, 0], n)[0]),
    "pad": _sized(lambda n, x: F.pad(x[:n], (0, 0, 0, 8 - n))),
    "interpolate": _sized(lambda n, x: F.interpolate(x.t()[None], size=n + 1, mode="linear")),
    "attention": _selected(lambda y: F.scaled_dot_product_attention(y[None], y[None], y[None])),
    "convolution": _selected(lambda y: F.conv1d(F.pad(y.t()[None], (1, 1)), torch.ones(4, 4, 3))),
    "flip": _selected(lambda y: y.flip(0) * 2),
    "sort": _selected(lambda y: y[:, 0].sort()),
    "argsort": _selected(lambda y: y[y.sum(1).argsort()[:2]]),
    "bucketize": _selected(
        lambda y: torch.bincount(torch.bucketize(y[:, 0], torch.tensor([-1.0, 1.0])), minlength=3)
    ),
    "differences": _selected(lambda y: torch.triu(y[:, None, 0] - y[None, :, 0], 1).abs().sum()),
    "distances": lambda x, m, g, t: torch.cdist(x[m], x[~m]).sum(),
    "sizes that are returned": _selected(lambda y: (y * 2, y.shape[0], len(y))),
    "stack of places": lambda x, m, g, t: torch.stack([m.nonzero()[:, 0], m.nonzero()[:, 0]], 1),
}
CASES.update({name: Case(program, grouped) for name, program in PROGRAMS.items()})

#: with too few elements the graph leaves the warning, or what is special there, to eager
AT_FEW: dict[str, tuple[Program, tuple[int, ...]]] = {
    "variance": (_selected(lambda y: y.var(0)), (0, 1)),
    "variance of all": (_selected(lambda y: y.std(0, correction=0)), (0,)),
    "two corrections": (_selected(lambda y: torch.var_mean(y, 0, correction=2)), (0, 1, 2)),
    "roll": (_selected(lambda y: y.roll(1, 0)), (0,)),
    "every other": (_selected(lambda y: y[0::2].sum(0) + y[1::2].sum(0)), (0, 1)),
    "any": (_selected(lambda y: y.amax(0) if y.numel() > 0 else y.sum(0)), (0,)),
}
for _name, (_program, _counts) in AT_FEW.items():
    CASES[_name] = Case(_program, grouped, eager_at=_counts)
