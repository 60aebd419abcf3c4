"""Compatibility of the installed packages' versions.

In: the versions that the siblings state. Out: nothing, or one readable sentence as an error.
Invariant: the ranges here are those of this package's declared dependencies (a test compares).
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib import util
from pathlib import Path

import flambeau_aot
import flambeau_capture
import flambeau_inductor
import torch

from flambeau.errors import IncompatibleSiblings, adopt, warn

RANGES: Mapping[str, str] = {
    "flambeau-capture": ">=0.1.0,<0.2",
    "flambeau-prims": ">=0.1.0,<0.2",
    "flambeau-aot": ">=0.1.0,<0.2",
    "flambeau-inductor": ">=0.1.0,<0.2",
}
#: the versions of torch that this release was tried with
TORCHES = ">=2.11,<2.15"
#: the meanings of prims graphs that this release was tried with
DIALECTS = frozenset({2})


def installed() -> dict[str, str]:
    """The version of each sibling, by distribution name."""
    return {
        "flambeau-capture": flambeau_capture.__version__,
        "flambeau-prims": _of_prims()[0],
        "flambeau-aot": flambeau_aot.__version__,
        "flambeau-inductor": flambeau_inductor.__version__,
    }


def dialect() -> int:
    """The dialect that the primitives are in."""
    return _of_prims()[1]


@lru_cache(maxsize=1)
def _of_prims() -> tuple[str, int]:
    """Version and dialect of the primitives, which a graph from disk does without: to load their
    facts alone takes a hundredth of the time in which they are registered."""
    spec = util.find_spec("flambeau_prims")
    if "flambeau_prims" not in sys.modules and spec is not None and spec.origin is not None:
        place = Path(spec.origin).with_name("__about__.py")
        facts = runpy.run_path(str(place)) if place.exists() else {}
        if "DIALECT" in facts:
            return str(facts["__version__"]), int(facts["DIALECT"])
    import flambeau_prims  # it is there already, or of a version that has no such facts

    return flambeau_prims.__version__, flambeau_prims.DIALECT


def misfits(versions: Mapping[str, str], spoken: int) -> list[str]:
    """What does not fit, each as `name version (wants range)`."""
    found = [
        f"{name} {versions[name]} (wants {wanted})"
        for name, wanted in RANGES.items()
        if not _contains(wanted, versions[name])
    ]
    if spoken not in DIALECTS:
        known = ", ".join(map(str, sorted(DIALECTS)))
        found.append(f"prims dialect {spoken} (knows {known})")
    return found


def _contains(wanted: str, version: str) -> bool:
    """Whether a range `>=a,<b` holds a version; plain numbers are compared as they are, for to load
    `packaging` takes longer than to load all siblings."""
    least, below = wanted.removeprefix(">=").split(",<")
    parts = [text.split(".") for text in (version, least, below)]
    if all(part.isdecimal() for each in parts for part in each):
        own, first, end = ([*map(int, each), 0, 0, 0][:4] for each in parts)
        return first <= own < end
    from packaging.specifiers import SpecifierSet  # few versions are more than numbers

    return SpecifierSet(wanted).contains(version, prereleases=True)


def check() -> None:
    """Raise IncompatibleSiblings when a sibling is out of range or speaks another dialect; those
    that fit raise kinds of `FlambeauError` from now on. Warn of a torch that is out of range."""
    wrong = misfits(installed(), dialect())
    if wrong:
        packages = " ".join(f"'{name}{wanted}'" for name, wanted in RANGES.items())
        raise IncompatibleSiblings(
            f"flambeau does not fit {' and '.join(wrong)}: run `pip install {packages}`"
        )
    adopt(flambeau_capture.CaptureError, flambeau_aot.AotError, flambeau_inductor.InductorError)
    if not fits_torch():
        warn(
            f"torch {torch.__version__} is none that this release was tried with; programs may go "
            f"wrong or stay eager: run `pip install 'torch{TORCHES}'`, or upgrade flambeau"
        )


def fits_torch() -> bool:
    """Whether torch is of the range; a build of a version is as good as the version."""
    return _contains(TORCHES, torch.__version__.split("+")[0])
