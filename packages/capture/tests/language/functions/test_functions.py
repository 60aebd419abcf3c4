# ruff: noqa: B023, F821, UP031
# (the programs under test are written as users write them)
"""Functions: closures, defaults, decorators, lambdas, generators, recursion, partials."""

import functools

import torch


def x():
    return torch.arange(6.0)


SCALE = 3
counter = 0


def test_closures_and_nonlocal(check):
    def fn(t):
        total = 0

        def add(value):
            nonlocal total
            total = total + value
            return total

        add(t)
        add(2)
        return total, add(1)

    check(fn, x())


def test_returned_closure_shares_its_cell(capture):
    def fn(t):
        n = 1

        def bump():
            nonlocal n
            n += 1
            return n

        def read():
            return n

        bump()
        return t + n, bump, read

    result, bump, read = capture(fn)(x())
    assert torch.equal(result, x() + 2)
    assert (bump(), read(), bump(), read()) == (3, 3, 4, 4)


def test_outer_variable_is_read_and_written(capture, backend):
    n = 1

    def fn(t):
        nonlocal n
        n += 1
        return t * n

    compiled = capture(fn)
    assert torch.equal(compiled(x()), x() * 2)
    assert torch.equal(compiled(x()), x() * 3)
    assert n == 3


def test_global_is_written(capture):
    def fn(t):
        global counter
        counter += 1
        return t + counter

    global counter
    counter = 0
    compiled = capture(fn)
    assert torch.equal(compiled(x()), x() + 1)
    assert torch.equal(compiled(x()), x() + 2)
    assert counter == 2


def test_global_is_guarded(capture, backend):
    global SCALE

    def fn(t):
        return t * SCALE

    compiled = capture(fn)
    SCALE = 3
    assert torch.equal(compiled(x()), x() * 3)
    SCALE = 4
    assert torch.equal(compiled(x()), x() * 4)
    assert len(backend) == 2


def test_defaults_keywords_and_varargs(check):
    def inner(a, b=2, /, c=3, *rest, d, e=5, **more):
        return a + b + c + sum(rest) + d + e + sum(more.values())

    def fn(t):
        return inner(t, d=1), inner(t, 1, 2, 3, 4, d=1, f=7), inner(t, c=0, d=0)

    check(fn, x())


def test_decorators_and_wraps(check):
    def double(f):
        @functools.wraps(f)
        def wrapper(*args, **kwargs):
            return f(*args, **kwargs) * 2

        return wrapper

    @double
    def inner(t, k=1):
        return t + k

    def fn(t):
        @double
        def local(v):
            return v + 1

        return inner(t, k=3), local(t), inner.__name__, local.__name__

    check(fn, x())


def test_partial_and_lambda(check):
    def inner(a, b, c=0):
        return a * b + c

    def fn(t):
        p = functools.partial(inner, b=2)
        q = functools.partial(p, c=1)
        return p(t), q(t), (lambda v, k=2: v**k)(t)

    check(fn, x())


def test_generators(check):
    def numbers(t, n):
        for i in range(n):
            got = yield t * i
            if got is not None:
                return

    def both(t):
        yield from numbers(t, 2)
        yield t + 100
        return 5

    def fn(t):
        gen = both(t)
        first = next(gen)
        rest = list(gen)
        return first, rest, sum(numbers(t, 3)), next(iter([]), "none")

    check(fn, x())


def test_generator_in_a_loop_with_try_finally(check):
    def gen(t, log):
        try:
            yield t
            yield t + 1
        finally:
            log.append("closed")

    def fn(t):
        log = []
        for item in gen(t, log):
            t = t + item
        g = gen(t, log)
        next(g)
        g.close()
        return t, log

    check(fn, x())


def test_recursion(check):
    def power(t, n):
        return t if n == 0 else power(t * 2, n - 1)

    def fn(t):
        return power(t, 5)

    check(fn, x())


def test_functions_as_arguments(capture, backend):
    def fn(t, f):
        return f(t) + 1

    compiled = capture(fn)
    for k in (1, 1, 2):
        assert torch.equal(compiled(x(), lambda v: v * k), x() * k + 1)
    assert len(backend) == 2


def test_torch_functions_as_arguments(check):
    def fn(t, f):
        return f(t), f.__name__

    check(fn, x(), torch.sin)
    check(fn, x(), torch.nn.functional.relu)


def test_lru_cache(check):
    @functools.lru_cache
    def size(n):
        return n * 2

    def fn(t):
        return t + size(3)

    check(fn, x())


def test_wrong_arguments_raise_as_python_does(check):
    def inner(a):
        return a

    def fn(t):
        return inner(t, 2) + t

    check(fn, x(), graphs=None)


def test_string_work(check):
    def fn(t, name):
        text = f"{name!r:>8}|{t.shape[0]:03d}|{3.14159:.2f}"
        parts = "a,b,c".split(",")
        joined = "-".join(p.upper() for p in parts)
        return t + len(text), text, joined, "%s=%d" % (name, 3), name.startswith("n"), "x" * 3

    check(fn, x(), "name")


def test_walrus_ternary_chained(check):
    def fn(t, n):
        if (m := n + 1) > 2 and 0 < m < 10:
            t = t + m
        return t if n else -t

    check(fn, x(), 2)
    check(fn, x(), 0)


def test_while_loop(check):
    def fn(t, n):
        while True:
            n -= 1
            if n < 0:
                break
            if n == 1:
                continue
            t = t + n
        else:
            t = t * 100
        return t

    check(fn, x(), 4)


def test_del_and_unbound(check):
    def fn(t):
        y = t + 1
        del y
        try:
            return y
        except UnboundLocalError:
            return t - 1

    check(fn, x())


def test_locals(check):
    def fn(t):
        a = 1
        found = locals()
        return t + found["a"], sorted(found)

    check(fn, x())


def test_inspect_signature(check):
    import inspect

    def inner(a, b=2):
        return a + b

    def fn(t):
        names = list(inspect.signature(inner).parameters)
        return t + len(names), names

    check(fn, x())


def test_is_compiling_is_true_under_capture(capture):
    from flambeau_capture import is_compiling

    def fn(t):
        if torch.compiler.is_compiling() and is_compiling():
            return t + 1
        return t - 1

    assert torch.equal(capture(fn)(x()), x() + 1)
    assert torch.equal(fn(x()), x() - 1)


def test_vmap_is_one_graph(check):
    table = torch.randn(4, 6)

    def scale(row, k):
        return (row * k + table[0]).sum(), row.sin()

    def fn(t, k):
        rows = torch.vmap(scale, in_dims=(0, None))(t.reshape(2, 3).repeat(1, 2), k)
        pairs = torch.vmap(torch.vmap(lambda a, b: a * b, (None, 0)), (0, None))(t, t)
        return rows, pairs

    check(fn, x(), 2.0)
