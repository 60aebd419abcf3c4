"""Clocks and random streams of Python in compiled functions: what is read may leave, or be added
up, in one graph; each stream moves on as in eager, whatever else is done; any other use is a break.
"""

import datetime
import random
import time

import numpy as np
import pytest
import torch
from flambeau_capture import explain

STREAM = random.Random(5)
DRAWS = {
    "random": lambda: random.random(),
    "uniform": lambda: random.uniform(1, 2.5),
    "randint": lambda: random.randint(1, 6),
    "randrange": lambda: random.randrange(10),
    "getrandbits": lambda: random.getrandbits(90),
    "gauss": lambda: random.gauss(0, 1),
    "keyword": lambda: random.uniform(a=1, b=2),
    "stream": lambda: STREAM.random(),
    "stream's randint": lambda: STREAM.randint(1, 6),
    "numpy.rand": lambda: np.random.rand(),
    "numpy.uniform": lambda: np.random.uniform(1, 2),
    "numpy.normal": lambda: np.random.normal(0.0, 1.0),
    "numpy.randint": lambda: np.random.randint(7),
    "method": random.random,
}
LEAVES = {
    "returned": lambda draw, t, log: draw(),
    "appended": lambda draw, t, log: log.append(draw()),
    "in turn": lambda draw, t, log: [[draw(), random.random()], draw()][::-1],
    "unused": lambda draw, t, log: [draw()][1:],
    "summed": lambda draw, t, log: (draw() + 1) * draw() - draw(),
    "in place": lambda draw, t, log: log.append(sum_of(draw)),
    "after torch's": lambda draw, t, log: (torch.rand(2), draw(), torch.rand(2), draw()),
    "in a dict": lambda draw, t, log: {"a": draw(), "b": {"c": draw()}},
    "by two": lambda draw, t, log: (kept := draw(), kept, log.append(kept)),
    "of an object": lambda draw, t, log: vars(Holder(draw())),
}
USES = {
    "multiplied": lambda drawn, t: t * drawn,
    "compared": lambda drawn, t: t + 1 if drawn > 0.5 else t - 1,
    "converted": lambda drawn, t: t[: int(drawn)],
    "formatted": lambda drawn, t: (t, f"{drawn:.3f}"),
    "of a size": lambda drawn, t: torch.ones(3, round(drawn)) + t[0],
    "divided": lambda drawn, t: (t, 3 / (drawn + 9)),
    "a key": lambda drawn, t: (t, {drawn: 1}),
    "text": lambda drawn, t: (t, str(drawn)),
    "an item": lambda drawn, t: (t, [1, 2, 3][int(drawn) % 3]),
}


class Holder:
    def __init__(self, held):
        self.held = held


def sum_of(draw):
    total = 0.0
    for _ in range(3):
        total += draw()
    return total


def states():
    own, name = np.random.get_state(), STREAM.getstate()
    return random.getstate(), own[1].tolist(), own[2:], name, torch.get_rng_state().tolist()


def seed():
    random.seed(1)
    np.random.seed(2)
    STREAM.seed(3)
    torch.manual_seed(4)


def both(fn, compiled, same, *args):
    """Three calls of each from one seed: results, arguments, and where each stream is after it."""
    seen = []
    for one in (fn, compiled):
        seed()
        seen.append([])
        for _ in range(3):
            t, log = torch.arange(4.0), []
            seen[-1].append((one(t, log), log, states()))
    same(seen[1], seen[0])


@pytest.mark.sweep(3)
@pytest.mark.parametrize("leaves", LEAVES)
@pytest.mark.parametrize("draws", DRAWS)
def test_a_number_that_leaves_is_drawn_in_order(draws, leaves, capture, backend, same):
    draw, use = DRAWS[draws], LEAVES[leaves]

    def fn(t, log):
        u = t.sin()
        found = use(draw, u, log)
        return u.cos() + 1, found

    both(fn, capture(fn, nopython=True), same)
    assert len(backend) == 1


@pytest.mark.sweep(2)
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("draws", ["random", "uniform", "randint", "stream", "numpy.rand"])
def test_any_other_use_is_a_break(draws, use, capture, same):
    draw, used = DRAWS[draws], USES[use]

    def fn(t, log):
        u = t.sin()
        log.append(draw())
        return used(draw(), u.cos()), draw()

    both(fn, capture(fn), same)
    seed()
    reasons = {one.reason.id for one in explain(fn, torch.arange(4.0), []).break_reasons}
    assert reasons and reasons <= {"FB0005", "FB0009", "FB0017"}


