"""Whole graphs of fixed and open sizes: processes at once, killed ones, a full disk, an entry that
goes."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from flambeau_capture import mark_dynamic
from flambeau_inductor.cache import CacheStore, intact, size_limit

import flambeau
from flambeau.cache import disk

PROGRAM = """
import json, os, sys
open(sys.argv[2], "w").write(str(os.getpid()))
import torch, flambeau
from flambeau_capture import mark_dynamic
records = []
for size in (5, int(sys.argv[1])):
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    x = torch.randn(size, 6)
    if size != 5:
        mark_dynamic(x, 0)
    compiled = flambeau.compile(net)
    loss = compiled(x).square().sum()
    got = torch.autograd.grad(loss, net.parameters())
    wanted = torch.autograd.grad(net(x).square().sum(), net.parameters())
    torch.testing.assert_close(got, wanted)
    records += flambeau.report(compiled).records
print(json.dumps([record.from_disk for record in records]))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    place = tmp_path / "cache"
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(place))
    return place


def run(folder, rows):
    env = {**os.environ, "FLAMBEAU_CACHE_DIR": str(folder)}
    env["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    command = [sys.executable, "-c", PROGRAM, str(rows), str(folder.parent / str(rows))]
    return subprocess.run(command, env=env, stdout=subprocess.PIPE)


def test_processes_at_once_one_of_which_is_killed(folder):
    """Each compiles for a fixed size and for an open one."""
    killed = folder.parent / "6"
    killed.touch()
    with ThreadPoolExecutor() as pool:
        running = [pool.submit(run, folder, rows) for rows in (6, 64, 9)]
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (
            list(folder.glob(".new-*")) and killed.read_text()
        ):
            time.sleep(0.01)  # until one of them writes
        os.kill(int(killed.read_text()), signal.SIGKILL)
    assert [each.result().returncode for each in running] == [-signal.SIGKILL, 0, 0]
    places = [path.parent for path in folder.glob("*/??/*/digests.json")]
    assert places and all(map(intact, places))
    last = run(folder, 31)
    assert last.returncode == 0 and json.loads(last.stdout.splitlines()[-1]) == [True, True]


def compiled_once(rows=5):
    compiled = flambeau.compile(lambda x: torch.softmax(x * 3, -1))
    x = torch.randn(rows, 7)
    if rows != 5:
        mark_dynamic(x, 0)
    torch.testing.assert_close(compiled(x), torch.softmax(x * 3, -1))
    (record,) = flambeau.report(compiled).records
    return record


@pytest.mark.parametrize("sizes", [(5, 5, 5), (6, 9, 31)], ids=["fixed", "open"])
def test_a_full_disk_costs_the_entry(sizes, monkeypatch):
    def full(self, key, make):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(CacheStore, "_written", full)
        record = compiled_once(sizes[0])
    assert not record.from_disk and any("No space left" in each for each in record.cache_faults)
    assert not compiled_once(sizes[1]).from_disk
    assert compiled_once(sizes[2]).from_disk


def test_an_entry_that_goes_while_it_is_saved_is_left_out(folder, tmp_path, monkeypatch):
    compiled_once()
    held = list(size_limit.entries_under(folder))
    real = shutil.copytree

    def swept(place, own):
        if place == held[0].folder:
            shutil.rmtree(place)
        return real(place, own)

    monkeypatch.setattr(disk.shutil, "copytree", swept)
    assert disk.save(tmp_path / "cache.zip") == len(held) - 1
    assert disk.load(tmp_path / "cache.zip", tmp_path / "other") == len(held) - 1


def test_a_disk_that_is_full_while_a_file_is_taken_says_so(folder, tmp_path, monkeypatch):
    compiled_once()
    disk.save(tmp_path / "cache.zip")
    monkeypatch.setattr(CacheStore, "put", lambda self, key, files: "No space left on device")
    with pytest.raises(flambeau.Refused, match="cannot be kept: No space left on device"):
        disk.load(tmp_path / "cache.zip", tmp_path / "other")
    assert list((tmp_path / "other").glob(".new-*")) == []
