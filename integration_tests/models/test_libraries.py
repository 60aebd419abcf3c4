"""Workloads of libraries: how they are judged; `python -m integration_tests.libraries` has all."""

import faulthandler
import itertools
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from packaging.utils import canonicalize_name

import flambeau
from integration_tests.libraries import judging, running, tables
from integration_tests.libraries.judging import judge
from integration_tests.libraries.workload import WORKLOADS, Program, Workload, load

PINNED = Path(__file__).parents[1] / "libraries" / "requirements.txt"
CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"


def stepping(forward):
    """A workload that trains a linear layer, of which `forward` is compiled."""

    def build(compile):
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        compiled = compile(lambda x: forward(model, x))

        def step():
            optimizer.zero_grad()
            loss = compiled(torch.randn(4, 3)).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return Program(step, model, optimizer)

    return Workload("planted", ("torch",), build)


def lying(model, x):
    return model(x) + 1e-3 if torch.compiler.is_compiling() else model(x)


def breaking(model, x):
    return model(x) if x.sum() > 0 else -model(x)


def failing(model, x):
    if torch.compiler.is_compiling():
        raise ValueError("planted")
    return model(x)


#: calls of what gives another answer each time
CALLS = itertools.count()


def unseeded(model, x):
    return model(x) + 2.0 ** next(CALLS)


STATUSES = {
    "right": lambda model, x: model(x).tanh(),
    "wrong": lying,
    "breaks": breaking,
    "crashed": failing,
    "not run": unseeded,
}


def judged():
    """The row of each, as lines; run in a process where nothing else has compiled."""
    judging.CALM_SECONDS = 0.0
    for make in STATUSES.values():
        flambeau.reset()
        print(json.dumps(judge(stepping(make))))


def test_what_a_workload_is_judged(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", f"from {__name__} import judged; judged()"]
    environment = os.environ | {"FLAMBEAU_CACHE_DIR": str(tmp_path)}
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["status"] for row in rows] == list(STATUSES), rows
    assert {row["versions"]["torch"] for row in rows} == {torch.__version__}


def test_steps_are_timed_once_nothing_is_compiled_or_decided(monkeypatch):
    known = itertools.chain([(1, 0), (1, 0), (2, 0), (2, 1)], itertools.repeat((2, 1)))
    blocks = []

    def block(eager, ours, seed, steps):
        blocks.append((seed, steps))
        return 2.0 * steps, 1.0 * steps

    monkeypatch.setattr(judging, "_decided", lambda: next(known))
    monkeypatch.setattr(judging, "_block", block)
    monkeypatch.setattr(judging, "CALM_STEPS", 10 * judging.BLOCK)
    row = judging._steady(None, None)
    assert row == {"eager_ms": 2000.0, "ms": 1000.0, "graphs_end": 2}
    steps = [steps for _, steps in blocks]
    assert steps == [judging.BLOCK] * (3 + 10) + [1] * judging.STEADY_ROUNDS
    begun = list(itertools.accumulate(steps, initial=judging.STEPS))
    assert [seed for seed, _ in blocks] == begun[:-1]


def test_a_library_that_is_absent():
    def build(compile):
        import no_such_library  # noqa: F401

    assert judge(Workload("planted", (), build))["status"] == "not installed"


@pytest.mark.parametrize(
    ("ending", "status"), [(lambda: os._exit(3), "crashed"), (lambda: time.sleep(60), "timeout")]
)
def test_a_process_that_dies_or_does_not_end_is_a_row(ending, status, monkeypatch):
    monkeypatch.setitem(WORKLOADS, "planted", Workload("planted", (), lambda compile: ending()))
    faulthandler.cancel_dump_traceback_later()  # pytest's: a forked process would wait for it
    row = running._row("planted", 6.0 if status == "timeout" else 60.0, None)
    assert row["status"] == status
    assert tables.line({"name": "planted", "seconds": 1.0, **row}).startswith("planted")
    if status == "timeout":
        assert "sleep" in row["detail"] or "lambda" in row["detail"]  # where it was


def test_every_library_is_pinned():
    text = PINNED.read_text() + CONSTRAINTS.read_text()
    pinned = {canonicalize_name(name) for name in re.findall(r"^([\w.-]+)==", text, re.M)}
    wanted = {name for workload in load().values() for name in workload.distributions}
    assert {canonicalize_name(name) for name in wanted} <= pinned


def test_there_are_a_hundred_programs_of_sixty_libraries():
    found = load().values()
    assert len(found) >= 100
    assert len({name for workload in found for name in workload.distributions}) >= 60


def test_the_table_counts_every_row_once():
    rows = [
        {"name": status, "status": status, "seconds": 1.0, "versions": {"torch": "2"}}
        for status in tables.STATUSES
    ]
    measured = {"ms": 2.0, "eager_ms": 1.0, "graphs": 1, "graphs_3": 2, "graphs_end": 2}
    rows[0] |= measured | {"first_s": 1.0, "eager_first_s": 0.1}
    rows[1] |= {"break_texts": ["FB0001 a | b"], "breaks": {"FB0001": 1}}
    theirs = {"status": "ran", "graphs": 1, "graphs_3": 1, "breaks": {"branch": 2}}
    text = tables.markdown(rows, "command", {rows[0]["name"]: theirs})
    assert "more graphs than it in 1, fewer in 0; more breaks in 0" in text and "1+0, 2x" in text
    assert "1 of 1 slower" in text and "| right |" in text and "1+1+0" in text
    assert all(f"1 {status}" in text for status in tables.STATUSES)
    assert "FB0001 a / b" in text
