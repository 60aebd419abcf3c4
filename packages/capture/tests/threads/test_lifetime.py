"""Entries die with their code, module or callable; memory stays level; the hook never leaks."""

import ctypes
import gc
import os
import subprocess
import sys
import tracemalloc
import weakref
from pathlib import Path

import pytest
import torch
from flambeau_capture import disable, graph_break, optimize, reset
from flambeau_capture._native import active

# 1,000 on request: FLAMBEAU_LIFETIME_ROUNDS=1000
ROUNDS = int(os.environ.get("FLAMBEAU_LIFETIME_ROUNDS", "16"))
# of fewer rounds the allocator's own steps are larger than what the kernel sees
MANY = 200


def collect():
    """Twice: the names that a compiled callable has taken go when it does, their graphs after."""
    gc.collect()
    gc.collect()


def compile_and_drop(i):
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)
            self.scale = float(i)

        def forward(self, x):
            y = self.linear(x)
            graph_break()
            return y * self.scale

    module = Scaled()
    compiled = optimize("eager", raise_internal_errors=True)(module)
    for size in (2, 3, 4):
        compiled(torch.randn(size, 4))
    return weakref.ref(module), weakref.ref(Scaled), weakref.ref(module.linear.weight)


def test_nothing_outlives_its_module():
    references = [reference for i in range(3) for reference in compile_and_drop(i)]
    collect()
    assert [reference() for reference in references] == [None] * len(references)


@pytest.mark.parametrize("held", ("a global", "the caller's"))
@pytest.mark.filterwarnings("ignore:backend")
def test_nothing_outlives_a_backend_that_fails(held):
    class Held:
        scale = 2.0

    def failing(module, inputs):
        raise RuntimeError("this backend takes nothing")

    def call():
        other = Held()
        namespace["held"] = Held()
        references.append(weakref.ref(other if held == "the caller's" else namespace["held"]))
        assert run(torch.ones(2)).tolist() == [2.0, 2.0]

    namespace, references = {}, []
    exec("def run(t):\n    held.seen = 1\n    return t * held.scale", namespace)
    run = optimize(failing)(namespace["run"])
    call()
    namespace["held"] = None
    assert references[0]() is None


def refused(t):
    try:
        return t @ torch.ones(3, 3)
    except RuntimeError:
        return t * 2


@pytest.mark.parametrize("function", (lambda t: t * 2, refused))
@pytest.mark.filterwarnings("ignore:backend")
def test_an_error_that_the_program_handles_keeps_its_frames(function):
    def failing(module, inputs):
        raise RuntimeError("this backend takes nothing")

    def raising():
        kept = "local"
        raise ValueError(kept)

    run = optimize(failing)(function)
    try:
        raising()
    except ValueError as error:
        assert run(torch.ones(2)).tolist() == [2.0, 2.0]
        assert error.__traceback__.tb_next.tb_frame.f_locals["kept"] == "local"


def test_names_leave_the_namespace():
    before = set(globals())
    compile_and_drop(0)
    collect()
    assert {name for name in set(globals()) - before if name.startswith("__")} == set()


def test_globals_stay_while_a_program_goes_through_them():
    """An object that the code was made for may end at any time; what was compiled goes with it."""

    def fn(x, o):
        return o(x)

    compiled = optimize("eager", raise_internal_errors=True)(fn)
    KEPT[:] = [torch.nn.Linear(2, 2)]
    compiled(torch.ones(2), KEPT[0])
    graphs = [n for n, value in globals().items() if n.startswith("__compiled_fn") and value]
    assert graphs
    for _ in globals().items():
        KEPT.clear()
    assert not any(globals()[name] for name in graphs)
    KEPT[:] = [torch.nn.Linear(2, 2)]
    compiled(torch.ones(2), KEPT[0])
    assert len([name for name in globals() if name.startswith("__compiled_fn")]) == len(graphs)


KEPT = []


def measure(rounds):
    """Bytes a round that stay, as tracemalloc and as the kernel see it."""
    for i in range(20 if rounds < MANY else 250):  # tables of torch, sympy and capture fill once
        compile_and_drop(i)
    collect()
    resident = resident_bytes()
    for i in range(rounds if rounds >= MANY else 0):
        compile_and_drop(i)
    collect()
    resident = resident_bytes() - resident
    few = min(rounds, 100)  # tracing takes memory of its own
    tracemalloc.start()
    traced = tracemalloc.get_traced_memory()[0]
    for i in range(few):
        compile_and_drop(i)
    collect()
    return (tracemalloc.get_traced_memory()[0] - traced) / few, resident / rounds


def resident_bytes():
    """What the process holds once the allocator has given back what it can."""
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_memory_is_level():
    """In a process of its own: a test run keeps warnings and logs."""
    script = f"import {Path(__file__).stem} as t; print(*t.measure({ROUNDS}))"
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    traced, resident = (float(number) for number in done.stdout.split())
    assert traced < (2048 if ROUNDS >= MANY else 8192), f"{traced:.0f} bytes a round stay"
    if ROUNDS >= MANY:
        assert resident < 16384, f"{resident:.0f} bytes a round stay resident"


def test_a_function_dies_with_its_callable():
    def make():
        def fn(x):
            return x * 2

        compiled = optimize("eager")(fn)
        compiled(torch.ones(2))
        return weakref.ref(fn), weakref.ref(compiled)

    references = make()
    collect()
    assert [reference() for reference in references] == [None, None]


def test_the_hook_is_gone_after_an_exception():
    def fn(x):
        graph_break()
        raise LookupError("midway")

    compiled = optimize("eager")(fn)
    for _ in range(3):
        with pytest.raises(LookupError):
            compiled(torch.ones(2))
        assert active() is None


def test_the_hook_is_gone_after_a_failing_backend():
    def failing(module, example_inputs):
        raise ValueError("no")

    compiled = optimize(failing)(lambda x: x + 1)
    with pytest.warns(UserWarning, match="failing"):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert active() is None
    strict = optimize(failing, nopython=True)(lambda x: x + 1)
    with pytest.raises(RuntimeError, match="no"):
        strict(torch.ones(2))
    assert active() is None


def test_disabled_and_nested_callables_restore_it():
    seen = []

    @disable
    def plain(x):
        seen.append(active())
        return x + 1

    inner = optimize("eager")(lambda x: plain(x) * 2)

    def outer(x):
        y = inner(x)
        graph_break()
        seen.append(active())
        return y

    compiled = optimize("eager")(outer)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 4.0))
    assert seen[0] is None and active() is None


def test_reset_in_the_middle_of_a_call():
    """What runs goes on; the names it needs are taken back later."""

    def fn(x):
        y = x + 1
        reset()
        graph_break()
        return y * 2

    collect()
    before = set(globals())
    compiled = optimize("eager", raise_internal_errors=True)(fn)
    for _ in range(4):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 4.0))
    assert set(globals()) - before
    reset()
    assert not set(globals()) - before
