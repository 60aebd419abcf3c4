"""A trace holds every stage of every graph, from every thread and process."""

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
import torch

import flambeau
from flambeau.events.bus import EVERYTHING


@pytest.fixture(scope="module")
def traced(tmp_path_factory, programs):
    folder = tmp_path_factory.mktemp("trace")
    with flambeau.trace(folder):
        programs.run()
    return folder


def events_of(folder):
    found = []
    for place in sorted(Path(folder).glob("*/events.jsonl")):
        found += [json.loads(line) for line in place.read_text().splitlines()]
    return found


def test_each_kind_of_event_is_there(traced):
    kinds = Counter(event["kind"] for event in events_of(traced))
    # a second number of rows: one entry for it, or one for any number from then on
    assert kinds["graph"] == kinds["entry"] == kinds["frame"] == kinds["aot"] >= 3
    assert kinds["half"] == kinds["kernels"] == 2 * kinds["graph"]
    assert kinds["break"] >= 1 and kinds["recompile"] >= 1 and kinds["end"] == 1


def test_every_artefact_that_is_named_is_there(traced):
    (part,) = (place.parent for place in traced.glob("*/process.json"))
    names = [path for event in events_of(traced) for path in event.get("files", {}).values()]
    assert len(names) > 50
    assert all((part / path).is_file() for path in names)
    assert any(path.endswith(".svg") for path in names)
    assert any(path.endswith("kernels.cpp") for path in names)


def test_breaks_and_recompiles_say_where_and_why(traced):
    events = events_of(traced)
    broken = next(event for event in events if event["kind"] == "break")
    assert broken["id"] == "FB0001" and "if b.sum() < 0:" in broken["lines"][-1]
    again = next(event for event in events if event["kind"] == "recompile")
    assert "(30, 10)" in again["failures"][0]["expected"]
    assert "(20, 10)" in again["failures"][0]["got"]


def test_kernels_have_times_and_there_is_a_roof(traced):
    halves = [event for event in events_of(traced) if event["kind"] == "half"]
    kernels = [
        step for half in halves for step in half["facts"]["steps"] if step["kind"] == "kernel"
    ]
    assert kernels and any(step["seconds"] for step in kernels)
    assert all(step["seconds"] is None or step["seconds"] > 0 for step in kernels)
    assert any((half["roof"] or 0) > 1e8 for half in halves)


def test_nothing_listens_afterwards(traced):
    assert not list(EVERYTHING)


def test_a_graph_that_runs_eagerly_is_an_event(tmp_path):
    def planted(gm, inputs, info=None, options=None):
        raise NotImplementedError("planted")

    import flambeau_inductor

    before = flambeau_inductor.compile
    flambeau_inductor.compile = planted
    try:
        with flambeau.trace(tmp_path), pytest.warns(flambeau.FlambeauWarning):
            flambeau.compile(lambda x: x.sin())(torch.ones(3))
    finally:
        flambeau_inductor.compile = before
    (event,) = (event for event in events_of(tmp_path) if event["kind"] == "fallback")
    assert event["stage"] == "inductor" and "x.sin()" in event["lines"]


def test_threads_write_whole_lines(tmp_path):
    def work(number):
        scope = {"torch": torch}
        exec(f"def fn{number}(x):\n    return torch.sin(x) * {number}", scope)
        flambeau.compile(scope[f"fn{number}"], backend="eager")(torch.ones(4))

    with flambeau.trace(tmp_path):
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    events = events_of(tmp_path)
    assert len({event["owner"] for event in events if event["kind"] == "graph"}) == 8
    assert len({event["thread"] for event in events if event["kind"] == "graph"}) >= 2


PROGRAM = """
import os, sys, torch, flambeau
fn = flambeau.compile(lambda x: x.cos() + 1, backend="eager")
fn(torch.ones(2))
if os.fork() == 0:
    flambeau.compile(lambda x: x.sin(), backend="eager")(torch.ones(2))
    os._exit(0)
os.wait()
os.kill(os.getpid(), 9)
"""


def test_the_variable_traces_every_process_even_one_that_is_killed(tmp_path):
    environment = {**os.environ, "FLAMBEAU_TRACE": str(tmp_path), "RANK": "3"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=False)
    assert done.returncode == -9
    parts = sorted(tmp_path.iterdir())
    assert len(parts) == 2 and all(part.name.startswith("rank3-") for part in parts)
    assert Counter(event["kind"] for event in events_of(tmp_path))["graph"] == 2


def test_a_folder_that_cannot_be_written_is_one_warning(tmp_path):
    place = tmp_path / "file"
    place.write_text("")
    with flambeau.trace(place / "inside"), pytest.warns(flambeau.FlambeauWarning) as told:
        result = flambeau.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    assert torch.equal(result, torch.full((2,), 2.0))
    assert len(told) == 1


def test_a_process_group_names_the_rank(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 3)
    with flambeau.trace(tmp_path):
        flambeau.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    (part,) = tmp_path.iterdir()
    assert part.name.startswith("rank3-")
    assert json.loads((part / "process.json").read_text())["rank"] == "3"
