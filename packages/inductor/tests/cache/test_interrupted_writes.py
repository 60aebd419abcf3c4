"""Processes that are killed while they write, many that write at once, and a disk that is full."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from flambeau_inductor.cache import CacheStore, intact, key, size_limit

# imports no torch, so that many can be started and killed in a second
WRITER = """
import importlib.util, os, sys, types
source = sys.argv[1]
for name in ("flambeau_inductor", "flambeau_inductor.cache"):
    module = types.ModuleType(name)
    module.__path__ = [source if name == "flambeau_inductor" else source + "/cache"]
    sys.modules[name] = module
options = types.ModuleType("flambeau_inductor.options")
options.CACHE_DIR = "FLAMBEAU_CACHE_DIR"
sys.modules["flambeau_inductor.options"] = options
from pathlib import Path
from flambeau_inductor.cache.environment_key import key
from flambeau_inductor.cache.store import CacheStore
store, number = CacheStore(Path(sys.argv[2]), limit=400_000), int(sys.argv[3])
print("ready", flush=True)
parent = os.getppid()
while os.getppid() == parent:
    number += 1
    wanted = key("kernels", n=str(number % 40))
    content = (str(number % 40) * 20_000).encode()[:20_000]
    def make(folder):
        for part in range(4):
            (folder / f"part{part}").write_bytes(content)
    entry = store.entry(wanted, make)
    found = (entry.folder / "part3")
    if found.exists() and found.read_bytes() != content:
        print("wrong", flush=True)
        sys.exit(3)
"""


def start(folder: Path, number: int) -> subprocess.Popen[str]:
    source = str(Path(size_limit.__file__).parents[1])
    command = [sys.executable, "-S", "-c", WRITER, source, str(folder), str(number)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)


def test_killed_at_any_moment_no_entry_is_half(tmp_path: Path):
    """Writers are killed at random moments while others go on; whatever is there, is whole."""
    draw, running = random.Random(0), []
    for round_ in range(24):
        running.append(start(tmp_path, round_ * 7))
        assert running[-1].stdout is not None
        assert running[-1].stdout.readline() == "ready\n"
        if len(running) == 3:
            time.sleep(draw.random() * 0.03)
            victim = running.pop(draw.randrange(3))
            victim.send_signal(signal.SIGKILL)
            assert victim.wait() == -signal.SIGKILL
        places = [p.parent for p in tmp_path.glob("kernels/??/*/key.json")]
        whole = [intact(place) for place in places]
        # one that a living process sweeps away between our two looks is not half
        assert all(w or not p.exists() for w, p in zip(whole, places, strict=True))
    for each in running:
        each.kill()
        each.wait()
    held = [each.folder for each in size_limit.entries_under(tmp_path)]
    assert held and all(map(intact, held))
    assert CacheStore(tmp_path).entry(key("kernels", n="new"), lambda f: None).hit is False
    for path in tmp_path.glob(".new-*"):
        os.utime(path, (0, 0))
    size_limit.sweep(tmp_path, 1 << 30)
    assert list(tmp_path.glob(".new-*")) == []


FULL = """
import resource, signal, sys, warnings
import flambeau_inductor, flambeau_prims, torch
from torch import fx
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
x = torch.randn(31, 47)
graph = flambeau_prims.lower(fx.symbolic_trace(lambda x: torch.tanh(x).sum(1)), [x])
from flambeau_inductor.cache import store
real = store.tempfile.mkdtemp
def mkdtemp(prefix="", dir=None):
    if dir is not None and str(dir).startswith(sys.argv[1]):
        raise OSError(28, "No space left on device")
    return real(prefix=prefix, dir=dir)
store.tempfile.mkdtemp = mkdtemp
run = flambeau_inductor.compile(graph, [x])
torch.testing.assert_close(run([x])[0], torch.tanh(x).sum(1))
assert run.report.cache_faults == ("No space left on device",), run.report.cache_faults
assert "not kept on the disk: No space left on device" in str(run.report)
"""


def test_a_full_disk_costs_the_entry_not_the_compile(tmp_path: Path):
    env = {**os.environ, "FLAMBEAU_CACHE_DIR": str(tmp_path / "cache")}
    env["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    command = [sys.executable, "-c", FULL, str(tmp_path / "cache")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_write_that_fails_halfway(tmp_path: Path):
    """Once the limit of a file's size is met, as a quota or a full disk would stop a write."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    store = CacheStore(tmp_path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        fault = store.put(key("graphs", n="1"), {"small": b"x", "large": b"y" * 200_000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert fault == os.strerror(errno.EFBIG)
    assert store.find(key("graphs", n="1")) is None and list(tmp_path.glob(".new-*")) == []
    assert store.put(key("graphs", n="1"), {"small": b"x", "large": b"y" * 200_000}) == ""
    assert store.find(key("graphs", n="1")) is not None
