"""Small functions cost what they cost in eager: by what runs once they compile no more.

In: functions of one graph, some of which eager runs faster by far, and one that kernels do. Out:
which form each has come to, by the counters of the frame hook. Invariant: no time is asserted.
"""

import pytest
import torch
from flambeau_capture.api import compiler_of
from flambeau_capture.frame.timing_trials import CALLS, QUIET, TURNS

import flambeau

ENOUGH = CALLS * (QUIET + 2 * TURNS) + CALLS


def chain(x):
    for _ in range(30):
        x = (x * 0.5 + 1).sin()
    return x


SMALL = {
    "relu": (lambda x: x.relu(), (8, 8)),
    "matmul": (lambda x: x @ x, (8, 8)),
    "softmax": (lambda x: x.softmax(0), (100,)),
    "sum": (lambda x: x.sum(), (100,)),
    "view": (lambda x: x.view(4, 16).t(), (8, 8)),
}


def counted(fn):
    return compiler_of(fn).cache.counters()


def calls(fn, like, x, times):
    for _ in range(times):
        torch.testing.assert_close(fn(x), like(x))


@pytest.mark.parametrize("name", SMALL)
def test_a_function_of_one_small_operation_runs_as_it_is(name):
    fn, shape = SMALL[name]
    compiled = flambeau.compile(fn)
    calls(compiled, fn, torch.randn(shape), ENOUGH)
    (text,) = flambeau.report(compiled).settled
    assert "runs as it is" in text
    calls(compiled, fn, torch.randn(shape), 40)
    before = counted(compiled)
    calls(compiled, fn, torch.randn(shape), 100)
    now = counted(compiled)
    assert now["plain_frames"] == before["plain_frames"] + 100 and now["hits"] == before["hits"]


def test_with_its_backward_pass():
    fn, shape = SMALL["softmax"]
    compiled = flambeau.compile(fn)
    x = torch.randn(shape, requires_grad=True)
    for _ in range(ENOUGH):
        for form in (compiled, fn):
            form(x).square().sum().backward()
        ours_and_eager = x.grad
        x.grad = None
        torch.testing.assert_close(
            ours_and_eager, 2 * torch.autograd.grad(fn(x).square().sum(), x)[0]
        )
    assert counted(compiled)["plain_frames"] > 5


def test_a_function_that_kernels_make_faster_stays_compiled():
    compiled = flambeau.compile(chain)
    calls(compiled, chain, torch.randn(64), ENOUGH)
    assert flambeau.report(compiled).settled == ()
    before = counted(compiled)["hits"]
    calls(compiled, chain, torch.randn(64), 50)
    assert counted(compiled)["hits"] == before + 50


def test_the_large_sizes_of_a_function_are_compiled_while_the_small_run_as_they_are():
    """A verdict is for what the guards hold for."""

    def program(x):
        return x.relu() if x.shape[0] < 100 else chain(x)

    compiled = flambeau.compile(program, dynamic=False)
    small, large = torch.randn(8), torch.randn(1000)
    for x in (small, large):
        calls(compiled, program, x, ENOUGH)
    (text,) = flambeau.report(compiled).settled
    assert "runs as it is" in text
    before = counted(compiled)
    calls(compiled, program, large, 30)
    now = counted(compiled)
    assert now["hits"] == before["hits"] + 30
    calls(compiled, program, small, 30)
    assert counted(compiled)["plain_frames"] == now["plain_frames"] + 30
