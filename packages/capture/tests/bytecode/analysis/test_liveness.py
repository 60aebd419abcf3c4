"""Live variables: reads on every road, exceptions and cells included."""

import pytest
from flambeau_capture.bytecode import FlowError, decode, live_locals, liveness
from flambeau_capture.bytecode import spelling as s


def at_global(function, name):
    """Live names where the function loads the global `name`."""
    body = decode(function.__code__)
    place = next(i for i in body.instructions if i.opname == "LOAD_GLOBAL" and i.argval == name)
    return live_locals(body, place)


def test_only_what_is_read_before_it_is_written():
    def f(a, b, c):
        here()  # noqa: F821
        c = b
        return c

    assert at_global(f, "here") == {"b"}


def test_both_branches_and_the_way_back_of_a_loop():
    def f(a, b, c, n):
        here()  # noqa: F821
        while n:
            if a:
                n -= b
            else:
                return c
        return n

    assert at_global(f, "here") == {"a", "b", "c", "n"}


def test_inside_a_loop_the_next_round_counts():
    def f(items, carried, unused):
        for item in items:
            here()  # noqa: F821
            carried = carried + item
        return 0

    assert at_global(f, "here") == {"carried", "item"}


def test_an_exception_may_come_before_the_write():
    def f(kept):
        try:
            kept = here()  # noqa: F821
        except ValueError:
            return kept
        return 0

    assert at_global(f, "here") == {"kept"}


def test_without_the_handler_the_write_kills():
    def f(kept):
        kept = here()  # noqa: F821
        return kept

    assert at_global(f, "here") == frozenset()


def test_a_cell_is_needed_to_store_through_it():
    def f(a):
        def read():
            return a

        here()  # noqa: F821
        a = 1
        return read

    assert at_global(f, "here") == {"a", "read"}


def test_deleting_needs_the_variable():
    def f(a):
        here()  # noqa: F821
        del a

    assert at_global(f, "here") == {"a"}


def test_super_needs_the_frames_first_variable():
    class A:
        def f(self, other):
            here()  # noqa: F821
            return super().f()

    assert {"self", "__class__"} <= at_global(A.f, "here")
    assert "other" not in at_global(A.f, "here")


def test_a_function_called_super_is_no_super():
    def f(first):
        here()  # noqa: F821
        return super

    assert at_global(f, "here") == frozenset()


def test_one_call_for_all_agrees_with_one_at_a_time():
    def f(a, b):
        while a:
            b, a = a, b - 1
        return b

    body = decode(f.__code__)
    found = liveness(body)
    assert all(found[i] == live_locals(body, i) for i in body.instructions)
    assert found[body.instructions[0]] == {"a", "b"}
    with pytest.raises(FlowError):
        live_locals(body, s.nop()[0])
