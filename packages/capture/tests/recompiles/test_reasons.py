"""Why a function is compiled again: one line, both values, counted."""

import pytest
import torch
from flambeau_capture.api import compiler_of
from flambeau_capture.errors import CaptureWarning


def records(fn):
    return compiler_of(fn).records.recompiles


def test_each_object_tells_both_values(capture):
    class Owner:
        def __init__(self):
            self.mode = "sum"

    owner = Owner()

    def reduced(x):
        return x.sum() if owner.mode == "sum" else x.mean()

    fn = capture(reduced)
    x = torch.randn(3)
    assert torch.equal(fn(x), x.sum())
    owner.mode = "mean"
    assert torch.equal(fn(x), x.mean())
    (record,) = records(fn)
    assert "owner.mode" in str(record) and "'sum'" in str(record) and "'mean'" in str(record)
    assert "\n" not in str(record)


def test_tensors_are_told_by_their_sizes(capture):
    state = {}
    fn = capture(lambda x: x * len(state) + sum(state.values()))
    fn(torch.ones(2))
    state[torch.nn.Parameter(torch.ones(30, 30))] = 1
    fn(torch.ones(2))
    text = str(records(fn)[0])
    assert "\n" not in text
    assert text.endswith("expected keys (), got keys (Parameter of sizes (30, 30),)")


def test_the_newest_entry_is_told_first(capture):
    def scaled(x, mode):
        return x * len(mode)

    fn = capture(scaled)
    x = torch.ones(2)
    for mode in ("a", "bb", "ccc"):
        fn(x, mode)
    fn(x, "a")  # the oldest was used last
    fn(x, "dddd")
    expected = [failure.expected for failure in records(fn)[-1].failures]
    assert expected == ["'ccc'", "'bb'", "'a'"]


def test_counts_by_object(capture):
    def scaled(x, mode, flag):
        return x * len(mode) if flag else x

    fn = capture(scaled, dynamic=False)
    for mode, flag in (("a", True), ("bb", True), ("ccc", True), ("ccc", False)):
        fn(torch.ones(2), mode, flag)
    counts = compiler_of(fn).records.recompiles_by_object()
    assert counts == {"local 'mode'": 2, "local 'flag'": 1}


def test_beyond_the_limit_it_runs_as_it_is_with_one_warning(capture, backend):
    def scaled(x, mode):
        return x * len(mode)

    fn = capture(scaled, cache_size_limit=2)
    x = torch.ones(2)
    fn(x, "a"), fn(x, "bb")
    with pytest.warns(CaptureWarning, match=r"cache_size_limit.*expected 'bb', got 'ccc'"):
        assert torch.equal(fn(x, "ccc"), x * 3)
    assert torch.equal(fn(x, "dddd"), x * 4)
    assert torch.equal(fn(x, "a"), x)
    assert len(backend) == 2
