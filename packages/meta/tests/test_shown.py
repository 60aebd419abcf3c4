"""What public values show at a prompt and in a notebook: the text that `print` prints."""

import html

import pytest
import torch
from flambeau_capture.api import compiler_of
from flambeau_capture.frame.timing_trials import TrialVerdict

import flambeau
from flambeau.events.stats import FunctionStats, Stats
from flambeau.shown import as_table, counted


def wave(x):
    return (x.sin() + 1).sum()


@pytest.fixture(scope="module")
def compiled():
    made = flambeau.compile(wave, backend="eager")
    made(torch.randn(4))
    return made


VALUES = {
    "report": lambda f: flambeau.report(f),
    "explanation": lambda f: flambeau.explain(f)(torch.randn(4)),
    "plan": lambda f: flambeau.plan(wave, torch.randn(4)),
    "times": lambda f: flambeau.compile_times(f),
    "stats": lambda f: flambeau.stats(f),
    "explainer": lambda f: flambeau.explain(wave),
    "exported": lambda f: flambeau.export(wave, torch.randn(4)),
    "verdict": lambda f: flambeau.bisect(wave, (torch.randn(4),)),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_shows_what_print_prints(compiled, name):
    value = VALUES[name](compiled)
    assert repr(value) == str(value) != ""
    start, _, text = value._repr_html_().partition(">")
    assert text == f"{html.escape(str(value))}</pre>"
    assert start.startswith("<pre ") and "white-space: pre;" in start  # no line is wrapped
    assert not str(value).startswith(type(value).__name__ + "(")


def test_a_compiled_function_shows_what_it_was_made_of(compiled):
    assert repr(compiled) == f"<compiled {wave!r}>"
    assert repr(flambeau.disable(wave)) == f"<disabled {wave!r}>"


def test_numbers_and_columns():
    assert (counted(1, "graph"), counted(0, "graph")) == ("1 graph", "0 graphs")
    assert as_table([["a", "n"], ["long", "1"]]) == "a     n\nlong  1"


class Wave(torch.nn.Module):
    def forward(self, x):
        return wave(x)


def made_in_place(module):
    module.compile(backend="eager")
    return module


WAYS = {
    "flambeau.compile": lambda module: flambeau.compile(module, backend="eager"),
    "torch.compile": lambda module: torch.compile(module, backend="eager"),
    "Module.compile": made_in_place,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_module_is_named_by_its_class_however_it_was_compiled(way):
    flambeau.install()
    try:
        made = WAYS[way](Wave())
    finally:
        flambeau.uninstall()
    made(torch.randn(4))
    (row,) = flambeau.stats(made)
    assert (row.function, row.calls) == ("Wave", 1)
    assert flambeau.report(made).graphs == 1 and flambeau.compile_times(made)
    found = flambeau.explain(made)(torch.randn(4))
    assert len(found.graphs) == 1


def test_stats_count_calls_and_what_runs_compiled():
    made = flambeau.compile(wave, backend="eager")
    for size in (3, 3, 3, 1):
        made(torch.randn(size))
    (row,) = flambeau.stats(made)
    assert (row.function, row.calls, row.compiled, row.compilations) == ("wave", 4, 2, 2)
    assert row.checks_failed == 1 and row.seconds > 0
    assert row.timed_lookups == 2 and 0 < row.guard_seconds and 0 < row.guard_microseconds
    assert row.measured_frames == 0 and str(flambeau.stats(made)).split()[-1] == "-"
    assert "wave" in {each.function for each in flambeau.stats()}
    with pytest.raises(TypeError, match="not something that"):
        flambeau.stats(wave)


def test_stats_say_what_was_saved_since_a_trial():
    made = flambeau.compile(wave, backend="eager")
    made(torch.randn(3))
    made(torch.randn(1))
    entries = compiler_of(made).cache.entries(wave.__code__)
    for entry, slower in zip(entries, (True, False), strict=True):  # the last hit is first
        entry.verdict = (TrialVerdict("wave", 1e-3, 3e-3, slower), entry.hits)
    for size in (3, 1, 3, 3):
        made(torch.randn(size))
    (row,) = flambeau.stats(made)
    assert (row.saved_seconds, row.measured_frames) == (pytest.approx(3 * 2e-3), 4)
    assert str(flambeau.stats(made)).endswith("0.01 in 4")


def test_the_text_for_prometheus():
    row = FunctionStats('a"b\\', 3, 2, 1, 0, 1, 0, 0, 0, 0, 0.5, 0.25, 2, -1.5, 2)
    text = Stats((row,)).to_prometheus()
    lines = text.splitlines()
    assert lines[:2] == [
        "# TYPE flambeau_calls_total counter",
        'flambeau_calls_total{function="a\\"b\\\\"} 3',
    ]
    assert 'flambeau_compile_seconds_total{function="a\\"b\\\\"} 0.5' in lines
    assert "# TYPE flambeau_saved_seconds gauge" in lines
    assert 'flambeau_saved_seconds{function="a\\"b\\\\"} -1.5' in lines
    assert 'flambeau_guard_seconds_total{function="a\\"b\\\\"} 0.25' in lines
    assert sum(line.startswith("# TYPE") for line in lines) == 14


def test_an_explanation_is_text_in_a_notebook_too(compiled, monkeypatch):
    plain = str(flambeau.explain(compiled))
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert str(flambeau.explain(compiled)) == plain != ""
