"""`nopython=True` never runs a program as it is without an error: for every reason there is."""

import functools
import operator
import threading
import warnings

import pytest
import torch
from flambeau_capture import optimize
from flambeau_capture.api import compiler_of
from flambeau_capture.breaks import SkipFrame, Unsupported
from flambeau_capture.errors import CaptureFault, RecompileError
from flambeau_capture.interp.tracer import SymbolicTracer
from test_hints import EDITS, SPECIAL

x = torch.arange(3.0) + 1


def strict(fn, backend="eager", **choices):
    return optimize(backend, nopython=True, **choices)(fn)


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize("id", sorted(EDITS))
def test_every_break_is_the_error(id):
    with pytest.raises(Unsupported) as raised:
        strict(EDITS[id][0])(x.clone())
    assert raised.value.report.reason.id == id


def _returns(t):
    return t.sin()


def _deep(t, n=200):
    return t.sin() if n == 0 else _deep(t, n - 1)


def _many(t):
    t = t.sin()
    for _ in range(1000):
        pass
    return t


KEPT = []


def _writes(t):
    KEPT.append(t * 2)
    return t


def _maps_what_writes(t):
    return torch.vmap(_writes)(t) + 1


OTHERS = {"FB0018": (_deep, {}), "FB0022": (_many, {"idle_step_limit": 500})}
OTHERS["FB0025"] = (_maps_what_writes, {})
OTHERS["FB0029"] = (lambda t: (torch.distributed.all_reduce(t), t + 1), {})  # no group is there


@pytest.mark.parametrize("id", sorted(OTHERS))
def test_limits_and_bodies(id):
    fn, choices = OTHERS[id]
    with pytest.raises(Unsupported) as raised:
        strict(fn, **choices)(x)
    assert raised.value.report.reason.id == id


def test_nothing_is_left_out_of_these_tests():
    # FB0028 only where graphs may end: under `nopython` the number is made again and again
    assert SPECIAL == set(OTHERS) | {"FB0008", "FB0010", "FB0011", "FB0026", "FB0027", "FB0028"}


def test_the_programs_own_exception_is_not_in_the_way():
    def refused(t):
        return t.sin() + torch.ones(4)

    def raises(t):
        t.sin()
        raise KeyError("of the program")

    for _ in range(2):
        with pytest.raises(RuntimeError, match="must match the size"):
            strict(refused)(x)
        with pytest.raises(KeyError, match="of the program"):
            strict(raises)(x)


def test_what_capture_took_for_an_exception_and_is_none():
    """An operator refuses what fake tensors are, and the program goes on where it has a way."""

    def fn(t):
        try:
            return t.sin() + torch.ones(4)
        except RuntimeError:
            return t.cos()

    compiled = strict(fn)
    for _ in range(2):
        try:
            got = compiled(x)
        except Unsupported as error:
            assert error.report.reason.id == "FB0011"
        else:  # captured: then in a graph
            assert torch.equal(got, fn(x)) and compiler_of(compiled).records.graphs


def test_a_frame_that_is_left_out(monkeypatch):
    def leave(self, frame):
        raise SkipFrame("for a reason")

    monkeypatch.setattr(SymbolicTracer, "begin", leave)
    with pytest.raises(Unsupported, match="for a reason") as raised:
        strict(_returns)(x)
    assert raised.value.report.reason.id == "FB0026"


@pytest.mark.parametrize("kind", [IndexError, TypeError, KeyError, AttributeError, RecursionError])
def test_a_fault_names_the_line(monkeypatch, kind):
    def fail(self, fn, args, kwargs):
        raise kind("inside")

    monkeypatch.setattr(SymbolicTracer, "call", fail)
    monkeypatch.delenv("FLAMBEAU_FAULTS", raising=False)
    compiled = strict(_returns)
    with pytest.raises((CaptureFault, Unsupported)) as raised:
        compiled(x)
    assert "t.sin()" in str(raised.value) or kind is RecursionError
    if kind is not RecursionError:
        (fault,) = compiler_of(compiled).records.faults
        assert type(fault.error) is kind and "t.sin()" in str(fault)


