"""The record that whoever differentiates gives the graph compiler: what it knows of a graph.

In: an object with these properties, as ahead-of-time autograd's. Out: `GraphInfo`, by which it is
read. Invariant: no field is read with a default in its place, so that one that is misspelt or
missing is an error, of the type checker and of the compile.
"""

from __future__ import annotations

from typing import Literal, Protocol


class GraphInfo(Protocol):
    """Facts about one graph; tuples hold positions of inputs or outputs.

    static_inputs: parameters and buffers, whose addresses stay the same from call to call.
    saved_outputs: kept alive for the backward graph only. reusable_inputs: nobody reads them after
    this graph. mutated_outputs: copied into an input after the call. updates: (output, input) of
    those that may be written into the input's own memory instead.

    What a subclass does not say is what holds of a graph on its own.
    """

    @property
    def kind(self) -> Literal["forward", "backward", "inference"]:
        return "inference"

    @property
    def name(self) -> str:
        return "graph"

    @property
    def static_inputs(self) -> tuple[int, ...]:
        return ()

    @property
    def saved_outputs(self) -> tuple[int, ...]:
        return ()

    @property
    def reusable_inputs(self) -> tuple[int, ...]:
        return ()

    @property
    def mutated_outputs(self) -> tuple[int, ...]:
        return ()

    @property
    def updates(self) -> tuple[tuple[int, int], ...]:
        return ()


class _Undifferentiated(GraphInfo):
    """A graph that nobody differentiates, guards, or calls with the same weights again."""


ALONE = _Undifferentiated()
