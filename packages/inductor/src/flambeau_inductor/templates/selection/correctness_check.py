"""Correctness check of autotuning candidates against the library.

In: the library's run and those of candidates, on the tensors of a bench. Out: the same runs, with
one that raises in the place of each that gave other numbers. Invariant: a kernel that a compiler
got wrong wins no race; rounding, in whichever order sums are made, is no reason.

What is compared is the beginning and the end of each result, some millions of elements: tiles are
all made by the same instructions but for those at the edges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from flambeau_inductor.templates.selection.trial_runs import Bench, Run

FAR = 0.05
"""Of a result's length: far more than rounding, far less than a wrong tile."""
MISSING = 1e-3
"""Share of elements that may be finite in one of both only (where scores overflow)."""
MOST = 1 << 22
"""Elements that are compared at each end."""


class OtherNumbers(Exception):
    """A candidate does not compute what the library does."""


def agreeing(
    bench: Bench, library: Run, ways: Mapping[str, Run], results: Sequence[str]
) -> dict[str, Run]:
    """The runs of `ways`; `library` leaves in the buffers `results` what each is to leave there,
    and as it was what they leave."""
    _clear(bench, results)
    library()
    expected = {name: [end.clone() for end in _ends(bench.tensor(name))] for name in results}
    return {name: _checked(bench, run, expected) for name, run in ways.items()}


def distance(expected: Tensor, found: Tensor) -> float:
    """How far `found` is from `expected`, as a share of its length; of numbers that are not
    floating point, the share that differs."""
    if not expected.is_floating_point():
        return float((expected != found).float().mean())
    a, b = expected.float(), found.float()
    finite = a.isfinite() & b.isfinite()
    if float((a.isfinite() ^ b.isfinite()).float().mean()) > MISSING:
        return float("inf")
    zero = torch.zeros((), device=a.device)
    off = torch.where(finite, a - b, zero).norm()
    return float(off / torch.where(finite, a, zero).norm().clamp(min=1e-30))


def _checked(bench: Bench, run: Run, expected: Mapping[str, Sequence[Tensor]]) -> Run:
    _clear(bench, expected)
    try:
        run()
    except Exception:  # the race runs it again, and names what it raises
        return run
    far = max(
        distance(end, found)
        for name, ends in expected.items()
        for end, found in zip(ends, _ends(bench.tensor(name)), strict=True)
    )
    return partial(_refuse, far) if far > FAR else run


def _clear(bench: Bench, names: Iterable[str]) -> None:
    """What nobody writes is the same wherever it is looked for."""
    for name in names:
        tensor = bench.tensor(name)
        tensor.fill_(float("nan") if tensor.is_floating_point() else 1)


def _ends(tensor: Tensor) -> tuple[Tensor, ...]:
    if tensor.numel() <= 2 * MOST:
        return (tensor,)
    rows = max(1, MOST * tensor.shape[0] // tensor.numel())
    return tensor[:rows], tensor[-rows:]


def _refuse(far: float) -> None:
    raise OtherNumbers(f"its numbers are {far:.2g} of the result's length from the library's")
