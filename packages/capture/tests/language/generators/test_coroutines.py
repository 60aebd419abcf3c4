"""Coroutines and asynchronous generators, driven inside the frame: bodies, and ways to drive them.

Each is one graph: what suspends does so to a driver that the frame itself holds.
"""

import asyncio
import contextvars
import inspect
import itertools
import sys

import pytest
import torch
from coroutine_bodies import (
    Own,
    awaits,
    awaits_nothing,
    awaits_objects,
    catches,
    closes,
    comprehends,
    enters_nothing,
    gathers,
    inner_generators,
    items,
    loops,
    loops_over_nothing,
    low,
    plain,
    stops,
    throws,
    with_managers,
)

BODIES = [
    plain, low, awaits, awaits_objects, catches, with_managers, loops, comprehends,
    inner_generators, stops, awaits_nothing, loops_over_nothing, enters_nothing, gathers, closes,
    throws,
]  # fmt: skip


def to_the_end(made, log):
    sent = None
    for number in itertools.count():
        log.append(("given", made.send(sent)))
        sent = number


def thrown_into(made, log):
    log.append(made.send(None))
    log.append(made.throw(Own("driver")))
    to_the_end(made, log)


def thrown_by_class(made, log):
    log.append(made.send(None))
    log.append(made.send(1))
    made.throw(Own)


def closed(made, log):
    log.append(made.send(None))
    made.close()
    log.append("closed")
    made.close()
    made.send(None)


def closed_before(made, log):
    made.close()
    log.append((inspect.iscoroutine(made), made.cr_await, made.cr_running, made.cr_frame))


def sent_too_early(made, log):
    try:
        made.send(3)
    finally:
        made.close()


def by_await(made, log):
    to_the_end(made.__await__(), log)


def by_an_iterator(made, log):
    for item in made.__await__():
        log.append(("given", item))


def iterated(made, log):
    try:
        iter(made)
    finally:
        made.close()


DRIVERS = [
    to_the_end, thrown_into, thrown_by_class, closed, closed_before, sent_too_early, by_await,
    by_an_iterator, iterated,
]  # fmt: skip


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("body", BODIES, ids=lambda fn: fn.__name__)
def test_coroutines_are_driven_as_in_python(check, body, driver):
    def program(x, log):
        try:
            driver(body(x, log), log)
        except StopIteration as error:
            log.append(error.value)
        except BaseException as error:
            log.append((type(error).__name__, str(error), type(error.__cause__).__name__))
        return x + len(log)

    check(program, torch.ones(2), [], graphs=1)


def an_item(made, log):
    made.__anext__().send(None)


def sent(made, log):
    made.asend(3).send(None)


def two_at_once(made, log):
    try:
        made.__anext__().send(None)
    except StopIteration as error:
        log.append(error.value)
    first = made.__anext__()
    log.append(first.send(None))
    made.__anext__().send(None)


def used_again(made, log):
    first = made.__anext__()
    try:
        first.send(None)
    except StopIteration:
        pass
    first.send(None)


def thrown_before(made, log):
    made.athrow(Own("early")).send(None)


def closed_and_used(made, log):
    try:
        made.aclose().send(None)
    except StopIteration:
        log.append("closed")
    made.asend(None).send(None)


def thrown_in_a_step(made, log):
    first = made.asend(None)
    try:
        first.send(None)
    except StopIteration:
        pass
    second = made.asend("sent")
    log.append(second.send(None))
    second.throw(Own("in a step"))


def closed_in_a_step(made, log):
    for sent in (None, 1):
        try:
            log.append(made.asend(sent).send(None))
        except StopIteration:
            pass
    log.append(made.ag_running)
    made.aclose().send(None)


def left(made, log):
    try:
        made.asend(None).send(None)
    except StopIteration as error:
        log.append(error.value)


def never_asked(made, log):
    log.append(inspect.isasyncgen(made))


STEPS = [
    an_item, sent, two_at_once, used_again, thrown_before, closed_and_used, thrown_in_a_step,
    closed_in_a_step, left, never_asked, iterated,
]  # fmt: skip


async def yields_nothing(x, log):
    if log is None:
        yield


async def raises_stop(x, log):
    raise StopAsyncIteration
    yield


async def ignores_exit(x, log):
    while True:
        try:
            yield x
        except GeneratorExit:
            log.append("ignored")


