"""One program in eager and compiled, and the difference.

What comes in: a program. What goes out: a `Verdict`: "same", "refused", "both raise" or
"different" with the words for it.
Invariant: a program counts as the same only if both calls of one compiled function were.
"""

from __future__ import annotations

from dataclasses import dataclass

import flambeau_aot as aot
import torch

from .errors import EAGER_ALONE, error_difference, subject
from .observe import Outcome, observe
from .program import Program

PARTITIONS = {"min cut": aot.min_cut_partition, "save all": aot.save_all}

# Writing to memory that is also read, or that is written twice, is an error of some of eager's
# kernels. A functional graph has no such memory.
MEMORY_OVERLAP = "unsupported operation: "

# What is saved for the backward pass is the partition's choice: a write to it after the call
# raises, and a write to what only the other saved does not. Neither gives a wrong gradient.
MODIFIED = "modified by an inplace operation"


@dataclass(frozen=True)
class Verdict:
    """How a program fared; `words` says why for anything but "same"."""

    kind: str
    words: str = ""


def compare(program: Program) -> Verdict:
    """Run in eager and compiled, twice, on inputs of different values."""
    draft = program.draft
    fn = program.function()
    compiled = aot.aot_function(fn, aot.run_as_is, partition=PARTITIONS[draft.partition])
    for seed in (draft.seed, draft.seed + 1):
        expected = observe(fn, draft, seed)
        if expected.stage == "call" and expected.error is not None and not program.raises:
            return Verdict("not a program", str(expected.error))
        given = observe(compiled, draft, seed)
        verdict = _difference(expected, given)
        if verdict is not None:
            return verdict
    return Verdict("same")


def _difference(expected: Outcome, given: Outcome) -> Verdict | None:
    if (expected.error is None) != (given.error is None):
        found = expected.error or given.error
        if MODIFIED in str(found) and expected.stage == given.stage == "gradients":
            if found is expected.error:
                return Verdict("eager alone saved what was written to later")
            return Verdict("different", f"compiled alone saved what was written to later: {found}")
    if expected.error is not None and expected.stage == "gradients" and given.error is None:
        if subject(expected.error) not in EAGER_ALONE:
            return Verdict("different", f"eager alone raises in gradients: {expected.error}")
        return Verdict("eager alone has no gradient", str(expected.error))
    if expected.error is not None and given.error is not None:
        if _refusal(given):
            return Verdict("refused", f"{given.stage}: {type(given.error).__name__}: {given.error}")
        words = error_difference(expected, given)
        if words:
            return Verdict("different", f"both raise; {words}")
        return Verdict("both raise", f"{expected.stage}: {expected.error}")
    if expected.error is not None:
        if MEMORY_OVERLAP in str(expected.error):
            return Verdict("eager alone refuses overlapping memory")
        if given.stage == "gradients" and expected.stage == "gradients":
            return Verdict("different", f"eager raises in gradients: {expected.error}")
        return Verdict("different", f"eager raises in {expected.stage}: {expected.error}")
    if given.error is not None:
        kind = "refused" if _refusal(given) else "different"
        return Verdict(kind, f"{given.stage}: {type(given.error).__name__}: {given.error}")
    for name, fact in expected.facts.items():
        other = given.facts.get(name, "missing")
        if name == "version changed" and all(b or not a for a, b in zip(fact, other)):
            # One write more may be counted, as of an inference-mode reshape; never one less.
            continue
        if fact == "cannot be asked":
            continue
        if other != fact:
            return Verdict("different", f"{name}: eager {fact}, compiled {other}")
    for name, tensor in expected.tensors.items():
        words = _tensor_difference(tensor, given.tensors.get(name))
        if words:
            return Verdict("different", f"{name}: {words}")
    return None


def _refusal(given: Outcome) -> bool:
    """Whether this package said by name what it does not compile."""
    return isinstance(given.error, aot.Unsupported) and given.stage == "call"


def _tensor_difference(one: torch.Tensor | None, other: torch.Tensor | None) -> str:
    if one is None or other is None:
        return "" if one is other else f"eager {one}, compiled {other}"
    if one.shape != other.shape or one.dtype != other.dtype:
        return f"eager {one.shape} {one.dtype}, compiled {other.shape} {other.dtype}"
    try:
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5, equal_nan=True)
    except AssertionError as error:
        return str(error)
    return ""
