"""The truth of a tensor, put off until a branch needs it.

In: a value. Out: `test`, its truth as a value. Invariant: only a conditional jump asks a
`TruthValue`, and it breaks the graph there; everything else sees the bool that Python makes.
"""

from __future__ import annotations

from typing import Any

from flambeau_capture.values.base import Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.tensors.tensor import TensorValue


class TruthValue(Value):
    """`bool(tensor)`, or its negation, to be computed in Python."""

    def __init__(self, tensor: TensorValue, negated: bool = False) -> None:
        self.tensor = tensor
        self.negated = negated

    @property
    def cls(self) -> type:
        return bool

    def describe(self) -> str:
        return f"truth of {self.tensor.describe()}"

    def truth(self, tx: Tracer) -> bool:
        return self.tensor.truth(tx) is not self.negated

    def reconstruct(self, writer: Any) -> None:
        writer.load(self.tensor)
        writer.call_top(_negation if self.negated else bool)


def _negation(value: Any) -> bool:
    return not value


def is_open(value: Value) -> bool:
    """Whether a value is a tensor whose truth may be asked later: to ask one of more elements than
    one raises, there and then."""
    if not isinstance(value, TensorValue) or value.truth_known is not None:
        return False
    size = value.fake.numel()
    return isinstance(size, int) and size == 1


def test(tx: Tracer, value: Value) -> Value:
    """bool(value)."""
    if is_open(value):
        assert isinstance(value, TensorValue)
        return TruthValue(value)
    if isinstance(value, TruthValue):
        return value
    return Constant(value.truth(tx))
