"""Cache key of the environment: compiler, flags, libraries, device.

In: the installed packages, the machine. Out: texts by name, for keys. Invariant: two processes
with equal texts may use each other's entries; no text names a path or a time, so that an entry
can be carried to another machine of the same kind.
"""

from __future__ import annotations

import platform
import sys
from functools import lru_cache
from importlib import metadata, util
from pathlib import Path

import torch

from flambeau_inductor.cache.sources import code

CPU_FACTS = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU part")


def surroundings() -> dict[str, str]:
    """Versions, the text of our own packages, the processor."""
    return {"versions": versions(), "code": code(), "processor": processor()}


@lru_cache(maxsize=1)
def versions() -> str:
    """Python, torch and Triton."""
    found = [
        f"python {platform.python_version()} {sys.implementation.cache_tag}",
        f"torch {torch.__version__} {torch.version.git_version or ''}",
    ]
    for name in ("triton",):
        if util.find_spec(name) is not None:
            found.append(f"{name} {_version(name)}")
    return "\n".join(found)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"


@lru_cache(maxsize=1)
def processor() -> str:
    """The processor's features: `-march=native` means something else on another one."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    found: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in CPU_FACTS:
            found.setdefault(name.strip(), value.strip())
        elif not line and found:
            break  # the others are like the first
    return platform.machine() + repr(sorted(found.items()))
