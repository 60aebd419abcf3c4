"""What a program drops is gone at once, with the collector off: every holder of a tensor, with
every backend, forward and backward, dropped in every order. Many compilations leave nothing.

The long form is `python integration_tests/test_lifetimes.py COMPILATIONS CALLS [BACKEND]`.
"""

import ctypes
import gc
import itertools
import os
import subprocess
import sys
import tracemalloc
import weakref
from pathlib import Path

import pytest
import torch

import flambeau


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(4, 4)
        self.b = torch.nn.Linear(4, 4)
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x):
        return self.b(torch.relu(self.a(x)) + self.shift)


class Parent(torch.nn.Module):
    """Its child knows it, weakly."""

    def __init__(self):
        super().__init__()
        self.net = Net()
        object.__setattr__(self.net, "parent", weakref.ref(self))

    def forward(self, x):
        return self.net(x)


class Held:
    """A program: what is called, on what, and the names under which it keeps what it holds."""

    def __init__(self, backend):
        self.compiled = None
        self.backend = backend
        self.x = torch.ones(2, 4)

    def watched(self):
        """Weak references to the module and the tensors that are to go."""
        tensors = [*self.module.parameters(), *self.module.buffers()]
        return [weakref.ref(one) for one in (self.module, *tensors)]

    def compile(self, target):
        return flambeau.compile(target, backend=self.backend)


class Compiled(Held):
    def build(self):
        self.module = Net()
        self.compiled = self.compile(self.module)

    def run(self):
        return self.compiled(self.x)


class Argument(Held):
    def build(self):
        self.module = Net()
        self.compiled = self.compile(lambda module, x: module(x) * 2)

    def run(self):
        return self.compiled(self.module, self.x)


class InList(Argument):
    def build(self):
        self.module = Net()
        self.compiled = self.compile(lambda modules, x: modules[0](x) * 2)

    def run(self):
        return self.compiled([self.module], self.x)


class Submodule(Held):
    """Replaced: the module that holds it lives on."""

    def build(self):
        self.outer = Parent()
        self.module = self.outer.net
        self.compiled = self.compile(self.outer)

    def run(self):
        return self.compiled(self.x)

    def drop_module(self):
        self.outer.net = Net()
        del self.module


class Closure(Held):
    def build(self):
        self.module = Net()
        cell = [self.module]

        def fn(x):
            return module(x) + 1

        module = cell.pop()
        self.compiled = self.compile(fn)

    def run(self):
        return self.compiled(self.x)


class Broken(Argument):
    """A graph break, and a resume function that has the module, too."""

    def build(self):
        self.module = Net()

        def fn(module, x):
            y = module(x)
            flambeau.graph_break()
            return module(y)

        self.compiled = self.compile(fn)


class Attribute(Argument):
    """Of an object of the program's own."""

    def build(self):
        class Owner:
            pass

        self.owner = Owner()
        self.owner.module = self.module = Net()
        self.compiled = self.compile(lambda owner, x: owner.module(x))

    def run(self):
        return self.compiled(self.owner, self.x)

    def drop_module(self):
        del self.owner.module, self.module


HOLDERS = {
    kind.__name__: kind
    for kind in (Compiled, Argument, InList, Submodule, Closure, Broken, Attribute)
}
PARTS = ("module", "compiled", "result")


@pytest.fixture
def no_collection():
    gc.disable()
    yield
    gc.enable()


def drop(held, part):
    if part == "module" and hasattr(held, "drop_module"):
        held.drop_module()
    else:
        delattr(held, part)


def cases():
    """Every holder and mode with a fast backend, every order with one holder, and the slow one."""
    for mode, holder in itertools.product(("forward", "backward", "late backward"), HOLDERS):
        yield "aot_eager", mode, holder, PARTS
    for holder in HOLDERS:
        yield "eager", "backward", holder, PARTS[::-1]
    for order in itertools.permutations(PARTS):
        yield "aot_eager", "late backward", "Argument", order
    for mode in ("forward", "late backward"):
        yield "inductor", mode, "Argument", PARTS


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("backend", "mode", "holder", "order"), list(cases()))
def test_dropped_weights_are_gone(no_collection, backend, holder, mode, order):
    held = HOLDERS[holder](backend)
    held.build()
    for _ in range(3):  # guards watch from the third call on
        held.result = held.run()
        if mode == "backward":
            held.result.sum().backward()
    watched = held.watched()
    for part in order:
        if part == "result" and mode == "late backward":
            held.result.sum().backward()
        drop(held, part)
    assert [reference() for reference in watched] == [None] * len(watched)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("mode", ["forward", "backward"])
