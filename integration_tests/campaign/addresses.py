"""Addresses in what a program shows: what is equal stays comparable, where it lies does not.

In: what was seen. Out: its long numbers; the same with names in their places.
Invariant: two texts that differ by addresses alone become equal, two numbers that differ do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from integration_tests.campaign.observing import Kept, Seen

#: a number that may be an address, or made of one
_LONG = re.compile(r"\d{9,}")


def _texts(seen: Seen) -> Iterator[str]:
    for path, leaf in seen.leaves.items():
        yield path
        if isinstance(leaf, str):
            yield leaf
    yield from (*(seen.error or ()), seen.printed)


def long_numbers(seen: Seen) -> frozenset[str]:
    """Of texts and names: each may be an address, or made of one."""
    return frozenset(number for text in _texts(seen) for number in _LONG.findall(text))


def placeless(seen: Seen, steady: frozenset[str]) -> Seen:
    """What was seen, each long number that is not steady replaced by when it comes first: which of
    them are equal is left to compare."""
    names: dict[str, str] = {}

    def named(text: str) -> str:
        def name(found: re.Match[str]) -> str:
            number = found[0]
            return number if number in steady else names.setdefault(number, f"<{len(names)}>")

        return _LONG.sub(name, text)

    leaves: dict[str, Any] = {}
    for path, leaf in seen.leaves.items():
        path = named(path)
        if isinstance(leaf, Kept):
            leaf = replace(leaf, share=named(leaf.share), same=named(leaf.same))
        leaves[path] = named(leaf) if isinstance(leaf, str) else leaf
    error = None if seen.error is None else (seen.error[0], named(seen.error[1]))
    return Seen(leaves, error, named(seen.printed))
