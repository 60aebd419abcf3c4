"""The verdict of a bisection, as data and text.

In: facts. Out: `Verdict`. Invariant: it names what was tried, so that whoever reads it can repeat
any step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flambeau.testing.comparison import Difference


@dataclass(frozen=True)
class Tried:
    """One compile of the program, and whether it was right."""

    how: str
    difference: Difference | None

    def __str__(self) -> str:
        return f"{self.how}: {'right' if self.difference is None else self.difference}"


@dataclass(frozen=True)
class Verdict:
    """Where it goes wrong; `layer` is empty where nothing does.

    layer: `capture`, `aot`, `prims`, `inductor`, or `backend` for one from outside. step: what in
    it: a frame, a guard, a pass, a decomposition, a fusion, a kernel, a lowering, operations.
    name: of that step. graph, half, lines: where it is in the program. avoid: arguments of
    `flambeau.compile` without which it goes wrong. note: what else whoever reads it should know.
    """

    layer: str
    difference: Difference | None = None
    step: str = ""
    name: str = ""
    graph: str = ""
    half: str = ""
    lines: tuple[str, ...] = ()
    avoid: dict[str, Any] = field(default_factory=dict)
    tried: tuple[Tried, ...] = ()
    note: str = ""

    def __bool__(self) -> bool:
        return bool(self.layer)

    def __str__(self) -> str:
        if not self.layer:
            told = f"nothing is wrong in any layer ({len(self.tried)} compiles)"
            return f"{told}\n  {self.note}" if self.note else told
        where = f" in {self.graph}" if self.graph else ""
        half = f" ({self.half})" if self.half else ""
        text = [f"{self.layer}: {self.step} {self.name}".rstrip() + where + half]
        text.append(f"  {self.difference}")
        text += [f"  {line}" for line in self.lines]
        if self.avoid:
            given = ", ".join(f"{key}={value!r}" for key, value in self.avoid.items())
            text.append(f"  until it is mended: flambeau.compile(..., {given})")
            if "Fuel(" in given:
                text.append("    (from flambeau_inductor import Fuel)")
        if self.note:
            text.append(f"  {self.note}")
        text += ["  tried:", *(f"    {each}" for each in self.tried)]
        return "\n".join(text)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "layer": self.layer,
            "step": self.step,
            "name": self.name,
            "graph": self.graph,
            "half": self.half,
            "lines": list(self.lines),
            "difference": None if self.difference is None else str(self.difference),
            "avoid": {key: repr(value) for key, value in self.avoid.items()},
            "tried": [str(each) for each in self.tried],
            "note": self.note,
        }
