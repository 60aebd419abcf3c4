"""Runs a function in two processes that meet over gloo, and brings back what each returned."""

import os
import pickle
import queue
import traceback

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

SECONDS = 240
IMPORTED = (
    "torch.distributed.fsdp", "torch.distributed.tensor.parallel", "sympy", "flambeau",
    "flambeau_inductor",
)  # fmt: skip
"""What a server imports once; each rank is a copy of it, as yet without a thread."""


def _rank(rank, meeting, function, results):
    try:
        torch.set_num_threads(1)
        os.environ["FLAMBEAU_CACHE_DIR"] = os.path.join(os.path.dirname(meeting), f"cache{rank}")
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
        results.put((rank, pickle.dumps(function(rank)), None))
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        results.put((rank, None, traceback.format_exc()))
        raise


def two_ranks(function, folder):
    """What `function(rank)` gave in each process; its error as a failure of the test."""
    context = processes.get_context("forkserver")
    context.set_forkserver_preload([*IMPORTED])
    results = context.Queue()
    meeting = str(folder / "meeting")
    started = [
        context.Process(target=_rank, args=(rank, meeting, function, results)) for rank in (0, 1)
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
    return found[0], found[1]
