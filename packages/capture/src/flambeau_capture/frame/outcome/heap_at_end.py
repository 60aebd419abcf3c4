"""State of the program at the end of symbolic execution, as guards and cache entries need it.

In: side effects of a frame, its tracer. Out: the places that change, what is kept and written,
guards that objects which were different stay so. Invariant: nothing of the program is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from flambeau_capture.effects.side_effects import SideEffects
from flambeau_capture.interp.tracer import SymbolicTracer
from flambeau_capture.source import ConstantSource, Source
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
    alike: dict[tuple[type, int], list[Source]] = {}  # by id: to hash a class may run its code
    for effect in session.heap.effects():
        if isinstance(effect, Value) and _compared(effect) is not None:
            alike[type(effect), id(effect.cls)] = []
    kinds = {kind for kind, _ in alike}
    for _, value in session.heap.known():
        if type(value) in kinds and (type(value), id(value.cls)) in alike:
            alike[type(value), id(value.cls)] += filter(None, [_compared(value)])
    for same in alike.values():
        if len(same) > 1 and not all(isinstance(found, ConstantSource) for found in same):
            session.guards.add_no_alias(tuple(same))


def _compared(value: Value) -> Source | None:
    """Where an object is that another of its class may be; None: it is nowhere, or a constant, of
    which a cell alone may also be a frame's own."""
    place = value.place()
    own = isinstance(value, CellValue) or not isinstance(place, ConstantSource)
    return place if own else None
