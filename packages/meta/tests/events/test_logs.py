import io
import logging
import os
import subprocess
import sys

import pytest
import torch

import flambeau
from flambeau.events import logs
from flambeau.events.bus import EVERYTHING, KernelsProduct
from flambeau.events.logs import Progress


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))


@pytest.fixture
def shown():
    stream = io.StringIO()
    yield stream
    flambeau.set_logs()


def work(x, w):
    return torch.relu(x @ w).sum()


def run():
    flambeau.compile(work)(torch.randn(4, 4), torch.randn(4, 4, requires_grad=True))


WORDS = {
    "graph": "opcode",
    "guards": "TENSOR_MATCH",
    "bytecode": "MODIFIED BYTECODE",
    "aot": "def joint(",
    "prims": "flambeau_prims.",
    "fusion": "joined",
    "code": "--- wrapper.py",
    "summary": "kernels",
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", WORDS)
def test_an_artifact_is_shown_and_no_other(shown, name):
    flambeau.set_logs(name, stream=shown)
    run()
    text = shown.getvalue()
    assert WORDS[name] in text
    layer = "flambeau" if name in logs.OWN else "flambeau_capture"
    others = {line.split("]")[0] for line in text.splitlines() if line.startswith("[flambeau")}
    assert others == {f"[{layer}.{name}"}


def test_several_at_once_and_then_none(shown):
    flambeau.set_logs("graph,aot,code", stream=shown)
    run()
    assert all(f".{name}]" in shown.getvalue() for name in ("graph", "aot", "code"))
    flambeau.set_logs()
    before = shown.getvalue()
    run()
    assert shown.getvalue() == before
    assert not list(EVERYTHING)


def test_what_runs_eagerly_is_shown(shown, monkeypatch):
    def planted(*given):
        raise NotImplementedError("planted")

    monkeypatch.setattr("flambeau_inductor.compile", planted)
    flambeau.set_logs("eager", stream=shown)
    with pytest.warns(flambeau.FlambeauWarning):
        run()
    assert "planted" in shown.getvalue() and "torch.relu" in shown.getvalue()


def test_an_unknown_name_is_told_with_the_known_ones():
    with pytest.raises(logs.UnknownArtifact, match="did you mean 'fusion'"):
        flambeau.set_logs("fusions")
    with pytest.raises(TypeError, match="logs are names"):
        flambeau.set_logs(3)


def test_a_handler_of_the_programs_own_takes_precedence(shown):
    own = io.StringIO()
    handler = logging.StreamHandler(own)
    root = logging.getLogger("flambeau")
    root.addHandler(handler)
    try:
        flambeau.set_logs("summary", stream=shown)
        run()
    finally:
        root.removeHandler(handler)
    assert "kernels" in own.getvalue() and shown.getvalue() == ""


PROGRAM = """
import torch, flambeau
flambeau.compile(lambda x: x.cos() + 1)(torch.ones(2))
"""


def test_the_variable_works_for_both_layers():
    environment = {**os.environ, "FLAMBEAU_LOGS": "graph,summary"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    assert "[flambeau_capture.graph]" in done.stderr
    assert "[flambeau.summary]" in done.stderr


def test_progress_is_one_line_that_goes_away():
    out = io.StringIO()
    line = Progress(out, patience=0.0)
    EVERYTHING.add(line)
    try:
        run()
    finally:
        EVERYTHING.remove(line)
    text = out.getvalue()
    assert line.lines > 3 and "1 kernel built" in text and "\n" not in text
    assert text.endswith("\r")


def test_progress_is_patient():
    out = io.StringIO()
    line = Progress(out, patience=1000.0)
    line("kernels", KernelsProduct("g", "forward", None, 0.0), 0)
    line("frame", None, 0)
    assert out.getvalue() == "" and line.lines == 0
