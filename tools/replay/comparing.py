"""Two folders of texts side by side.

In: folders that `write` made. Out: a line a program that differs, the first differences of each.
Invariant: a program or stage that only one side has is a difference.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path


def differences(before: Path, after: Path) -> dict[str, list[str]]:
    """By program, the stages that are not the same."""
    found = {}
    for name in sorted({p.name for side in (before, after) for p in side.iterdir()}):
        stages = [
            s for s in _stages(before / name, after / name) if not _same(before, after, name, s)
        ]
        if stages:
            found[name] = stages
    return found


def _stages(*sides: Path) -> list[str]:
    return sorted({p.name for side in sides if side.is_dir() for p in side.iterdir()})


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def _same(before: Path, after: Path, name: str, stage: str) -> bool:
    return _text(before / name / stage) == _text(after / name / stage)


def shown(before: Path, after: Path, lines: int) -> Iterator[str]:
    """The report: what differs, with so many lines of each stage's difference."""
    found = differences(before, after)
    for name, stages in found.items():
        yield f"{name}: {', '.join(stages)}"
        for stage in stages:
            old, new = (_text(side / name / stage) for side in (before, after))
            if old is None or new is None:
                yield f"  {stage}: only {'after' if old is None else 'before'}"
                continue
            diff = difflib.unified_diff(
                old.splitlines(),
                new.splitlines(),
                f"before/{stage}",
                f"after/{stage}",
                "",
                "",
                1,
                "",
            )
            yield from (f"  {line}" for line, _ in zip(diff, range(lines), strict=False))
    programs = len({p.name for side in (before, after) for p in side.iterdir()})
    errors = sorted(p.parent.name for p in after.glob("*/error"))
    if errors:
        yield f"could not be run: {', '.join(errors)}"
    yield f"{programs} programs, {len(found)} differ"
