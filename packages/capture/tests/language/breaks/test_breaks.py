"""Graph breaks: where they may stand, what they must not disturb, how often frames are compiled."""

import random
import warnings

import pytest
import torch
from flambeau_capture import CaptureWarning, disable, graph_break, optimize
from flambeau_capture.api import compiler_of


def x():
    return torch.arange(6.0)


def test_break_deep_in_an_expression(check):
    def opaque(v):
        graph_break()
        return v

    def fn(t):
        return t + max(1, opaque(2)) * (t * 3 if opaque(True) else t) + opaque(t)

    check(fn, x(), graphs=None)


def test_break_with_keyword_arguments(check):
    @disable
    def opaque(a, b=1, *, c=2, **more):
        return a * b + c + sum(more.values())

    def fn(t):
        t = t + 1
        t = opaque(t, c=3, d=4)
        t = opaque(*[t], b=2)
        return t * 2

    check(fn, x(), graphs=2)


def test_break_in_a_method_call_on_a_temporary(check):
    def fn(t, names):
        return (t + 1).tolist(), t * len(names), ",".join(str(int(v)) for v in (t * 2).numpy())

    check(fn, x(), ["a"], graphs=None)


def test_break_inside_loops(check):
    def fn(t, items):
        total = t
        for item in items:
            total = total + item
            graph_break()
            total = total * 2
        for i in range(3):
            for j in range(2):
                total = total + i * j
                if j == 1:
                    graph_break()
        return total

    check(fn, x(), [1, 2, 3], graphs=None)


def test_break_in_a_while_loop_on_data(check):
    def fn(t):
        n = 0
        while t.sum() < 100:
            t = t * 2
            n += 1
        return t, n

    check(fn, x(), graphs=None)


def test_break_in_inlined_function_runs_it_once(check):
    def inner(t, log):
        log.append("before")
        t = t + 1
        graph_break()
        log.append("after")
        return t * 2

    def fn(t, log):
        log.append("outer")
        t = inner(t, log)
        log.append("end")
        return t + 1

    check(fn, x(), [], graphs=None)


def test_effects_before_and_after_a_break(check):
    def fn(t, items, table):
        items.append(t + 1)
        table["a"] = items
        graph_break()
        items.append(len(items))
        table["a"].append("x")
        other = [items, items]
        graph_break()
        other[0].append("y")
        return other[1] is items, len(items), t * 2

    check(fn, x(), [], {}, graphs=None)


def test_closure_over_a_break(check):
    def fn(t):
        n = 1

        def bump():
            nonlocal n
            n += 1
            return n

        bump()
        graph_break()
        t = t + bump()
        graph_break()
        return t + n, bump()

    check(fn, x(), graphs=None)


def test_break_between_super_and_the_rest(check):
    class Base:
        def run(self, t):
            graph_break()
            return t + 1

    class Derived(Base):
        def run(self, t):
            t = t * 2
            t = super().run(t)
            graph_break()
            return super().run(t) + 3

    def fn(t):
        return Derived().run(t)

    check(fn, x(), graphs=None)


def test_iterators_survive_a_break(check):
    def fn(t):
        it = iter([1, 2, 3, 4])
        pairs = zip([1, 2, 3], "abc")
        counted = enumerate([5, 6, 7])
        next(it), next(pairs), next(counted)
        t = t + 1
        graph_break()
        return t + next(it), list(it), list(pairs), list(counted)

    check(fn, x(), graphs=2)


def test_list_iterator_sees_what_is_appended(check):
    def fn(t):
        items = [1, 2]
        total = t
        for item in items:
            total = total + item
            graph_break()
            if item < 3:
                items.append(item + 2)
        return total, items

    check(fn, x(), graphs=None)


def test_random_programs_agree(check):
    """Straight-line programs with breaks at random places."""
    rng = random.Random(7)
    for case in range(8):
        lines = ["def fn(t, items):", "    a = t", "    b = [t]", "    n = 0"]
        for _ in range(8):
            lines.append(
                "    "
                + rng.choice(
                    [
                        "a = a * 2 + n",
                        "b.append(a)",
                        "n += 1",
                        "graph_break()",
                        "a, c = a + 1, b[-1]",
                        "items.append(n)",
                        "a = a + len(b) + len(items)",
                        "if n > 1: b[0] = a - 1",
                        "for i in range(n): a = a + i",
                        "items[:] = items[::-1]",
                    ]
                )
            )
        lines.append("    return a + 0, b, n, items")
        namespace = {"graph_break": graph_break, "torch": torch}
        source = "\n".join(lines)
        exec(compile(source, f"<case {case}>", "exec"), namespace)
        check(namespace["fn"], x(), [1, 2], graphs=None)


def test_disabled_function_is_not_looked_into(capture, backend):
    @disable
    def inner(t):
        return torch.sin(t)

    def fn(t):
        return inner(t + 1) * 2

    assert torch.allclose(capture(fn)(x()), torch.sin(x() + 1) * 2)
    assert len(backend) == 2
    assert all(torch.sin not in backend.operations(i) for i in range(2))


def test_a_generator_function_is_captured_between_its_yields(capture, backend):
    def fn(t):
        yield t + 1
        yield t + 2

    assert [float(v.sum()) for v in capture(fn)(x())] == [21.0, 27.0]
    assert len(backend) == 2


