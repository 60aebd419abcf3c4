"""The table of rules that operations on tensors are asked for.

In: nothing. Out: `TensorRules`, which the tracer holds and `builtins.tensors.rules` fills, in one
place. Invariant: what a rule is asked for is all that values know of it: none imports another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from flambeau_capture.values.base import Args, Kwargs, Tracer, Value

if TYPE_CHECKING:
    from flambeau_capture.values.tensors.tensor import TensorValue

Operation = Callable[[Tracer, str, Any, Args, Kwargs], Value | None]
Rewrite = Callable[[Tracer, str, Args, Kwargs], Value | None]
Method = Callable[["TensorValue", Tracer, Args, Kwargs], Value | None]


@dataclass(frozen=True)
class TensorRules:
    """Each rule answers None where it has nothing to say.

    override: what `__torch_function__` of an argument's class answers.
    rewrites: operators that a call may have to be written by others of, by name; of several for
        one, the first that answers.
    by_data: the result of an operation on data that capture knows.
    known_data: what a tensor holds, if capture knows; guards fix what that follows from.
    set_data: assigning to `.data`.
    new_leaf: told of tensors that the graph makes and that derivatives end at.
    methods: those that drive autograd and that the graph can hold, sometimes.
    attribute, method: any other of a plain tensor, which always have an answer.
    """

    override: Operation
    rewrites: Mapping[str, Sequence[Rewrite]]
    by_data: Operation
    known_data: Callable[[Tracer, TensorValue], torch.Tensor | None]
    set_data: Callable[[TensorValue, Tracer, Value], None]
    new_leaf: Callable[[Tracer, TensorValue], None]
    methods: Mapping[str, Method]
    attribute: Callable[[TensorValue, Tracer, str], Value]
    method: Callable[[TensorValue, Tracer, str, Args, Kwargs], Value]