def test_a_fault_falls_back_and_is_counted(monkeypatch):
    def fail(self, fn, args, kwargs):
        raise IndexError("inside")

    monkeypatch.setattr(SymbolicTracer, "call", fail)
    monkeypatch.delenv("FLAMBEAU_FAULTS", raising=False)
    compiled = optimize("eager")(_returns)
    with pytest.warns(UserWarning, match="fault of flambeau-capture"):
        assert torch.equal(compiled(x), x.sin())
    assert [type(fault.error) for fault in compiler_of(compiled).records.faults] == [IndexError]
    monkeypatch.setenv("FLAMBEAU_FAULTS", "raise")
    with pytest.raises(IndexError, match="inside"):
        optimize("eager")(_returns)(x)


def test_the_limit_of_entries():
    compiled = strict(lambda t, n: t * n, cache_size_limit=1, dynamic=False)
    compiled(x, 1)
    for n in (2, 3):
        with pytest.raises(RecompileError, match="cache_size_limit"):
            compiled(x, n)
    assert torch.equal(compiled(x, 1), x)


def test_modes_and_transforms():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    compiled, lenient = strict(_returns), optimize("eager")(_returns)
    with Mode():
        assert torch.equal(lenient(x), x.sin())
        with pytest.raises(Unsupported) as raised:
            compiled(x)
    assert raised.value.report.reason.id == "FB0027"
    assert "FB0027" in [why[:6] for _, why in compiler_of(lenient).records.skipped]
    assert torch.equal(compiled(x), x.sin())


def test_packed_sequences():
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3, 2), torch.ones(1, 2)])
    for fn in (torch.nn.GRU(2, 2), torch.nn.GRU(2, 2).forward):
        found, expected = strict(fn)(packed), fn(packed)
        torch.testing.assert_close(found[0].data, expected[0].data)
        torch.testing.assert_close(found[1], expected[1])


def _generator(t):
    yield t.sin()


async def _coroutine(t):
    return t.sin()


async def _async_generator(t):
    yield t.sin()


class Callable:
    def __call__(self, t):
        return t.sin()


TARGETS = {
    "builtin": torch.sin,
    "method of a tensor": torch.Tensor.sin,
    "bound method of a tensor": x.sin,
    "overload": torch.ops.aten.sin.default,
    "packet": torch.ops.aten.sin,
    "partial of a builtin": functools.partial(torch.add, other=1),
    "partial": functools.partial(_returns),
    "object": Callable(),
    "method": Callable().__call__,
    "methodcaller": operator.methodcaller("sin"),
    "vmap": torch.func.vmap(torch.sin),
    "grad": torch.func.grad(lambda t: t.sum()),
    "scripted": torch.jit.script(_returns),
    "generator": _generator,
    "coroutine": _coroutine,
    "asynchronous generator": _async_generator,
}


@pytest.mark.parametrize("name", TARGETS)
def test_every_kind_of_target_is_captured_or_refused(name):
    target = TARGETS[name]
    compiled = strict(target)
    try:
        compiled(*(() if name.startswith("bound") else (x,)))
    except Unsupported:
        return
    assert compiler_of(compiled).records.graphs, "it ran, and no graph was made"


def test_a_first_call_without_a_tensor_does_not_decide():
    def fn(flag, get):
        return get().sin() if flag else 3

    compiled = strict(fn)
    assert compiled(False, None) == 3
    assert torch.equal(compiled(True, lambda: x), x.sin())
    assert len(compiler_of(compiled).records.graphs) == 1


def test_a_thread_waits_for_the_compilation_of_another():
    started, release, graphs, got = threading.Event(), threading.Event(), [], []

    def slow(module, inputs):
        graphs.append(module)
        started.set()
        release.wait(10)
        return module.forward

    compiled = strict(_returns, slow)
    threads = [threading.Thread(target=lambda: got.append(compiled(x))) for _ in range(2)]
    threads[0].start()
    started.wait(10)
    threads[1].start()
    release.set()
    [thread.join() for thread in threads]
    assert len(graphs) == 1 and all(torch.equal(one, x.sin()) for one in got) and len(got) == 2


def test_guards_that_do_not_hold_on_their_own_frame(monkeypatch):
    from flambeau_capture.guards import GuardSet

    finish = GuardSet.finish

    def with_another(self):
        from flambeau_capture.source import Local

        self.add(Local("t"), "CALL", lambda value: False, "never")
        return finish(self)

    monkeypatch.setattr(GuardSet, "finish", with_another)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        compiled = strict(_returns)
        with pytest.raises(CaptureFault, match="do not hold"):
            compiled(x)
    assert len(compiler_of(compiled).records.faults) == 1