REFUSED = {
    "empty range": lambda: random.randint(5, 1),
    "numpy's empty range": lambda: np.random.randint(0),
    "no number": lambda: random.uniform("a", 1),
    "no argument": lambda: random.uniform(1),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_a_call_that_raises_does_so_in_its_place(refused, capture, same):
    call = REFUSED[refused]

    def fn(t, log):
        try:
            log.append(random.random())
            call()
            log.append("no")
        except (ValueError, TypeError) as error:
            log.append(str(error))
        log.append(random.random())
        return t + 1

    both(fn, capture(fn), same)


def test_a_stream_that_is_seeded_in_the_function_starts_there(capture, same):
    def fn(t, log):
        log.append(random.random())
        random.seed(7)
        log.append(random.random())
        np.random.seed(7)
        log.append(np.random.rand())
        random.shuffle(log)
        return t * 2, random.random()

    both(fn, capture(fn), same)


def test_a_stream_is_seeded_in_one_graph(capture, same):
    def fn(t, log):
        log.append(random.random())
        random.seed(len(log))
        log.append(random.random())
        STREAM.seed("again")
        return t * 2, STREAM.randint(0, 9), log[-1] < 2

    both(fn, capture(fn, nopython=True), same)


def test_what_seed_refuses_is_raised_in_one_graph(capture):
    def fn(t):
        try:
            STREAM.seed(1, 2, 3)
        except TypeError as error:
            return t * 2, str(error)

    assert capture(fn, nopython=True)(torch.ones(2))[1] == fn(torch.ones(2))[1]


@pytest.mark.parametrize("name", ["random", "seed"])
def test_a_stream_is_given_a_method_of_its_own(capture, name):
    def made():
        stream = random.Random(3)

        def fn(t):
            getattr(stream, name)()
            stream.seed(5)
            return t * 2, stream.random()

        return stream, fn

    (stream, fn), (other, eager) = made(), made()
    compiled = capture(fn)
    for own in (None, lambda *given: 0.5):
        if own is not None:
            setattr(stream, name, own)
            setattr(other, name, own)
        stream.setstate(random.Random(4).getstate())
        other.setstate(random.Random(4).getstate())
        assert compiled(torch.ones(2))[1] == eager(torch.ones(2))[1]


def test_a_graph_that_raises_has_drawn_nothing(capture, same):
    def fn(t, log):
        log.append(random.random())
        u = t * 2
        if u.sum() > 0:
            raise ValueError("more")
        return u

    def caught(fn):
        def call(t, log):
            try:
                return fn(t, log)
            except ValueError as error:
                return str(error)

        return call

    both(caught(fn), caught(capture(fn)), same)


@pytest.mark.parametrize("clock", ["time", "perf_counter", "monotonic", "time_ns"])
def test_clocks_are_read_on_their_side_of_the_graph(clock):
    from flambeau_capture import optimize

    read, graphs = getattr(time, clock), []

    def backend(module, inputs):
        graphs.append(module)

        def slow(*given):
            time.sleep(0.05)
            return module.forward(*given)

        return slow

    def fn(t):
        start = read()
        u = t * 2
        return u, start, read() - start, read()

    compiled = optimize(backend, nopython=True, raise_internal_errors=True)(fn)
    for _ in range(2):
        before = read()
        _, start, taken, end = compiled(torch.ones(2))
        after = read()
        assert before <= start <= start + taken <= end <= after
        assert taken >= (0.04 if clock != "time_ns" else 40_000_000)
    assert len(graphs) == 1


def test_a_clock_between_operators_ends_the_graph():
    def fn(t):
        u = t * 2
        middle = time.perf_counter()
        return u + 1, middle

    found = explain(fn, torch.ones(2))
    assert [one.reason.id for one in found.break_reasons] == ["FB0005"]
    assert found.ops_per_graph and len(found.graphs) == 2


def test_a_time_of_day_leaves(capture, backend):
    def fn(t):
        return t + 1, datetime.datetime.now(), datetime.date.today()

    compiled = capture(fn, nopython=True)
    for _ in range(2):
        before = datetime.datetime.now()
        _, now, day = compiled(torch.ones(2))
        assert before <= now <= datetime.datetime.now() and type(day) is datetime.date
    assert len(backend) == 1
