"""What is only asked for, or only passed along, is there or is not: in the call that is running."""

import types

import pytest
import torch


class Plain:
    pass


class WithClass:
    q = "of the class"


class WithFallback:
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return f"fallback {name}"


class Slotted:
    __slots__ = ("q",)


KINDS = [Plain, WithClass, WithFallback, Slotted, types.SimpleNamespace]


def caught(t, one, log):
    log.append("start")
    try:
        found = one.q
    except AttributeError as error:
        found = str(error)
    return t + 1, found


def defaulted(t, one, log):
    log.append("start")
    return t + 1, getattr(one, "q", "default")


def raised(t, one, log):
    log.append("start")
    t = t + 1
    log.append(one.q)
    return t


def outcome(fn, one):
    log = []
    try:
        return fn(torch.ones(2), one, log), log
    except AttributeError as error:
        return str(error), log


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fn", [caught, defaulted, raised])
def test_an_attribute_comes_and_goes(capture, same, kind, fn):
    one, compiled = kind(), capture(fn)
    one.q = 3
    for change in (None, delattr, setattr):
        if change is delattr:
            del one.q
        elif change is setattr:
            one.q = 4
        same(outcome(compiled, one), outcome(fn, one))


def owners():
    def function():
        pass

    return {
        "function": function,
        "class": type("Made", (), {}),
        "module": types.ModuleType("made"),
        "tensor": torch.ones(2),
        "nn module": torch.nn.Module(),
    }


@pytest.mark.parametrize("name", owners())
def test_what_an_object_lacks(capture, same, name):
    one = owners()[name]

    def fn(t, given):
        owner = given if name == "tensor" else one
        try:
            found = owner.q
        except AttributeError:
            found = "nothing"
        return t + 1, found, getattr(owner, "z", 0), hasattr(owner, "w")

    compiled = capture(fn)
    same(compiled(torch.ones(2), one), fn(torch.ones(2), one))
    for attribute in ("q", "z", "w"):
        setattr(one, attribute, 3)
        same(compiled(torch.ones(2), one), fn(torch.ones(2), one))
        delattr(one, attribute)
        same(compiled(torch.ones(2), one), fn(torch.ones(2), one))


def test_a_global_and_a_variable_that_come_and_go(capture, same):
    space = {"found": 3}
    exec("def fn(t):\n try: return t + 1, found\n except NameError: return t + 1, 'none'", space)
    fn = space["fn"]
    compiled = capture(fn)
    enclosed = 5

    def inner(t):
        try:
            return t + 1, enclosed
        except NameError:
            return t + 1, "none"

    nested = capture(inner)
    same(compiled(torch.ones(2)), (torch.ones(2) + 1, 3))
    same(nested(torch.ones(2)), (torch.ones(2) + 1, 5))
    del space["found"], enclosed
    same(compiled(torch.ones(2)), (torch.ones(2) + 1, "none"))
    same(nested(torch.ones(2)), (torch.ones(2) + 1, "none"))
    space["found"] = enclosed = 7
    same(compiled(torch.ones(2)), (torch.ones(2) + 1, 7))
    same(nested(torch.ones(2)), (torch.ones(2) + 1, 7))


def test_what_is_passed_along_may_change(capture, backend):
    """It has to be there; what it is makes no difference."""

    def fn(t, one):
        return t + 1, one.q

    compiled, one = capture(fn), Plain()
    for value in (1, 2.5, "text", None):
        one.q = value
        assert compiled(torch.ones(2), one)[1] == value
    assert len(backend) == 1
