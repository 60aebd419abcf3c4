"""Bugs are planted in every layer; bisection names each."""

import importlib
import json
import sys
from dataclasses import replace

import flambeau_prims
import pytest
import torch

import flambeau
from flambeau.testing.comparison import first_bad


def program(x, w):
    y = torch.relu(x @ w)
    z = torch.sin(y) + torch.exp(-y)
    return torch.softmax(z, -1).sum(0)


def arguments():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(16, 8, generator=generator)
    return x, torch.randn(8, 8, generator=generator).requires_grad_()


@pytest.mark.parametrize("culprit", [1, 2, 7, 64, 100])
def test_the_search_finds_the_first_bad_step(culprit):
    asked = []

    def is_bad(n):
        asked.append(n)
        return n >= culprit

    assert first_bad(100, is_bad) == culprit
    assert len(asked) == len(set(asked)) <= 8
    assert first_bad(culprit - 1, is_bad) is None


def test_nothing_is_wrong():
    verdict = flambeau.bisect(program, *arguments())
    assert not verdict and len(verdict.tried) == 4
    assert "nothing is wrong" in str(verdict)


def test_a_decomposition(monkeypatch):
    real = flambeau_prims.decompositions

    def planted(*given, **named):
        table = dict(real(*given, **named))
        op = torch.ops.aten._softmax.default
        rule = table[op]
        table[op] = lambda *args, **kwargs: rule(*args, **kwargs) * 1.01
        return table

    monkeypatch.setattr(flambeau_prims, "decompositions", planted)
    verdict = flambeau.bisect(program, *arguments())
    assert (verdict.layer, verdict.step) == ("prims", "decomposition")
    assert verdict.name == "aten._softmax.default"
    assert verdict.avoid == {"backend": "aot_eager"}


def test_a_lowering(monkeypatch):
    from flambeau_inductor.lowering.registry import RULES, rule_of

    monkeypatch.setitem(RULES, "sin", rule_of("cos"))
    verdict = flambeau.bisect(program, *arguments())
    assert (verdict.layer, verdict.step, verdict.half) == ("inductor", "lowering", "forward")
    assert verdict.name.startswith("sin (")
    assert any("torch.sin(y)" in line for line in verdict.lines)
    assert verdict.difference.place.startswith("output")
    assert json.loads(json.dumps(verdict.to_dict()))["step"] == "lowering"


def test_a_lowering_that_raises(monkeypatch):
    from flambeau_inductor.lowering.registry import RULES

    def planted(*given, **named):
        raise KeyError("planted")

    monkeypatch.setitem(RULES, "sin", planted)
    verdict = flambeau.bisect(program, *arguments())
    assert (verdict.layer, verdict.step) == ("inductor", "lowering")
    assert "sin" in verdict.name and "planted" in str(verdict.difference)


def normed(x):
    mean, variance = torch.var_mean(x, -1)  # two results: what takes one of them is no operation
    return (x - torch.relu(variance).unsqueeze(-1)) * torch.sin(mean).unsqueeze(-1)


def test_a_lowering_that_raises_after_what_fuel_does_not_count(monkeypatch):
    from flambeau_inductor.lowering.registry import RULES

    def planted(*given, **named):
        raise KeyError("planted")

    monkeypatch.setitem(RULES, "sin", planted)
    verdict = flambeau.bisect(normed, torch.randn(4, 8))
    assert verdict.name.startswith("sin (")
    assert "from flambeau_inductor import Fuel" in str(verdict)


def plant(monkeypatch, level, number, run):
    """A pass of one of the lists that is wrong."""
    from flambeau_inductor import pipeline
    from flambeau_inductor.driver import Pass, optional

    found = pipeline.LISTS[level][1]
    planted = (*found[:number], Pass("planted", run), *found[number:])
    lists = {name: passes for name, (_, passes) in pipeline.LISTS.items()} | {level: planted}
    for module in [each for name, each in sys.modules.items() if name.startswith("flambeau")]:
        for name, value in list(vars(module).items()):
            if value is found:
                monkeypatch.setattr(module, name, planted)
    captured, *others = lists.values()
    for module in (pipeline, importlib.import_module("flambeau.bisecting.in_inductor")):
        monkeypatch.setattr(module, "CAPTURED", optional(captured))
        monkeypatch.setattr(module, "OPTIONAL", optional(*others))


def misspelt(graph, right, wrong):
    nodes = [node for node in graph.nodes if node.target is right]
    for node in nodes:
        node.target = wrong
    return len(nodes)


