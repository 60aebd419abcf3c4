"""Generated functions that torch.fx keeps.

In: a name. Out: nothing. Invariant: only what a graph of capture has left there is dropped. Tried
on torch 2.11, 2.13 and 2.14.
"""

from __future__ import annotations

import linecache


def forget_source(filename: str) -> None:
    """Drop the source text that torch.fx keeps of a generated function, for the debugger's sake."""
    from torch.fx import graph_module

    graph_module._loader.eval_cache.pop(filename, None)
    linecache.cache.pop(filename, None)
