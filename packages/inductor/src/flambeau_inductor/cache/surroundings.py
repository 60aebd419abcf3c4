"""What everything that was built depends on besides what it was built from.

In: the installed packages, the machine. Out: texts by name, for keys. Invariant: two processes
with equal texts may use each other's entries; no text names a path or a time, so that an entry
can be carried to another machine of the same kind.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from functools import lru_cache
from importlib import metadata, util
from pathlib import Path

import torch

CPU_FACTS = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU part")
CODE = ("flambeau_prims", "flambeau_inductor")


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


@lru_cache(maxsize=8)
def code(packages: tuple[str, ...] = CODE) -> str:
    """A digest of the source of packages: their versions stand still while they are worked on."""
    digest = hashlib.sha256()
    for package in packages:
        spec = util.find_spec(package)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"there is no package {package}")
        root = Path(spec.origin).parent
        for path in sorted([*root.rglob("*.py"), *root.rglob("*.h")]):
            digest.update(f"\n{package}/{path.relative_to(root)}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


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
