"""What an exception says of itself: its class, arguments and fields are what CPython gives it."""

import builtins
import collections
import decimal
import enum
import fractions
import functools
import itertools
import types

import pytest
import torch

EXCEPTIONS = [
    kind
    for kind in vars(builtins).values()
    if isinstance(kind, type) and issubclass(kind, BaseException)
]
ARGUMENTS = [
    (),
    ("m",),
    (2, "m"),
    (13, "m", "file"),
    (17, "m", "file", None, "other"),
    ("m", ("file", 1, 2, "line")),
    ("utf-8", b"abc", 0, 1, "why"),
    ("utf-8", "abc", 0, 1, "why"),
    ("abc", 0, 1, "why"),
    ("m", [ValueError(1), KeyError("k")]),
    ("m", []),
]


def fields_of(kind):
    """The names of data that a class of exceptions has."""
    return sorted(
        name
        for name in dir(kind)
        if not callable(getattr(kind, name)) and name not in ("__doc__", "__module__", "__dict__")
    )


def shown(value):
    if isinstance(value, BaseException):
        return type(value).__name__, value.args
    return [shown(item) for item in value] if isinstance(value, tuple) else value


@pytest.mark.sweep(3)
@pytest.mark.parametrize("kind", EXCEPTIONS, ids=lambda kind: kind.__name__)
def test_a_built_in_exception_is_made_as_python_makes_it(kind, check):
    """Whatever its arguments: the class that its `__new__` chooses, its fields, its text."""
    names = fields_of(kind)

    def fn(t, arguments):
        t = t + 1
        try:
            error = kind(*arguments)
        except Exception as refusal:
            return t, type(refusal).__name__, str(refusal)
        told = [getattr(error, name, "none") for name in names]
        return t, type(error).__name__, error.args, str(error), told

    def of_fields(t, arguments):
        found = fn(t, arguments)
        return *found[:-1], [shown(value) for value in found[-1]] if found[3:] else found[-1]

    for arguments in ARGUMENTS:
        if any(isinstance(arg, list) for arg in arguments):
            continue
        check(of_fields, torch.ones(2), arguments, graphs=None, calls=1)


@pytest.mark.parametrize("number", [1, 2, 4, 11, 13, 17, 20, 21, 32, 104, 110, 111, 10**6])
def test_the_handler_is_that_of_the_class_that_the_number_chooses(number, check):
    def fn(t, number):
        t = t + 1
        try:
            raise OSError(number, "m", "file")
        except FileNotFoundError:
            return t * 10
        except (PermissionError, ConnectionError) as error:
            return t * 100, type(error).__name__, error.filename
        except OSError as error:
            return t, type(error).__name__, error.errno, error.filename, error.args, str(error)

    check(fn, torch.ones(2), number)


@pytest.mark.parametrize("kind", [ExceptionGroup, BaseExceptionGroup])
def test_a_group_is_of_the_class_that_what_is_in_it_chooses(kind, check):
    def fn(t, makes):
        inner = [make("in") for make in makes]
        try:
            group = kind("m", inner)
        except TypeError as error:
            return t + 1, str(error)
        same = [one is other for one, other in zip(group.exceptions, inner)]
        return t + 1, type(group).__name__, group.message, same

    for makes in itertools.combinations((ValueError, KeyError, KeyboardInterrupt), 2):
        check(fn, torch.ones(2), makes)


def absent_attribute(target):
    return target.absent


def absent_by_getattr(target):
    return getattr(target, "absent_too")  # noqa: B009


def absent_name(target):
    return undefined_name  # noqa: F821


def absent_local(target):
    del target
    return target  # noqa: F821


def absent_import(target):
    from math import absent

    return absent


def absent_key(target):
    return {1: 2}[target]


def own_error(target):
    raise AttributeError("mine")


def undecodable(target):
    return b"\xff".decode("utf-8")


def unencodable(target):
    return "\xe9".encode("ascii")


def finished(target):
    return next(iter(()))


RAISERS = [absent_attribute, absent_by_getattr, absent_name, absent_local, absent_import,
           absent_key, own_error, undecodable, unencodable, finished]  # fmt: skip


class Plain:
    pass


class Asked:
    def __getattr__(self, name):
        raise AttributeError(name)


@pytest.mark.parametrize("raiser", RAISERS, ids=lambda raiser: raiser.__name__)
@pytest.mark.parametrize(
    "target",
    [None, 3, "text", int, Plain(), Plain, Asked(), torch, len, (1,)],
    ids=lambda target: f"{type(target).__name__}_{getattr(target, '__name__', '')}",
)
def test_what_the_interpreter_raises_says_of_what(raiser, target, capture, same):
    def fn(t):
        t = t + 1
        try:
            raiser(target)
        except Exception as error:
            said = [getattr(error, name, "none") for name in ("name", "path", "value", "start")]
            of = getattr(error, "obj", None) is target
            return t, type(error).__name__, str(error), error.args, said, of
        return t

    same(capture(fn)(torch.ones(2)), fn(torch.ones(2)))


@pytest.mark.parametrize("called", [dict, len, absent_key, Plain, print, torch.add])
def test_a_keyword_given_twice_is_refused_in_the_name_of_the_callable(called, capture, same):
    def fn(t):
        try:
            called(a=1, **{"a": 2})  # noqa: PIE804
        except TypeError as error:
            return t + 1, str(error)

    same(capture(fn)(torch.ones(2)), fn(torch.ones(2)))


CLASSES = [
    *(kind for kind in vars(builtins).values() if isinstance(kind, type) and kind is not type),
    *(getattr(collections, name) for name in collections.__all__ if name[0] != "_"),
    torch.Size, torch.device, torch.finfo, torch.iinfo, torch.Generator, torch.nn.Parameter,
    torch.nn.Linear, torch.no_grad, torch.set_grad_enabled, torch.autocast,
    types.SimpleNamespace, enum.Enum, functools.partial, fractions.Fraction, decimal.Decimal,
]  # fmt: skip
BAD = [("a",), (5,), ([1.5],), (["a"],), (None,), (int,), ("a", "b"), ({"a": 1},), (b"q", 2, 3)]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_constructor_refuses_its_arguments_in_the_program(kind, check):
    """Inside `try`, it is the program's error: nothing of it is a fault of capture."""

    def fn(t, given):
        t = t + 1
        try:
            kind(*given)
        except Exception as error:
            return t, type(error).__name__, str(error).split(" at 0x")[0]
        return t

    for given in BAD:
        check(fn, torch.ones(2), given, graphs=None, calls=1)


class WithFields(ValueError):
    def __init__(self, *args):
        super().__init__(*args)
        self.first = 1


DICT_USES = (
    "vars(e)", "e.__dict__", "sorted(vars(e))", "(e.__dict__.update(z=2), e.z)",
    "'first' in vars(e)", "(vars(e).pop('first'), hasattr(e, 'first'))",
)  # fmt: skip


@pytest.mark.parametrize("use", DICT_USES)
@pytest.mark.parametrize("made", ["WithFields(1)", "ValueError(1)"])
def test_the_dict_of_an_exception_has_what_was_set_on_it(made, use, check):
    space = {"WithFields": WithFields}
    exec(f"def f(t):\n    e = {made}\n    e.first = 3\n    r = {use}\n    return t + 1, r", space)
    check(space["f"], torch.ones(2), graphs=None)
