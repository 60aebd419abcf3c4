"""Merged collectives: one call in the place of several, with the bits that they gave."""

from functools import partial

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

import flambeau
from integration_tests.distributed import collective_programs as programs
from integration_tests.distributed.two_ranks import two_ranks

MERGED = {"inductor.merge_collectives": True}


def gathered(shards, x):
    """Layers whose weights lie scattered over the ranks; gradients are scattered again."""
    for shard in shards:
        x = (x @ functional.all_gather_tensor_autograd(shard, 0, dist.group.WORLD)).relu()
    return x


def scattered(xs):
    parts = [functional.reduce_scatter_tensor(x, "sum", 0, dist.group.WORLD) for x in xs]
    return [part * 2 for part in parts[1:]] + parts[:1]


def drawn(n, made):
    return [torch.randn(4, 4 * k + 4, generator=made) for k in range(n)]


def _run(options, rank):
    made = torch.Generator().manual_seed(rank)
    found, reports = [], []
    averaged = flambeau.compile(programs.average, fullgraph=True, options=options)
    grads = drawn(5, made)
    found.append((averaged(grads), grads))
    shards = [torch.nn.Parameter(torch.randn(4, 8, generator=made)) for _ in range(3)]
    layers = flambeau.compile(gathered, fullgraph=True, options=options)
    out = layers(shards, torch.randn(2, 8, generator=made))
    out.square().sum().backward()
    found.append((out.detach(), [each.grad for each in shards]))
    apart = flambeau.compile(scattered, fullgraph=True, options=options)
    found.append(apart(drawn(4, made)))
    for run in (averaged, layers, apart):
        externs = [
            each for record in flambeau.report(run).records for each in record.externs.items()
        ]
        reports.append(sum(count for name, count in externs if _starts(name)))
    return found, reports


def _starts(name):
    return name.startswith("_c10d") and "wait" not in name


def _both(rank):
    return _run({}, rank), _run(MERGED, rank)


def test_merged_collectives_give_the_same_bits(tmp_path):
    for (plain, alone), (merged, together) in two_ranks(_both, tmp_path):
        torch.testing.assert_close(merged, plain, rtol=0, atol=0)
        assert alone == [5, 6, 4]
        assert together == [1, 2, 1]


def _different(rank):
    """One rank ends its graph between two members."""

    def program(x, y):
        dist.all_reduce(x)
        if rank == 0:
            str(x.sum().item())
        dist.all_reduce(y)
        return x, y

    compiled = flambeau.compile(program, options=MERGED)
    try:
        compiled(torch.ones(3), torch.ones(4))
    except flambeau.distributed.CollectivesDiffer as error:
        return str(error)
    return None


def test_ranks_with_other_graphs_raise_where_theirs_are_merged(tmp_path):
    for said in two_ranks(_different, tmp_path):
        assert "calls (" in said and "dist.all_reduce(x)" in said


CHUNKED = {"inductor.chunk_products": True}


def _block(rank, x, up, down):
    """Rows that are gathered, multiplied, and scattered again."""
    whole = functional.all_gather_tensor_autograd(x, 0, dist.group.WORLD)
    made = (whole @ up).relu() @ down
    return functional.reduce_scatter_tensor_autograd(made, "sum", 0, dist.group.WORLD)


def _chunks(rank):
    """Results, gradients and calls of collectives of a large block and of a small one."""
    found = []
    for rows, width in ((2048, 512), (8, 4)):
        made = torch.Generator().manual_seed(rank)
        sizes = ((rows, width), (width, 64), (64, width))
        drawn = [torch.randn(*size, generator=made) / size[1] ** 0.5 for size in sizes]
        for options in (None, {}, CHUNKED):
            given = [each.clone().requires_grad_() for each in drawn]
            run, said = partial(_block, rank), 0
            if options is not None:
                run = flambeau.compile(run, fullgraph=True, options=options)
            out = run(*given)
            out.square().mean().backward()
            if options is not None:
                records = flambeau.report(run).records
                names = [each for record in records for each in record.externs.items()]
                said = sum(count for name, count in names if _starts(name))
            found.append(([out.detach(), *(each.grad for each in given)], said))
    return found


def test_products_in_chunks_are_those_of_eager(tmp_path):
    for large, plain, chunked, small, same, kept in two_ranks(_chunks, tmp_path):
        for eager, *compiled in ((large, plain, chunked), (small, same, kept)):
            for given, _ in compiled:
                for one, other in zip(given, eager[0], strict=True):
                    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        assert plain[1] == same[1] == kept[1] == 4
        assert chunked[1] >= 8
