"""Warnings and log records of captured code: the same ones, once a call, from the user's lines."""

# ruff: noqa: B028 - as programs warn
import functools
import logging
import os
import warnings

import pytest
import torch

logger = logging.getLogger("flambeau.tests.messages")


def x():
    return torch.arange(4.0)


def warn_and_add(t):
    warnings.warn("careful", DeprecationWarning)
    return t + 1


def test_warning_names_the_users_line(capture, backend):
    compiled = capture(warn_and_add)
    for _ in range(2):
        with pytest.warns(DeprecationWarning, match="careful") as seen:
            assert torch.equal(compiled(x()), x() + 1)
        assert len(seen) == 1
        assert seen[0].filename == __file__
        assert seen[0].lineno == warn_and_add.__code__.co_firstlineno + 1
    assert len(backend) == 1


def test_warning_that_is_an_error_is_raised_where_it_is(capture):
    def fn(t):
        try:
            warnings.warn("careful")
        except UserWarning:
            return t - 1
        return t + 1

    compiled = capture(fn)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.equal(compiled(x()), x() + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(compiled(x()), x() - 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.equal(compiled(x()), x() + 1)


def test_log_records_keep_their_order_and_lines(capture, backend, caplog):
    def fn(t, log):
        logger.info("first %d", 1)
        log.append("between")
        t = t * 2
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("never")
        logging.getLogger("flambeau.tests.messages").warning("second %s %s", "a", t.shape[0])
        return t

    compiled = capture(fn)
    for _ in range(2):
        with caplog.at_level(logging.INFO, logger=logger.name):
            caplog.clear()
            log = []
            assert torch.equal(compiled(x(), log), x() * 2)
        assert [record.getMessage() for record in caplog.records] == ["first 1", "second a 4"]
        assert {record.funcName for record in caplog.records} == {"fn"}
        assert caplog.records[0].lineno == fn.__code__.co_firstlineno + 1
        assert log == ["between"]
    assert len(backend) == 1


def test_a_changed_level_is_noticed(capture, backend, caplog):
    def fn(t):
        return t + 1 if logger.isEnabledFor(logging.DEBUG) else t - 1

    compiled = capture(fn)
    with caplog.at_level(logging.INFO, logger=logger.name):
        assert torch.equal(compiled(x()), x() - 1)
    with caplog.at_level(logging.DEBUG, logger=logger.name):
        assert torch.equal(compiled(x()), x() + 1)


def test_message_that_comes_once(capture, backend, caplog):
    @functools.lru_cache(None)
    def once(self, *args):
        self.warning(*args)

    def fn(t):
        once(logger, "only once")
        return t + 1

    compiled = capture(fn)
    with caplog.at_level(logging.WARNING, logger=logger.name):
        for _ in range(3):
            compiled(x())
    assert [record.getMessage() for record in caplog.records] == ["only once"]
    assert len(backend) == 1


def test_tensor_in_a_message_breaks(capture, backend, caplog):
    def fn(t):
        t = t + 1
        logger.warning("mean %s", t.mean())
        return t * 2

    with caplog.at_level(logging.WARNING, logger=logger.name):
        assert torch.equal(capture(fn)(x()), (x() + 1) * 2)
    assert caplog.records[0].getMessage() == "mean tensor(2.5000)"
    assert len(backend) == 2


def test_environment_is_watched(capture, backend, monkeypatch):
    def fn(t):
        return t * int(os.environ.get("FLAMBEAU_TESTS_FACTOR", "2"))

    compiled = capture(fn)
    assert torch.equal(compiled(x()), x() * 2)
    assert torch.equal(compiled(x()), x() * 2)
    assert len(backend) == 1
    monkeypatch.setenv("FLAMBEAU_TESTS_FACTOR", "3")
    assert torch.equal(compiled(x()), x() * 3)
    assert len(backend) == 2
