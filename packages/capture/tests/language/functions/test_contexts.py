"""`contextvars.copy_context()` under capture: what is set in a copy stays there.

Generated: what variables hold before, what the frame does to them, what runs in the copy.
"""

import contextvars

import pytest
import torch

WITH_DEFAULT = contextvars.ContextVar("with_default", default=1)
EMPTY = contextvars.ContextVar("empty")
VARIABLES = (WITH_DEFAULT, EMPTY)


def reset(token):
    try:
        token.var.reset(token)
    except ValueError as error:
        return str(error)[-35:]


def fails(t):
    EMPTY.set(5)
    raise ValueError("inside")


def breaks(t):
    torch.seed()
    return EMPTY.set(3).old_value is contextvars.Token.MISSING


RUN = {
    "nothing": lambda t: None,
    "a write": lambda t: (EMPTY.set(7), WITH_DEFAULT.set(8)) and None,
    "a tensor": lambda t: EMPTY.set(t * 3) and None,
    "a write that is undone": lambda t: reset(EMPTY.set(7)),
    "a variable of its own": lambda t: contextvars.ContextVar("own", default=2).get(),
    "an error": fails,
    "a break": breaks,
    "a copy in it": lambda t: contextvars.copy_context().get(WITH_DEFAULT, 3),
}
BEFORE = {
    "nothing": lambda t: None,
    "a write": lambda t: EMPTY.set(4),
    "a write that is undone": lambda t: reset(WITH_DEFAULT.set(6)),
}


def seen(ask):
    found = []
    for variable in VARIABLES:
        try:
            found.append(ask(variable))
        except LookupError as error:
            found.append(type(error))
    return found


@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize("before", BEFORE)
def test_what_is_set_in_a_copy_stays_there(run, before, capture, backend, same):
    def fn(t):
        BEFORE[before](t)
        made = contextvars.copy_context()
        late = WITH_DEFAULT.set(9)
        rows = []
        for _ in range(2):
            try:
                rows.append(made.run(RUN[run], t))
            except ValueError as error:
                rows.append(str(error))
        rows.append(reset(late))
        asked = [seen(lambda v: made[v]), seen(lambda v: made.get(v, 0)), seen(lambda v: v in made)]
        return t + 1, rows, asked, seen(lambda v: v.get())

    def alone(run, value):
        if value:
            EMPTY.set(value)
        return [run(torch.ones(2)), seen(lambda v: v.get())]

    for value in (None, 20):
        found = [contextvars.Context().run(alone, each, value) for each in (fn, capture(fn))]
        same(found[1], found[0])
    assert run == "a break" or len(backend) == 2


def test_a_token_of_a_copy_is_no_one_else_s(check):
    def fn(t):
        token = contextvars.copy_context().run(EMPTY.set, 2)
        return t + 1, reset(token)

    check(fn, torch.ones(2), graphs=None)


def test_a_copy_that_leaves_is_python_s(capture, same):
    def fn(t):
        EMPTY.set(2)
        return t + 1, contextvars.copy_context()

    for run in (fn, capture(fn)):
        assert contextvars.Context().run(run, torch.ones(2))[1][EMPTY] == 2
