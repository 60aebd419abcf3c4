"""A plugin of pytest that makes long test runs cost less: `pytest -p tools.testing`.

In: a process that has collected its tests. Out: the same process, with less to do beside them.
Invariant: no test sees the difference; each passes without the plugin, too.
"""

from __future__ import annotations

import gc
import logging


def pytest_collection_finish() -> None:
    """Pytest hook: what is here now, a few million objects of torch's and of thousands of tests,
    stays until the end: the garbage collector does not go through it again and again.

    pytest listens to every logger that keeps its records to itself. Torch's trace is one, and
    writes two tracebacks for every symbol as soon as somebody listens.
    """
    gc.collect()
    gc.freeze()
    logging.getLogger("torch.__trace").propagate = True
