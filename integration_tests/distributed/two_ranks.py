"""Processes that meet over gloo and run a function: what each of them returned."""

import os
import pickle
import queue
import traceback

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

SECONDS = 600
WARMED = "integration_tests.distributed.warmed"
"""What a server imports once; each rank is a copy of it, as yet without a thread."""


def server():
    """How processes are begun: by a server that has compiled, and waits for their functions."""
    context = processes.get_context("forkserver")
    context.set_forkserver_preload([WARMED])
    return context


def _rank(rank, count, meeting, function, results):
    try:
        torch.set_num_threads(1)
        os.environ["FLAMBEAU_CACHE_DIR"] = os.path.join(os.path.dirname(meeting), f"cache{rank}")
        where = f"file://{meeting}"
        dist.init_process_group("gloo", init_method=where, rank=rank, world_size=count)
        results.put((rank, pickle.dumps(function(rank)), None))
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        results.put((rank, None, traceback.format_exc()))
        raise


def two_ranks(function, folder):
    """`ranks` of two."""
    return ranks(function, folder, 2)


def ranks(function, folder, count):
    """What `function(rank)` gave in each process; its error as a failure of the test."""
    context = server()
    results = context.Queue()
    meeting = str(folder / "meeting")
    started = [
        context.Process(target=_rank, args=(rank, count, meeting, function, results))
        for rank in range(count)
    ]
    for each in started:
        each.start()
    found = {}
    try:
        for _ in started:
            rank, value, error = results.get(timeout=SECONDS)
            assert error is None, f"rank {rank}:\n{error}"
            found[rank] = pickle.loads(value)
    except queue.Empty:
        raise AssertionError(f"only ranks {sorted(found)} answered in {SECONDS} s") from None
    finally:
        for each in started:
            each.join(20)
            each.kill()
            each.join()
    return tuple(found[rank] for rank in range(count))
