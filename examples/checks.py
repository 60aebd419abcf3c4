"""What a part of the demo hands back, and how it is shown.

In: figures and conditions. Out: tables on the terminal.
Invariant: a check that does not hold is shown as such and makes the demo fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich import box
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Check:
    """One condition: what was wanted, what was found."""

    wanted: str
    found: str
    holds: bool


@dataclass
class Part:
    """One part of the demo: its figures and its checks, in order."""

    title: str
    figures: list[tuple[str, str]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    def figure(self, name: str, value: str) -> None:
        """A line of the table of figures."""
        self.figures.append((name, value))

    def check(self, wanted: str, found: str, holds: bool) -> None:
        """A condition that the demo stands on."""
        self.checks.append(Check(wanted, found, bool(holds)))

    def show(self, console: Console) -> None:
        """Figures, then checks."""
        table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
        table.add_column(style="dim")
        table.add_column()
        for name, value in self.figures:
            table.add_row(name, value)
        console.print(table)
        for check in self.checks:
            mark = "[green]holds[/]" if check.holds else "[bold red]FAILS[/]"
            console.print(f"  {mark}  {check.wanted}: {check.found}", highlight=False)


def summary(parts: Sequence[Part], console: Console) -> bool:
    """One line for the whole; True when every check holds."""
    checks = [check for part in parts for check in part.checks]
    failed = [check for check in checks if not check.holds]
    if failed:
        console.print(f"[bold red]{len(failed)} of {len(checks)} checks fail[/]")
        for check in failed:
            console.print(f"  {check.wanted}: {check.found}", highlight=False)
    else:
        console.print(f"[bold green]all {len(checks)} checks hold[/]")
    return not failed
