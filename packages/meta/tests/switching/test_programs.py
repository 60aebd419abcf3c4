"""Programs that call `torch.compile` run on Flambeau as they are, and give what eager gives."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

#: none of them knows of Flambeau; `COMPILES` is whether torch.compile does anything
PROGRAMS = sorted(Path(__file__).with_name("published").rglob("*.py"), key=lambda path: path.name)
#: runs each program named on standard input in a fork, eagerly or by `python -m flambeau run`
STARTER = """
import atexit, io, json, os, sys, traceback
import torch, flambeau
from flambeau.__main__ import main
threads = torch.get_num_threads()
torch.set_num_threads(1)  # a process with threads of its own cannot be forked safely
flambeau.compile(lambda x: x.sin() + 1)(torch.ones(3, requires_grad=True)).sum().backward()
for line in sys.stdin:
    kind, program = line.strip().split(" ", 1)
    child = os.fork()
    if child == 0:
        out = os.open(f"{program}.{kind}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0), os.dup2(out, 1), os.dup2(out, 2)
        torch.set_num_threads(threads)
        import builtins
        builtins.COMPILES = kind == "compiled"
        code = 1
        try:
            if kind == "eager":
                os.environ["TORCH_COMPILE_DISABLE"] = "1"
            code = main(["run", program])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        report = flambeau.report()
        done = {
            "code": code or 0, "guards": report.guards, "faults": list(map(str, report.faults)),
        }
        print("REPORT", json.dumps(done))
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def starter(tmp_path_factory):
    cache = str(tmp_path_factory.mktemp("cache"))
    env = {**os.environ, "FLAMBEAU_CACHE_DIR": cache, "FLAMBEAU_FAULTS": "raise"}
    command = [sys.executable, "-c", STARTER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": env}
    with subprocess.Popen(command, **pipes) as process:
        yield process
        process.stdin.close()


def outcome(starter, program, kind):
    starter.stdin.write(f"{kind} {program}\n")
    starter.stdin.flush()
    ended = starter.stdout.readline().strip()
    text = (program.parent / f"{program.name}.{kind}").read_text()
    assert ended == "0" and "REPORT" in text, text
    printed, _, report = text.rpartition("REPORT ")
    report = json.loads(report)
    assert report["code"] == 0, text
    return printed, report


NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")


def words_and_numbers(text):
    return NUMBER.sub("#", text), [float(each) for each in NUMBER.findall(text)]


@pytest.mark.sweep(6)
@pytest.mark.parametrize("source", PROGRAMS, ids=lambda path: path.stem)
def test_a_published_program_gives_what_eager_gives(source, starter, tmp_path):
    program = Path(shutil.copy(source, tmp_path))
    eager, without = outcome(starter, program, "eager")
    compiled, within = outcome(starter, program, "compiled")
    words, numbers = words_and_numbers(eager)
    own_words, own_numbers = words_and_numbers(compiled)
    assert own_words == words
    assert own_numbers == pytest.approx(numbers, rel=1e-4, abs=1e-5)
    assert without["guards"] == 0
    assert within["guards"] > 0
    assert within["faults"] == []
