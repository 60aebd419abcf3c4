"""Which reads may find their variable unbound."""

from flambeau_capture.bytecode import decode
from flambeau_capture.bytecode import spelling as s
from flambeau_capture.bytecode.opcodes import VERSION
from flambeau_capture.bytecode.pools import possibly_unbound


def unbound_names(function, *bound):
    return {i.argval for i in possibly_unbound(decode(function.__code__), bound)}


def test_a_variable_bound_on_one_road_only():
    def f(a):
        if a:
            b = 1
        return b

    expected = {"b"} if VERSION < (3, 12) else set()  # from 3.12 on the compiler checks it itself
    assert unbound_names(f, "a") == expected
    assert unbound_names(f) == expected | {"a"}


def test_an_exception_may_come_before_the_binding():
    def f(a):
        try:
            b = a.x
            b = b.y
        except AttributeError:
            c = 1
        return c if a else a

    body = decode(f.__code__)
    assert {i.argval for i in possibly_unbound(body, ("a",))} <= {"c"}


def test_the_compiler_checks_what_its_own_roads_leave_open():
    def f(n):
        total = 0
        for i in range(n):
            total += i
        del n
        return [total for _ in range(2)], total

    assert unbound_names(f, "n") == set()


def test_another_way_in_opens_roads():
    def f(a):
        b = a
        return b

    body = decode(f.__code__)
    after = next(i for i, one in enumerate(body.instructions) if one.opname == "STORE_FAST") + 1
    body.instructions[1:1] = s.jump(body.instructions[after])
    assert {i.argval for i in possibly_unbound(body, ("a",))} == {"b"}
