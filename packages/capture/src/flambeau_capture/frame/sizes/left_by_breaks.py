"""Sizes and variables that a graph break leaves, and that are others from call to call.

In: the resume functions that a break has made, and the frames that it stopped. Out: notes of the
sizes and variables that are open where they go on. Invariant: a size that depends on data is open
in the rest of its own frame from the first call on, and in those of the frames around it, which
find that rest in their variable CALLEE.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import CodeType

from flambeau_capture.breaks import BreakReport
from flambeau_capture.bytecode.decode import argument_count
from flambeau_capture.emit.names import EntryNames
from flambeau_capture.emit.resume import Resumption
from flambeau_capture.frame.sizes.dynamism import DynamismTracker
from flambeau_capture.interp.frame import Suspended
from flambeau_capture.resume_runtime import CALLEE
from flambeau_capture.source import Attr, Item, Local, Source
from flambeau_capture.values.tensors.tensor import TensorValue


def note_what_is_left(
    dynamics: DynamismTracker, names: EntryNames, chain: Sequence[Suspended], report: BreakReport
) -> None:
    """names: what was made latest. chain: the frames, outermost first."""
    codes = [names.origin(one.frame.prepared.body.code) for one in chain]
    made: dict[int, list[Resumption]] = {}
    for each in names.latest:
        code = names.origin(each.code)
        made.setdefault(codes.index(code) if code in codes else -1, []).append(each)
    for depth, each in ((depth, each) for depth, some in made.items() for each in some):
        variables = chain[depth].frame.variables if depth >= 0 else {}
        for name, value in variables.items():
            if isinstance(value, TensorValue) and name in each.arguments:
                for code, place in _places(made, depth, each, name):
                    dynamics.left_by_data(code, place, value.fake.shape)
        own = each.origin.code.co_varnames[: argument_count(each.origin.code)]
        dynamics.assigned(each.code, [name for name in each.arguments if name not in own])
        if report.reason.id in ("FB0002", "FB0004", "FB0028") and each.stack:
            name = f"___stack_{len(each.stack) - 1}"
            for code, place in _places(made, depth, each, name):
                dynamics.sized_by_data(code, place)


def _places(
    made: Mapping[int, Sequence[Resumption]], depth: int, one: Resumption, name: str
) -> Iterator[tuple[CodeType, Source]]:
    """Where a variable of a resume function is, in itself and in those of the frames around."""
    yield one.code, Local(name)
    given = one.code.co_varnames[: argument_count(one.code)]
    for outer in made.get(depth - 1, ()) if depth > 0 and name in given else ():
        if CALLEE in outer.code.co_varnames:
            for code, place in _places(made, depth - 1, outer, CALLEE):
                yield code, Item(Attr(place, "args"), given.index(name), "tuple")
