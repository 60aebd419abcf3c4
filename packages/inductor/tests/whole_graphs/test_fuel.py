"""Fuel: the same answer with any amount, and what each amount buys."""

import flambeau_inductor as inductor
import pytest
import torch
from flambeau_inductor import Options
from flambeau_inductor.options import Fuel
from torch import fx


def graph():
    prims = torch.ops.flambeau_prims
    g = fx.Graph()
    x = g.placeholder("x")
    a = g.call_function(prims.sin.default, (x,))
    b = g.call_function(prims.exp.default, (a,))
    s = g.call_function(prims.sum.default, (b, [1]))
    c = g.call_function(prims.neg.default, (b,))
    g.output((s, c))
    gm = fx.GraphModule(torch.nn.Module(), g)
    value = torch.randn(6, 5)
    env = [value, torch.sin(value), torch.sin(value).exp()]
    metas = {x: env[0], a: env[1], b: env[2], s: env[2].sum(1), c: -env[2]}
    for node, meta in metas.items():
        node.meta["val"] = meta
    return gm, value, (env[2].sum(1), -env[2])


FUELS = [
    *(Fuel(lowerings=n) for n in range(5)),
    *(Fuel(fusions=n) for n in range(4)),
    *(Fuel(kernels=n) for n in range(3)),
]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("fuel", FUELS, ids=str)
def test_any_amount_gives_the_same_answer(fuel, tmp_path):
    gm, x, expected = graph()
    compiled = inductor.compile(gm, [x], None, Options(fuel=fuel, cache_dir=str(tmp_path)))
    torch.testing.assert_close(compiled([x]), expected)


def test_what_an_amount_buys(tmp_path):
    seen = []

    def observer(stage, work):
        if stage == "generate":
            kernels = sum(len(text.launches) for text in work.kernels if text.file == "kernels.cpp")
            seen.append((len(work.tensors.lowered), len(work.merges), kernels))

    for fuel in (Fuel(), Fuel(lowerings=1), Fuel(fusions=0), Fuel(kernels=0)):
        gm, x, _ = graph()
        inductor.compile(
            gm, [x], None, Options(fuel=fuel, observer=observer, cache_dir=str(tmp_path))
        )
    full, one_lowered, unfused, no_kernel = seen
    assert full[0] == 4 and full[1] > 0 and full[2] > 0
    assert one_lowered[0] == 1
    assert unfused[1] == 0 and unfused[2] > full[2]
    assert no_kernel[2] == 0


def test_an_operation_without_fuel_is_named(tmp_path):
    gm, x, _ = graph()
    options = Options(fuel=Fuel(lowerings=0), cache_dir=str(tmp_path))
    report = inductor.compile(gm, [x], None, options).report
    assert {f.reason for f in report.fallbacks} == {"out of fuel"}
    assert len(report.fallbacks) == 4


def test_the_observer_sees_every_stage_and_changes_no_key():
    stages = []
    gm, x, _ = graph()
    options = Options(observer=lambda stage, work: stages.append(stage))
    inductor.compile(gm, [x], None, options)
    assert stages == [
        "rewrite", "lower", "schedule", "assemble", "optimize", "generate", "build", "wrap",
    ]  # fmt: skip
    assert options == Options() and hash(options) == hash(Options())
    assert Options(fuel=Fuel(fusions=1)) != Options()
