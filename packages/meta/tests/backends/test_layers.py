"""What stands around a backend: in which order, and what capture is told of the whole."""

import flambeau_inductor
import pytest
import torch
from flambeau_capture import BackendError
from flambeau_capture.api import compiler_of

import flambeau
from flambeau.backends import registry, resolve
from flambeau.backends.autotune import Autotune
from flambeau.backends.request import Request
from flambeau.choices import choose
from flambeau.events.records import RecordCollector


def program(x):
    return torch.exp(x).sum(-1) + 1


def request(**more):
    return Request(choose(), RecordCollector(), **more)


def test_the_order(monkeypatch):
    """Each layer stands around all that come before it in the list."""
    applied = []

    def noting(layer):
        def around(engine, given):
            applied.append(layer.name)
            return layer.around(engine, given)

        return registry.Layer(layer.name, around, layer.wanted)

    monkeypatch.setattr(registry, "LAYERS", list(map(noting, registry.LAYERS)))
    expected = {
        "inductor": ["graph_cache", "prepare", "fallback", "buckets", "agreement", "run_events"],
        "aot_eager": ["fallback", "buckets", "agreement", "run_events"],
        "eager": ["agreement", "run_events"],
    }
    for name, wanted in expected.items():
        applied.clear()
        resolve(name, request())
        assert applied == wanted
    applied.clear()
    resolve("inductor", request(never_slower=True, verify=2))
    around = ["never_slower", "verify", "agreement", "run_events"]
    assert applied == [*expected["inductor"][:-2], *around]
    applied.clear()
    resolve(lambda gm, inputs: gm.forward, request())
    assert applied == ["agreement", "run_events"]


def test_capture_is_told_what_the_backend_says():
    def mine(gm, inputs):
        return gm.forward

    mine.supports_symbols, mine.own_numbers = frozenset({"sizes"}), True
    for given in (mine, "inductor", "eager", Autotune("eager", "aot_eager")):
        backend = compiler_of(flambeau.compile(program, backend=given)).converter.backend
        own = given if callable(given) else None
        assert backend.own_numbers is getattr(own, "own_numbers", False)
        if given is mine:
            assert backend.supports_symbols == mine.supports_symbols
        assert backend.__name__ in ("mine", "inductor", "eager", "Autotune")


@pytest.mark.parametrize("error", [RuntimeError, AssertionError, flambeau_inductor.InductorError])
def test_a_failure_before_autograd_is_counted_and_leaves_the_graph_as_it_was(monkeypatch, error):
    monkeypatch.delenv("FLAMBEAU_FAULTS", raising=False)
    met = []

    def prepare(gm, options):
        met.append(gm)
        for node in gm.graph.nodes:
            if node.target is torch.exp:
                node.target = torch.cos
        gm.recompile()
        raise error("planted")

    monkeypatch.setattr(flambeau_inductor, "prepare", prepare)
    compiled = flambeau.compile(program)
    x = torch.randn(3, 4)
    with pytest.warns(flambeau.FlambeauWarning, match="prepare could not compile .*planted"):
        assert torch.equal(compiled(x), program(x))
    (failure,) = flambeau.report(compiled).fallbacks
    assert failure.stage == "prepare" and type(failure.error) is error and len(met) == 1
    faults = [fault.stage for fault in flambeau.report(compiled).faults]
    assert faults == ([] if error is flambeau_inductor.InductorError else ["prepare"])
    strict = flambeau.compile(program, fullgraph=True)
    with pytest.raises(BackendError, match="planted"):
        strict(x)


def test_the_captured_graph_is_not_rewritten(monkeypatch):
    """What the passes before autograd change is a copy: explanations show what was captured."""
    seen = []
    real = flambeau_inductor.prepare
    monkeypatch.setattr(
        flambeau_inductor, "prepare", lambda gm, options: (seen.append(gm), real(gm, options))[1]
    )
    layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    with torch.no_grad():
        found = flambeau.explain(layer)(torch.randn(2, 3, 8))
    (graph,) = found.capture.graphs
    assert seen and graph is not seen[0]


@pytest.mark.parametrize("budget", [None, 1.0, 0.5, 4096])
def test_what_is_to_take_less_memory_is_not_compared_with_eager(budget):
    given = Request(choose(options={"memory_budget": budget}), RecordCollector())
    assert resolve("inductor", given).made_for_speed == (budget in (None, 1.0))
