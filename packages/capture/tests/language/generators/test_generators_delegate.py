"""`yield from` passes on what is sent, thrown and closed to what it goes over, as in CPython."""

import itertools

import pytest
import torch


class Own(Exception):
    pass


def catching(log):
    try:
        log.append(("got", (yield 1)))
        yield 2
    except Own as error:
        log.append(repr(error))
        yield 3
    finally:
        log.append("inner ends")
    return 4


def returning(log):
    try:
        for number in range(4):
            log.append(("got", (yield number)))
    except (Own, GeneratorExit):
        return 5


def plain(log):
    log.append(("got", (yield 1)))
    yield 2
    return 6


def raising_at_its_end(log):
    try:
        yield 1
        yield 2
    finally:
        raise KeyError("end")


def ignoring(log):
    for number in range(9):
        try:
            yield number
        except GeneratorExit:
            log.append("ignored")


class Numbers:
    """An iterator with the methods of a generator that the test names."""

    def __init__(self, log):
        self.log = log
        self.left = 3

    def __iter__(self):
        return self

    def __next__(self):
        self.left -= 1
        if not self.left:
            raise StopIteration(7)
        return self.left


class Sent(Numbers):
    def send(self, item):
        self.log.append(("send", item))
        if item == 8:
            raise StopIteration(8)
        return item


class Thrown(Sent):
    def throw(self, *given):
        self.log.append(("throw", len(given)))
        if given[0] is KeyError:
            raise StopIteration("thrown")
        return 9


class Closed(Thrown):
    def close(self):
        self.log.append("close")


class RaisingOnClose(Numbers):
    def close(self):
        raise KeyError("close")


INNER = [
    catching, returning, plain, raising_at_its_end, ignoring, Numbers, Sent, Thrown, Closed,
    RaisingOnClose, lambda log: [1, 2], lambda log: {3: 1}, lambda log: zip("ab", "cd"),
]  # fmt: skip


def once(inner, log):
    try:
        got = yield from inner(log)
        log.append(("returned", got))
    except Own as error:
        log.append(("outer", repr(error)))
        yield "outer"
    finally:
        log.append("outer ends")
    yield "last"


def twice(inner, log):
    got = yield from once(inner, log)
    log.append(got)
    return "twice"


USES = {
    "to the end": lambda g, log: log.extend(g),
    "sent": lambda g, log: [log.append(each) for each in (next(g), g.send(5), g.send(None))],
    "sent to the end": lambda g, log: [log.append(each) for each in (next(g), g.send(8))],
    "thrown": lambda g, log: [log.append(x) for x in (next(g), g.throw(Own("a")), next(g))],
    "thrown by class": lambda g, log: [log.append(x) for x in (next(g), g.throw(KeyError))],
    "thrown by parts": lambda g, log: [log.append(x) for x in (next(g), g.throw(Own, "b", None))],
    "thrown exit": lambda g, log: [log.append(x) for x in (next(g), g.throw(GeneratorExit))],
    "thrown stop": lambda g, log: [log.append(x) for x in (next(g), g.throw(StopIteration(3)))],
    "closed": lambda g, log: [log.append(x) for x in (next(g), g.close(), next(g, "closed"))],
    "left": lambda g, log: log.append(next(g)),
    "asked": lambda g, log: [
        log.append(x)
        for x in (g.gi_yieldfrom, g.gi_running, g.gi_suspended, next(g), g.gi_suspended,
                  g.gi_yieldfrom is None, g.gi_code.co_name, g.__name__, g.__qualname__)
    ],
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    ("outer", "inner"),
    [*((once, inner) for inner in INNER), (twice, catching), (twice, Closed)],
    ids=lambda fn: fn.__name__,
)
def test_what_is_done_to_a_generator_reaches_what_it_waits_for(check, inner, outer, use):
    def program(x, log):
        made = outer(inner, log)
        try:
            USES[use](made, log)
        except BaseException as error:
            log.append((type(error).__name__, str(error)))
        log.append("after")
        return x + len(log)

    check(program, torch.ones(2), [], graphs=None)


ITERATORS = {
    "list": lambda: [1, 2, 3], "dict": lambda: {1: 2, 3: 4}, "map": lambda: map(str, [1, 2, 3]),
    "zip": lambda: zip([1, 2], [3, 4]), "islice": lambda: itertools.islice([1, 2, 3], 2),
    "chain": lambda: itertools.chain([1], [2]), "cycle": lambda: itertools.cycle([1, 2]),
    "accumulate": lambda: itertools.accumulate([1, 2]), "reversed": lambda: reversed([1, 2]),
    "expression": lambda: (number for number in [1, 2]), "count": itertools.count,
    "function": lambda: iter(lambda: 1, 2),
    "own": lambda: Numbers([]), "pairwise": lambda: itertools.pairwise([1, 2, 3]),
}  # fmt: skip


@pytest.mark.parametrize("sends", [(None, None), (None, 5), (None, None, 5), (None,) * 4], ids=str)
@pytest.mark.parametrize("kind", ITERATORS)
def test_iterators_of_the_library_take_nothing_that_is_sent(check, kind, sends):
    def run(x):
        def outer():
            yield "end", (yield from ITERATORS[kind]())

        generator, found = outer(), []
        try:
            for sent in sends:
                found.append(str(generator.send(sent)).split(" at ")[0])
        except (AttributeError, StopIteration) as error:
            found.append((type(error).__name__, str(error)))
        return x + 1, found

    check(run, torch.ones(2), graphs=None)
