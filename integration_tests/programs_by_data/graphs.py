"""Graph networks and point clouds: ragged batches, edges that are chosen, pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from integration_tests.by_data import Cases, chosen

case = CASES = Cases()


def graph(count: int) -> Sequence[Tensor]:
    return torch.randn(8, 4), torch.randint(0, 8, (2, 3 * count))


def batch(count: int) -> Sequence[Tensor]:
    return torch.randn(8, 4), torch.randint(0, max(count, 1), (8,)).sort().values


def with_edges(count: int) -> Sequence[Tensor]:
    return torch.randn(8, 4), torch.randint(0, 8, (2, 16)), torch.rand(16) < count / 8


def softmax_by(x: Tensor, index: Tensor, n: int) -> Tensor:
    most = x.new_full((n,), float("-inf")).scatter_reduce(0, index, x, "amax")
    made = (x - most.detach()[index]).exp()
    return made / (x.new_zeros(n).scatter_add(0, index, made)[index] + 1e-16)


@case(with_edges)
def gcn(x: Tensor, edges: Tensor, kept: Tensor) -> Tensor:
    edges = edges[:, kept]
    loops = torch.arange(x.shape[0])
    edges = torch.cat([edges, torch.stack([loops, loops])], 1)
    source, target = edges
    degree = torch.zeros(x.shape[0]).scatter_add(0, target, torch.ones(edges.shape[1]))
    norm = degree.pow(-0.5)
    weight = norm[source] * norm[target]
    return torch.zeros_like(x).index_add(0, target, x[source] * weight[:, None]).relu()


@case(with_edges)
def gat(x: Tensor, edges: Tensor, kept: Tensor) -> Tensor:
    source, target = edges[:, kept]
    e = F.leaky_relu(x[source].sum(-1) + x[target].mul(2).sum(-1), 0.2)
    alpha = softmax_by(e, target, x.size(0))
    return torch.zeros_like(x).index_add_(0, target, alpha[:, None] * x[source])


@case(with_edges)
def sage_by_mean(x: Tensor, edges: Tensor, kept: Tensor) -> Tensor:
    source, target = edges[0][kept], edges[1][kept]
    index = target[:, None].expand(-1, x.shape[1])
    mean = torch.zeros_like(x).scatter_reduce(0, index, x[source], "mean", include_self=False)
    return torch.cat([x, mean], 1)


@case(with_edges)
def gin(x: Tensor, edges: Tensor, kept: Tensor) -> Tensor:
    source, target = edges.t()[kept].t()
    out = torch.zeros_like(x)
    out.scatter_add_(0, target.unsqueeze(-1).expand(target.numel(), 4), x[source])
    return (1.1 * x + out).relu() @ torch.ones(4, 2)


@case(with_edges)
def without_own_loops(x: Tensor, edges: Tensor, kept: Tensor) -> Any:
    mask = (edges[0] != edges[1]) & kept
    edges = edges[:, mask]
    both = torch.cat([edges, edges.flip(0)], 1)
    code = (both[0] * 8 + both[1]).unique()
    source, target = code // 8, code % 8
    return torch.zeros_like(x).index_add(0, target, x[source]), code.numel()


@case(with_edges, trains=False)
def subgraph(x: Tensor, edges: Tensor, kept: Tensor) -> Any:
    nodes = kept[:8].nonzero().view(-1)
    new = torch.full((8,), -1)
    new[nodes] = torch.arange(nodes.size(0))
    inside = kept[:8][edges[0]] & kept[:8][edges[1]]
    return x[nodes], new[edges[:, inside]]


@case(with_edges)
def messages_of_edges_by_mlp(x: Tensor, edges: Tensor, kept: Tensor) -> Tensor:
    source, target = edges[:, kept].unbind(0)
    pair = torch.cat([x[source], x[target] - x[source]], -1)
    made = (pair @ torch.ones(8, 4) * 0.1).tanh()
    most = torch.full_like(x, -1e9).scatter_reduce(0, target[:, None].expand_as(made), made, "amax")
    return most.masked_fill(most < -1e8, 0)


@case(with_edges)
def equivariant_layer(x: Tensor, edges: Tensor, kept: Tensor) -> Tensor:
    row, column = edges[:, kept]
    apart = x[row, :3] - x[column, :3]
    radial = apart.pow(2).sum(1, keepdim=True)
    scaled = apart * torch.tanh(radial)
    total = scaled.new_zeros(x.size(0), 3).index_add_(0, row, scaled)
    count = scaled.new_zeros(x.size(0), 1).index_add_(0, row, torch.ones_like(radial))
    return x[:, :3] + total / count.clamp(min=1)


@case(batch)
def mean_and_maximum_of_graphs(x: Tensor, graphs: Tensor) -> Tensor:
    size = int(graphs.max().item() + 1)
    index = graphs[:, None].expand(-1, 4)
    mean = x.new_zeros(size, 4).scatter_reduce(0, index, x, "mean", include_self=False)
    most = x.new_zeros(size, 4).scatter_reduce(0, index, x, "amax", include_self=False)
    return torch.cat([mean, most], 1)


@case(batch)
def top_k_pooling(x: Tensor, graphs: Tensor) -> Any:
    """Half of the nodes of each graph by score."""
    score = torch.tanh(x.sum(1))
    n = int(graphs.max()) + 1
    counts = torch.bincount(graphs, minlength=n)
    order = score.argsort(descending=True)
    order = order[graphs[order].argsort(stable=True)]
    start = counts.cumsum(0) - counts
    rank = torch.arange(8) - start[graphs[order]]
    kept = order[rank < (counts[graphs[order]] + 1) // 2]
    return x[kept] * score[kept, None], graphs[kept]


@case(batch)
def dense_batch(x: Tensor, graphs: Tensor) -> Any:
    counts = torch.bincount(graphs)
    start = counts.cumsum(0) - counts
    place = torch.arange(8) - start[graphs]
    longest = int(counts.max())
    out = x.new_zeros(counts.numel() * longest, 4)
    out[graphs * longest + place] = x
    return out.view(counts.numel(), longest, 4)


@case(batch)
def attention_pooling(x: Tensor, graphs: Tensor) -> Tensor:
    n = graphs.max().item() + 1
    weight = softmax_by(x.sum(1), graphs, n)
    return torch.zeros(n, 4).index_add(0, graphs, x * weight[:, None])


@case(batch)
def normalised_by_graph(x: Tensor, graphs: Tensor) -> Tensor:
    n = int(graphs.max()) + 1
    count = torch.zeros(n, 1).index_add(0, graphs, torch.ones(8, 1))
    mean = torch.zeros(n, 4).index_add(0, graphs, x) / count
    apart = x - mean[graphs]
    var = torch.zeros(n, 4).index_add(0, graphs, apart**2) / count
    return apart / (var + 1e-5).sqrt()[graphs]


@case(lambda count: (torch.randn(8, 3), chosen(count)))
def nearest_neighbours(points: Tensor, there: Tensor) -> Tensor:
    kept = torch.cat([points[there], points[:2] + 1])
    apart = torch.cdist(kept, kept)
    near = apart.topk(2, largest=False).indices
    return (kept[near] - kept[:, None]).sum(1)


@case(lambda count: (torch.randn(8, 3), torch.tensor(count * 0.4)))
def within_a_radius(points: Tensor, radius: Tensor) -> Tensor:
    apart = (points[:, None] - points[None]).norm(dim=-1)
    row, column = torch.nonzero((apart < radius) & (apart > 0), as_tuple=True)
    unit = F.normalize(points[row] - points[column], dim=-1)
    return torch.zeros_like(points).index_add(0, row, unit)


@case(lambda count: (torch.randn(4, 12), torch.randint(0, max(count, 1), (8,))))
def segments_by_sizes(x: Tensor, ids: Tensor) -> Any:
    lengths = torch.bincount(ids, minlength=4)[:4]
    return torch.segment_reduce(x.t()[:, 0][: lengths.sum()].contiguous(), "sum", lengths=lengths)


@case(lambda count: (torch.randn(16, 4), torch.tensor([count, 3, 8 - count])))
def ragged_rows_scattered(values: Tensor, lengths: Tensor) -> Tensor:
    row = torch.repeat_interleave(lengths)
    column = torch.arange(row.numel()) - (lengths.cumsum(0) - lengths)[row]
    out = values.new_zeros(3, 8, 4)
    out[row, column] = values[: row.numel()]
    return out


@case(lambda count: (torch.randn(12, 3), torch.rand(12) < count / 8), trains=False)
def sparse_convolution_by_hash(points: Tensor, there: Tensor) -> Any:
    cells = (points[there] * 2).floor().long()
    unique, inverse = torch.unique(cells, dim=0, return_inverse=True)
    features = torch.zeros(unique.size(0), 3).index_add(0, inverse, points[there])
    match = (unique[:, None] + torch.tensor([1, 0, 0]) == unique[None]).all(-1)
    a, b = match.nonzero(as_tuple=True)
    return features.index_add(0, a, features[b]), unique
