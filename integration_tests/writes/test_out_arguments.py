"""Writes to `out=`: the result and what is written, of each operator that takes one.

In: torch's operation database. Out: for each entry whose eager form takes `out=`, the first sample
that it accepts. Invariant: the tensor written to is made in the program once, as a part of another
once, and an argument once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from flambeau_prims.sweep import database
from torch.utils._pytree import tree_leaves

import flambeau

CLOSE = {"rtol": 1e-12, "atol": 1e-12, "equal_nan": True}
LABELS = [
    label
    for label, entry in database.by_name().items()
    if entry.supports_out and database.takes(entry, torch.float64)
]
#: of which eager's own results differ from call to call
UNDETERMINED = frozenset({"empty", "empty_permuted", "empty_strided", "empty_like", "new_empty"})


def _sample(entry: Any) -> tuple[Callable[[Any], Any], Any]:
    """A call of `out`, and what it gives in eager without one; None where no sample fits."""
    for sample in entry.sample_inputs("cpu", torch.float64, requires_grad=False):
        if isinstance(sample.input, torch.Tensor) and not sample.input.numel():
            continue

        def call(out: Any, sample: Any = sample) -> Any:
            return entry.op(sample.input, *sample.args, **sample.kwargs, out=out)

        try:
            plain = entry.op(sample.input, *sample.args, **sample.kwargs)
            call(_like(plain))
        except (RuntimeError, TypeError, ValueError, AttributeError):
            continue
        return call, plain
    pytest.skip(f"{entry.name}: eager takes no sample with out=")


def _like(plain: Any) -> Any:
    if isinstance(plain, torch.Tensor):
        return torch.zeros(tuple(plain.shape), dtype=plain.dtype)
    return tuple(map(_like, plain))


@pytest.mark.sweep(20)
@pytest.mark.parametrize("label", LABELS)
def test_what_is_written(label: str) -> None:
    entry = database.by_name()[label]
    if entry.name in UNDETERMINED:
        pytest.skip("uninitialized memory")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call, plain = _sample(entry)
        several = [plain] if isinstance(plain, torch.Tensor) else plain
        shapes = [(tuple(one.shape), one.dtype) for one in several]

        def inside() -> Any:
            made = tuple(torch.zeros(shape, dtype=dtype) for shape, dtype in shapes)
            result = call(made if len(made) > 1 else made[0])
            return made, result

        def parts() -> Any:
            whole = [torch.zeros((3, *shape), dtype=dtype) for shape, dtype in shapes]
            result = call(tuple(w[1] for w in whole) if len(whole) > 1 else whole[0][1])
            return whole, tree_leaves(result)

        def outside(*outs: torch.Tensor) -> Any:
            call(outs if len(outs) > 1 else outs[0])
            return [out.clone() for out in outs]

        compiled = flambeau.compile(parts, backend="aot_eager")
        torch.testing.assert_close(compiled(), parts(), **CLOSE)
        for backend in ("eager", "aot_eager"):
            compiled = flambeau.compile(inside, backend=backend)
            (made, result), (expected, eager) = compiled(), inside()
            torch.testing.assert_close(made, expected, **CLOSE)
            same = [[one is other for one in made] for other in tree_leaves(result)]
            assert same == [[one is other for one in expected] for other in tree_leaves(eager)]
            one, other = (tuple(torch.zeros(s, dtype=d) for s, d in shapes) for _ in range(2))
            results = flambeau.compile(outside, backend=backend)(*one), outside(*other)
            torch.testing.assert_close(*results, **CLOSE)
            torch.testing.assert_close(one, other, **CLOSE)
