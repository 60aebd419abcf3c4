"""Facts of a compiled half; a size that is a symbol is unknown, not zero."""

import torch

import flambeau
from flambeau.events.bus import Listener, StageProduct, listening
from flambeau.events.stage_products import facts_of


class Facts(Listener):
    every_stage = True

    def __init__(self):
        self.found = []

    def __call__(self, kind, product, owner):
        if isinstance(product, StageProduct) and product.stage == "wrap":
            self.found.append(facts_of(product.work, product.graph, product.half))


def work(x):
    return torch.softmax(x.sin(), -1).sum(0)


def facts(*calls, **choices):
    with listening(Facts()) as seen:
        compiled = flambeau.compile(work, **choices)
        for x in calls:
            compiled(x)
    return seen.found


def test_constant_sizes_are_known():
    (found,) = facts(torch.randn(6, 10))
    assert found.memory.peak > 0 and found.memory.input_bytes == 240
    assert all(step.bytes for step in found.steps)
    assert {name for step in found.steps for name in step.writes}


def test_symbols_are_unknown():
    found = facts(torch.randn(6, 10), dynamic=True)
    assert found, "the graph was compiled with open sizes"
    assert found[0].memory.peak is None and found[0].memory.input_bytes is None
    assert any(step.bytes is None for step in found[0].steps)


def test_the_page_says_so(tmp_path):
    from flambeau.page import report_page

    with flambeau.trace(tmp_path):
        flambeau.compile(work, dynamic=True)(torch.randn(6, 10))
    assert "sizes depend on symbols" in report_page(tmp_path)


def test_a_lookup_touches_the_rows_that_it_takes():
    table = torch.randn(1000, 16)
    with listening(Facts()) as seen:
        flambeau.compile(lambda index: table[index] * 2.0)(torch.tensor([3, 5]))
    (step,) = (step for step in seen.found[0].steps if step.kind == "kernel")
    assert step.bytes == 2 * (2 * 16 * 4) + 2 * 8
