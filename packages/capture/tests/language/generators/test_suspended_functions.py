"""Compiled coroutine and generator functions: what they compute between suspensions is captured.

The family: statements before, between and after suspensions, in each construct that a suspension
may stand in, run alone and as tasks that take turns, by `send` and `throw`, ended early.
"""

import asyncio
import inspect
import random
from textwrap import indent

import pytest
import torch

STATEMENTS = (
    "t = torch.relu(t) * 2",
    "u = t + k",
    "k += 1",
    "log.append((k, t.shape[0]))",
    "t, u = u, t + 1",
    "parts = [t * i for i in range(k % 3 + 1)]\nt = sum(parts)",
    "if k % 2: t = t - 1\nelse: u = t * 2",
    "for j in range(2): t = t + j",
    "with torch.no_grad(): k = k + 1",
    "read = lambda: (t, k)\nu = read()[0] * 3",
    "try: t = t / log[99]\nexcept IndexError as error: log.append(type(error).__name__)",
    "w = u.sum()\ndel w",
    "made = {'a': t, 'b': [u]}\nt = made['a'] + made['b'][0]",
    "t = t.clone()\nt[0] = k",
)
CONSTRUCTS = {
    "flat": "{0}\n{pause}\n{1}\n{pause}\n{2}",
    "loop": "for i in range(3):\n    {0}\n    {pause}\n    {1}\n{2}",
    "while": "while k < 9:\n    k += 2\n    {0}\n    if k == 7: continue\n    {pause}\n{1}\n{2}",
    "branch": "if k > 2:\n    {0}\n    {pause}\n    {1}\nelse:\n    {1}\n{2}",
    "try": "try:\n    {0}\n    {pause}\n    if k > 2: raise Own(k)\n    {1}\nexcept Own as e:\n"
    "    {2}\n    {pause}\n    log.append(e.args)\nfinally:\n    {pause}\n    {0}",
    "with": "with Held(log) as h:\n    {0}\n    {pause}\n    {1}\n    if k > 3: raise Own(k)\n{2}",
    "returns": "{0}\nif k > 2:\n    {pause}\n    return t * 2\n{1}\n{pause}\n{2}",
    "cell": "def read(): return t\n{0}\n{pause}\n{1}\nt = read() + 1\n{pause}\n{2}\nu = read()",
}
OF_COROUTINES = {
    "async with": "async with Entered(log) as h:\n    {0}\n    {pause}\n    {1}\n"
    "    if k > 3: raise Own(k)\n{2}",
    "async for": "async for i in steps(3):\n    {0}\n    {pause}\n    {1}\nelse:\n    {2}",
}
KINDS = {
    "coroutine": ("async def", "log.append(await step(k))", "return t, u, k"),
    "asynchronous generator": ("async def", "yield t\nlog.append(await step(k))", "yield u"),
    "generator": ("def", "log.append((yield t))", "return t, u, k"),
}


class Own(Exception):
    pass


class Held:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")

    def __exit__(self, kind, *error):
        self.log.append(("out", kind and kind.__name__))
        return kind is Own


class Entered(Held):
    async def __aenter__(self):
        self.log.append(await step("in"))

    async def __aexit__(self, kind, *error):
        self.log.append(await step("out"))
        return kind is Own


async def step(value):
    await asyncio.sleep(0)
    return value


async def steps(count):
    for number in range(count):
        yield await step(number)


WORLD = {each.__name__: each for each in (Own, Held, Entered, step, steps)} | {"torch": torch}


def program(kind, construct, draw):
    head, pause, last = KINDS[kind]
    if kind == "asynchronous generator":
        construct = construct.replace("return t * 2", "return")
    lines = []
    for line in construct.splitlines():
        depth = len(line) - len(line.lstrip())
        chosen = [draw.choice(STATEMENTS) for _ in range(3)]
        text = line.lstrip().format(*chosen, pause=pause)
        lines.append(indent(text, " " * depth))
    body = indent("\n".join([*lines, last]), "    ")
    return f"{head} f(t, k, log):\n    u = t * 3\n{body}\n"


def outcome(function, kind):
    """What tasks that take turns give and note."""
    torch.set_grad_enabled(True)
    log = []

    async def run(k):
        made = function(torch.arange(3.0) + k, k, log)
        log.append((made.__name__, made.__qualname__))
        try:
            if kind == "coroutine":
                return await made
            return [item async for item in made]
        except Exception as error:
            return type(error), str(error)

    async def all_of():
        return await asyncio.gather(*(run(k) for k in (1, 3, 5)))

    def drive(k):
        made, found = function(torch.arange(3.0) + k, k, log), []
        try:
            found.append(next(made))
            found.append(made.send(k))
            names = made.gi_frame.f_locals
            log.append(names["k"])
            found.append(made.throw(Own("thrown")))
            made.close()
        except Exception as error:
            found.append((type(error), str(error)))
        return found

    if kind == "generator":
        return [drive(k) for k in (1, 3, 5)], log
    return asyncio.run(all_of()), log


CASES = [
    (kind, name)
    for kind in KINDS
    for name in (*CONSTRUCTS, *(OF_COROUTINES if kind != "generator" else ()))
]


@pytest.mark.sweep(9)
@pytest.mark.parametrize("kind, name", CASES, ids=[" ".join(case) for case in CASES])
def test_suspended_functions_are_as_in_eager(capture, same, kind, name):
    draw = random.Random(f"{kind} {name}")
    for _ in range(3):
        source = program(kind, {**CONSTRUCTS, **OF_COROUTINES}[name], draw)
        exec(source, world := dict(WORLD))
        expected = outcome(world["f"], kind)
        compiled = capture(world["f"])
        for _ in range(2):
            same(outcome(compiled, kind), expected, source)


def test_what_is_computed_between_suspensions_is_captured(capture, backend):
    async def fn(t):
        t = torch.relu(t) * 2
        u = t.sum()
        await asyncio.sleep(0)
        for i in range(2):
            t = t + u * i
            await asyncio.sleep(0)
        return t.cos() + u

    compiled = capture(fn)
    assert torch.equal(asyncio.run(compiled(torch.ones(3))), asyncio.run(fn(torch.ones(3))))
    calls = [node.name for graph in backend.graphs for node in graph.graph.nodes]
    assert {"relu", "cos", "sum_1"} <= set(calls), calls


def test_a_method_is_a_coroutine_function_of_its_object(capture, backend):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 3)

        async def answer(self, x):
            x = self.layer(x).relu()
            await asyncio.sleep(0)
            return self.layer(x)

    model = Model()
    compiled = capture(model.answer)
    assert inspect.iscoroutinefunction(compiled)
    x = torch.ones(3)
    assert torch.equal(asyncio.run(compiled(x)), asyncio.run(model.answer(x)))
    assert len(backend) == 2


def test_what_is_raised_between_suspensions_leaves_variables_as_they_were(capture):
    def program(fail):
        log = []

        async def fn(t):
            a = 1
            try:
                a = 2
                t = t + fail()
                a = 3
                await asyncio.sleep(0)
            except ValueError:
                log.append((a, t.tolist()))
            return t

        return fn, log

    def fail():
        raise ValueError

    found = []
    for by in (lambda fn: fn, capture):
        fn, log = program(fail)
        fn = by(fn)
        for _ in range(2):
            asyncio.run(fn(torch.ones(2)))
        found.append(log)
    assert found[0] == found[1] == [(2, [1.0, 1.0])] * 2
