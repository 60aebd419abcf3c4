"""Eight threads call and compile the same and different functions; nobody waits for user code."""

import gc
import threading

import pytest
import torch
from flambeau_capture import optimize, reset
from flambeau_capture._native import active

THREADS = 8


def together(work):
    """Run `work(i)` on every thread at once; the first error is raised here."""
    errors = []
    start = threading.Barrier(THREADS)

    def body(i):
        try:
            start.wait(timeout=60)
            work(i)
            assert active() is None
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


def test_the_same_function(capture, backend):
    def fn(x, n):
        y = x * n
        return (y + x.shape[0]).sum(), [y]

    compiled = capture(fn)

    def work(i):
        for turn in range(12):
            x, n = torch.randn(2 + (i + turn) % 3), 1.0 + turn % 4
            ours, theirs = compiled(x, n), fn(x, n)
            assert torch.equal(ours[0], theirs[0]) and torch.equal(ours[1][0], theirs[1][0])

    together(work)
    assert 1 <= len(backend) <= 8


def test_different_functions_and_modules():
    def work(i):
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
        compiled = optimize("eager", raise_internal_errors=True)(model)

        def fn(x):
            for _ in range(i + 1):
                x = x + i
            return x

        mine = optimize("eager", raise_internal_errors=True)(fn)
        for turn in range(4):
            x = torch.randn(2 + turn, 3)
            assert torch.equal(compiled(x), model(x))
            assert torch.equal(mine(x), fn(x))

    together(work)


def test_breaks_and_exceptions():
    def fn(x, fail):
        x = x + 1
        if float(x.sum()) > 1e9 or fail:
            raise KeyError("asked for")
        return x * 2

    compiled = optimize("eager", raise_internal_errors=True)(fn)

    def work(i):
        for turn in range(6):
            x = torch.randn(3)
            if (i + turn) % 2:
                assert torch.equal(compiled(x, False), (x + 1) * 2)
            else:
                with pytest.raises(KeyError, match="asked for"):
                    compiled(x, True)

    together(work)


def test_what_is_guarded_changes_meanwhile(monkeypatch):
    monkeypatch.delenv("FLAMBEAU_FAULTS", raising=False)

    class Owner:
        scale = 1.0

    owner = Owner()

    def fn(x):
        return x * owner.scale

    compiled = optimize("eager")(fn)
    allowed = (1.0, 2.0, 3.0)

    def work(i):
        x = torch.ones(2)
        for turn in range(30):
            if i == 0:
                owner.scale = allowed[turn % 3]
            assert compiled(x)[0].item() in allowed

    together(work)


def test_no_lock_is_held_while_a_backend_runs():
    """A backend waits for another thread, which calls the function that is being compiled."""
    answers = []

    def waiting(module, example_inputs):
        other = threading.Thread(target=lambda: answers.append(compiled(torch.ones(2))))
        other.start()
        other.join(timeout=60)
        assert not other.is_alive(), "the other thread waits for the compilation"
        return module.forward

    compiled = optimize(waiting)(lambda x: x + 1)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert torch.equal(answers[0], torch.full((2,), 2.0))


def test_a_backend_that_calls_the_function_itself():
    def nested(module, example_inputs):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
        return module.forward

    compiled = optimize(nested, raise_internal_errors=True)(lambda x: x + 1)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))


def test_callables_are_made_called_and_dropped():
    """Each thread compiles its own functions of shared code, calls them and lets go of them."""

    def make(scale):
        def fn(x):
            y = x * scale
            return y.relu() + x.shape[0]

        return fn

    def work(i):
        for turn in range(8):
            fn = make(float(turn % 3))
            compiled = optimize("eager", raise_internal_errors=True)(fn)
            for size in (2, 3):
                x = torch.randn(size)
                assert torch.equal(compiled(x), fn(x))
            del compiled, fn
            if turn % 4 == i % 4:
                gc.collect()

    together(work)


def test_reset_while_others_call():
    def inner(x, n):
        return x * n + x.shape[0]

    def fn(x, n):
        return inner(x, n).sum() + n

    compiled = optimize("eager", raise_internal_errors=True)(fn)
    resets = []

    def work(i):
        for turn in range(25):
            if i == 0:
                reset()
                resets.append(turn)
            x, n = torch.randn(2 + turn % 3), turn % 4
            assert torch.equal(compiled(x, n), fn(x, n))

    together(work)
    assert len(resets) == 25
    x = torch.ones(3)
    assert torch.equal(compiled(x, 2), fn(x, 2))
