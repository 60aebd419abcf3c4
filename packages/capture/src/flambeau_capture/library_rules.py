"""Modules of libraries, by prefix: calls into them, and frames of their own.

In: nothing. Out: `LIBRARIES`, `library_rule`. Invariant: what is true of a module is true of all
below it, unless a longer name says otherwise.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

GRAPH = "graph"


@dataclass(frozen=True)
class LibraryRule:
    """called: the break that a call of its Python functions is, or `GRAPH`: one call of the graph;
    nothing: they are interpreted. skipped: whether its frames run as they are where no captured
    code calls them."""

    called: str = ""
    skipped: bool = False


_ALONE = LibraryRule(skipped=True)
_OPAQUE = LibraryRule("FB0017")
_LOGS = LibraryRule("FB0023")
_GRAPH = LibraryRule(GRAPH)

LIBRARIES: dict[str, LibraryRule] = {
    "torch": _ALONE,
    "torch.nn.functional": _GRAPH,
    "torch.functional": _GRAPH,
    "torch._VF": _GRAPH,
    "torch._tensor_str": LibraryRule("FB0003"),
    "torch.autograd.function": LibraryRule("FB0007"),
    "torch.random": LibraryRule("FB0024"),
    **dict.fromkeys(
        (
            "torch._dynamo", "torch._inductor", "torch._functorch", "torch.distributed",
            "torch.multiprocessing", "torch.utils.checkpoint", "torch.utils.data",
            "torch.serialization", "torch.jit", "torch.fx", "torch.cuda", "torch.profiler",
            "torch._subclasses", "flambeau_capture.api", "threading", "multiprocessing", "asyncio",
            "subprocess", "importlib", "random", "unittest",
        ),
        _OPAQUE,
    ),
    **dict.fromkeys(
        ("numpy", "scipy", "pandas", "sklearn", "matplotlib", "triton", "sympy"),
        LibraryRule("FB0017", skipped=True),
    ),
    **dict.fromkeys(("logging", "warnings"), _LOGS),
    "tqdm": LibraryRule("FB0023", skipped=True),
    **dict.fromkeys(
        (
            "PIL", "networkx", "pytest", "_pytest", "pluggy", "hypothesis", "IPython",
            "flambeau_capture", "flambeau_prims", "flambeau_aot", "flambeau_inductor", "flambeau",
            "tokenizers", "filelock", "huggingface_hub", "safetensors", "rich",
        ),
        _ALONE,
    ),
}  # fmt: skip


@functools.cache
def library_rule(module: str) -> tuple[str, LibraryRule]:
    """The row that holds for a module, and its prefix."""
    prefix = module
    while prefix:
        if prefix in LIBRARIES:
            return prefix, LIBRARIES[prefix]
        prefix = prefix.rpartition(".")[0]
    return "", LibraryRule()
