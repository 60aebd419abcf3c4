"""Requirements of a package: machine, libraries, versions.

In: nothing, or the facts that a file carries. Out: facts; or the list of what does not fit.
Invariant: a file whose facts fit runs here; the check imports nothing of the compiler.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import flambeau_aot
import flambeau_inductor
import torch

from flambeau.__about__ import __version__


def facts() -> dict[str, Any]:
    """The facts of this process."""
    return {
        "python": sys.implementation.cache_tag,
        "torch": torch.__version__,
        "machine": platform.machine(),
        "system": sys.platform,
        "features": sorted(features()),
        "packages": {
            "flambeau": __version__,
            "flambeau-aot": flambeau_aot.__version__,
            "flambeau-inductor": flambeau_inductor.__version__,
        },
    }


def gpu(index: int = 0) -> dict[str, Any] | None:
    """The facts of a GPU; None where there is none."""
    if not torch.cuda.is_available() or index >= torch.cuda.device_count():
        return None
    capability = ".".join(map(str, torch.cuda.get_device_capability(index)))
    return {"index": index, "name": torch.cuda.get_device_name(index), "capability": capability}


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


def misfits(of: Mapping[str, Any], own: Mapping[str, Any] | None = None) -> list[str]:
    """What keeps code with these facts from running here, each in a few words."""
    here = facts() if own is None else own
    found = [
        f"it was made for {name} {of[name]}, here is {here[name]}"
        for name in ("python", "machine", "system")
        if of[name] != here[name]
    ]
    if _release(of["torch"]) != _release(here["torch"]):
        found.append(f"it was made with torch {of['torch']}, here is {here['torch']}")
    for name, version in of["packages"].items():
        if _release(version) != _release(here["packages"].get(name, "none")):
            found.append(f"it was made with {name} {version}, here is {here['packages'][name]}")
    if "gpu" in of:
        found += _misfits_of_gpu(of["gpu"], own["gpu"] if own else gpu(of["gpu"]["index"]))
    missing = sorted(set(of["features"]) - set(here["features"]))
    if missing:
        shown = ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "")
        found.append(f"this processor lacks {shown}, which the code may use")
    return found


def _misfits_of_gpu(of: Mapping[str, Any], here: Mapping[str, Any] | None) -> list[str]:
    made = f"it was made for a GPU of compute capability {of['capability']} ({of['name']})"
    if here is None:
        return [f"{made}, and there is no GPU {of['index']} here"]
    if here["capability"] != of["capability"]:
        return [f"{made}, here is {here['capability']} ({here['name']})"]
    return []


def _release(version: str) -> tuple[str, ...]:
    """The two numbers within which what compiled code calls does not change."""
    return tuple(version.split("+")[0].split(".")[:2])
