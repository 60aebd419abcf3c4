"""Processors and GPUs that kernels are built for, and what they need of those they run on.

In: names. Out: features in the words of Linux's `/proc/cpuinfo`, compute capabilities. Invariant:
code for a name uses nothing beyond its features (x86-64 psABI, "Micro-Architecture Levels"), and a
GPU runs the binaries of its own compute capability alone.
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


def variants_of(facts: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """What each variant of a file needs; of a file with one, that is what its maker had."""
    own = {"features": facts["features"]}
    if "gpu" in facts:
        own["capability"] = facts["gpu"]["capability"]
    found: Sequence[Mapping[str, Any]] = facts.get("variants", [own])
    return found


def chosen(
    variants: Sequence[Mapping[str, Any]], here: frozenset[str], gpu: Mapping[str, Any] | None
) -> int | None:
    """The first of the variants of a file that runs on this processor and GPU; or None."""
    own = None if gpu is None else gpu["capability"]
    for number, each in enumerate(variants):
        if here.issuperset(each["features"]) and each.get("capability") in (None, own):
            return number
    return None


def lacking(
    variants: Sequence[Mapping[str, Any]], here: frozenset[str], gpu: Mapping[str, Any] | None
) -> str:
    """Why none of them runs here: no GPU of their kinds, else what the one lacks that lacks least
    of the processor."""
    kinds = list(dict.fromkeys(each["capability"] for each in variants if "capability" in each))
    if kinds:
        made = f"it was made for a GPU of compute capability {' or '.join(kinds)}"
        if gpu is None:
            return f"{made}, and there is no such GPU here"
        if gpu["capability"] not in kinds:
            major, minor = gpu["capability"].split(".")
            return (
                f"{made}, here is {gpu['capability']} ({gpu['name']}): make the file for it too, "
                f'by gpus=[..., "sm_{major}{minor}"] of flambeau.package'
            )
    missing = min((sorted(set(each["features"]) - here) for each in variants), key=len)
    shown = ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "")
    return (
        f"this processor lacks {shown}, which the code may use: make the file on a machine like "
        "this one, or for several by processors= of flambeau.package"
    )
