"""Products reach who listens, and a listener that fails disturbs nothing."""

import pytest
import torch

import flambeau
from flambeau.events.bus import EVERYTHING, Listener, listening


class Recording(Listener):
    every_stage = True

    def __init__(self, place=None):
        self.told = []
        self.place = place

    def __call__(self, kind, product, owner):
        self.told.append((kind, product, owner))

    def folder(self, graph, half, owner):
        return self.place

    def kinds(self):
        return [kind for kind, *_ in self.told]


def scaled(x, w):
    return torch.sin(x) * w


def test_the_products_of_one_call_in_order(tmp_path):
    with listening(Recording(tmp_path)) as heard:
        w = torch.ones(4, requires_grad=True)
        flambeau.compile(scaled)(torch.randn(4), w)
    from flambeau_inductor.compile import STAGES

    stages = [name for name, *_ in STAGES]
    kinds = heard.kinds()
    assert kinds == [
        *["stage"] * len(stages), "kernels", *["stage"] * len(stages), "kernels",
        "aot", "compiled", "graph", "entry", "frame",
    ]  # fmt: skip
    assert [p.stage for k, p, _ in heard.told if k == "stage"] == stages * 2
    assert [p.half for k, p, _ in heard.told if k == "kernels"] == ["forward", "backward"]
    aot = next(p for k, p, _ in heard.told if k == "aot")
    assert aot.compiled.joint.training
    assert len({owner for *_, owner in heard.told}) == 1
    assert len(list(tmp_path.iterdir())) == 2  # a folder a half, by the inductor
    assert not list(EVERYTHING)


def test_two_compiled_callables_have_two_numbers():
    with listening(Recording()) as heard:
        for _ in range(2):
            flambeau.compile(scaled, backend="eager")(torch.randn(4), torch.ones(4))
    graphs = [(p.name, owner) for k, p, owner in heard.told if k == "graph"]
    assert len(graphs) == len(set(graphs)) == 2


def test_a_listener_that_fails_is_named_and_dropped():
    class Broken(Recording):
        def __call__(self, kind, product, owner):
            super().__call__(kind, product, owner)
            raise ZeroDivisionError("planted")

    x = torch.randn(4)
    with listening(Broken()) as broken, pytest.warns(flambeau.FlambeauWarning, match="planted"):
        result = flambeau.compile(scaled, backend="eager")(x, x)
    assert len(broken.told) == 1
    torch.testing.assert_close(result, scaled(x, x))


def test_nobody_listens_and_nothing_changes():
    from flambeau.choices import choose
    from flambeau.events.bus import EventBus

    options = choose().inductor
    assert EventBus().observed(options, "g", "forward") is options


def test_who_needs_every_stage():
    import io

    from flambeau.events.bus import EventBus
    from flambeau.events.logs import Progress

    watch = EventBus()
    watch.own.add(Progress(io.StringIO()))
    assert watch and not watch.every_stage
    watch.own.add(Recording())
    assert watch.every_stage