def captured_exp(context, gm):
    return gm, misspelt(gm.graph, torch.exp, torch.expm1) and (gm.recompile() or 1)


def primitive_exp(context, graph):
    prims = torch.ops.flambeau_prims
    return graph, misspelt(graph, prims.exp.default, prims.expm1.default)


def pointwise_exp(context, program):
    from flambeau_inductor.ir.loops import Point
    from flambeau_inductor.ir.program import RunLoop
    from flambeau_inductor.ir.steps import rescheduled

    def wrong(instr):
        named = isinstance(instr, Point) and instr.op == "exp"
        return replace(instr, op="expm1") if named else instr

    def changed(step):
        if not isinstance(step, RunLoop) or not any(map(wrong_one, step.loop.body)):
            return step
        return RunLoop(replace(step.loop, body=tuple(map(wrong, step.loop.body))))

    def wrong_one(instr):
        return wrong(instr) is not instr

    return rescheduled(program, [changed(step) for step in program.steps])


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("level", "run"),
    [("captured", captured_exp), ("fx", primitive_exp), ("program", pointwise_exp)],
)
def test_a_pass_of_any_list(monkeypatch, level, run):
    plant(monkeypatch, level, 3, run)
    verdict = flambeau.bisect(program, *arguments())
    assert (verdict.layer, verdict.step, verdict.name) == ("inductor", "pass", "planted")
    args = arguments()
    good = flambeau.compile(program, options=verdict.avoid["options"])(*args)
    torch.testing.assert_close(good, program(*args))


def test_a_rule_of_the_rewriter(monkeypatch):
    from flambeau_inductor.passes.rewriter import Rule, Value, ops, rewrite

    def wrong(match):
        return match.call(torch.ops.flambeau_prims.expm1.default, match["x"])

    rule = Rule("misspelt", (ops.exp(Value("x")),), wrong)
    plant(monkeypatch, "fx", 3, lambda work, graph: (graph, rewrite(graph, (rule,), work.ledger)))
    verdict = flambeau.bisect(program, *arguments())
    assert (verdict.layer, verdict.step, verdict.name) == ("inductor", "rule", "misspelt")
    assert verdict.avoid == {"options": {"skip_passes": ("misspelt",)}}


def test_a_kernel(monkeypatch):
    """The text of a kernel is wrong, though the loop that it was printed from is right."""
    from flambeau_inductor.codegen.cpp import unit

    real = unit.generate

    def planted(loops, *given, **named):
        source = real(loops, *given, **named)
        assert source.text.count("sin") > 0
        return type(source)(**{
            **{name: getattr(source, name) for name in source.__dataclass_fields__},
            "text": source.text.replace("sin(", "cos("),
        })  # fmt: skip

    monkeypatch.setattr("flambeau_inductor.kernels.generate.unit.generate", planted)

    def only_sines(x):
        return torch.sin(x.sum(0)) * 2

    verdict = flambeau.bisect(only_sines, torch.randn(5, 7))
    assert (verdict.layer, verdict.step) == ("inductor", "kernel")
    assert verdict.name.startswith("loop0 (")
    assert any("torch.sin" in line for line in verdict.lines)


def test_a_fusion(monkeypatch):
    from flambeau_inductor.schedule.fuse import fuse

    real = fuse._merge

    def planted(state, a, b):
        if len(state.merges) == 1:
            raise AssertionError("planted")
        return real(state, a, b)

    monkeypatch.setattr(fuse, "_merge", planted)

    def several(x):
        a, b = x.sum(1), (x * x).sum(1)
        c = x.amax(1)
        return a, b, c, (x - 1).sum(1)

    verdict = flambeau.bisect(several, torch.randn(64, 32))
    assert (verdict.layer, verdict.step) == ("inductor", "fusion")
    assert verdict.name == "number 2"


def test_the_backward_half(monkeypatch):
    from flambeau_inductor.lowering.registry import RULES, rule_of

    monkeypatch.setitem(RULES, "cos", rule_of("sin"))  # the derivative of sin reads it
    verdict = flambeau.bisect(lambda x: torch.sin(x), torch.randn(6, requires_grad=True))
    assert (verdict.layer, verdict.step, verdict.half) == ("inductor", "lowering", "backward")
    assert verdict.difference.place.startswith("gradient")


