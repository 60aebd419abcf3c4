"""A guard is left out; scripts come out of two calls and a line or two."""

import subprocess
import sys
import warnings

import pytest
import torch
from flambeau_capture.guards.guardset import Guards, GuardSet

import flambeau
from flambeau.repro import RecordedCall, write_calls
from flambeau.repro.function_text import CannotWrite, function_of, text_of
from flambeau.repro.stale import shorten, stale, state_of

OFFSET = 1.0


def longer(x, count):
    return x * count + 1


def scaled(x, word, other):
    y = torch.sin(x) + other
    for step in range(3):
        y = torch.relu(y) - step
    if len(word) > 1:
        z = longer(y, len(word))
    else:
        z = y * 0.5
    return torch.softmax(z, -1), z.sum()


def shifted(x):
    y = torch.tanh(x)
    return torch.relu(y) * 2 + OFFSET


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        torch.nn.init.eye_(self.inner.weight)  # drawn ones may leave nothing of relu to scale
        torch.nn.init.ones_(self.inner.bias)
        self.factor = 1.0

    def forward(self, x):
        return torch.relu(self.inner(x)) * self.factor


class Counting(Scaled):
    def forward(self, x):
        self.calls = getattr(self, "calls", 0) + 1
        return super().forward(x)


@pytest.fixture
def forgotten(monkeypatch):
    """Guards of a place are left out."""

    def plant(place):
        def finish(self):
            kept = (guard for guard in self._ordered if f"'{place}'" not in str(guard))
            return Guards(tuple(kept), self.code)

        monkeypatch.setattr(GuardSet, "finish", finish)

    return plant


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("FLAMBEAU_REPRO_AFTER", "capture")
    monkeypatch.setenv("FLAMBEAU_REPRO_LEVEL", "4")
    monkeypatch.setenv("FLAMBEAU_REPRO_DIR", str(tmp_path / "repro"))
    return tmp_path / "repro"


def x():
    return torch.randn(2, 3, generator=torch.Generator().manual_seed(1))


def run(script, planted=""):
    text = script.read_text().replace("import sys\n", f"import sys\n{planted}", 1)
    script.write_text(text)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


PLANTED = """
from flambeau_capture.guards.guardset import Guards, GuardSet
GuardSet.finish = lambda s: Guards(tuple(g for g in s._ordered if "'{}'" not in str(g)), s.code)
"""


def test_a_missing_guard_becomes_a_script_while_the_program_runs(folder, forgotten):
    forgotten("word")
    compiled = flambeau.compile(scaled)
    with pytest.warns(flambeau.FlambeauWarning, match="compiled for another"):
        for word in ("a", "b", "dd"):
            compiled(x(), word, torch.ones(3))
    (script,) = folder.glob("*.py")
    text = script.read_text()
    definition = text[text.index("def scaled") : text.index("CALLS")].strip()
    assert definition.count("\n") <= 2 and "len(word)" in definition
    assert text.count("    RecordedCall(") == 2 and "'dd'" in text and "other)" not in definition
    assert flambeau.report(compiled).graphs == 1


def test_the_script_fails_alone_and_passes_when_the_guard_is_there(folder, forgotten):
    forgotten("word")
    calls = [RecordedCall((x(), word, torch.ones(3))) for word in ("a", "b", "c", "dd")]
    script = write_calls(folder / "planted.py", scaled, calls)
    assert script.operations <= 2 and not script.saved
    code, said = run(script.path)
    assert (code, said.strip()) == (0, "it does not fail any more")
    code, said = run(script.path, PLANTED.format("word"))
    assert code == 1 and said.startswith("stale: ")


def test_what_changes_around_a_function(folder, forgotten, monkeypatch):
    forgotten("OFFSET")
    compiled = flambeau.compile(shifted, backend="eager")
    compiled(x())
    monkeypatch.setitem(globals(), "OFFSET", 5.0)
    with pytest.warns(flambeau.FlambeauWarning, match="compiled for another"):
        compiled(x())
    assert OFFSET == 5.0
    (script,) = folder.glob("*.py")
    assert "state={'OFFSET': 1.0}" in script.read_text()
    assert run(script, PLANTED.format("OFFSET"))[0] == 1


def test_what_changes_in_a_module(folder, forgotten):
    forgotten("self.factor")
    module = Scaled()
    compiled = flambeau.compile(module, backend="eager")
    compiled(x())
    module.factor = 2.0
    with pytest.warns(flambeau.FlambeauWarning, match="compiled for another"):
        compiled(x())
    assert module.factor == 2.0
    (script,) = folder.glob("*.py")
    text = script.read_text()
    assert "MODULE_0 = torch.nn.Module()" in text and "'0.factor': 2.0" in text
    assert run(script, PLANTED.format("self.factor"))[0] == 1


def test_nothing_is_said_of_guards_that_are_there(folder):
    module = Scaled()
    compiled = flambeau.compile(module, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error", flambeau.FlambeauWarning)
        for factor in (1.0, 2.0, 3.0):
            module.factor = factor
            torch.testing.assert_close(compiled(x()), module(x()))
    assert not folder.exists() or not list(folder.glob("*.py"))


def test_what_writes_is_not_run_twice(folder):
    module = Counting()
    compiled = flambeau.compile(module, backend="eager")
    with pytest.warns(flambeau.FlambeauWarning, match="not run twice"):
        for _ in range(4):
            compiled(x())
    assert module.calls == 4


def test_a_call_that_is_wrong_alone_is_no_guard(forgotten):
    function = text_of(scaled).function()
    right = [RecordedCall((x(), word, torch.ones(3))) for word in ("a", "dd")]
    assert stale(function, right) is None
    assert shorten(text_of(scaled), right) is None
    assert write_calls(None, scaled, right) is None


def test_lambdas_and_closures_have_texts():
    factor = 3

    def inner(x):
        return x * factor

    text = text_of(lambda x: inner(x) + 1)
    assert text.name == "function" and text.constants == {"factor": 3}
    assert torch.equal(text.function()(torch.ones(2)), torch.full((2,), 4.0))


def test_what_has_no_text_is_said():
    class Own:
        pass

    own = Own()

    def reads(x):
        return x, own

    with pytest.raises(CannotWrite, match="own is a Own"):
        text_of(reads)
    with pytest.raises(CannotWrite, match="no Python function"):
        function_of(len)


def test_the_state_of_modules_by_place():
    module = Scaled()
    text = text_of(function_of(module)[0])
    found = state_of(text, (module, x()))
    assert found["0.factor"] == 1.0 and found["0.inner.in_features"] == 3