def test_recompiles_and_limit(capture, backend):
    def fn(t, word):
        return t + len(word)

    compiled = capture(fn, cache_size_limit=3)
    for word in ("a", "bb", "ccc"):
        assert torch.equal(compiled(x(), word), fn(x(), word))
    told = r"fn was compiled 3 times(.|\n)*local 'word'(.|\n)*got 'dddd'"
    with pytest.warns(CaptureWarning, match=told):
        assert torch.equal(compiled(x(), "dddd"), x() + 4)
    assert len(backend) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(compiled(x(), "eeeee"), x() + 5)  # told once
        assert torch.equal(compiled(x(), "bb"), x() + 2)
    assert len(backend) == 3


def test_an_int_that_varies_is_left_open(capture, backend):
    def fn(t, n):
        return t + n

    compiled = capture(fn, cache_size_limit=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (2, *range(3, 12), -4):
            assert torch.equal(compiled(x(), n), x() + n)
        assert len(backend) == 2  # for 2, and for any number
        for n in (0, 1):
            assert torch.equal(compiled(x(), n), x() + n)
    assert len(backend) <= 3


def test_an_int_stays_constant_where_asked(capture, backend):
    def fn(t, n):
        return t + n

    compiled = capture(fn, cache_size_limit=3, dynamic=False)
    with pytest.warns(CaptureWarning, match=r"fn was compiled 3 times(.|\n)*local 'n'(.|\n)*got 3"):
        for n in range(6):
            assert torch.equal(compiled(x(), n), x() + n)
    assert len(backend) == 3


def test_shapes_dtypes_and_grad_mode_recompile(capture, backend):
    def fn(t):
        return t * 2

    compiled = capture(fn)
    for given in (torch.ones(2), torch.ones(3), torch.ones(2, dtype=torch.float64), torch.ones(2)):
        assert torch.equal(compiled(given), given * 2)
    assert len(backend) == 3
    with torch.no_grad():
        compiled(torch.ones(2))
    assert len(backend) == 4
    needs = torch.ones(2, requires_grad=True)
    assert compiled(needs).requires_grad
    assert len(backend) == 5


def test_backend_that_raises_is_told_once_and_runs_eagerly():
    def broken(gm, inputs):
        raise RuntimeError("no such luck")

    def fn(t):
        return t * 2

    compiled = optimize(broken)(fn)
    with pytest.warns(CaptureWarning, match=r"broken.*no such luck(.|\n)*return t \* 2"):
        assert torch.equal(compiled(x()), x() * 2)
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(compiled(x()), x() * 2)


def test_backend_that_raises_with_nopython():
    from flambeau_capture import BackendError

    def broken(gm, inputs):
        raise RuntimeError("no such luck")

    with pytest.raises(BackendError, match="no such luck"):
        optimize(broken, nopython=True)(lambda t: t + 1)(x())


def test_same_tensor_twice(capture, backend):
    def fn(a, b):
        a.add_(1)
        return a + b

    compiled = capture(fn)
    one = x()
    assert torch.equal(compiled(one, one), (x() + 1) * 2)
    assert len([n for n in backend.graphs[0].graph.nodes if n.op == "placeholder"]) == 1
    assert torch.equal(compiled(x(), x()), x() * 2 + 1)
    assert len(backend) == 2


def test_in_place_operators(check):
    def fn(t, other):
        view = t[2:]
        t += 1
        view.mul_(2)
        t[0] = 9
        same = t.add_(other)
        torch.sin(other, out=other)
        return same is t, t, view, other

    check(fn, x(), torch.ones(6))


def test_unused_arguments_are_not_guarded(capture, backend):
    def fn(t, unused, passed):
        return t + 1, passed

    compiled = capture(fn)
    for value in (1, "two", None, 3.0):
        assert compiled(x(), value, value)[1] == value
    assert len(backend) == 1


def test_names_are_taken_back():
    import gc

    def fn(t):
        t = t + 1
        graph_break()
        return t * 2

    gc.collect()  # callables of other tests take their names back
    before = set(fn.__globals__)
    compiled = optimize("eager")(fn)
    compiled(x())
    assert any(name.startswith("__compiled_fn") for name in set(fn.__globals__) - before)
    del compiled
    gc.collect()
    assert set(fn.__globals__) == before


def test_a_frame_without_tensors_is_not_left_to_python():
    class Named:
        def __str__(self):
            return "-".join(sorted("name"))

    def fn(t):
        t = t + 1
        print(Named(), end="")
        return t * 2

    compiled = optimize("eager", raise_internal_errors=True)(fn)
    assert torch.equal(compiled(x()), fn(x()))
    records = compiler_of(compiled).records
    outcomes = {record.function: record.outcome for record in records.frames}
    assert outcomes["__str__"] == "nothing to compile" and records.skipped == []


def test_threads_compile_at_the_same_time():
    import threading

    def fn(t, n):
        for _ in range(3):
            t = t * 2 + n
        return t

    compiled = optimize("eager", raise_internal_errors=True)(fn)
    errors = []

    def work(n):
        try:
            for _ in range(5):
                assert torch.equal(compiled(x(), n), fn(x(), n))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not errors
