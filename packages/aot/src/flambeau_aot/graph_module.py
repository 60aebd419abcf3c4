"""Graph modules whose Python is generated when they first run.

What comes in: a finished graph. What goes out: an `fx.GraphModule` of it.
Invariant: it behaves as any graph module; the Python of `forward` is generated at its first use,
for a graph compiler reads the graph and never calls it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx


class TracedModule(fx.GraphModule):
    """A graph module whose code is generated at the first use of `forward` or `code`."""

    def __init__(self, root: Any, graph: fx.Graph | None = None, class_name: str = "") -> None:
        if isinstance(root, fx.Graph):
            root, graph = torch.nn.Module(), root
        self.__dict__["deferred"] = True
        super().__init__(root, graph, class_name or "TracedModule")  # type: ignore[arg-type]

    def recompile(self) -> Any:
        """Generate the Python of `forward`; while the module is being built, put it off."""
        if self.__dict__.pop("deferred", False):
            self.__dict__["pending"] = True
            return None
        self.__dict__["pending"] = False
        return super().recompile()

    def ready(self) -> fx.GraphModule:
        """This module with its code generated."""
        if self.__dict__.get("pending"):
            self.recompile()
        return self

    def forward(self, *args: Any) -> Any:
        """Generate the code, which replaces this method on the instance's own class; run it."""
        self.ready()
        return type(self).forward(self, *args)

    @property
    def code(self) -> str:
        """The Python of `forward`."""
        text: str = fx.GraphModule.code.fget(self.ready())  # type: ignore[attr-defined]
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its code, as every graph module is."""
        self.ready()
        return super().__reduce__()