def test_the_second_of_two_graphs(monkeypatch):
    from flambeau_inductor.lowering.registry import RULES, rule_of

    monkeypatch.setitem(RULES, "cos", rule_of("sin"))

    def two(x):
        y = torch.tanh(x)
        flambeau.graph_break()
        return torch.cos(y)

    verdict = flambeau.bisect(two, torch.randn(6))
    assert verdict.step == "lowering" and verdict.name.startswith("cos (")
    assert verdict.graph not in ("", "__compiled_fn_0")


def test_a_pass_of_ahead_of_time_autograd(monkeypatch):
    import flambeau_aot.compile as aot
    from flambeau_aot.simplify import simplify as real

    def planted(joint):
        made, removed = real(joint)
        for node in made.graph.nodes:
            if node.target is torch.ops.aten.sin.default:
                node.target = torch.ops.aten.cos.default
        return made, removed

    import sys

    monkeypatch.setattr(sys.modules["flambeau_aot.compile"], "simplify", planted)
    assert aot is not None
    verdict = flambeau.bisect(program, *arguments())
    assert (verdict.layer, verdict.step, verdict.name) == ("aot", "pass", "simplify")


def scaled(x, word):
    return x * len(word)


def test_a_guard_that_is_missing(monkeypatch):
    from flambeau_capture.guards.guardset import Guards, GuardSet

    def planted(self):
        kept = tuple(guard for guard in self._ordered if "'word'" not in str(guard))
        return Guards(kept, self.code)

    monkeypatch.setattr(GuardSet, "finish", planted)
    x = torch.randn(3)
    more = [((x, "b"), {}), ((x, "c"), {}), ((x, "dd"), {})]
    verdict = flambeau.bisect(scaled, x, "a", also=more)
    assert (verdict.layer, verdict.step) == ("capture", "guards")
    assert "scaled" in verdict.name
    assert verdict.difference.place.startswith("call 4")
    assert verdict.lines[-1] == "it takes call 1 and then call 4"  # four calls become two
    assert "write_calls" in str(verdict)


def two_graphs(x):
    y = torch.sin(x) + 1
    if y.sum() > 0:
        y = torch.relu(torch.exp(y) - x)
    return y * 2


def exp_is_wrong(gm, inputs):
    for node in gm.graph.nodes:
        if node.target is torch.exp:
            node.target = torch.expm1
    gm.recompile()
    return gm.forward


def exp_is_refused(gm, inputs):
    if any(node.target is torch.exp for node in gm.graph.nodes):
        raise KeyError("planted")
    return gm.forward


@pytest.mark.parametrize("backend", [exp_is_wrong, exp_is_refused])
def test_a_backend_from_outside(backend):
    verdict = flambeau.bisect(two_graphs, torch.ones(4), backend=backend)
    assert (verdict.layer, verdict.step) == ("backend", "operations")
    assert verdict.name.startswith("exp by ") and backend.__name__ in verdict.name
    assert any("torch.exp(y) - x" in line for line in verdict.lines)
    assert verdict.difference is not None


def test_a_backend_from_outside_that_is_right():
    verdict = flambeau.bisect(two_graphs, torch.ones(4), backend=lambda gm, inputs: gm.forward)
    assert not verdict and len(verdict.tried) == 2


def test_a_frame_that_capture_gets_wrong(monkeypatch):
    from flambeau_capture.frame import conversion

    real = conversion.plan_return

    def planted(state, value):
        if "inner" in state.body.code.co_name:
            raise ZeroDivisionError("planted")
        return real(state, value)

    monkeypatch.setattr(conversion, "plan_return", planted)

    def check(expected, got):
        from flambeau.testing.comparison import difference

        return difference(expected, got)

    verdict = flambeau.bisect(scaled, torch.randn(3), "a", check=check)
    assert not verdict  # a frame that capture fails on runs as it is: nothing is wrong


def test_a_check_of_ones_own():
    from flambeau.testing.comparison import Difference

    def never(expected, got):
        return Difference("everything", "silence", "noise")

    verdict = flambeau.bisect(scaled, torch.randn(3), "a", check=never)
    assert verdict.layer == "capture" and verdict.difference.got == "noise"


def test_the_program_is_left_as_it_was():
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    x = torch.randn(8, 4)
    copy = x.clone()
    state = torch.get_rng_state()
    assert not flambeau.bisect(module, x)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(x, copy)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_a_program_that_raises_by_itself_is_told():
    verdict = flambeau.bisect(lambda x: x @ torch.ones(5), torch.ones(3))
    assert not verdict
    assert "call 1 raises without compiling" in str(verdict) and "RuntimeError" in verdict.note
