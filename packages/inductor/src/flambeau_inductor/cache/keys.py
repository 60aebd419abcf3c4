"""Cache keys: named parts and their digest.

In: everything that decides what an entry holds, by name. Out: a `Key`. Invariant: two keys have
one digest exactly if they are of one kind and all their parts are equal, so that a difference
has the name of a part.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property

FORMAT = "2"
SHOWN = 60


@dataclass(frozen=True)
class Key:
    """`kind` is a word (`kernels`, `graphs`); `parts` are sorted by name."""

    kind: str
    parts: tuple[tuple[str, str], ...]

    @cached_property
    def digest(self) -> str:
        """The name of the entry."""
        digest = hashlib.sha256()
        for text in (FORMAT, self.kind, *(text for part in self.parts for text in part)):
            data = text.encode()
            digest.update(len(data).to_bytes(8, "little"))
            digest.update(data)
        return digest.hexdigest()

    def text(self) -> str:
        """The key as JSON, stored with an entry's files."""
        return json.dumps({"kind": self.kind, "parts": dict(self.parts)})


def key(kind: str, **parts: str) -> Key:
    """A key of these parts."""
    return Key(kind, tuple(sorted(parts.items())))


def key_from(text: str) -> Key:
    """The key that `Key.text` gave. Raises ValueError for anything else."""
    try:
        data = json.loads(text)
        return key(str(data["kind"]), **{str(k): str(v) for k, v in data["parts"].items()})
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a key: {text[:SHOWN]!r}") from error


def differences(one: Key, other: Key) -> list[str]:
    """Which parts differ, each with the first line in which it does."""
    if one.kind != other.kind:
        return [f"kind: {one.kind} is not {other.kind}"]
    first, second = dict(one.parts), dict(other.parts)
    found = []
    for name in sorted(first | second):
        if name not in first or name not in second:
            found.append(f"{name}: only the {'second' if name not in first else 'first'} has it")
        elif first[name] != second[name]:
            found.append(f"{name}: {_first_difference(first[name], second[name])}")
    return found


def _first_difference(one: str, other: str) -> str:
    ours, theirs = one.splitlines(), other.splitlines()
    for number, (left, right) in enumerate(zip(ours, theirs), 1):
        if left != right:
            where = f"line {number}: " if max(len(ours), len(theirs)) > 1 else ""
            return f"{where}{_around(left, right)}"
    return f"{len(ours)} lines against {len(theirs)}"


def _around(left: str, right: str) -> str:
    """Two texts from a little before where they part."""
    same = next((k for k, (a, b) in enumerate(zip(left, right)) if a != b), 0)
    start = max(0, same - SHOWN // 3) if max(len(left), len(right)) > SHOWN else 0
    return f"{left[start : start + SHOWN]!r} against {right[start : start + SHOWN]!r}"
