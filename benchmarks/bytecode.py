"""Bytecode of our packages on the disk, as an installer leaves it there.

In: nothing. Out: nothing; a first call imports what an installed package has, and does not compile
our source text, which torch's own package, being installed, does not do either. Invariant: only
bytecode is written, where Python looks for it.
"""

from __future__ import annotations

import compileall
from importlib.util import find_spec

PACKAGES = ("flambeau", "flambeau_aot", "flambeau_capture", "flambeau_inductor", "flambeau_prims")
SHARED = ("sympy", "mpmath", "networkx", "triton")
"""What both compilers import."""


def as_installed() -> None:
    """Compile the packages that a child of this process would import, where that is not done."""
    for name in (*PACKAGES, *SHARED):
        spec = find_spec(name)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            compileall.compile_dir(folder, quiet=2)
