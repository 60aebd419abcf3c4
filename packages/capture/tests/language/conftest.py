"""`check(fn, *args, graphs=n)`: captured and eager runs agree, in results and in side effects."""

import copy
import sys
from pathlib import Path

import pytest

#: what tests share, beside those that do
_SHARED = (".", "breaks", "generators", "habits")
sys.path[:0] = [str(Path(__file__).parent / folder) for folder in _SHARED]


@pytest.fixture
def check(capture, backend, same):
    def run(fn, *args, graphs=1, calls=2, **kwargs):
        backend.clear()
        compiled = capture(fn)
        for _ in range(calls):
            ours, theirs = copy.deepcopy((args, kwargs)), copy.deepcopy((args, kwargs))
            expected = outcome(fn, *theirs)
            got = outcome(compiled, *ours)
            same(got, expected)
            same(ours, theirs, "arguments")
        if graphs is not None:
            assert len(backend) == graphs, f"{len(backend)} graphs, not {graphs}"
        return compiled

    def outcome(fn, args, kwargs):
        try:
            return fn(*args, **kwargs)
        except Exception as error:
            return type(error), str(error)

    return run


@pytest.fixture
def one_graph(capture, backend, same):
    """`one_graph(fn, graphs)`: fn of a tensor gives what eager gives, twice, in so many graphs."""

    def run(fn, graphs=1):
        import torch

        t = torch.arange(3.0) + 1
        expected = fn(t.clone())
        compiled = capture(fn)
        for _ in range(2):
            same(compiled(t.clone()), expected)
        assert len(backend) == graphs, f"{len(backend)} graphs, not {graphs}"

    return run
