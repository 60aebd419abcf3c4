import json

import pytest
import torch

import flambeau
from flambeau.planning import PRIOR, Sample, fit, keep_samples, known_samples, memory_of, plan


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "cache"))


def law(operations, training):
    return 0.3 + 0.01 * operations + (0.02 * operations if training else 0.0)


def samples():
    sizes = (1, 3, 10, 30, 100)
    return [Sample(n, t, law(n, t)) for n in sizes for t in (False, True)]


def test_the_fit_finds_the_law_and_says_its_error():
    model = fit(samples())
    assert model.seconds(50, False) == pytest.approx(law(50, False), rel=0.1)
    assert model.seconds(50, True) == pytest.approx(law(50, True), rel=0.1)
    assert model.error < 0.1
    assert min(model.coefficients) >= 0


def test_an_error_that_is_there_is_told():
    noisy = [Sample(s.operations, s.training, s.seconds * (4 if i % 3 else 1))
             for i, s in enumerate(samples())]  # fmt: skip
    assert fit(noisy).error > 0.3


def test_without_samples_it_is_the_prior_and_says_so():
    model = fit(samples()[:3])
    assert model.coefficients == PRIOR and model.error is None


def test_samples_are_kept_from_one_process_to_the_next(tmp_path):
    assert known_samples(str(tmp_path)) == []
    assert keep_samples(samples(), str(tmp_path))
    assert known_samples(str(tmp_path)) == samples()


def toy(x, w):
    y = torch.relu(x @ w)
    flambeau.graph_break()
    return (y * 2).sum()


def test_a_plan_compiles_nothing_and_counts_graphs_and_breaks(monkeypatch):
    def planted(*given):
        raise AssertionError("something was compiled")

    monkeypatch.setattr("flambeau_inductor.compile", planted)
    monkeypatch.setattr("flambeau_aot.compile", planted)
    x, w = torch.randn(8, 16), torch.randn(16, 4, requires_grad=True)
    found = plan(toy, x, w)
    assert [graph.operations for graph in found.graphs] == [2, 2]
    assert all(graph.training for graph in found.graphs)
    assert "FB0006" in found.breaks[0] and "try:" in found.breaks[0]
    assert found.seconds > found.capture_seconds > 0
    assert torch.equal(found.result, toy(x, w))
    assert "not calibrated" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["seconds"] == found.seconds
    with torch.no_grad():
        assert not plan(toy, x, w).graphs[0].training


def test_memory_is_that_of_the_values_that_live_at_once():
    def three(x):
        return ((x + 1) * 2).sin()

    (graph,) = plan(three, torch.ones(1000)).graphs
    assert graph.memory.held == 4000
    assert graph.memory.peak == 8000  # one value read, one written
    (training,) = plan(three, torch.ones(1000, requires_grad=True)).graphs
    assert training.memory.kept == 12000


def test_memory_bounds_what_the_ahead_of_time_pass_finds():
    seen = []

    def backend(gm, inputs):
        import flambeau_aot

        compiled = flambeau_aot.compile(gm, inputs, flambeau_aot.run_as_is)
        seen.append((memory_of(gm, True), compiled.report))
        return compiled

    x, w = torch.randn(64, 64), torch.randn(64, 64, requires_grad=True)
    flambeau.compile(lambda x, w: torch.tanh(x @ w).sum(), backend=backend)(x, w)
    ((memory, report),) = seen
    assert 0 < report.saved_bytes <= memory.kept + memory.held


def test_calibrating_measures_this_machine():
    model = flambeau.calibrate(lengths=(2, 5))
    assert model.samples >= 4 and model.error is not None
    found = plan(lambda x, w: torch.relu(x @ w), torch.randn(4, 4), torch.randn(4, 4))
    assert found.samples >= model.samples
    assert "give or take" in str(found)
