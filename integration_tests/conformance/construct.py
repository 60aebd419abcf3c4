"""A construct of the language, and the programs that use it.

In: a chapter, a name, statements. Out: programs of the campaign, which it judges.
Invariant: a text that is an expression is one whose value is a result; `x`, `n`, `xs` are a tensor,
an integer and a list that the caller gives.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from textwrap import indent

from integration_tests.campaign.families import language
from integration_tests.campaign.program import Call, Program

TENSOR = "make((3,), torch.float32, 1, 'whole')"
CALLS: tuple[Mapping[str, str], ...] = (
    {"x": TENSOR, "n": "2", "xs": "[1, 2, 3]"},
    {"x": TENSOR, "n": "2", "xs": "[1, 2, 3]"},
    {"x": "make((4,), torch.float32, 2, 'whole')", "n": "3", "xs": "[5, 4]"},
)
SETUP = f"""{language.SETUP}
import abc, bisect, copy, heapq, re, statistics, string, textwrap, types, typing, weakref
def shown(value):
    if hasattr(value, "__next__"):
        value = [*itertools.islice(value, 5)]
    text = repr(value)
    if isinstance(value, (set, frozenset)):
        text = repr(sorted(map(repr, value)))
    return f"{{type(value).__name__}} {{'' if '0x' in text else text}}"
def text_of(error):
    return (type(error).__name__, str(error), type(error.__cause__).__name__)
def add(a, b=2):
    return a + b
[*map(dir, map(type, (add.__code__.co_lines(), add.__code__.co_positions())))]"""
"""The last line: Python 3.11 finishes these classes when they are first asked for an attribute, so
what their objects answer would depend on who has asked before."""


@dataclass(frozen=True)
class Construct:
    """bodies: the statements of each program, or what draws them. setup: what they need besides.
    more: arguments by name that programs have besides `x`, `n` and `xs`."""

    chapter: str
    name: str
    bodies: tuple[str, ...] | Callable[[], tuple[str, ...]]
    setup: str = ""
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.chapter}: {self.name}"

    def programs(self) -> list[Program]:
        calls = tuple(Call({**given, **self.more}) for given in CALLS)
        setup = (SETUP, self.setup) if self.setup else (SETUP,)
        return [
            Program(self.key, at, whole(text), ("t", "R"), calls, setup, backend="eager")
            for at, text in enumerate(self.bodies() if callable(self.bodies) else self.bodies)
        ]


def whole(text: str) -> tuple[str, ...]:
    """The statements with tensor work before and after them."""
    head = ("R = []", "t = x * 2")
    if text.startswith(("global ", "from __future__")):
        first, _, text = text.partition("\n")
        head = (first, *head)
    return (*head, appended(text), "t = t + 1")


def appended(text: str) -> str:
    """An expression's value becomes a result; statements are as they are."""
    try:
        ast.parse(text, mode="eval")
    except SyntaxError:
        return text
    return f"R.append({text})"


def caught(text: str) -> str:
    """The statements; the class and the text of what they raise are results."""
    return (
        f"try:\n{indent(appended(text), '    ')}\nexcept Exception as error:\n"
        "    R.append(text_of(error))"
    )


def together(texts: Iterable[str]) -> str:
    """One program of several, each of which ends by itself."""
    return "\n".join(map(appended, texts))
