from xml.etree import ElementTree

import pytest
import torch

import flambeau
from flambeau.events.compile_times import compile_time_rows


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


def test_the_flame_graph_has_the_seconds_of_the_table():
    def toy(x, w):  # another one than above, which is on the disk by now
        return torch.log_softmax(x @ w.sin(), -1).sum()

    compiled = flambeau.compile(toy)
    compiled(torch.randn(8, 8), torch.randn(8, 8, requires_grad=True))
    times = flambeau.compile_times(compiled)
    (row,) = times.rows
    folded = dict(line.rsplit(" ", 1) for line in times.to_folded().splitlines())
    base = f"{row.function} ({row.where});"
    assert all(stack.startswith(base) for stack in folded)
    assert {stack.removeprefix(base).split(";")[0] for stack in folded} == {
        "capture", "aot", "lowering", "compilers", "other"
    }  # fmt: skip
    assert sum(map(int, folded.values())) == pytest.approx(row.total * 1e6, abs=len(folded))
    for stage in ("aot", "lowering", "compilers"):
        own = sum(int(n) for s, n in folded.items() if s.startswith(f"{base}{stage};"))
        assert own == pytest.approx(getattr(row, stage) * 1e6, abs=len(folded))
    boxes = ElementTree.fromstring(times.to_svg()).iter("{http://www.w3.org/2000/svg}rect")
    wide = [(box.get("y"), float(box.get("width"))) for box in boxes]
    for level in {y for y, _ in wide}:
        assert sum(width for y, width in wide if y == level) <= 960


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
