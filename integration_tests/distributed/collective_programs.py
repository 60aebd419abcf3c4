"""Programs with collectives, by dtype, reduction, group, sync or async; blocks of sharded models.

Each program takes a tensor, and gives what eager and a compiled form are compared by.
"""

import itertools

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable
from torch import nn
from torch.nn import functional as F

ROWS = 8  # divides by every size of a group here


class ResidualBlock(nn.Module):
    """A pre-norm feed-forward block."""

    def __init__(self, width, inner):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def _done(work, later):
    if later:
        assert work.wait()


def all_reduce(x, op, group, later):
    y = x * 2
    _done(dist.all_reduce(y, op, group, async_op=later), later)
    return y, y + 1


def broadcast(x, op, group, later):
    y = x + 1
    src = dist.get_global_rank(group or dist.group.WORLD, 1)
    _done(dist.broadcast(y, src, group=group, async_op=later), later)
    return y * 2


def all_gather(x, op, group, later):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
    _done(dist.all_gather(parts, x + 1, group, async_op=later), later)
    return parts


def all_gather_into_tensor(x, op, group, later):
    whole = x.new_empty(dist.get_world_size(group) * x.shape[0], *x.shape[1:])
    _done(dist.all_gather_into_tensor(whole, x + 1, group, async_op=later), later)
    return whole, whole[1:] + 1


def reduce_scatter_tensor(x, op, group, later):
    part = x.new_empty(x.shape[0] // dist.get_world_size(group), *x.shape[1:])
    _done(dist.reduce_scatter_tensor(part, x + 1, op, group, async_op=later), later)
    return part + 1


def all_to_all_single(x, op, group, later):
    y = torch.empty_like(x)
    _done(dist.all_to_all_single(y, x + dist.get_rank(), group=group, async_op=later), later)
    return y, y * 2


def reduce(x, op, group, later):
    y = x + 1
    group_of = group or dist.group.WORLD
    dst = dist.get_global_rank(group_of, 0)
    _done(dist.reduce(y, dst, op, group, async_op=later), later)
    return y if dist.get_rank() == dst else None  # elsewhere eager leaves anything


def of_an_argument(x, op, group, later):
    """What is written to is the caller's."""
    _done(dist.all_reduce(x, op, group, async_op=later), later)
    return x + 1


def of_a_view(x, op, group, later):
    """A row of what is returned."""
    y = x * 2
    _done(dist.all_reduce(y[1:3], op, group, async_op=later), later)
    return y


def functional_all_reduce(x, op, group, later):
    name = str(op).rpartition(".")[2].lower()
    return functional.all_reduce(x * 2, name, group or dist.group.WORLD) + 1


REDUCING = (all_reduce, reduce_scatter_tensor, reduce, of_an_argument, of_a_view)
OTHERS = (broadcast, all_gather, all_gather_into_tensor, all_to_all_single)
OPS = ("SUM", "MAX", "PRODUCT")
DTYPES = (torch.float32, torch.int64, torch.bfloat16, torch.float64)


def table(group):
    """Rows of a name, a program, and the dtype of what it takes; every value of a column is there
    with every program."""
    rows = []
    columns = itertools.cycle(itertools.product(DTYPES, (False, True), (None, group)))
    for program in (*REDUCING, functional_all_reduce):
        for op, _ in itertools.product(OPS, range(3)):
            rows.append((program, op, *next(columns)))
    for program in OTHERS:
        rows += [(program, "SUM", *next(columns)) for _ in range(5)]
    return rows


def arguments(rank, dtype):
    made = torch.Generator().manual_seed(rank)
    return torch.randint(1, 5, (ROWS, 3), generator=made).to(dtype)


# --- programs with gradients ----------------------------------------------------------------------


class Column(nn.Module):
    """A column-parallel product and a row-parallel one: an MLP by ranks, one sum after it."""

    def __init__(self, rank, size, width=16):
        super().__init__()
        full = torch.Generator().manual_seed(3)
        up = torch.randn(4 * width, width, generator=full) / 4
        down = torch.randn(width, 4 * width, generator=full) / 8
        self.up = nn.Parameter(up.chunk(size, 0)[rank].clone())
        self.down = nn.Parameter(down.chunk(size, 1)[rank].clone())

    def forward(self, x):
        own = F.gelu(x @ self.up.T) @ self.down.T
        return x + differentiable.all_reduce(own)


class Sequence(nn.Module):
    """The same where each rank has rows of the sequence: gathered before, scattered after."""

    def __init__(self, rank, size, width=16):
        super().__init__()
        self.inner = Column(rank, size, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        world = dist.group.WORLD
        whole = functional.all_gather_tensor_autograd(self.norm(x), 0, world)
        own = F.gelu(whole @ self.inner.up.T) @ self.inner.down.T
        return x + functional.reduce_scatter_tensor_autograd(own, "sum", 0, world)


class Experts(nn.Module):
    """A mixture of experts, one a rank, each of which takes as many rows of every rank."""

    def __init__(self, rank, size, width=16):
        super().__init__()
        made = torch.Generator().manual_seed(10 + rank)
        self.expert = nn.Parameter(torch.randn(width, width, generator=made) / 4)

    def forward(self, x):
        counts = [x.shape[0] // dist.get_world_size()] * dist.get_world_size()
        world = dist.group.WORLD
        sent = functional.all_to_all_single_autograd(x, counts, counts, world)
        back = functional.all_to_all_single_autograd(sent @ self.expert, counts, counts, world)
        return x + back.relu()


class FromOneRank(nn.Module):
    """What the first rank has, then what the last has: the gradients of all go to these, and the
    others take part in sums of which they need nothing."""

    def __init__(self, rank, size, width=16):
        super().__init__()
        made = torch.Generator().manual_seed(20 + rank)
        self.first = nn.Parameter(torch.randn(width, width, generator=made) / 4)
        self.last = nn.Parameter(torch.randn(width, width, generator=made) / 4)
        self.size = size

    def forward(self, x):
        x = differentiable.broadcast(x @ self.first, 0)
        return differentiable.broadcast((x @ self.last).sigmoid(), self.size - 1)


MODULES = (Column, Sequence, Experts, FromOneRank)


def step(module, x):
    """Data-parallel training by hand: gradients are averaged after the backward pass."""
    out = module(x)
    loss = out.square().mean()
    loss.backward()
    return loss


def average(gradients):
    works = [dist.all_reduce(each, async_op=True) for each in gradients]
    for work in works:
        work.wait()
    for each in gradients:
        each.div_(dist.get_world_size())
    return sum(each.square().sum() for each in gradients)
