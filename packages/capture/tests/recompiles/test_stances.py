"""Stances: what compiled callables do while one holds."""

import pytest
import torch
from flambeau_capture import RecompileError, get_stance, run, set_stance


def halved(x):
    return x / 2 + x.shape[0]


@pytest.fixture(autouse=True)
def default_stance():
    assert get_stance() == "default"
    yield
    set_stance("default")


def test_eager_runs_everything_as_it_is(capture, backend):
    fn = capture(halved)
    with set_stance("eager"):
        assert get_stance() == "eager"
        assert torch.equal(fn(torch.ones(2)), halved(torch.ones(2)))
    assert len(backend) == 0
    fn(torch.ones(2))
    assert len(backend) == 1


def test_run_only_uses_what_is_there_and_makes_nothing(capture, backend):
    fn = capture(halved, dynamic=False)
    fn(torch.ones(2))
    with set_stance("run_only"):
        for size in (2, 3):
            assert torch.equal(fn(torch.ones(size)), halved(torch.ones(size)))
        other = capture(halved)
        assert torch.equal(other(torch.ones(2)), halved(torch.ones(2)))
    assert len(backend) == 1


def test_fail_on_recompile_allows_the_first_and_names_the_reason(capture, backend):
    fn = capture(halved, dynamic=False)
    with set_stance("fail_on_recompile"):
        fn(torch.ones(2))
        fn(torch.ones(2))
        with pytest.raises(RecompileError, match=r"'x' TENSOR_MATCH.*sizes \(2\).*sizes \(3\)"):
            fn(torch.ones(3))
    assert torch.equal(fn(torch.ones(3)), halved(torch.ones(3)))
    assert len(backend) == 2


def test_it_fails_beyond_the_limit_too(capture):
    fn = capture(halved, dynamic=False, cache_size_limit=1)
    fn(torch.ones(2))
    with set_stance("fail_on_recompile"), pytest.raises(RecompileError):
        fn(torch.ones(3))


def test_as_a_function_it_stays(capture, backend):
    set_stance("eager")
    capture(halved)(torch.ones(2))
    assert len(backend) == 0 and get_stance() == "eager"


def test_as_a_decorator_it_holds_for_the_call(capture, backend):
    fn = capture(halved)

    @set_stance("eager")
    def plainly(x):
        return fn(x), get_stance()

    assert get_stance() == "default"
    assert plainly(torch.ones(2))[1] == "eager"
    assert get_stance() == "default" and len(backend) == 0


def test_it_is_restored_when_the_block_raises_and_nests():
    with pytest.raises(KeyError), set_stance("run_only"):
        with set_stance("eager"):
            pass
        assert get_stance() == "run_only"
        raise KeyError
    assert get_stance() == "default"
    with pytest.raises(ValueError, match="run_only"):
        set_stance("fast")


def test_run_never_compiles(capture, backend):
    fn = capture(halved, dynamic=False)
    fn(torch.ones(2))
    frozen = run(fn)
    for size in (2, 5):
        assert torch.equal(frozen(torch.ones(size)), halved(torch.ones(size)))
    with run():
        fn(torch.ones(7))
    assert len(backend) == 1
    fn(torch.ones(7))
    assert len(backend) == 2


@pytest.mark.parametrize("name", ["eager_then_compile", "aot_eager_then_compile"])
def test_the_first_call_runs_as_it_is_and_its_sizes_are_noted(capture, backend, name):
    fn = capture(lambda x, n: x.sin() * n)
    with set_stance(name):
        assert get_stance() == "eager_then_compile"
        for call, size in enumerate((4, 5, 6)):
            x = torch.ones(size)
            assert torch.equal(fn(x, size), x.sin() * size)
            assert len(backend) == min(call, 1)
    assert get_stance() == "default"
    capture(halved)(torch.ones(3))
    assert len(backend) == 2


@pytest.mark.parametrize(
    ("theirs", "ours"), [("force_eager", "eager"), ("eager_on_recompile", "run_only")]
)
def test_torchs_names_of_stances_are_taken(theirs, ours):
    with set_stance(theirs):
        assert get_stance() == ours


@pytest.mark.parametrize("within", [run, lambda fn: set_stance("run_only")(fn)])
def test_a_module_stays_one_and_shares_its_state(capture, backend, within):
    module = torch.nn.Linear(2, 2)
    for made in (module, capture(module)):
        frozen = within(made)
        assert isinstance(frozen, torch.nn.Linear) and frozen.weight is module.weight
        assert torch.equal(frozen(torch.ones(2)), module(torch.ones(2)))
        assert get_stance() == "default"
    assert len(backend) == 0
    capture(module)(torch.ones(2))
    assert len(backend) == 1
