"""Stances at the front door, and that nothing is compiled after warming up."""

import threading

import pytest
import torch

import flambeau


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "cache"))


def fn(x):
    return torch.tanh(x) * 2


def compiles(compiled):
    return flambeau.report(compiled).graphs


def test_after_warming_up_run_compiles_nothing():
    compiled = flambeau.compile(fn, dynamic=False)
    for size in (3, 4):
        compiled(torch.ones(size))
    warm = compiles(compiled)
    frozen = flambeau.run(compiled)
    for size in (3, 4, 5, 6, 3):
        torch.testing.assert_close(frozen(torch.ones(size)), fn(torch.ones(size)))
    with flambeau.set_stance("run_only"):
        torch.testing.assert_close(compiled(torch.ones(7)), fn(torch.ones(7)))
    assert compiles(compiled) == warm == 2
    compiled(torch.ones(5))
    assert compiles(compiled) == 3  # the counter counts


def test_eager_runs_what_is_written():
    compiled = flambeau.compile(fn)
    with flambeau.set_stance("eager"):
        assert flambeau.get_stance() == "eager"
        torch.testing.assert_close(compiled(torch.ones(3)), fn(torch.ones(3)))
    assert flambeau.get_stance() == "default" and compiles(compiled) == 0
    compiled(torch.ones(3))
    assert compiles(compiled) == 1


def test_a_recompile_is_an_error_that_says_why():
    compiled = flambeau.compile(fn, dynamic=False)
    compiled(torch.ones(3))
    with flambeau.set_stance("fail_on_recompile"):
        compiled(torch.ones(3))
        with pytest.raises(flambeau.RecompileError, match=r"3.*4|4.*3"):
            compiled(torch.ones(4))
    assert compiles(compiled) == 1
    compiled(torch.ones(4))
    assert compiles(compiled) == 2


def test_a_first_compile_is_no_recompile():
    with flambeau.set_stance("fail_on_recompile"):
        compiled = flambeau.compile(fn)
        torch.testing.assert_close(compiled(torch.ones(3)), fn(torch.ones(3)))


def test_an_unknown_one_lists_those_there_are():
    with pytest.raises(ValueError, match="default, eager, run_only, fail_on_recompile"):
        flambeau.set_stance("fast")


def test_as_a_decorator():
    compiled = flambeau.compile(fn)

    @flambeau.set_stance("run_only")
    def serve(x):
        return compiled(x)

    torch.testing.assert_close(serve(torch.ones(3)), fn(torch.ones(3)))
    assert compiles(compiled) == 0 and flambeau.get_stance() == "default"


def test_a_stance_comes_back_after_an_error():
    with pytest.raises(KeyError), flambeau.set_stance("eager"):
        raise KeyError("on purpose")
    assert flambeau.get_stance() == "default"


def test_it_holds_on_every_thread():
    compiled, seen = flambeau.compile(fn), []
    with flambeau.set_stance("eager"):
        thread = threading.Thread(target=lambda: seen.append(compiled(torch.ones(3))))
        thread.start()
        thread.join()
    torch.testing.assert_close(seen[0], fn(torch.ones(3)))
    assert compiles(compiled) == 0
