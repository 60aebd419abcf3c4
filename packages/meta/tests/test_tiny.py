"""A few seconds that say whether the front door opens at all."""

import torch

import flambeau


def fn(x, y):
    a = torch.cos(x)
    b = torch.sin(y)
    return a + b


def test_a_function():
    x, y = torch.randn(10), torch.randn(10)
    assert torch.equal(flambeau.compile(fn, backend="eager")(x, y), fn(x, y))


def test_a_decorator_with_and_without_arguments():
    @flambeau.compile(backend="eager")
    def with_arguments(x):
        return x + 1

    @flambeau.optimize("eager")
    def by_its_first_name(x):
        return x + 1

    x = torch.randn(3)
    assert torch.equal(with_arguments(x), x + 1)
    assert torch.equal(by_its_first_name(x), x + 1)


def test_a_module_keeps_what_it_is():
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    compiled = flambeau.compile(module, backend="aot_eager")
    x = torch.randn(2, 4)
    assert isinstance(compiled, torch.nn.Sequential)
    assert list(compiled.state_dict()) == list(module.state_dict())
    torch.testing.assert_close(compiled(x), module(x))


def test_report_counts_graphs():
    compiled = flambeau.compile(fn, backend="eager")
    assert flambeau.report(compiled).graphs == 0
    compiled(torch.randn(4), torch.randn(4))
    report = flambeau.report(compiled)
    assert (report.graphs, report.breaks, report.fallbacks) == (1, (), ())
    assert report.guards > 0
    assert report.records[0].nodes == 3


def test_report_names_a_break_once():
    def branch(x):
        return x + 1 if x.sum() > 0 else x - 1

    compiled = flambeau.compile(branch, backend="eager")
    for size in (2, 3, 4, 5):
        compiled(torch.ones(size, 2, dtype=torch.float32 if size % 2 else torch.float64))
    (told,) = flambeau.report(compiled).breaks
    assert "FB0001" in told and "x.sum() > 0" in told


def test_names():
    assert {"eager", "aot_eager", "aot_nop", "aot_eager_prims", "inductor"} <= set(
        flambeau.list_backends()
    )
    assert not flambeau.is_compiling()
