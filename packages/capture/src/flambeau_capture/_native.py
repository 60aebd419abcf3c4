"""Interface to the native module.

In: `flambeau_capture._C` as built from csrc/. Out: its names, typed in `_C.pyi`. Invariant: this
is the only module that imports `_C`, so that a missing build is reported in one sentence.
"""

from __future__ import annotations

try:
    from flambeau_capture._C import *  # noqa: F403
except ImportError as error:
    raise ImportError(
        "the native part of flambeau-capture is not built for this Python: install the package "
        "with a C compiler at hand, or run `python setup.py build_ext --inplace` in its folder"
    ) from error
