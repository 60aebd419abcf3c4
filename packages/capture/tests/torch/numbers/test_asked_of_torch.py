"""Queries of torch's build, its switches and its processes: answered in the graph, and again where
what they are about has changed."""

import pytest
import torch
import torch.distributed as dist
from flambeau_capture import _torch_compat as compat

CUDA = torch.backends.cuda
QUERIES = [
    query
    for query in (*compat.build_questions(), *compat.switch_questions())
    if query is not torch._C._is_autocast_available  # which is given a device
]

#: a query, what changes its answer, and what changes it back
CHANGES = {
    "warnings": (torch.is_warn_always_enabled, torch.set_warn_always, (True, False)),
    "deterministic": (
        torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode, (2, 0),
    ),
    "flash": (CUDA.flash_sdp_enabled, CUDA.enable_flash_sdp, (False, True)),
    "cudnn": (CUDA.cudnn_sdp_enabled, CUDA.enable_cudnn_sdp, (False, True)),
    "half sums": (
        lambda: CUDA.matmul.allow_fp16_reduced_precision_reduction,
        lambda value: setattr(CUDA.matmul, "allow_fp16_reduced_precision_reduction", value),
        (False, True),
    ),
    "filled": (
        lambda: torch.utils.deterministic.fill_uninitialized_memory,
        lambda value: setattr(torch.utils.deterministic, "fill_uninitialized_memory", value),
        (False, True),
    ),
}  # fmt: skip


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.__name__)
def test_a_query_is_answered_in_one_graph(query, capture):
    def f(x):
        return x + 1, query()

    assert capture(f, nopython=True)(torch.ones(2))[1] == f(torch.ones(2))[1]


@pytest.mark.parametrize("change", CHANGES)
def test_an_answer_that_changes_is_given_again(change, capture, backend):
    query, switch, (other, usual) = CHANGES[change]

    def f(x):
        return x + 1, query()

    compiled = capture(f, nopython=True)
    x = torch.ones(2)
    before = query()
    assert compiled(x)[1] == compiled(x)[1] == before and len(backend) == 1
    try:
        switch(other)
        assert query() != before and compiled(x)[1] == query()
    finally:
        switch(usual)
    assert query() == before and compiled(x)[1] == before


def ranks(x):
    if dist.is_initialized():
        return x * (dist.get_rank() + 1) / dist.get_world_size()
    return x - 1


def test_processes_that_come_together_and_part(capture, tmp_path):
    compiled = capture(ranks, nopython=True)
    x = torch.ones(2)
    assert torch.equal(compiled(x), x - 1)
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        assert torch.equal(compiled(x), x)
    finally:
        dist.destroy_process_group()
    assert torch.equal(compiled(x), x - 1)


def test_a_rank_where_no_processes_are_is_refused_as_in_eager(capture):
    def f(x):
        return x + dist.get_rank()

    with pytest.raises(ValueError, match="process group") as expected:
        f(torch.ones(2))
    with pytest.raises(ValueError, match="process group") as found:
        capture(f)(torch.ones(2))
    assert str(found.value) == str(expected.value)
