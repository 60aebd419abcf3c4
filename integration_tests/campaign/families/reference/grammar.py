"""The notation of the chapters' tables.

In: texts with alternatives. Out: a text drawn from one. Invariant: `$<a;;b>$` is `a` or `b`; an
alternative of several lines has the indentation of the line that it stands in.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

_AROUND = re.compile(r"\$<|;;")
_INNERMOST = re.compile(r"\$<((?:(?!\$<).)*?)>\$", re.DOTALL)


@dataclass(frozen=True)
class Form:
    """made: statements that define what is looked at. uses: what asks for it. inside: whether it
    is about the frame that makes it, so that it stands in the function."""

    made: str
    uses: tuple[str, ...]
    inside: bool = False


def expanded(chance: random.Random, text: str) -> str:
    """The text with an alternative drawn for each choice, the innermost first."""
    while (found := _INNERMOST.search(text)) is not None:
        before = _AROUND.split(text[: found.start()])[-1]
        line = before[before.rfind("\n") + 1 :]
        margin = line[: len(line) - len(line.lstrip())]
        chosen = chance.choice(found[1].split(";;")).replace("\n", f"\n{margin}")
        text = text[: found.start()] + chosen + text[found.end() :]
    return "\n".join(line for line in text.splitlines() if line.strip())
