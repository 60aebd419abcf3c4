import pytest
import torch

import flambeau
from flambeau.events.records import compile_time_rows


def toy(x, w):
    y = torch.softmax(x @ w, -1)
    flambeau.graph_break()
    return y.sum()


def test_rows_add_up():
    compiled = flambeau.compile(toy)
    compiled(torch.randn(8, 8), torch.randn(8, 8, requires_grad=True))
    (row,) = compile_time_rows(compiled)
    assert row.function == "toy" and row.frames == 2
    assert row.where.startswith(__file__)
    assert min(row.capture, row.aot, row.lowering) > 0
    phases = flambeau.report(compiled).seconds
    assert row.total == pytest.approx(row.capture + sum(phases.values()), rel=0.2)


def test_the_table_has_a_total():
    compiled = flambeau.compile(toy, backend="eager")
    compiled(torch.randn(8, 8), torch.randn(8, 8))
    head, row, total = flambeau.compile_times(compiled).splitlines()
    assert head.split()[:3] == ["function", "where", "frames"]
    assert row.startswith("toy") and total.startswith("total")
    assert "toy" in flambeau.compile_times()


def test_what_was_not_compiled_is_refused():
    with pytest.raises(TypeError, match=r"flambeau\.compile"):
        flambeau.compile_times(toy)


def test_the_profiler_counts_what_would_be_compiled_again():
    profiler = flambeau.CompileProfiler()
    scaled = flambeau.compile(lambda x, word: x * len(word), backend=profiler)
    for word in ("a", "bb", "ccc"):
        scaled(torch.ones(3), word)
    assert sum(miss.count for miss in profiler.misses) == 2
    assert "'ccc'" in profiler.report()
