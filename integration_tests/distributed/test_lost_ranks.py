"""Faults of ranks around compiled steps: one that ends, one that is late. What is left says so in
time, keeps what it had, and goes on with others."""

import datetime
import os
import time
from itertools import product

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

import flambeau
from integration_tests.distributed.two_ranks import server

TIMEOUT = 3.0
KINDS = ("killed", "late", "very late", "other code")


def step(weight, x):
    gradient = functional.all_reduce((weight * x).sin(), "sum", dist.group.WORLD)
    weight.sub_(0.1 * gradient)
    return weight.sum()


def by_messages(weight, x):
    """The same, the gradient of the other rank by a message."""
    own = (weight * x).sin()
    theirs, other = torch.empty_like(own), 1 - dist.get_rank()
    works = dist.isend(own, other), dist.irecv(theirs, other)
    for each in works:
        each.wait()
    weight.sub_(0.1 * (own + theirs))
    return weight.sum()


STEPS = {"collective": step, "messages": by_messages}


def _once_both_are_compiled(gm, inputs):
    """The captured graph: no rank runs it while the other one still compiles, which for collectives
    the comparison of ranks sees to."""
    store = dist.distributed_c10d._get_default_store()
    store.add("compiled", 1)
    while store.add("compiled", 0) < 2:
        time.sleep(0.01)
    return gm


def _rank(rank, of, kind, folder, results):
    torch.set_num_threads(1)
    os.environ["FLAMBEAU_CACHE_DIR"] = f"{folder}/cache{rank}"
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2,
        timeout=datetime.timedelta(seconds=TIMEOUT),
    )  # fmt: skip
    backend = "aot_eager" if of == "collective" else _once_both_are_compiled
    run = flambeau.compile(STEPS[of], backend=backend, fullgraph=True)
    weight, x = torch.ones(4), torch.arange(4.0)
    run(weight, x)
    kept = weight.clone()
    if rank == 1:
        if kind == "killed":
            os._exit(9)
        time.sleep(1.0 if kind == "late" else 3 * TIMEOUT)
        if kind == "other code":  # it goes on without what the other one waits for
            os._exit(0)
    started, error = time.monotonic(), ""
    try:
        run(weight, x)
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
    wanted = kept.clone()
    if not error:
        wanted.sub_(0.1 * 2 * (wanted * x).sin())
    results.put(
        (
            rank,
            error,
            time.monotonic() - started,
            torch.equal(weight, wanted),
            len(flambeau.report(run).records),
        )
    )
    results.close()
    results.join_thread()
    os._exit(0)  # a group that has lost a rank is not left in order


@pytest.mark.parametrize(
    ("of", "kind"),
    [*product(["collective"], KINDS), ("messages", "killed"), ("messages", "other code")],
)
def test_who_is_left_says_so_in_time(of, kind, tmp_path):
    context = server()
    results = context.Queue()
    started = [
        context.Process(target=_rank, args=(rank, of, kind, str(tmp_path), results))
        for rank in range(2)
    ]
    for each in started:
        each.start()
    try:
        found = {}
        while 0 not in found or (kind == "late" and 1 not in found):
            rank, *said = results.get(timeout=60)
            found[rank] = said
    finally:
        for each in started:
            each.kill()
            each.join()
    error, seconds, same, graphs = found[0]
    assert same and graphs == (of == "collective")  # a backend of the test keeps no record
    assert seconds < 3 * TIMEOUT
    assert bool(error) is (kind != "late")
    if error:
        assert "RuntimeError" in error or "Dist" in error, error