@pytest.mark.parametrize("driver", STEPS[:-1], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("body", [items, yields_nothing, raises_stop], ids=lambda fn: fn.__name__)
def test_steps_of_asynchronous_generators(check, body, driver):
    def program(x, log):
        try:
            driver(body(x, log), log)
        except StopIteration as error:
            log.append(error.value)
        except Exception as error:
            log.append((type(error).__name__, str(error)))
        return x + len(log)

    check(program, torch.ones(2), [], graphs=1)


@pytest.mark.parametrize("body", [loops, comprehends, inner_generators], ids=lambda fn: fn.__name__)
def test_what_a_coroutine_waits_for_ends_with_it(check, body):
    def program(x, log):
        made = body(x, log)
        made.send(None)
        made = None
        log.append("after")
        return x + 1

    check(program, torch.ones(2), [], graphs=1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_asynchronous_generator_that_ignores_its_end(check):
    def program(x, log):
        made = ignores_exit(x, log)
        for run in (made.__anext__, made.aclose):
            try:
                run().send(None)
            except (StopIteration, RuntimeError) as error:
                log.append(str(error))
        return x + len(log)

    check(program, torch.ones(2), [], graphs=None)


def test_a_coroutine_that_waits_is_awaited_once(check):
    def program(x, log):
        made = low(x, log)

        async def again():
            return await made

        first, second = again(), again()
        first.send(None)
        log.append(made.cr_await is None)
        for run in (lambda: second.send(None), lambda: first.send(5), lambda: made.send(None)):
            try:
                run()
            except (StopIteration, RuntimeError) as error:
                log.append(error.args)
        return x + 1

    check(program, torch.ones(2), [], graphs=1)


def test_a_coroutine_leaves_the_frame(capture, backend, same):
    def program(x, log, begin):
        made = low(x + 1, log)
        if begin:
            log.append(made.send(None))
        return made

    def ended(made):
        try:
            return made.send(None)
        except StopIteration as error:
            return error.value

    compiled = capture(program)
    for begin in (False, True):
        logs = [[], []]
        results = []
        for fn, log in zip((program, compiled), logs):
            made = fn(torch.ones(2), log, begin)
            assert inspect.iscoroutine(made) and made.__qualname__ == "low"
            results.append([ended(made), begin or ended(made)])
        same(*results)
        same(*logs)
    assert len(backend) == 2


def test_an_asynchronous_generator_leaves_the_frame(capture, backend, same):
    compiled = capture(lambda x, log: items(x + 1, log))

    async def all_of(made):
        return [t async for t in made]

    def through(made):
        driven = all_of(made)
        try:
            while True:
                driven.send(None)
        except StopIteration as error:
            return error.value

    same(through(compiled(torch.ones(2), [])), through(items(torch.ones(2) + 1, [])))
    assert len(backend) == 1


def test_a_coroutine_that_is_never_awaited_is_warned_of(capture, backend):
    def program(x):
        plain(x, [])
        return x + 1

    with pytest.warns(RuntimeWarning, match="'plain' was never awaited"):
        capture(program)(torch.ones(2))


def test_the_hooks_of_an_event_loop_see_asynchronous_generators(capture, backend):
    log = []

    def program(x, seen):
        made = items(x, [])
        try:
            made.__anext__().send(None)
        except StopIteration as error:
            return error.value + 1

    compiled = capture(program)

    compiled(torch.ones(2), log)
    assert len(backend) == 1
    shown = []
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(firstiter=lambda made: shown.append(made.__name__))
    try:
        compiled(torch.ones(2), log)
    finally:
        sys.set_asyncgen_hooks(*hooks)
    assert shown == ["items"]


CONTEXT = contextvars.ContextVar("context", default=0)


def served(wrap):
    class Server:
        def __init__(self):
            self.log = []

        @wrap
        async def handle(self, x, k):
            CONTEXT.set(k)
            try:
                for _ in range(2):
                    x = torch.relu(x) * CONTEXT.get()
                    await asyncio.sleep(0)
                    self.log.append((k, CONTEXT.get()))
            except asyncio.CancelledError:
                self.log.append(("cancelled", k))
                raise
            return x

        @wrap
        async def several(self, n):
            for k in range(n):
                yield torch.ones(2) * k
                await asyncio.sleep(0)

    return Server


async def serve(server):
    answers = await asyncio.gather(*(server.handle(torch.ones(2), k) for k in range(4)))
    task = asyncio.create_task(server.handle(torch.ones(2), 9))
    await asyncio.sleep(0)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        server.log.append("left")
    answers += [x async for x in server.several(3)]
    return answers, server.log, CONTEXT.get()


def test_compiled_coroutine_functions_are_served_as_they_are(capture, same):
    kind = served(capture)
    same(asyncio.run(serve(kind())), asyncio.run(serve(served(lambda fn: fn)())))
    for handle in (kind.handle, kind().handle):
        assert inspect.iscoroutinefunction(handle)
    assert inspect.isasyncgenfunction(kind.several)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'k'"):
        kind().handle(torch.ones(2))


def test_functions_called_by_tasks_are_captured(capture, backend, same):
    @capture
    def step_of(x, k):
        return torch.relu(x) * k + CONTEXT.get()

    async def task(k):
        CONTEXT.set(k)
        x = torch.ones(2)
        for _ in range(2):
            x = step_of(x, k)
            await asyncio.sleep(0)
        return x

    async def main():
        return await asyncio.gather(*(task(k) for k in range(3)))

    found = asyncio.run(main())
    same(found, [(torch.ones(2) * k + k) * k + k for k in range(3)])
    assert len(backend)
