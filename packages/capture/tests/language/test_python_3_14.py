"""What Python 3.14 brought: its statements, its annotations, its templates."""

import dataclasses
import itertools
import linecache
import sys

import pytest
import torch
from flambeau_capture import disable

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 14),
    reason="this Python is older than what these programs are written in",
)


@disable
def opaque(value=None):
    return value


class Manager:
    """Says what was done with it; `swallows`: an exception goes no further."""

    def __init__(self, swallows=False):
        self.swallows = swallows
        self.said = []

    def __enter__(self):
        self.said.append("in")
        return self

    def __exit__(self, kind, *rest):
        self.said.append(getattr(kind, "__name__", None))
        return self.swallows


def shown(value):
    """What is compared of a result, with the objects of the library in it."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return type(value)(map(shown, value))
    if type(value).__name__ == "Template":
        return "Template", value.strings, shown(tuple(value.interpolations))
    if type(value).__name__ == "Interpolation":
        fields = ("value", "expression", "conversion", "format_spec")
        return [shown(getattr(value, name)) for name in fields]
    if callable(value) and hasattr(value, "__annotate__"):
        return value.__annotations__, value.__annotate__ is None
    return value


STATEMENTS = (
    "try:\n    {act}\nexcept ValueError, KeyError:\n    r.append(1)",
    "try:\n    {act}\nexcept (ValueError, KeyError) as e:\n    r.append(e.args)\nelse:\n    pass",
    "try:\n    {act}\nexcept* ValueError, KeyError:\n    r.append(3)",
    "with Manager() as m:\n    r.append(m)\n    {act}",
    "with Manager(True) as m, Manager():\n    opaque()\n    {act}\nr.append(m.said)",
    "for x in (1, 2, 3):\n    if x == 2:\n        break\n    {act}\nelse:\n    r.append(4)",
    "r.append([x for x in (1, 2) if all(x > y for y in (0, 1))])\n{act}",
    "r.append((any(x for x in r), tuple(x for x in (1, 2))))\n{act}",
)
ACTS = (
    "pass",
    "t = t + 1",
    "t = t + opaque(1)",
    "raise ValueError('a')",
    "opaque().none",
    "{}[t.shape]",
)
TEMPLATES = (
    't"{t} and {n!r:>{n}}"',
    't""',
    't"{n}{n!s}{t + 1!a:x}".interpolations',
    't"a{n}b".strings',
    't"a{n}b{t}".values',
    'list(t"{n}b{opaque(n)}")',
    '[type(part).__name__ for part in t"a{n}{n}"]',
    '[part.expression for part in t"{n + 1} {t}" if not isinstance(part, str)]',
    't"{n}".interpolations[0].conversion',
    '"".join(part if isinstance(part, str) else format(part.value) for part in t"a{n}b{n}")',
)
ANNOTATED = (
    "def g(x: int, *y: 'n', z: list[Missing] = 3) -> None: return x\nr.append(g(1))",
    "def g(x: int = 2) -> t.dtype: return x\nr.append(g)",
    "def g(x: int): return x\nr.append(g.__annotations__)",
    "def g(x: n): return x\ng.__annotations__ = {'x': 1}\nr.append(g)",
    "def g(x): return x\nr.append((g.__annotations__, g.__annotate__))",
    "g = lambda x: x\nr.append(g)",
    "class A:\n    x: int = 3\n    if n:\n        y: Missing\nr.append(A.x)",
    "class A:\n    x: int\n    y: str = 'a'\nr.append([*A.__annotations__])",
    "@dataclass\nclass A:\n    x: int\n    y: float = 2.0\nr.append(A(n).y)",
)


def made(body):
    world = {"Manager": Manager, "opaque": opaque, "dataclass": dataclasses.dataclass}
    indented = "".join(f"    {line}\n" for line in body.splitlines())
    text = f"def f(t, n):\n    r = []\n{indented}    return r, t * 2\n"
    linecache.cache["<new>"] = (len(text), None, text.splitlines(keepends=True), "<new>")
    exec(compile(text, "<new>", "exec"), world)
    return world["f"]


def outcome(function, *given):
    try:
        r, t = function(*given)
    except Exception as error:
        return type(error), str(error)
    return [shown(one) if type(one) is not Manager else one.said for one in r], t.tolist()


def compare(capture, body):
    given = torch.ones(2), 3
    expected = outcome(made(body), *given)
    compiled = capture(made(body))
    for _ in range(2):
        assert outcome(compiled, *given) == expected, body


@pytest.mark.parametrize("statement", range(len(STATEMENTS)))
def test_statements(capture, statement):
    for act in ACTS:
        compare(capture, STATEMENTS[statement].replace("{act}", act))


@pytest.mark.parametrize("written, after", itertools.product(TEMPLATES, ("", "opaque()")))
def test_templates(capture, written, after):
    compare(capture, f"a = {written}\n{after}\nr.append(a)")


@pytest.mark.parametrize("written", ANNOTATED)
def test_annotations(capture, written):
    compare(capture, written)


def test_managers_that_are_none(capture):
    for body in ("with n: pass", "with t: pass", "with opaque(n): pass", "with Half() as x: pass"):
        body = f"class Half:\n    def __exit__(self, *given): pass\n{body}"
        compare(capture, body)
