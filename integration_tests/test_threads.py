"""Two threads compile and run at once; one that did not ask for it is left alone."""

import threading
from concurrent.futures import ThreadPoolExecutor

import torch

import flambeau


def work(x, scale):
    y = torch.tanh(x * scale)
    return (y + 1).sum(-1)


def test_each_thread_compiles_its_own(backend):
    barrier = threading.Barrier(4)

    def one(index):
        compiled = flambeau.compile(work, backend=backend)
        x = torch.randn(4 + index, 16)
        barrier.wait()
        return [(compiled(x, 2.0), work(x, 2.0)) for _ in range(5)]

    with ThreadPoolExecutor(4) as pool:
        for pairs in pool.map(one, range(4)):
            for found, wanted in pairs:
                torch.testing.assert_close(found, wanted)


def test_threads_share_a_compiled_function(backend):
    compiled = flambeau.compile(work, backend=backend)

    def one(index):
        x = torch.randn(3, 16 + index % 2)
        return [(compiled(x, 0.5), work(x, 0.5)) for _ in range(5)]

    with ThreadPoolExecutor(4) as pool:
        for pairs in pool.map(one, range(8)):
            for found, wanted in pairs:
                torch.testing.assert_close(found, wanted)
    # a thread that meets a compilation under way runs the frame as it is: now both are made
    for width in (16, 17):
        compiled(torch.randn(3, width), 0.5)
    report = flambeau.report(compiled)
    assert report.graphs == 2 and not report.fallbacks


def test_a_thread_that_did_not_ask_is_left_alone(counting):
    seen = []

    def inner(x):
        return x * 3

    def outer(x):
        thread = threading.Thread(target=lambda: seen.append(inner(x)))
        thread.start()
        thread.join()
        return x + 1

    x = torch.randn(3)
    assert torch.equal(flambeau.compile(outer, backend=counting)(x), x + 1)
    assert torch.equal(seen[0], x * 3)
    targets = [str(n.target) for g in counting.graphs for n in g.graph.nodes]
    assert not any("mul" in target for target in targets)
