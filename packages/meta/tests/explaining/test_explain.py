import json

import pytest
import torch

import flambeau


def toy(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


def sine(x):
    return torch.sin(x).sum()


@pytest.fixture(scope="module")
def explained():
    return flambeau.explain(toy)(torch.randn(1000), torch.ones(1000))


def test_graphs_and_operations(explained):
    assert [graph.operations for graph in explained.graphs] == [
        ("abs", "add", "truediv", "sum", "lt"),
        ("mul",),
    ]
    assert explained.op_count == 6
    assert explained.graphs[0].inputs == ("L['a']", "L['b']")
    assert {graph.function for graph in explained.graphs} == {"toy"}


def test_a_break_has_its_line_its_edit_and_its_cost(explained):
    (found,) = explained.breaks
    assert found.id == "FB0001"
    assert "if b.sum() < 0:" in found.line and __file__ in found.line
    assert "torch.where" in found.edit
    assert found.run_ms > 0 and found.capture_ms > 0
    assert found.bytes == 4000  # x leaves the first graph and enters the second


def test_kernels_and_what_they_touch(explained):
    (half,) = explained.graphs[0].halves
    kernels = [step for step in half.steps if step.kind == "kernel"]
    assert len(kernels) == explained.graphs[0].kernels
    division = next(step for step in kernels if any("div" in name for name in step.origins))
    assert division.bytes >= 8000  # a in, x out
    assert any("torch.abs(a) + 1" in line for line in division.lines)
    assert half.memory.peak >= 4000
    assert half.memory.input_bytes == 8000


def test_what_was_chosen_by_measurement():
    x = torch.randn(700, 900)
    tuned = flambeau.compile(
        lambda x: torch.softmax(x, -1), mode="max-autotune", options={"disk_cache": False}
    )
    found = flambeau.explain(tuned)(x)
    (half,) = found.graphs[0].halves
    (kernel,) = (step.name for step in half.steps if step.kind == "kernel")
    ((name, told),) = half.chosen
    assert name == kernel and "of the time of as_ruled" in told
    assert f"chosen for {kernel}: {told.split(':')[0]}" in str(found)


def test_what_was_kept_in_eager_and_why(explained):
    (kept,) = explained.kept_in_eager
    assert "if b.sum() < 0:" in kept.what
    assert kept.why.startswith("FB0001")


def test_time_by_phase(explained):
    assert explained.seconds["capture"] > 0
    assert any(phase.startswith("aot: ") for phase in explained.seconds)
    assert any(phase.startswith("inductor: ") for phase in explained.seconds)


def test_it_unpacks_as_the_first_explain_did(explained):
    summary, guards, graphs, ops, reasons, verbose = explained
    assert "2 graphs, with 1 graph break and 6 ops" in summary
    assert len(guards) == len(explained.guards) > 0
    assert len(graphs) == len(ops) == 2
    assert reasons[0].reason.id == "FB0001"
    for word in ("Breaks", "try: ", "kernel loop0", "guards", "Compile time by phase"):
        assert word in verbose


def test_as_a_dictionary(explained):
    told = explained.to_dict()
    assert json.loads(json.dumps(told)) == told
    assert told["graphs"][0]["halves"][0]["steps"][0]["kind"] in ("kernel", "library")


def test_the_most_expensive_break_comes_first():
    import time

    def two(x):
        y = torch.sin(x)
        torch.manual_seed(0) if y.sum() > 1e9 else time.sleep(0.001)
        z = torch.cos(y)
        time.sleep(0.05)
        return z + 1

    found = flambeau.explain(two, torch.randn(8), backend="eager")
    costs = [each.run_ms + each.capture_ms for each in found.breaks]
    assert len(costs) >= 2 and costs == sorted(costs, reverse=True)


def test_a_compiled_callable_tells_its_recompiles():
    compiled = flambeau.compile(lambda x, word: x * len(word), backend="eager")
    compiled(torch.ones(3), "a")
    found = flambeau.explain(compiled)(torch.ones(3), "bb")
    (again,) = found.recompiles
    assert (again.expected, again.got) == ("'a'", "'bb'")
    assert torch.equal(found.result, torch.full((3,), 2.0))
    assert len(found.graphs) == 2
    assert "Compiled again" in found.verbose


def test_a_module_is_explained_whatever_was_compiled_of_it():
    model, x = torch.nn.Linear(3, 3), torch.ones(2, 3)
    compiled = flambeau.compile(model, backend="eager")
    compiled(x)
    for target in (model, compiled):
        assert len(flambeau.explain(target, backend="eager")(x).graphs) == 1, target
    assert flambeau.report(compiled).graphs == 1


def test_a_graph_that_no_backend_takes_is_kept_in_eager():
    def refuses(gm, inputs):
        raise NotImplementedError("planted")

    with pytest.warns(UserWarning, match="planted"):
        found = flambeau.explain(sine, torch.randn(3), backend=refuses)
    assert any("planted" in each.why for each in found.kept_in_eager)


def test_training_has_two_halves():
    found = flambeau.explain(sine, torch.randn(64, requires_grad=True))
    assert found.graphs[0].kind == "training"
    assert [half.half for half in found.graphs[0].halves] == ["forward", "backward"]


def test_a_missing_kernel_is_named_with_the_reason():
    @torch.library.custom_op("flambeau_explained::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_fake(torch.empty_like)
    found = flambeau.explain(lambda x: twice(x) + 1, torch.ones(3))
    (kept,) = found.kept_in_eager
    assert "flambeau_explained.twice" in kept.what
    assert kept.why == "no decomposition"
