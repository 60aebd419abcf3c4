"""Faults of ranks around compiled steps: one that ends, one that is late. What is left says so in
time, keeps what it had, and goes on with others."""

import datetime
import os
import time

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

import flambeau
from integration_tests.distributed.two_ranks import server

TIMEOUT = 3.0
KINDS = ("killed", "late", "very late")


def step(weight, x):
    gradient = functional.all_reduce((weight * x).sin(), "sum", dist.group.WORLD)
    weight.sub_(0.1 * gradient)
    return weight.sum()


def _rank(rank, kind, folder, results):
    torch.set_num_threads(1)
    os.environ["FLAMBEAU_CACHE_DIR"] = f"{folder}/cache{rank}"
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2,
        timeout=datetime.timedelta(seconds=TIMEOUT),
    )  # fmt: skip
    run = flambeau.compile(step, backend="aot_eager", fullgraph=True)
    weight, x = torch.ones(4), torch.arange(4.0)
    run(weight, x)
    kept = weight.clone()
    if rank == 1:
        if kind == "killed":
            os._exit(9)
        time.sleep(1.0 if kind == "late" else 3 * TIMEOUT)
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


@pytest.mark.parametrize("kind", KINDS)
def test_who_is_left_says_so_in_time(kind, tmp_path):
    context = server()
    results = context.Queue()
    started = [
        context.Process(target=_rank, args=(rank, kind, str(tmp_path), results))
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
    assert same and graphs == 1
    assert seconds < 3 * TIMEOUT
    assert bool(error) is (kind != "late")
    if error:
        assert "RuntimeError" in error or "Dist" in error, error