@pytest.mark.parametrize("holder", ["Argument", "InList", "Submodule", "Broken", "Attribute"])
def test_module_goes_while_the_function_stays(no_collection, backend, holder, mode):
    """Twice: the second one is compiled for the shape of things that the first has left."""
    held = HOLDERS[holder](backend)
    held.build()
    for _ in range(2):
        for _ in range(3):
            result = held.run()
            if mode == "backward":
                result.sum().backward()
        del result
        watched = held.watched()
        drop(held, "module")
        assert [reference() for reference in watched] == [None] * len(watched)
        if holder == "Submodule":
            held.module = held.outer.net
        else:
            held.module = Net()
        if holder == "Attribute":
            held.owner.module = held.module


def failing(*_, **__):
    raise RuntimeError("cannot do this")


FAILING = {
    "a backend": None,
    "capture": "flambeau_capture.frame.conversion.SymbolicTracer",
    "aot": "flambeau_aot.compile",
    "inductor": "flambeau_inductor.compile",
}


@pytest.mark.usefixtures("falls_back", "no_collection")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("holder", ["Argument", "InList", "Closure", "Attribute"])
@pytest.mark.parametrize("failing_layer", FAILING)
def test_a_failure_to_compile_holds_nothing_of_the_program(
    monkeypatch, tmp_path, failing_layer, holder
):
    place = FAILING[failing_layer]
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))  # what is there is not compiled
    if place is not None:
        monkeypatch.setattr(place, failing)
    held = HOLDERS[holder]("inductor" if place else failing)
    held.build()
    held.result = held.run()
    seen = flambeau.report()
    assert seen.fallbacks or seen.internal_errors or seen.backend_errors
    watched = held.watched()
    for part in PARTS:
        drop(held, part)
    assert [reference() for reference in watched] == [None] * len(watched)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("fn", [lambda x: x + x, lambda x: x.sin() * 2, lambda x: x.view(-1)])
def test_arguments_are_not_kept(no_collection, backend, grad, fn):
    compiled = flambeau.compile(fn, backend=backend)
    for _ in range(3):
        x = torch.ones(3, 2, requires_grad=grad)
        compiled(x)
        reference = weakref.ref(x)
        del x
        assert reference() is None


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("kind", ["tensor", "object", "module"])
def test_what_is_read_through_a_weak_reference(no_collection, backend, kind):
    class Thing:
        k = 3

    class Module(torch.nn.Module):
        k = 3

    made = {"tensor": lambda: torch.ones(2), "object": Thing, "module": Module}[kind]()
    reference = weakref.ref(made)

    def fn(x):
        found = reference()
        if found is None:
            return x - 1
        return x * (found if isinstance(found, torch.Tensor) else found.k)

    compiled, x = flambeau.compile(fn, backend=backend), torch.ones(2)
    for _ in range(3):
        assert torch.equal(compiled(x), fn(x))
    del made
    assert reference() is None
    assert torch.equal(compiled(x), x - 1)


# --- many compilations ---------------------------------------------------------------------------


def compile_once(backend, calls):
    module = Net()
    compiled = flambeau.compile(module, backend=backend)
    x = torch.ones(2, 4)
    for _ in range(calls):
        compiled(x).sum().backward()


def resident():
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def collect():
    """What a first collection finalizes leaves more for a second."""
    while gc.collect():
        pass


def soak(compilations, calls, backend):
    """Objects and bytes a compilation that stay: live ones, traced ones, resident ones."""
    for _ in range(max(20, compilations // 20)):
        compile_once(backend, 3)
    collect()
    objects, before = len(gc.get_objects()), resident()
    for _ in range(compilations):
        compile_once(backend, 3)
    collect()
    objects, after = len(gc.get_objects()) - objects, resident() - before
    few = min(compilations, 50)
    tracemalloc.start()
    for _ in range(5):  # what the latest compilation keeps is now traced, too
        compile_once(backend, 3)
    collect()
    traced = tracemalloc.get_traced_memory()[0]
    for _ in range(few):
        compile_once(backend, 3)
    collect()
    traced = tracemalloc.get_traced_memory()[0] - traced
    tracemalloc.stop()
    called = resident()
    compile_once(backend, calls)
    collect()
    return objects / compilations, traced / few, after / compilations, resident() - called


@pytest.mark.parametrize(("backend", "rounds"), [("eager", 60), ("aot_eager", 30)])
def test_compilations_leave_nothing(backend, rounds):
    """In a process of its own, where no test run keeps warnings and logs."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, str(rounds), "300", backend],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    objects, traced, _, _ = (float(number) for number in done.stdout.split())
    assert objects < 1, f"{objects:.2f} objects a compilation stay"
    # tables of torch and of Python grow in steps: few rounds tell less than the long form does
    assert traced < 8192, f"{traced:.0f} bytes a compilation stay"


if __name__ == "__main__":
    given = sys.argv[1:]
    print(*soak(int(given[0]), int(given[1]), given[2] if len(given) > 2 else "eager"))
