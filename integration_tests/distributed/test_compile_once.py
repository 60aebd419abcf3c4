"""Ranks that compile each graph once: who compiles, who takes it, what becomes of what is lost."""

import errno
import os
import threading
from collections import Counter

import pytest
import torch
import torch.distributed as dist
from flambeau_inductor.cache import store

import flambeau
from flambeau.distributed import compile_once
from integration_tests.distributed.two_ranks import two_ranks

RANKS, HOSTS = 1000, 40


def _rank(store, place, folders, done):
    """What `CacheLookup` does: compile, fetch, or look into the folder that the host shares."""
    turn = compile_once.Turn(store, "graph", place)
    made = turn.wait()
    if turn.first:
        done["compiled"] += 1
        folders[place] = b"kernels"
    elif made is not None:
        done["fetched"] += 1
        folders[place] = made
    done[folders.get(place)] += 1
    turn.end(folders[place])


def test_a_thousand_ranks_compile_once_and_fetch_once_a_host():
    store, folders, done = dist.HashStore(), {}, Counter()
    ranks = [
        threading.Thread(target=_rank, args=(store, str(at % HOSTS), folders, done))
        for at in range(RANKS)
    ]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join(60)
    assert done == {"compiled": 1, "fetched": HOSTS - 1, b"kernels": RANKS}


@pytest.mark.parametrize("says", [False, True], ids=["gone", "kept nothing"])
def test_a_rank_that_gets_nothing_compiles(says, monkeypatch):
    monkeypatch.setattr(compile_once, "SECONDS", 0.05)
    store = dist.HashStore()
    first = compile_once.Turn(store, "graph", "one")
    if says:
        first.end()
    other = compile_once.Turn(store, "graph", "other")
    assert first.first and not other.first
    assert other.wait() is None


def test_what_is_published_may_be_large(monkeypatch):
    monkeypatch.setattr(compile_once, "_PART", 1000)
    store, made = dist.HashStore(), bytes(range(256)) * 100
    compile_once.Turn(store, "graph", "one").end(made)
    assert compile_once.Turn(store, "graph", "other").wait() == made


def _changed(turn):
    made = type(turn).whole(turn)
    return made if made is None else made[:200] + bytes([made[200] ^ 1]) + made[201:]


def _compiled(rank):
    """From the disk or not, with what faults, for a program and for one whose bytes are changed."""
    os.environ[compile_once.VARIABLE] = "1"  # of this rank, which ends with the test
    found = []
    for number, wait in enumerate((compile_once.Turn.wait, _changed)):
        compile_once.Turn.whole, compile_once.Turn.wait = compile_once.Turn.wait, wait
        run = flambeau.compile(lambda x, by=number + 2: torch.softmax(x * by, -1).sin())
        x = torch.arange(12.0).view(3, 4) + rank
        torch.testing.assert_close(run(x), torch.softmax(x * (number + 2), -1).sin())
        (record,) = flambeau.report(run).records
        found.append((record.from_disk, record.cache_faults))
        dist.barrier()
    return found


def test_two_ranks_compile_once(tmp_path):
    whole, changed = zip(*two_ranks(_compiled, tmp_path))
    assert sorted(each for each, _ in whole) == [False, True]
    assert all(not faults for _, faults in whole)
    assert [each for each, _ in changed] == [False, False]
    assert sum("digest" in str(faults) or "read" in str(faults) for _, faults in changed) == 1


FULL = {"the first": 0, "the others": 1, "all": None}
"""Whose disk is full, by the rank; None: everybody's."""


def _no_space(folder):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _with_full_disks(rank):
    """Faults of the cache by whose disk is full: rank 0 compiles first, the other comes later."""
    os.environ[compile_once.VARIABLE] = "1"
    found, written = {}, store._write_digests
    for number, (whose, full) in enumerate(FULL.items()):
        run = flambeau.compile(lambda x, by=number + 5: torch.softmax(x * by, -1).cos())
        x = torch.arange(12.0).view(3, 4) + rank
        store._write_digests = _no_space if full in (rank, None) else written
        for turn in range(2):
            if turn == rank:
                given = run(x)
            dist.barrier()
        store._write_digests = written
        torch.testing.assert_close(given, torch.softmax(x * (number + 5), -1).cos())
        (record,) = flambeau.report(run).records
        found[whose] = record.from_disk, flambeau.report(run).fallbacks, record.cache_faults
    return found


def test_a_full_disk_of_some_ranks_costs_them_a_compile_and_is_said(tmp_path):
    for rank, found in enumerate(two_ranks(_with_full_disks, tmp_path)):
        for whose, (from_disk, fallbacks, faults) in found.items():
            full = FULL[whose] in (rank, None)
            assert not from_disk and not fallbacks, (rank, whose)
            assert any("No space left" in each for each in faults) is full, (rank, whose, faults)
