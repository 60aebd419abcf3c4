"""Unguarded answers of capture, each with its justification.

In: rules, declared where capture goes by them. Out: `UNGUARDED`, of which the page in the docs is
made. Invariant: an answer rests on the arguments of the call, on a guard, or on a rule of this
table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Unguarded:
    """`what` is answered; `reason`: why it cannot become wrong, or whose word it is."""

    what: str
    reason: str


UNGUARDED: dict[str, Unguarded] = {}


def unguarded(what: str, reason: str) -> None:
    """Declare a rule by which capture answers without a guard."""
    UNGUARDED[what] = Unguarded(what, reason)


def of_arguments(*fns: Any) -> None:
    """Declare questions whose answer rests on their arguments alone: what it rests on is known at
    capture time, or guarded where the argument comes from."""
    for fn in fns:
        unguarded(name_of(fn), "it looks at its arguments alone, which are known or guarded")


def name_of(fn: Any) -> str:
    """A callable as the table names it."""
    name = getattr(fn, "__qualname__", None) or type(fn).__name__
    if "pybind11" in name:  # its class is named for the compiler of the build
        name = fn.__name__
    module = getattr(fn, "__module__", None)
    return f"{module}.{name}" if module else name


def page() -> str:
    """The table as a page of the documentation."""
    head = [
        "# What is not guarded",
        "",
        "Compiled code runs again where what it was compiled for still holds: guards ask. These",
        "are the answers that capture gives without a guard, each with its reason. Everything",
        "else that captured code asks of the program's state is guarded, or asked again.",
        "",
        "| what is answered | why without a guard |",
        "| --- | --- |",
    ]
    rows = [f"| {each.what} | {each.reason} |" for each in sorted_rules()]
    return "\n".join([*head, *rows]) + "\n"


def sorted_rules() -> list[Unguarded]:
    """The rules in the order of the page."""
    return sorted(UNGUARDED.values(), key=lambda each: each.what.lower())
