"""Verdict on one operator at one dtype, forward and backward.

In: a name of the database, a dtype. Out: a `SweepVerdict`.
Invariant: nothing is passed over in silence: a sample that eager itself refuses is counted, an
operation that is left must be declared, a difference must have its reason written down.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from flambeau_prims._torch_compat import OpOverload
from flambeau_prims.coverage.leaves import is_inert, leaf_reason
from flambeau_prims.decomposition_table import Decomposition
from flambeau_prims.graph_recorder import flatten, map_values
from flambeau_prims.sweep import database
from flambeau_prims.sweep.measure import WIDE, Measured, compare
from flambeau_prims.sweep.watch import SweepObservations, watching

Status = Literal["right", "leaf", "different", "wrong", "refused"]


@dataclass(frozen=True)
class SweepVerdict:
    """`right`: equal to eager, by prims alone; `leaf`: equal, with declared leaves in it;
    `different`: for a reason that is written down; `wrong`; `refused`: eager takes no sample."""

    name: str
    dtype: str
    status: Status
    samples: int = 0
    refused: int = 0
    gradients: int = 0
    message: str = ""
    ratio: float = 0.0
    leaves: tuple[str, ...] = ()
    layout: str = ""


_Grads = tuple[list[torch.Tensor], list[Any]] | None
"""Cotangents and gradients."""


@dataclass
class _Trial:
    """An operation at a dtype through a table, and what its samples have shown so far."""

    entry: Any
    dtype: torch.dtype
    gradient: bool
    table: Mapping[OpOverload, Decomposition]
    samples: int = 0
    refused: int = 0
    gradients: int = 0
    ratio: float = 0.0
    layout: str = ""
    wrong: list[str] = field(default_factory=list)
    differs: list[str] = field(default_factory=list)
    left: Counter[str] = field(default_factory=Counter)

    def add(self, measured: Measured, what: str) -> None:
        self.ratio = max(self.ratio, measured.ratio)
        if measured.layout and not self.layout:
            self.layout = f"{what}: {measured.layout}"
        if measured.wrong:
            self.wrong.append(f"{what}: {measured.wrong}")
        if measured.differs:
            self.differs.append(f"{what}: {measured.differs}")

    def judge(self, call: database.SampleCall, what: str) -> None:
        try:
            eager, grads = self.copied(call)(None)
        except Exception:  # the operation's own refusal: no reference to compare with
            self.refused += 1
            return
        self.samples += 1
        cotangents = None if grads is None else grads[0]
        reference, reference_grads = self.reference(call, cotangents)
        seen, run = SweepObservations(), self.copied(call)
        try:
            with watching(self.table) as seen:
                ours, our_grads = run(cotangents)
        except Exception as error:  # whatever a decomposition raises is its verdict
            self.wrong.append(f"{what}: {type(error).__name__}: {str(error).splitlines()[0][:200]}")
            return
        finally:
            self.left.update(seen.left)
        self.wrong += [f"{what}: {text}" for text in seen.broken[:1]]
        self.add(compare(ours, eager, reference), what)
        if grads is not None:
            self.gradients += 1
            found = our_grads[1] if our_grads is not None else None
            expected = reference_grads[1] if reference_grads is not None else None
            self.add(compare(found, grads[1], expected), f"{what}, gradient")

    def copied(
        self, call: database.SampleCall, to: torch.dtype | None = None
    ) -> Callable[[list[torch.Tensor] | None], tuple[Any, _Grads]]:
        """The call on copies of its tensors, for wide results in the wider dtype: a function of the
        cotangents (drawn if there are none) that gives the results, and the gradients if any."""
        inputs: list[torch.Tensor] = []

        def fresh(item: Any) -> Any:
            if isinstance(item, torch.Tensor):
                copy = item.detach().clone() if item.layout == torch.strided else item.detach()
                if to is not None and copy.dtype in WIDE:
                    copy = copy.to(WIDE[copy.dtype])
                if self.gradient and item.requires_grad:
                    inputs.append(copy.requires_grad_())
                return copy
            return WIDE.get(item, item) if isinstance(item, torch.dtype) and to else item

        args, kwargs = map_values(fresh, (call.args, call.kwargs))

        def run(cotangents: list[torch.Tensor] | None) -> tuple[Any, _Grads]:
            torch.manual_seed(1)
            result = self.entry(*args, **kwargs)
            leaves = flatten(call.differentiable(result)) if inputs else []
            outputs = [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad]
            if not outputs:
                return result, None
            if cotangents is None:
                draw = torch.Generator().manual_seed(2)
                cotangents = [torch.randn(t.shape, dtype=t.dtype, generator=draw) for t in outputs]
            cast = [g.to(t.dtype) for g, t in zip(cotangents, outputs, strict=True)]
            grads = torch.autograd.grad(outputs, inputs, cast, allow_unused=True)
            return result, (cotangents, list(grads))

        return run

    def reference(
        self, call: database.SampleCall, cotangents: list[torch.Tensor] | None
    ) -> tuple[Any, _Grads]:
        if self.dtype not in WIDE:
            return None, None
        try:
            return self.copied(call, WIDE[self.dtype])(cotangents)
        except Exception:  # not defined in the wider dtype: eager itself is the reference
            return None, None


def judge(
    name: str,
    dtype_name: str,
    table: Mapping[OpOverload, Decomposition],
    limit: int = 6,
    values: str = "samples",
) -> SweepVerdict:
    """Run up to `limit` samples of an operation through `table`, of the database's values or of
    others (`database.VALUES`)."""
    entry = database.by_name()[name]
    dtype = getattr(torch, dtype_name)
    trial = _Trial(entry, dtype, database.has_gradient(entry, dtype), table)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the database's samples are not ours to clean up
        calls = database.calls(entry, dtype, limit, trial.gradient, values)
        for number, call in enumerate(calls):
            trial.judge(call, f"sample {number}")
    return _verdict(name, dtype_name, trial, values)


def _verdict(name: str, dtype_name: str, trial: _Trial, values: str) -> SweepVerdict:
    leaves = tuple(sorted(op for op in trial.left if not is_inert(op)))
    undeclared = [op for op in leaves if leaf_reason(op) is None]
    reason = difference(name, dtype_name, values)
    wrong = list(trial.wrong)
    if undeclared:
        wrong.append(f"left without a declared reason: {', '.join(undeclared)}")
    wrong += [] if reason else trial.differs
    status: Status = "leaf" if leaves else "right"
    if wrong:
        status = "wrong"
    elif reason:
        status = "different"
    elif trial.samples == 0:
        status = "refused"
    message = "; ".join(wrong[:2]) or (reason or "")
    return SweepVerdict(
        name, dtype_name, status, trial.samples, trial.refused, trial.gradients, message,
        trial.ratio, leaves, trial.layout,
    )  # fmt: skip


# (operation, dtype or "*"): reason
DIFFERENCES: dict[tuple[str, str], str] = {
    **{
        (name, "*"): "elements that were never written have no value to compare"
        for name in (
            "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty",
            "new_empty_strided",
        )
    },
    ("svd_lowrank", "complex64"): (
        "a subspace iteration from random vectors magnifies the rounding of each product"
    ),
    ("matrix_exp", "bfloat16"): (
        "eager's products overflow to NaN in bfloat16; the primitive computes them in float32"
    ),
}  # fmt: skip


AT_LIMITS: tuple[tuple[str, str], ...] = (
    (
        r"_?(native_)?batch_norm.*|_native_batch_norm_legit|native_(layer|group)_norm"
        r"|nn\.functional\.(batch|layer|group|instance|rms)_norm",
        "eager's sums of numbers near the largest overflow where those here do not, and means of"
        " infinities are NaN, at other places",
    ),
    (
        r"_softmax_backward_data|.*_safe_softmax.*",
        "an operand stands for the result of a softmax, which has no such values",
    ),
    (
        r"prod|masked\.prod",
        "eager counts zeros first: where there are two the gradient is zero whatever else there is",
    ),
    (
        r"(linalg\.)?cross|addbmm|nn\.functional\.bilinear|.*mm|.*mv|.*mul|einsum|inner|tensordot",
        "products of numbers near the largest are added in another order, or contracted",
    ),
    (
        r"fft\..*|.*stft",
        "sums overflow before they are divided, where a library divides on the way",
    ),
    (
        r"(linalg\.)?norm",
        "of one number eager has its square, which overflows; here it is the number",
    ),
    (
        r"cumprod|masked\.cumprod|index_reduce\..*|nn\.functional\.nll_loss",
        "in half precision eager rounds, and overflows, after every product and sum",
    ),
    (
        r"fmod|remainder|__rmod__|floor_divide|div\.floor_rounding",
        "of quotients that are too large for them eager's vectors of float32 have NaN",
    ),
    (
        r"linalg\..*|cholesky.*|svd.*|pinverse|lu.*|qr|geqrf|ormqr|.*lowrank|logdet|matrix_exp",
        "a library's answer to matrices of what is no number is its own",
    ),
    (
        r"nn\.functional\.(hardswish|hardtanh|hardshrink|softshrink|relu6)|logit",
        "of NaN and zeros eager's vectors take another side than the elements behind the last one",
    ),
)
"""By a pattern of names, where values are at the limits of a dtype (`database.VALUES`): the reason
for a difference."""


def difference(name: str, dtype: str, values: str = "samples") -> str | None:
    """The reason why `name` may differ at `dtype`, of such values; None if it may not."""
    if values != "samples":
        for pattern, reason in AT_LIMITS:
            if re.fullmatch(pattern, name):
                return reason
    return DIFFERENCES.get((name, dtype)) or DIFFERENCES.get((name, "*"))
