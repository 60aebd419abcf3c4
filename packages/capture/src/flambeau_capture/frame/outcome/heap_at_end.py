"""State of the program at the end of symbolic execution, as guards and cache entries need it.

In: side effects of a frame, its tracer. Out: the places that change, what is kept and written,
guards that objects which were different stay so. Invariant: nothing of the program is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from flambeau_capture.effects.side_effects import SideEffects
from flambeau_capture.interp.tracer import SymbolicTracer
from flambeau_capture.source import ConstantSource
from flambeau_capture.values.base import Kept, Value
from flambeau_capture.values.containers.sets import SetValue
from flambeau_capture.values.functions.variables import CellValue
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.tensors.tensor import TensorValue


def changed_places(effects: Iterable[Any]) -> Iterator[str]:
    """Effects by the places that they write to, those that change nothing left out."""
    for effect in effects:
        plain = isinstance(effect, ObjectValue) and effect.payload is None
        tells = plain or isinstance(effect, SetValue)
        if not tells or not effect.is_as_it_was():
            named = effect.source is not None
            yield str(effect.source.name()) if named else type(effect).__name__


def kept_and_written(heap: SideEffects) -> Kept | None:
    """What eager keeps for later calls and the program has written to since it was made."""
    for place, value in enumerate(heap.touched):
        kept: Kept | None = getattr(value, "kept", None)
        if kept is not None and place >= kept.seen:
            return kept
    return None


def saw_tensors(heap: SideEffects) -> bool:
    return any(isinstance(value, TensorValue) for _, value in heap.known())


def guard_aliases(session: SymbolicTracer) -> None:
    """Objects that were different stay different, where that matters."""
    tensors = [g for g in session.graph.inputs if not (g.is_number() or g.is_made())]
    inputs = [g.source for g in tensors if not isinstance(g.source, ConstantSource)]
    if len(inputs) > 1:
        session.guards.add_no_alias(tuple(inputs))
    session.guards.add_no_alias(tuple(session.identity_keys))
    for effect in session.heap.effects():
        if not isinstance(effect, Value):
            continue
        cells = isinstance(effect, CellValue)  # any cell may be a frame's own
        place = effect.place()
        if place is None or (isinstance(place, ConstantSource) and not cells):
            continue
        same = [
            found
            for _, value in session.heap.known()
            if type(value) is type(effect)
            and value.cls is effect.cls
            and (found := value.place()) is not None
            and (cells or not isinstance(found, ConstantSource))
        ]
        if len(same) > 1 and not all(isinstance(found, ConstantSource) for found in same):
            session.guards.add_no_alias(tuple(same))
