"""Files that packages, exports and carried caches are kept in: killed writers, a full disk."""

import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flambeau import Refused
from flambeau.packaging import archive

# imports once: a line with a number starts a writer and says its process, a line with a process
# waits for its end and says how it ended
WRITERS = """
import os, sys
from pathlib import Path
from flambeau.packaging import archive

def write(number, parent):
    while os.getppid() == parent:
        number += 1
        content = str(number % 10).encode() * 150_000
        files = {f"part{k}": content for k in range(4)}
        archive.write(Path(sys.argv[1]), "package", {"n": number}, files)

for line in sys.stdin:
    what, number = line.split()
    if what == "end":
        print(os.waitstatus_to_exitcode(os.waitpid(int(number), 0)[1]), flush=True)
        continue
    parent, child = os.getpid(), os.fork()
    if child == 0:
        write(int(number), parent)
        break
    print(child, flush=True)
"""


@pytest.fixture
def writers(tmp_path):
    """A function that says two words to the process of writers, and what it answers."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", WRITERS, str(tmp_path / "x.flambeau")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=env, **pipes) as process:

        def say(what, number):
            process.stdin.write(f"{what} {number}\n")
            process.stdin.flush()
            return int(process.stdout.readline())

        yield say
        process.stdin.close()


def whole(path, folder):
    """All parts of the file are of one writing."""
    folder.mkdir()
    facts = archive.unpack(path, "package", folder)
    parts = {each.read_bytes() for each in folder.iterdir()}
    return parts == {str(facts["n"] % 10).encode() * 150_000}


def test_killed_at_any_moment_the_file_is_whole(tmp_path, writers):
    path, draw = tmp_path / "x.flambeau", random.Random(0)
    running = []
    for number in range(10):
        running.append(writers("start", number))
        if len(running) == 2:
            time.sleep(draw.random() * 0.05)
            victim = running.pop(draw.randrange(2))
            os.kill(victim, signal.SIGKILL)
            assert writers("end", victim) == -signal.SIGKILL
        deadline = time.monotonic() + 30
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert whole(path, tmp_path / str(number))
    for each in running:
        os.kill(each, signal.SIGKILL)
        writers("end", each)


def test_a_full_disk_leaves_what_was_there(tmp_path):
    resource = pytest.importorskip("resource")
    path = tmp_path / "x.flambeau"
    archive.write(path, "package", {"n": 1}, {"part": b"old"})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(OSError) as caught:
            archive.write(path, "package", {"n": 2}, {"part": os.urandom(400_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.errno == errno.EFBIG
    assert [each.name for each in tmp_path.iterdir()] == ["x.flambeau"]
    (tmp_path / "out").mkdir()
    assert archive.unpack(path, "package", tmp_path / "out") == {"n": 1}


@pytest.mark.parametrize("name", ["../part", "/part", ".part", "a/b"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path, name):
    path, out = tmp_path / "x.flambeau", tmp_path / "out"
    archive.write(path, "package", {}, {name: b"x"})
    out.mkdir()
    with pytest.raises(Refused, match="not a plain file name"):
        archive.unpack(path, "package", out)
    assert list(out.iterdir()) == [] and not (tmp_path / "part").exists()


def test_every_byte_counts(tmp_path):
    """A file with one byte changed anywhere is refused, or holds what it held."""
    path, draw = tmp_path / "x.flambeau", random.Random(1)
    files = {"one": b"abc" * 40, "two": bytes(range(100))}
    archive.write(path, "package", {"n": 1}, files)
    good, refused = path.read_bytes(), 0
    for number in range(200):
        place = draw.randrange(len(good))
        path.write_bytes(good[:place] + bytes([good[place] ^ (1 + draw.randrange(255))])
                         + good[place + 1 :])  # fmt: skip
        out = tmp_path / str(number)
        out.mkdir()
        try:
            archive.unpack(path, "package", out)
        except Refused:
            refused += 1
        else:
            assert {each.name: each.read_bytes() for each in out.iterdir()} == files
    assert refused > 100
    for length in range(0, len(good), 37):
        path.write_bytes(good[:length])
        with pytest.raises(Refused):
            archive.unpack(path, "package", Path(tmp_path / "out"))
