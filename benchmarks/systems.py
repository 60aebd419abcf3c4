"""Systems that are measured: eager, Flambeau, and the incumbent.

In: a function. Out: the same function under each system. Invariant: the incumbent is named in this
file alone, and no package of ours ever imports it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from itertools import count
from typing import Any

import torch

Function = Callable[..., Any]


WARM_CALLS = 15
"""First calls, in which settings of the incumbent's count."""
SYSTEMS = ("eager", "flambeau", "incumbent")
BEST = "incumbent best"


def systems(
    mode: str = "default",
    incumbent: str | None = None,
    best: str | None = None,
    options: dict[str, Any] | None = None,
) -> dict[str, Callable[[Function], Function]]:
    """Each system by name, both compilers in `mode`, or the incumbent in one of its own; "incumbent
    best": the incumbent a second time, in the mode that is thought its best. options: ours."""

    def flambeau_in_mode(fn: Function) -> Function:
        import flambeau  # its import time is part of its first call

        return flambeau.compile(fn, mode=mode, options=options)

    found = {
        "eager": _eager,
        "flambeau": flambeau_in_mode,
        "incumbent": lambda fn: torch.compile(fn, mode=incumbent or mode),
    }
    return found if best is None else found | {BEST: lambda fn: torch.compile(fn, mode=best)}


def by_data() -> dict[str, Callable[[Function], Function]]:
    """Each system as it is for sizes that depend on data; "incumbent by data": with its own
    settings for them."""

    def set_for_data(fn: Function) -> Function:
        from torch._dynamo import config

        compiled, calls = torch.compile(fn), count()
        settings = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}

        def run(*args: Any) -> Any:
            with config.patch(settings) if next(calls) < WARM_CALLS else nullcontext():
                return compiled(*args)

        return run

    found = systems()
    return found | {"incumbent by data": set_for_data}


def _eager(fn: Function) -> Function:
    return fn


def ahead_of_time(timed: Callable[[Any, Any], Any] | None = None) -> dict[str, Any]:
    """The layer of ahead-of-time autograd alone, its graphs run operator by operator.

    By name, a function that wraps another; `timed(name, backend)` may stand around each backend.
    "incumbent default" is its partitioner that saves what the program saves.
    """
    # Not needed by the other cases, whose first calls they would slow down.
    import flambeau_aot
    import flambeau_capture

    around = timed or (lambda name, backend: backend)
    own = around("flambeau", flambeau_aot.aot_eager)
    names = {"incumbent": "aot_eager", "incumbent default": "aot_eager_default_partitioner"}
    found: dict[str, Any] = {
        "eager": _eager,
        "flambeau": lambda fn: flambeau_capture.compile(fn, backend=own),
    }
    for name, backend in names.items():
        looked_up = around(name, torch._dynamo.lookup_backend(backend))
        found[name] = lambda fn, chosen=looked_up: torch.compile(fn, backend=chosen)
    return found


def cache_environment(folder: str) -> dict[str, str]:
    """Environment that gives every system its own cache under `folder`."""
    return {
        "FLAMBEAU_CACHE_DIR": f"{folder}/flambeau",
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/incumbent",
        "TRITON_CACHE_DIR": f"{folder}/triton",
    }
