"""Flambeau as a backend of `torch.compile`, without installation, by `backend="flambeau"`.

In: a graph that torch has captured, with its example inputs. Out: the compiled graph: ahead-of-time
autograd, primitives and kernels are Flambeau's. Invariant: sizes that torch left open stay open
where every stage takes them; a graph where one does not is compiled for each of a few sizes, and
runs as it is for others. Torch's graph is not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx

from flambeau import _torch_compat as compat
from flambeau.backends import resolve
from flambeau.backends.request import Backend, Request
from flambeau.choices import choose
from flambeau.errors import StageError
from flambeau.events.records import RecordCollector, remember
from flambeau.switching import translation
from flambeau.testing.comparison import copied_graph

MOST_SIZES = 8
"""Of a graph that is compiled for each size."""


def flambeau(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """The backend: `mode` and `options` are those of `torch.compile`."""
    chosen = translation.options_of_config() | translation.options_of_environment()
    chosen |= translation.options_of(options or {})
    chosen = {key: value for key, value in chosen.items() if not key.startswith("capture.")}
    recorder = RecordCollector(is_foreign=False)
    request = Request(choose(translation.mode_of(mode), chosen), recorder)
    backend = resolve("inductor", request)
    try:
        compiled = backend(_open(gm), [compat.value_of(each) for each in example_inputs])
    except StageError:  # of open sizes alone: of all else it has fallen back
        compiled = _by_sizes(gm, backend)

    def run(*inputs: Any) -> Any:
        return compiled(*inputs)

    remember(run, recorder)
    return run


def _open(gm: fx.GraphModule) -> fx.GraphModule:
    """A copy with what is known of each value where our own captures have it."""
    own = copied_graph(gm)
    for node in own.graph.nodes:
        if "example_value" in node.meta:
            node.meta["val"] = node.meta["example_value"]
    return own


def _by_sizes(gm: fx.GraphModule, backend: Backend) -> Callable[..., Any]:
    """The graph, compiled anew for the sizes and numbers of each call, up to `MOST_SIZES`."""
    made: dict[Any, Callable[..., Any]] = {}

    def run(*inputs: Any) -> Any:
        key = tuple(
            (each.shape, each.stride()) if isinstance(each, torch.Tensor) else each
            for each in inputs
        )
        if key not in made and len(made) < MOST_SIZES:
            made[key] = backend(_fixed(gm, inputs), inputs)
        return made.get(key, gm)(*inputs)

    return run


def _fixed(gm: fx.GraphModule, inputs: Sequence[Any]) -> fx.GraphModule:
    """A copy in which numbers are those of `inputs`; what was known of open sizes is dropped."""
    own = copied_graph(gm)
    placeholders = (node for node in own.graph.nodes if node.op == "placeholder")
    for node, value in zip(placeholders, inputs, strict=True):
        if isinstance(value, torch.Tensor):
            continue
        known = {node: value}
        for user in list(node.users):
            user.args, user.kwargs = fx.map_arg(
                (user.args, user.kwargs), partial(_known_or_itself, known)
            )
    for node in own.graph.nodes:
        for name in ("val", "example_value", "grapharg"):
            node.meta.pop(name, None)
    own.recompile()
    return own


def _known_or_itself(known: Mapping[fx.Node, Any], node: fx.Node) -> Any:
    return known.get(node, node)
