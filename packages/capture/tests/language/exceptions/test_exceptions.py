# ruff: noqa: B018, F841
# (the programs under test are written as users write them)
"""Exceptions and context managers."""

import contextlib

import pytest
import torch


def x():
    return torch.arange(6.0)


class Mistake(ValueError):
    def __init__(self, code, text="oops"):
        super().__init__(text)
        self.code = code


def test_try_except_else_finally(check):
    def fn(t, n):
        log = []
        try:
            log.append("try")
            if n > 1:
                raise Mistake(n)
            t = t + 1
        except Mistake as error:
            log.append(error.code)
            t = t * error.code
        except (KeyError, TypeError):
            log.append("never")
        else:
            log.append("else")
        finally:
            log.append("finally")
        return t, log

    check(fn, x(), 1)
    check(fn, x(), 3)


def test_exception_through_inlined_frames(check):
    def deep(n):
        if n == 0:
            raise KeyError("bottom")
        return deep(n - 1)

    def fn(t):
        try:
            deep(3)
        except KeyError as error:
            return t + len(error.args[0]), str(error)

    check(fn, x())


def test_errors_of_builtins(check):
    def fn(t, table, items):
        got = []
        try:
            table["nope"]
        except KeyError as error:
            got.append(str(error))
        try:
            items[10]
        except IndexError as error:
            got.append(str(error))
        try:
            int("x")
        except ValueError as error:
            got.append(str(error))
        try:
            a, b = (1, 2, 3)
        except ValueError as error:
            got.append(str(error))
        try:
            next(iter(()))
        except StopIteration:
            got.append("stop")
        try:
            1 / 0
        except ZeroDivisionError as error:
            got.append(str(error))
        return t + 1, got

    check(fn, x(), {}, [1])


def test_reraise_and_cause(check):
    def fn(t):
        try:
            try:
                raise KeyError("a")
            except KeyError as error:
                raise ValueError("b") from error
        except ValueError as error:
            first = str(error)
        try:
            try:
                raise TypeError("again")
            except TypeError:
                raise
        except TypeError as error:
            return t + 1, first, str(error)

    check(fn, x())


def test_uncaught_error_is_the_programs_own(capture, backend):
    def helper(t):
        t = t * 2
        raise Mistake(7, "from helper")

    def fn(t, log):
        t = t + 1
        log.append("before")
        return helper(t)

    log = []
    compiled = capture(fn)
    with pytest.raises(Mistake, match="from helper") as caught:
        compiled(x(), log)
    assert caught.value.code == 7 and log == ["before"]
    names = [entry.name for entry in caught.traceback]
    assert "helper" in names


def test_uncaught_error_with_nopython_is_not_a_graph_break(capture):
    def fn(t):
        raise Mistake(1, "mine")

    with pytest.raises(Mistake, match="mine"):
        capture(fn, nopython=True)(x())


def test_shape_error_is_torchs_own(capture):
    def fn(a, b):
        return (a + 1) @ b

    with pytest.raises(RuntimeError) as eager:
        fn(torch.ones(2, 3), torch.ones(2, 3))
    with pytest.raises(RuntimeError) as ours:
        capture(fn)(torch.ones(2, 3), torch.ones(2, 3))
    assert str(ours.value) == str(eager.value)


def test_error_in_try_around_a_break(check):
    def fn(t, fail):
        try:
            t = t + 1
            print("in try")
            if fail:
                raise ValueError("later")
            t = t * 2
        except ValueError as error:
            t = t - len(str(error))
        finally:
            t = t + 100
        return t

    check(fn, x(), True, graphs=None)
    check(fn, x(), False, graphs=None)


def test_call_that_raises_inside_try(check):
    def fn(t):
        try:
            t = t + 1
            open("/does/not/exist/at/all")
        except OSError:
            t = t * 3
        return t

    check(fn, x(), graphs=None)


def test_context_managers(check):
    class Manager:
        def __init__(self, log, swallow):
            self.log = log
            self.swallow = swallow

        def __enter__(self):
            self.log.append("enter")
            return 5

        def __exit__(self, kind, value, trace):
            self.log.append(kind.__name__ if kind else "fine")
            return self.swallow

    def fn(t):
        log = []
        with Manager(log, False) as five, Manager(log, False):
            t = t + five
        with Manager(log, True):
            raise ValueError("swallowed")
        return t, log

    check(fn, x())


def test_generator_context_manager(check):
    @contextlib.contextmanager
    def managed(log, value):
        log.append("in")
        try:
            yield value
        except KeyError:
            log.append("caught")
        finally:
            log.append("out")

    def fn(t):
        log = []
        with managed(log, 3) as v:
            t = t * v
        with managed(log, 4):
            raise KeyError("k")
        with contextlib.nullcontext(2) as w:
            t = t + w
        with contextlib.suppress(ValueError):
            raise ValueError("x")
        return t, log

    check(fn, x())


def test_no_grad_and_its_kin(check):
    @torch.no_grad()
    def quiet(t):
        return t * 2

    def fn(t):
        with torch.no_grad():
            a = t * 2
            with torch.enable_grad():
                b = t * 3
        c = quiet(t)
        with torch.set_grad_enabled(False):
            d = t * 4
        return a.requires_grad, b.requires_grad, c.requires_grad, d, b, torch.is_grad_enabled()

    check(fn, x().requires_grad_())


def test_break_inside_no_grad(check, capsys):
    def fn(t):
        with torch.no_grad():
            a = t * 2
            print("inside", torch.is_grad_enabled())
            b = a + t
        c = t * 3
        return a, b, c

    check(fn, x().requires_grad_(), graphs=2)
    assert set(capsys.readouterr().out.splitlines()) == {"inside False"}
    assert torch.is_grad_enabled()


def test_break_inside_a_with_block_of_the_program(check):
    class Manager:
        def __init__(self, log):
            self.log = log

        def __enter__(self):
            self.log.append("enter")
            return self

        def __exit__(self, *error):
            self.log.append("exit")

    def fn(t, log):
        with Manager(log) as m:
            t = t + 1
            print("break")
            m.log.append("body")
            t = t * 2
        return t

    check(fn, x(), [], graphs=2)


def test_break_inside_a_generator_context_manager(check):
    @contextlib.contextmanager
    def managed(log):
        log.append("in")
        yield
        log.append("out")

    def fn(t, log):
        t = t + 1
        with managed(log):
            t = t * 2
            print("break")
            t = t + 3
        return t

    check(fn, x(), [], graphs=None)


def test_autocast(check):
    def fn(a):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            b = a @ a
        return b, a @ a

    check(fn, torch.randn(4, 4))


def test_break_inside_autocast(check):
    def fn(a):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            b = a @ a
            print("break", torch.is_autocast_enabled("cpu"))
            c = a @ a
        return b, c, a @ a

    check(fn, torch.randn(4, 4), graphs=None)
    assert not torch.is_autocast_enabled("cpu")


def test_assert(check):
    def fn(t, n):
        assert n > 0, "n must be positive"
        assert t.shape[0] == 6
        return t + n

    check(fn, x(), 1)
    check(fn, x(), -1, graphs=None)
