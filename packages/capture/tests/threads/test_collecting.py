"""The collector runs wherever it can, and what it ends is in use: entries, locals of threads.

The cases run in a process of their own, which a fault would end.
"""

import gc
import os
import random
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import torch
from flambeau_capture import disable, graph_break, optimize, reset
from flambeau_capture._native import bears_callback

collect = disable(gc.collect)


class Local(threading.local):
    def __init__(self, n):
        self.n = n


class Node:
    def __init__(self, n):
        self.n = n
        self.itself = self  # ends by a collection only


def agrees(fn, *makes, calls=3):
    """Each argument is made anew for each call."""
    compiled = optimize("eager", raise_internal_errors=True)(fn)
    gc.set_threshold(1)
    for _ in range(calls):
        wanted, got = fn(*[make() for make in makes]), compiled(*[make() for make in makes])
        assert torch.equal(got, wanted)
    gc.set_threshold(700, 10, 10)


def locals_made_between_breaks():
    def fn(x):
        one, two = Local(1), Local(2)
        x = x * (id(one) != id(two))
        graph_break()
        two.n = one
        graph_break()
        return x + one.n

    agrees(fn, lambda: torch.ones(2))


def locals_given():
    def fn(x, o):
        x = x * o.n
        graph_break()
        return x + o.n

    agrees(fn, lambda: torch.ones(2), lambda: Local(3))


def objects_that_only_the_collector_ends():
    def fn(x, o):
        made = Node(2)
        seen = weakref.ref(made)
        graph_break()
        x = x * o.n + seen().n
        made = o = None
        collect()
        return x + (seen() is None)

    agrees(fn, lambda: torch.ones(2), lambda: Node(3))


def entries_that_end_while_they_run():
    held = [torch.nn.Linear(2, 2)]

    @disable
    def drop():
        held[:] = [torch.nn.Linear(2, 2)]
        gc.collect()

    def fn(x):
        x = held[0](x)
        drop()
        graph_break()
        return held[0](x).sum() * 0

    agrees(fn, lambda: torch.ones(2), calls=6)


def resets_while_calls_run():
    draw = random.Random(3)

    @disable
    def forget():
        if draw.random() < 0.5:
            reset()

    def inner(x, n):
        graph_break()
        forget()
        return x * n

    def fn(x):
        for n in range(2):
            x = inner(x, n) + 1
            forget()
        return x

    agrees(fn, lambda: torch.ones(2), calls=4)


def threads_that_reset_and_drop():
    errors = []

    def work(seed):
        draw = random.Random(seed)
        for turn in range(4):
            number = float(draw.randrange(3))

            def fn(x, o, number=number):
                x = x * o.n + number
                graph_break()
                return x - number

            compiled = optimize("eager", raise_internal_errors=True)(fn)
            for make in (Node, Local):
                x = torch.ones(2 + turn % 2)
                if not torch.equal(compiled(x, make(2)), fn(x, make(2))):
                    errors.append((seed, turn))
            if draw.random() < 0.3:
                reset()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    gc.set_threshold(20)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


CASES = (
    locals_made_between_breaks,
    locals_given,
    objects_that_only_the_collector_ends,
    entries_that_end_while_they_run,
    resets_while_calls_run,
    threads_that_reset_and_drop,
)


def run_all():
    gc.collect()
    gc.freeze()  # torch's own objects: what a case makes is collected, again and again
    for case in CASES:
        print(case.__name__, flush=True)
        case()


def test_nothing_in_use_ends():
    script = f"import {Path(__file__).stem} as t; t.run_all()"
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-X", "faulthandler", "-c", script],
        env={**os.environ, "PYTHONPATH": path, "PYTHONMALLOC": "debug"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert done.stdout.split() == [case.__name__ for case in CASES]


def test_what_bears_no_callback():
    """A thread's local is the one kind of object that the collector sees while it ends."""
    assert not bears_callback(Local(1)) and not bears_callback(threading.local())
    assert all(map(bears_callback, (Node(1), Node, agrees, torch.nn.Linear(1, 1), {1}, sys)))
