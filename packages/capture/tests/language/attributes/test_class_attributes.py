"""Attributes that a program sets on its classes, and counters that go up at every call: what is
left behind is what Python leaves, and a counter is no reason to compile again."""

import threading

import pytest
import torch
from flambeau_capture.api import compiler_of
from torch import nn


class Base:
    count = 0
    names = ()
    last = None

    def __init__(self):
        self.own = type(self).count


class Sub(Base):
    pass


class Module(nn.Module):
    calls = 0
    seen = None

    def forward(self, x):
        Module.calls += 1
        type(self).seen = x.shape[0]
        return x * Module.calls + self.calls


class Registry:
    total = 0
    items = {}

    @classmethod
    def add(cls, name, value):
        cls.items[name] = value
        cls.total += 1
        return cls.total


def counted(x):
    Base.count += 1
    return x + Base.count, Sub.count


def in_a_subclass(x):
    Sub.count += 2
    made = Sub()
    Base.last = x * 2
    return x + made.own + made.count, Sub.count, Base.count, made.last


def by_class_method(x):
    return x + Registry.add("x", x), Registry.total


def around_a_break(x):
    Base.count += 1
    torch._C._get_tracing_state()
    print("", end="")
    Base.count += 10
    return x + Base.count


def before_an_exception(x):
    try:
        Base.count += 1
        raise ValueError(Base.count)
    except ValueError as error:
        return x + error.args[0]


def by_name(x):
    setattr(Sub, "count", getattr(Sub, "count") + 1)  # noqa: B009, B010 - the subject
    return x * 1, vars(Sub)["count"], Sub.__dict__.get("count"), "count" in Sub.__dict__


@pytest.fixture(autouse=True)
def as_it_was():
    reset()
    yield
    reset()


def reset():
    Base.count, Base.names, Base.last = 0, (), None
    Module.calls, Module.seen, Registry.total, Registry.items = 0, None, 0, {}
    if "count" in vars(Sub):
        del Sub.count


def state():
    return (
        Base.count, Base.last, vars(Sub).get("count"), Module.calls, Module.seen,
        Registry.total, dict(Registry.items),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fn", "graphs"),
    [(counted, 2), (in_a_subclass, 2), (by_class_method, 3), (around_a_break, 3),
     (before_an_exception, 2), (by_name, 2)],
    ids=lambda given: getattr(given, "__name__", ""),
)  # fmt: skip
def test_what_is_set_on_a_class(capture, backend, same, fn, graphs):
    run(capture, same, fn)
    assert len(backend) <= graphs


def test_what_a_module_sets_on_its_class(capture, backend, same):
    run(capture, same, Module())
    assert len(backend) <= 2


def run(capture, same, fn):
    runs = []
    for target in (fn, capture(fn)):
        reset()
        runs.append([(target(torch.full((2,), float(i))), state()) for i in range(6)])
    same(runs[1], runs[0])


class Counter:
    def __init__(self):
        self.lock = threading.Lock()
        self.n = 0

    def bump(self):
        with self.lock:
            self.n += 1
        return self.n


def test_a_counter_behind_a_lock(capture, backend):
    counter = Counter()
    compiled = capture(lambda x: x * 2 + counter.bump())
    for call in range(1, 12):
        assert compiled(torch.ones(1)).item() == 2 + call == 2 + counter.n
    assert len(backend) <= 3
    assert not any("cache_size_limit" in str(one) for one in compiler_of(compiled).records.skipped)


def test_a_counter_behind_a_lock_counts_every_call_of_every_thread(capture):
    counter = Counter()

    def step(x):
        counter.bump()
        return x + 1

    compiled = capture(step)
    compiled(torch.ones(1))

    def work():
        for _ in range(200):
            compiled(torch.ones(1))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.n == 801


def test_a_number_that_is_only_kept_is_not_guarded(capture, backend):
    class Kept:
        value = 0

    kept = Kept()
    kept.value = 3

    def f(x, n):
        kept.value = n
        return x + 1

    compiled = capture(f)
    for n in (3, 4, 3, 7, None, "a"):
        compiled(torch.ones(1), n)
        assert kept.value == n
    assert len(backend) <= 3  # one where it is what it was, one of any number, one of any object


def _by_property(meta):
    meta.factor = property(lambda cls: 100.0)


def _by_getattribute(meta):
    meta.__getattribute__ = lambda cls, name: 100.0 if name == "factor" else type.__getattribute__(
        cls, name
    )  # fmt: skip


@pytest.mark.parametrize("hide", [_by_property, _by_getattribute])
@pytest.mark.parametrize("read", ["p.factor", "type(p).factor", "Plain.factor", "p.near()"])
@pytest.mark.parametrize("inherits", [False, True])
def test_an_instance_reads_past_the_metaclass(capture, hide, read, inherits):
    """A metaclass that answers for a class does not answer for the instances."""
    meta = type("Meta", (type,), {})
    names = {"factor": 2.0, "near": lambda self: self.factor}
    plain = meta("Plain", (), names)
    if inherits:
        plain = meta("Derived", (plain,), {})
    space = {"Plain": plain}
    exec(f"def run(x, p):\n    return x * {read}\n", space)
    run = capture(space["run"])
    for change in (lambda meta: None, hide):
        change(meta)
        for _ in range(2):
            assert torch.equal(run(torch.ones(2), plain()), space["run"](torch.ones(2), plain()))
