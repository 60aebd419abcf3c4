"""A library call with a pointwise function that it applies to what it computes, as one call.

In: a small graph of primitives. Out: `CallWithEpilogue`, what an FX node calls. Invariant: it gives
what the graph gives, whoever computes it: a library that does not take the function leaves the
nodes to their own rules.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import fx

Asked = tuple[str, tuple[float, ...], str]
"""The last arguments of oneDNN's operators: a function, its numbers, its form."""

NOTHING: Asked = ("none", (), "")
"""The same without a function."""


@dataclass(frozen=True, eq=False)
class CallWithEpilogue:
    """`body` has the operands as placeholders, `call`, after it `seen`, which is the call's
    result, maybe in another shape, and `nodes`: what the function is made of, its result the last.
    `asked`: oneDNN's arguments."""

    asked: Asked
    body: fx.Graph
    call: fx.Node
    seen: fx.Node
    nodes: tuple[fx.Node, ...]

    @property
    def __name__(self) -> str:
        return f"{self.call.name}_with_{self.asked[0]}"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes)

    def __call__(self, *operands: object) -> object:
        return fx.Interpreter(fx.GraphModule({}, self.body)).run(*operands)
