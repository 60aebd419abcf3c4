"""What a program sees of tracebacks and frames is what it sees uncompiled."""

import inspect
import io
import logging
import sys
import traceback

import pytest
import torch
from flambeau_capture import optimize

LOGGER = logging.getLogger("test_tracebacks")
LOGGER.propagate = False


def logged(log):
    stream = io.StringIO()
    LOGGER.addHandler(handler := logging.StreamHandler(stream))
    try:
        log()
    finally:
        LOGGER.removeHandler(handler)
    return stream.getvalue()


def names(trace):
    return [(entry.name, entry.lineno) for entry in traceback.extract_tb(trace)]


READERS = {
    "format_exc": lambda error: traceback.format_exc(),
    "format_exception": lambda error: traceback.format_exception(error),
    "extract_tb": lambda error: names(error.__traceback__),
    "TracebackException": lambda e: list(traceback.TracebackException.from_exception(e).format()),
    "tb_lineno": lambda error: error.__traceback__.tb_lineno,
    "tb_next": lambda error: error.__traceback__.tb_next is None,
    "exc_info": lambda error: names(sys.exc_info()[2]),
    "getinnerframes": lambda e: [one.function for one in inspect.getinnerframes(e.__traceback__)],
    "logging.exception": lambda error: logged(lambda: LOGGER.exception("failed")),
    "logging.error": lambda error: logged(lambda: LOGGER.error("failed", exc_info=True)),
    "cleared": lambda error: names(error.with_traceback(None).__traceback__),
    "kept": lambda error: error,
}


def by_raise(t):
    raise ValueError("q")


def by_operation(t):
    u = t * 2
    return u, {}["absent"]


def by_cause(t):
    try:
        by_raise(t)
    except ValueError as error:
        raise KeyError("k") from error


def by_itself(t):
    return None


@pytest.mark.parametrize("raiser", [by_raise, by_operation, by_cause, by_itself])
@pytest.mark.parametrize("reader", READERS)
def test_a_handler_reads_the_traceback(reader, raiser, capture, same):
    read = READERS[reader]

    def fn(t):
        y = t * 2
        try:
            raiser(y)
            raise RuntimeError("own")
        except Exception as error:
            told = read(error)
        return y + 1, told

    def seen(fn):
        tensor, told = fn(torch.ones(2))
        return tensor, names(told.__traceback__)[1:] if reader == "kept" else told

    compiled, expected = capture(fn), seen(fn)
    same(seen(compiled), expected)
    same(seen(compiled), expected)


@pytest.mark.parametrize("reader", READERS)
def test_a_handler_reads_the_traceback_after_a_break(reader, check):
    read = READERS[reader]

    def fn(t):
        y = t * 2
        try:
            by_raise(y)
        except ValueError as error:
            print(end="")
            told = read(error)
        return y + 1, None if reader == "kept" else told

    check(fn, torch.ones(2), graphs=None)


LOOKERS = {
    "stack": lambda: inspect.stack()[0].function,
    "currentframe": lambda: inspect.currentframe().f_code.co_name,
    "getframeinfo": lambda: inspect.getframeinfo(sys._getframe()).lineno,
    "extract_stack": lambda: traceback.extract_stack()[-1].name,
    "format_stack": lambda: traceback.format_stack()[-1],
    "getsource": lambda: inspect.getsource(by_raise),
}


@pytest.mark.parametrize("looker", LOOKERS)
def test_a_function_that_looks_at_frames_is_not_looked_into(looker, capture, backend, same):
    look = LOOKERS[looker]

    def fn(t):
        y = t + 1
        told = look()
        return y * 2, told

    same(capture(fn)(torch.ones(2)), fn(torch.ones(2)))
    assert len(backend) == 2


def after_breaks(t):
    t = t + 1
    print(end="")
    t = inner_break(t * 2)
    print(end="")
    raise ValueError(t.shape)


def inner_break(t):
    t = t * 2
    print(end="")
    return t + 1


def raises_in_callee(t):
    print(end="")
    t = t + 1
    by_raise(inner_break(t))


@pytest.mark.parametrize("raiser", [after_breaks, raises_in_callee])
def test_no_frame_of_captures_own_is_in_a_traceback(raiser, capture):
    compiled, seen = capture(raiser), []
    for call in (raiser, compiled, compiled):
        with pytest.raises(ValueError) as error:
            call(torch.ones(2))
        seen.append({entry.name for entry in traceback.extract_tb(error.tb)[1:]})
    assert seen[0] == seen[1] == seen[2]


class Tells:
    """A context manager that tells of the error by code that is converted as it is handled."""

    def __init__(self, told, compute):
        self.told, self.compute = told, compute

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.told.append(trace is None or [name for name, _ in names(trace)])
        if self.compute:
            self.told.append((torch.ones(2) * 2).sum().item())


def within(t, told, compute):
    with Tells(told, compute), Tells(told, compute):
        by_raise(t)


def within_handler(t, told, compute):
    try:
        by_raise(t)
    except ValueError as error:
        with Tells(told, compute):
            told.append(error.__traceback__ is None)
            raise


def within_finally(t, told, compute):
    with Tells(told, compute):
        try:
            by_raise(t)
        finally:
            Tells(told, compute).__exit__(*sys.exc_info())


def failing(graph, inputs):
    raise RuntimeError("no backend")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fails", [False, True], ids=["eager", "failing"])
@pytest.mark.parametrize("function", [within, within_handler, within_finally])
def test_what_fails_to_convert_leaves_the_error_that_is_handled(function, fails):
    for compute in (False, True):
        answers = []
        for compiled in (False, True):
            told, run = [], function
            if compiled:
                run = optimize(failing if fails else "eager")(function)
            with pytest.raises(ValueError) as raised:
                run(torch.ones(2), told, compute)
            answers.append([told, [name for name, _ in names(raised.value.__traceback__)][1:]])
        assert answers[0] == answers[1]
