import json
import threading

import pytest
import torch
from flambeau_capture.api import compiler_of

import flambeau
from flambeau.errors import StageFailure
from flambeau.events.records import GraphRecord, RecordCollector, total


def record(**facts):
    return GraphRecord(**{"name": "g", "kind": "inference", "nodes": 1, **facts})


def test_sums():
    recorder = RecordCollector()
    recorder.add(record(kernels=2, fused_ops=5, externs={"mm": 1}, seconds={"a": 1.0}))
    recorder.add(record(kernels=1, externs={"mm": 2, "bmm": 1}, seconds={"a": 0.5, "b": 4.0}))
    report = recorder.report(breaks=["why"], guards=7)
    assert (report.graphs, report.kernels, report.fused_ops, report.guards) == (2, 3, 5, 7)
    assert report.externs == {"mm": 3, "bmm": 1}
    assert list(report.seconds.items()) == [("b", 4.0), ("a", 1.5)]


def test_a_fallback_is_a_graph_and_is_shown():
    recorder = RecordCollector()
    failure = StageFailure("inductor", "g", ValueError("no"), '  File "f.py", line 1, in f')
    assert recorder.fall_back(failure) is True
    assert recorder.fall_back(failure) is False
    report = recorder.report()
    assert report.graphs == 2
    assert "ran eagerly: inductor could not compile g: ValueError: no" in str(report)


def test_plain_data():
    recorder = RecordCollector()
    recorder.add(record(externs={"mm": 1}))
    recorder.fall_back(StageFailure("aot", "another", KeyError("x"), ""))
    data = json.loads(json.dumps(recorder.report().to_dict()))
    assert data["graphs"] == 2
    assert len(data["fallbacks"]) == 1


def test_a_graph_that_falls_back_after_it_was_compiled_counts_once():
    recorder = RecordCollector()
    recorder.add(record(kernels=3))
    name = recorder.report().records[0].name
    recorder.fall_back(StageFailure("inductor", name, KeyError("x"), ""))
    assert (recorder.report().graphs, recorder.report().kernels) == (1, 0)


def test_two_threads_lose_nothing():
    recorder = RecordCollector()
    threads = [
        threading.Thread(target=lambda: [recorder.add(record()) for _ in range(200)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert recorder.report().graphs == 800


def test_total_of_none():
    assert total([]).graphs == 0


def test_report_of_something_else_is_an_error():
    with pytest.raises(TypeError, match="is not something that flambeau"):
        flambeau.report(torch.cos)


def test_report_of_all_holds_each():
    compiled = flambeau.compile(lambda x: x + 1, backend="eager")
    before = flambeau.report().graphs
    compiled(torch.randn(2))
    assert flambeau.report().graphs == before + 1


class Clock:
    """Each reading is a second later; a compiled graph takes ten."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now

    def backend(self, module, inputs):
        def run(*args):
            self.now += 10.0
            return module(*args)

        return run


def broken(x):
    x = x + 1
    print(end="")
    return x * 2


def test_what_settled_is_in_the_report():
    clock = Clock()
    fn = flambeau.compile(broken, backend=clock.backend)
    compiler_of(fn).converter.clock = clock
    for _ in range(30):
        assert torch.equal(fn(torch.ones(2)), broken(torch.ones(2)))
    report = flambeau.report(fn)
    (text,) = report.settled
    assert "broken" in text and "runs as it is" in text
    assert report.to_dict()["settled"] == [text] and f"settled: {text}" in str(report)


def test_random_numbers_of_our_own_are_not_compared():
    """A graph whose numbers are not eager's is never run in eager's form by turns."""
    for options, own in (({}, False), ({"random": "philox"}, True)):
        fn = flambeau.compile(broken, options=options)
        assert compiler_of(fn).converter.backend.own_numbers is own


def test_a_module_that_is_compiled_again_has_the_records_of_the_last():
    module, x = torch.nn.Linear(2, 2), torch.ones(3, 2)
    first = flambeau.compile(module, backend="eager")
    first(x)
    second = flambeau.compile(module, backend="eager")
    second(x)
    del first
    assert len(flambeau.report(second).records) == 1
