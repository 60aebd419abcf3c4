"""What eager refuses, decompositions do not take: wrong arguments of torch's own descriptions of
operators, and dtypes that an operator does not have.

A decomposition may raise something else, or leave the operator to eager: whoever compiles a program
runs eager where compiling raises, and eager has the words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from flambeau_prims.conformance import Decomposing
from flambeau_prims.sweep.database import by_name

DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int64, torch.float16, torch.bfloat16, torch.float64,
    torch.complex64, torch.complex128,
)  # fmt: skip
ELSEWHERE = {
    "masked_fill": "torch reads the value before anything is dispatched",
    "view_copy": "a size of -1 beside 0 is inferred by the tensor that stands for it",
    "view": "the same",
    "reshape": "the same",
    "_chunk_cat": "eager's kernel reads the lists",
    "nn.functional.max_pool1d": "torch chooses another operator inside of a mode",
}
"""Operators refused before they come to a decomposition."""


def raises(call: Callable[[], Any]) -> bool:
    try:
        call()
    except Exception:
        return True
    return False


def samples(op: Any) -> Iterator[tuple[str, Any]]:
    """What may be wrong, and arguments of which it is."""
    for each in op.error_inputs("cpu") if op.error_inputs_func else ():
        yield each.error_regex, each.sample_input
    for dtype in DTYPES:
        made: list[Any] = []
        # of some numbers no sample can be made
        if dtype not in op.dtypes and not raises(
            lambda made=made, dtype=dtype: made.extend(islice(op.sample_inputs("cpu", dtype), 1))
        ):
            yield from ((str(dtype), each) for each in made)


@pytest.mark.sweep(40)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in by_name() if name not in ELSEWHERE])
def test_what_eager_refuses_is_not_taken(name: str) -> None:
    op = by_name()[name]
    torch.manual_seed(0)
    for label, sample in samples(op):

        def call(sample: Any = sample) -> Any:
            return op(sample.input, *sample.args, **sample.kwargs)

        if raises(call):
            with Decomposing():
                assert raises(call), f"{name} takes what eager refuses: {label}"
