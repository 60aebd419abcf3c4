"""Warnings and log messages that the program's own code receives, and reads in the same frame."""

# ruff: noqa: B028 - as programs warn
import io
import logging
import warnings

import pytest
import torch

GIVEN = []
NAME = "received"


class Handler(logging.Handler):
    def emit(self, record):
        GIVEN.append(record.getMessage())


class Filter(logging.Filter):
    def filter(self, record):
        GIVEN.append(record.getMessage())
        return False


class Format(logging.Formatter):
    def format(self, record):
        GIVEN.append("format")
        return super().format(record)


class Stream:
    def write(self, text):
        GIVEN.append(text)

    def flush(self):
        pass


class Record(logging.LogRecord):
    def __init__(self, *args, **kwargs):
        GIVEN.append("record")
        super().__init__(*args, **kwargs)


def told():
    return logging.StreamHandler(io.StringIO())


def formats():
    handler = told()
    handler.setFormatter(Format())
    return handler


def above(logger):
    parent = logging.getLogger("received.above")
    parent.handlers, parent.propagate, logger.parent = [Handler()], False, parent
    logger.propagate = True


OWN = {
    "handler": lambda logger: logger.addHandler(Handler()),
    "handler's filter": lambda logger: logger.handlers[0].addFilter(Filter()),
    "filter": lambda logger: logger.addFilter(Filter()),
    "formatter": lambda logger: logger.addHandler(formats()),
    "stream": lambda logger: logger.addHandler(logging.StreamHandler(Stream())),
    "record": lambda logger: logging.setLogRecordFactory(Record),
    "parent": above,
    "none": lambda logger: None,
    "level": lambda logger: (logger.addHandler(Handler()), logger.setLevel(logging.ERROR)),
}


@pytest.fixture
def logger():
    made = logging.Logger(NAME, logging.INFO)
    made.addHandler(told())
    factory = logging.getLogRecordFactory()
    yield made
    logging.setLogRecordFactory(factory)


@pytest.mark.parametrize("kind", OWN)
def test_what_receives_a_message_is_read_after_it(kind, logger, capture, backend):
    def fn(x):
        before = len(GIVEN)
        y = x + 1
        logger.info("a %d", x.shape[0])
        return y * (len(GIVEN) - before)

    OWN[kind](logger)
    want = fn(torch.ones(2))
    assert bool(want.any()) == (kind not in ("none", "level"))
    compiled = capture(fn)
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(2)), want)
    if not want.any():  # it is put off
        assert len(backend) == 1


def test_a_handler_that_comes_later_is_seen(logger, capture):
    def fn(x):
        before = len(GIVEN)
        logger.info("b")
        return x * (len(GIVEN) - before)

    compiled, x = capture(fn), torch.ones(2)
    assert not compiled(x).any()
    logger.addHandler(Handler())
    assert torch.equal(compiled(x), x)


def condition(x):
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        y = torch.nn.functional.softmax(x)  # it warns: no dimension is given
        if given:
            y = torch.zeros_like(x)
    return y


def count(x):
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        warnings.warn("1")
        x = x * len(given)
        warnings.warn("2")
        if len(given) == 2:
            x = x * 9
    return x


def texts(x):
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        warnings.warn("1", RuntimeWarning)
        return x * 2, [(str(each.message), each.category) for each in given]


def taken(x):
    shown, before = warnings.showwarning, len(GIVEN)
    warnings.showwarning = lambda message, *rest, **named: GIVEN.append(str(message))
    try:
        warnings.warn("3")
        x = x * (len(GIVEN) - before)
    finally:
        warnings.showwarning = shown
    return x


@pytest.mark.parametrize("fn", [condition, count, texts, taken])
def test_recorded_warnings_are_read_in_the_block(fn, capture, same):
    x = torch.ones(2)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        compiled = capture(fn)
        for _ in range(2):
            same(compiled(x), fn(x))


def test_warnings_that_python_shows_wait(capture, backend, capsys, monkeypatch):
    def fn(x):
        y = x + 1
        warnings.warn("shown")
        return y * 2

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "_showwarnmsg_impl", python_shows())
        assert torch.equal(capture(fn)(torch.ones(2)), torch.full((2,), 4.0))
    assert "shown" in capsys.readouterr().err and len(backend) == 1


def python_shows():
    """What `warnings` does where nobody records: the tests' own runner does."""
    spec = warnings.__spec__
    namespace = vars(warnings)
    code = next(
        part
        for part in spec.loader.get_code("warnings").co_consts
        if getattr(part, "co_name", "") == "_showwarnmsg_impl"
    )
    return type(python_shows)(code, namespace)
