"""Processors that kernels are built for, and what they need of the one they run on.

In: names. Out: features in the words of Linux's `/proc/cpuinfo`. Invariant: code for a name uses
nothing beyond its features (x86-64 psABI, "Micro-Architecture Levels").
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flambeau.errors import BadOption

_V2 = frozenset(["cx16", "lahf_lm", "pni", "popcnt", "sse4_1", "sse4_2", "ssse3"])
_V3 = _V2 | frozenset(["abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"])
_V4 = _V3 | frozenset(["avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"])

LEVELS: Mapping[str, frozenset[str]] = {"x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}
"""By the names that compilers have for them."""
NATIVE = "native"
"""This machine's, with all that it can do."""


def features() -> frozenset[str]:
    """What the processor can do, in the words of the kernel; empty where nobody says."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def known_processor(name: str, said: str = "processors") -> None:
    """Raises BadOption for a name that is none of these, and for one of another machine."""
    names = [*LEVELS, NATIVE] if platform.machine() in ("x86_64", "AMD64") else [NATIVE]
    if name not in names:
        raise BadOption(said, name, f"names out of {', '.join(names)}")


def needed_by(name: str) -> frozenset[str]:
    """The features that code for a processor may use. Raises LookupError."""
    return features() if name == NATIVE else LEVELS[name]


def chosen(variants: Sequence[Mapping[str, Any]], here: frozenset[str]) -> int | None:
    """The first of the variants of a file that this processor can run; None if it can run none."""
    fits = (number for number, each in enumerate(variants) if here.issuperset(each["features"]))
    return next(fits, None)


def lacking(variants: Sequence[Mapping[str, Any]], here: frozenset[str]) -> str:
    """Why none of them runs here, of the one that lacks least."""
    missing = min((sorted(set(each["features"]) - here) for each in variants), key=len)
    shown = ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "")
    return (
        f"this processor lacks {shown}, which the code may use: make the file on a machine like "
        "this one, or for several by processors= of flambeau.package"
    )
