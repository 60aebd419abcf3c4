"""What a function is made of is asked again: each part that code reads or calls by, changed between
calls in every way that Python allows, from every place where the function is held."""

import pytest
import torch


def positional():
    def h(a, b=1):
        return a * 10 + b

    return h


def keyword():
    def h(a, *, k=1):
        return a * 10 + k

    return h


def bare():
    return lambda a, b: a * 10 + b


def bare_keyword():
    def h(a, *, k):
        return a * 10 + k

    return h


MAKERS = (positional, keyword, bare, bare_keyword)
USES = (
    "h(x)", "h(x, 2)", "len(h.__defaults__ or ())", "h.__defaults__", "h.__kwdefaults__",
    "(h.__kwdefaults__ or {'k': 0}).get('z')", "len(h.__kwdefaults__ or ())", "len(h.__dict__)",
    "'attr' in h.__dict__", "h.__name__", "h.__qualname__", "h.__doc__", "len(h.__annotations__)",
    "getattr(h, 'attr', None)", "h.__code__.co_argcount",
)  # fmt: skip
CHANGES = {
    "more defaults": ("__defaults__", (1, 2)),
    "no defaults": ("__defaults__", None),
    "a default": ("__defaults__", (3,)),
    "another keyword": ("__kwdefaults__", {"k": 1, "z": 4}),
    "a keyword": ("__kwdefaults__", {"k": 4}),
    "no keywords": ("__kwdefaults__", None),
    "an attribute": ("attr", 3),
    "a name": ("__name__", "other"),
    "a qualified name": ("__qualname__", "other"),
    "a text": ("__doc__", "other"),
    "annotations": ("__annotations__", {"a": int}),
    "code": ("__code__", (lambda a, b=0: a - b).__code__),
}
PLACES = {
    "global": "def f(x, given):\n    return x + 1, {0}\n",
    "argument": "def f(x, given):\n    h = given\n    return x + 1, {0}\n",
    "attribute": "def f(x, given):\n    h = f.held\n    return x + 1, {0}\n",
}


def answers(maker, place, use, change, wrap):
    h = maker()
    names = {"h": h}
    exec(PLACES[place].format(use), names)
    names["f"].held = h
    fn, found = wrap(names["f"]), []
    for turn in range(4):
        if turn == 2:
            setattr(h, *CHANGES[change])
        try:
            found.append(str(fn(torch.ones(1), h)))
        except Exception as error:
            found.append((type(error), str(error)))
    return found


@pytest.mark.sweep(6)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("change", CHANGES)
def test_a_part_that_changes(capture, change, place):
    """Every use of every function in one of the places for each change."""
    first = [*CHANGES].index(change) + [*PLACES].index(place)
    for number, use in enumerate(USES):
        maker = MAKERS[(first + number) % len(MAKERS)]
        wanted = answers(maker, place, use, change, lambda fn: fn)
        got = answers(maker, place, use, change, lambda fn: capture(fn, never_slower=False))
        assert got == wanted, (maker.__name__, use)


PARTS = ("__defaults__", "__kwdefaults__", "__closure__", "__annotations__", "__dict__")


def with_parts():
    held = 1

    def h(a, into=[1], *, k=1) -> int:  # noqa: B006 - it is written to
        return a * held + k + into[0]

    h.attr = 2
    return h


WRITES = {
    "a keyword": lambda h, x: h.__kwdefaults__.update(k=5),
    "a keyword of a tensor": lambda h, x: h.__kwdefaults__.__setitem__("k", x),
    "no keyword": lambda h, x: h.__kwdefaults__.clear(),
    "a default": lambda h, x: h.__defaults__[0].insert(0, 9),
    "an entry": lambda h, x: h.__dict__.__setitem__("attr", x),
    "a new entry": lambda h, x: h.__dict__.update(new=x),
    "an annotation": lambda h, x: h.__annotations__.update(a=3),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("place", ["given", "made"])
def test_parts_are_the_functions_own(capture, same, write, place):
    def fn(x, given):
        h = given or with_parts()
        same = [getattr(h, name) is getattr(h, name) for name in PARTS]
        called = []
        for turn in range(3):
            try:
                called.append(h(x))
            except TypeError as error:
                called.append(str(error))
            if turn == 0:
                WRITES[write](h, x)
        return called, same, h.attr, sorted(h.__dict__), [getattr(h, name) for name in PARTS[3:]]

    ours, theirs = with_parts(), with_parts()
    given = (ours, theirs) if place == "given" else (None, None)
    compiled = capture(fn)
    for _ in range(2):
        same(compiled(torch.ones(2), given[0]), fn(torch.ones(2), given[1]))
    for name in ("__defaults__", "__kwdefaults__", "__annotations__", "__dict__"):
        same(getattr(ours, name), getattr(theirs, name))
