"""The fastest backend is found, kept, and never slower than eager."""

import os
import subprocess
import sys
import time

import pytest
import torch

import flambeau
from flambeau.backends.autotune import EAGER, race


def work(x):
    return torch.softmax(torch.sin(x) * 2, -1).sum(0)


def slow(gm, inputs):
    def run(*given):
        time.sleep(0.01)
        return gm(*given)

    return run


def quick(gm, inputs):
    """Knows the answers of the inputs that it has seen: fast, and right for those."""
    known = []

    def run(*given):
        for seen, result in known:
            if all(a is b or torch.equal(a, b) for a, b in zip(seen, given)):
                return result
        result = gm(*given)
        known.append((given, result))
        return result

    return run


def wrong(gm, inputs):
    return lambda *given: tuple(value + 1 for value in gm(*given))


def refuses(gm, inputs):
    raise NotImplementedError("planted")


def heavy(x):
    for _ in range(20):
        x = torch.tanh(x @ x)
    return x


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))


def test_what_is_slower_than_eager_never_wins():
    compiled = flambeau.compile(work, backend=flambeau.Autotune(slow))
    x = torch.randn(8, 8)
    torch.testing.assert_close(compiled(x), work(x))
    (told,) = flambeau.report(compiled).races
    assert "eager wins, 1.00x of eager" in told and "slow" in told


def test_what_is_faster_wins_and_it_is_said_by_how_much():
    compiled = flambeau.compile(heavy, backend=flambeau.Autotune(slow, quick))
    x = torch.randn(128, 128)
    torch.testing.assert_close(compiled(x), heavy(x))
    (told,) = flambeau.report(compiled).races
    assert "quick wins" in told


def test_what_is_wrong_or_refuses_is_out_and_named():
    compiled = flambeau.compile(work, backend=flambeau.Autotune(wrong, refuses))
    x = torch.randn(8, 8)
    torch.testing.assert_close(compiled(x), work(x))
    (told,) = flambeau.report(compiled).races
    assert "eager wins" in told
    assert "wrong is out: wrong" in told and "refuses is out: NotImplementedError: planted" in told


def test_the_built_in_one_races_eager_aot_and_the_inductor():
    compiled = flambeau.compile(work, backend="autotune")
    x = torch.randn(64, 64)
    torch.testing.assert_close(compiled(x), work(x))
    report = flambeau.report(compiled)
    (told,) = report.races
    assert all(name in told for name in ("eager", "aot_eager", "inductor"))
    assert report.graphs == 1 and "measured: " in str(report)
    assert "autotune" in flambeau.list_backends()


PROGRAM = """
import torch, flambeau
def work(x):
    return torch.softmax(torch.sin(x) * 2, -1).sum(0)
compiled = flambeau.compile(work, backend="autotune")
compiled(torch.ones(64, 64))
print(flambeau.report(compiled).races[0])
"""


def test_the_winner_is_kept_for_the_next_process():
    told = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True,
            env=dict(os.environ),
        )  # fmt: skip
        told.append(done.stdout.strip())
    assert "earlier process" not in told[0] and "earlier process" in told[1]
    assert told[1].startswith(told[0].split(" (")[0])


def test_training_is_timed_with_its_backward_pass():
    calls = []

    def backend(gm, inputs):
        def run(*given):
            (result,) = gm(*given)
            result.register_hook(lambda grad: calls.append(1))
            return (result,)

        return run

    w = torch.randn(8, requires_grad=True)
    flambeau.compile(lambda w: (w * w).sum(), backend=flambeau.Autotune(backend))(w)
    assert len(calls) >= 3


def test_a_race_needs_a_margin():
    gm = torch.fx.symbolic_trace(torch.nn.ReLU())
    found = race(gm, {"same": gm.forward}, [torch.ones(4)], {"gone": "why"})
    assert set(found.seconds) == {EAGER, "same"} and found.out["gone"] == "why"
    assert found.speedup >= 1.0


def graphs_of(compiled):
    import gc

    from flambeau.backends.autotune import Switching

    return [each for each in gc.get_objects() if type(each) is Switching]


def test_never_slower_serves_at_once_and_does_not_switch_to_what_is_slower():
    asked = []

    def waits(gm, inputs):
        asked.append(gm)
        time.sleep(0.3)
        return slow(gm, inputs)

    compiled = flambeau.compile(work, backend=waits, mode="never-slower")
    x = torch.randn(8, 8)
    started = time.perf_counter()
    result = compiled(x)
    assert flambeau.report(compiled).races == ()
    assert time.perf_counter() - started < 30  # it did not wait for a race of ten milliseconds each
    torch.testing.assert_close(result, work(x))
    (graph,) = [g for g in graphs_of(compiled) if g.race is None or "waits" in g.race.seconds]
    assert graph.finished.wait(60)
    assert graph.race.winner == "eager"
    assert "eager wins" in flambeau.report(compiled).races[0]
    torch.testing.assert_close(compiled(x), work(x))


def test_never_slower_switches_to_what_is_faster():
    compiled = flambeau.compile(heavy, backend=quick, mode="never-slower")
    x = torch.randn(128, 128)
    compiled(x)
    (graph,) = [g for g in graphs_of(compiled) if not g.finished.is_set() or g.race]
    assert graph.finished.wait(60)
    assert graph.race.winner == "quick"
    torch.testing.assert_close(compiled(x), heavy(x))


def test_never_slower_goes_on_when_compiling_fails():
    compiled = flambeau.compile(work, backend=refuses, mode="never-slower")
    x = torch.randn(8, 8)
    compiled(x)
    for graph in graphs_of(compiled):
        assert graph.finished.wait(60)
    torch.testing.assert_close(compiled(x), work(x))
    (failure,) = flambeau.report(compiled).fallbacks
    assert failure.stage == "never-slower" and "planted" in str(failure)
