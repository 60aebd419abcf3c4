"""Results of a captured model beside eager's: two calls, in one process.

In: a subject and a system that compiles. Out: a `Verdict`. Invariant: right means the same
structure, the same bits as eager or an error against float64 of at most twice eager's, the same
random state and the same module state afterwards, and in training the same for every gradient.
"""

from __future__ import annotations

import copy
import random
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from unittest import mock

import numpy
import torch

from integration_tests.sweep.cases import Inputs, NotBuilt, Subject

Found = dict[str, Any]


@dataclass
class Counts:
    """What a system says it did."""

    graphs: int = 0
    operations: int = 0
    breaks: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


System = Callable[[torch.nn.Module], tuple[Callable[..., Any], Callable[[], Counts]]]


@dataclass
class Verdict:
    """One row of the table. `status`: one graph, recompiled, breaks, eager, own branch, ..."""

    status: str
    graphs: int = 0
    operations: int = 0
    breaks: list[str] = field(default_factory=list)
    detail: str = ""
    eager_s: float = 0.0
    first_s: float = 0.0

    def row(self) -> dict[str, Any]:
        return asdict(self)


def judge(subject: Subject, training: bool, system: System) -> Verdict:
    """Run both ways and compare."""
    module = subject.module.train(training)
    twin = copy.deepcopy(module)
    started = time.perf_counter()
    try:
        eager = [observe(twin, twin, inputs, training) for inputs in subject.inputs]
    except Exception as error:
        raise NotBuilt(f"eager: {type(error).__name__}: {error}"[:200]) from error
    eager_s = (time.perf_counter() - started) / 2
    exact: list[Found] | None = None
    before = copy.deepcopy(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled, counts = system(module)
        first_s = 0.0
        for number, inputs in enumerate(subject.inputs):
            started = time.perf_counter()
            try:
                ours = observe(compiled, module, inputs, training)
            except Exception as error:  # a row of the table, whatever it is
                if isinstance(told_it_compiles(before, subject, training), type(error)):
                    return Verdict("own branch", detail=OWN_BRANCH)
                told = traceback.format_exc().strip().splitlines()[-6:]
                text = f"{type(error).__name__}: {str(error)[:300]} [{' | '.join(told)[-500:]}]"
                return Verdict("crashed", detail=text)
            if not number:
                first_s = time.perf_counter() - started
            told_apart = difference(ours, eager[number])
            if told_apart is not None:
                exact = exact or in_double(before, subject.inputs, training)
                told_apart = against_double(ours, eager[number], (exact or eager)[number])
            if told_apart is not None:
                if not repeats(before, subject.inputs, training, eager):
                    raise NotBuilt("eager: it does not give the same twice")
                found = counts()
                told = told_it_compiles(before, subject, training)
                if isinstance(told, list) and difference(ours, told[number]) is None:
                    return Verdict("own branch", found.graphs, detail=OWN_BRANCH)
                return Verdict("wrong", found.graphs, detail=f"call {number}: {told_apart}")
    found = counts()
    status = "breaks"
    if found.faults:
        status = "crashed"
    elif found.graphs == 0:
        status = "eager"
    elif found.graphs == 1 and not found.breaks:
        status = "one graph"
    elif not found.breaks:
        status = "recompiled"
    detail = "; ".join(found.faults)[:600]
    return Verdict(status, found.graphs, found.operations, found.breaks, detail, eager_s, first_s)


def repeats(
    module: torch.nn.Module, calls: tuple[Inputs, Inputs], training: bool, eager: list[Found]
) -> bool:
    """Whether eager gives the same again, from the same random state: a model that takes its seed
    from elsewhere tells nothing of whoever runs it."""
    model = copy.deepcopy(module)
    again = [observe(model, model, inputs, training) for inputs in calls]
    return all(difference(one, other) is None for one, other in zip(again, eager, strict=True))


OWN_BRANCH = "eager does the same when torch.compiler.is_compiling() is True"


def told_it_compiles(
    module: torch.nn.Module, subject: Subject, training: bool
) -> list[Found] | Exception:
    """What eager does where the model asks whether it is compiled and is told so: some models
    compute something else then."""
    model = copy.deepcopy(module)
    with mock.patch.object(torch.compiler, "is_compiling", lambda: True):
        try:
            return [observe(model, model, inputs, training) for inputs in subject.inputs]
        except Exception as error:
            return error


def seed_all() -> None:
    torch.manual_seed(7)
    random.seed(7)
    numpy.random.seed(7)


def observe(
    call: Callable[..., Any], module: torch.nn.Module, inputs: Inputs, training: bool
) -> Found:
    """All that a call can be told by: leaves of its result, gradients, buffers, random state."""
    seed_all()
    given = clone(inputs)
    module.zero_grad(set_to_none=True)
    with torch.set_grad_enabled(training):
        result = call(**given)
    found: Found = {}
    flatten(result, "result", found, set())
    if training:
        losses = [
            leaf.double().square().mean()
            for leaf in found.values()
            if isinstance(leaf, torch.Tensor)
            and leaf.requires_grad
            and leaf.is_floating_point()
            and leaf.numel()
        ]
        if losses:
            torch.stack(losses).sum().backward()
        for name, parameter in module.named_parameters():
            found[f"gradient of {name}"] = parameter.grad
    for name, buffer in module.named_buffers():
        found[f"buffer {name}"] = buffer
    for key, leaf in found.items():
        if isinstance(leaf, torch.Tensor):
            found[key] = leaf.detach().clone()
    found["random state of torch"] = torch.get_rng_state()
    found["random state of Python"] = hash(random.getstate())
    return found


def flatten(value: Any, path: str, into: Found, seen: set[int]) -> None:
    """Tensors and plain values of a result, by path; classes are part of the path."""
    if isinstance(value, torch.Tensor | int | float | str | bool | type(None) | torch.Size):
        into[path] = value
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    kind = type(value).__name__
    if isinstance(value, Mapping):
        for key, item in value.items():
            flatten(item, f"{path}.{kind}[{key!r}]", into, seen)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            flatten(item, f"{path}.{kind}[{index}]", into, seen)
    elif hasattr(value, "__dict__") and not isinstance(value, torch.nn.Module | type):
        for name, item in vars(value).items():
            if type(item).__name__ not in ("function", "method") and "onfig" not in name:
                flatten(item, f"{path}.{kind}.{name}", into, seen)


def clone(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, list):
        return [clone(item) for item in value]
    if isinstance(value, dict):
        return {key: clone(item) for key, item in value.items()}
    return value


def difference(ours: Found, theirs: Found) -> str | None:
    """The first place where two observations are not the same to the bit."""
    if list(ours) != list(theirs):
        odd = set(ours) ^ set(theirs)
        return f"structure: {sorted(odd)[:4] or 'order'}"
    for key, want in theirs.items():
        got = ours[key]
        if isinstance(want, torch.Tensor):
            if not isinstance(got, torch.Tensor):
                return f"{key} is a {type(got).__name__}"
            if got.dtype != want.dtype or got.shape != want.shape:
                return (
                    f"{key}: {got.dtype}{tuple(got.shape)}, eager {want.dtype}{tuple(want.shape)}"
                )
            if not torch.equal(got, want) and not _same_with_nan(got, want):
                return f"{key}: values"
        elif got is not want and got != want and not (got != got and want != want):
            return f"{key}: {got!r}, eager {want!r}"[:200]
    return None


def _same_with_nan(got: torch.Tensor, want: torch.Tensor) -> bool:
    return bool(torch.allclose(got, want, rtol=0, atol=0, equal_nan=True))


def in_double(
    module: torch.nn.Module, calls: tuple[Inputs, Inputs], training: bool
) -> list[Found] | None:
    """What a float64 copy computes; None where an operator of the model has no float64 form (then
    eager is the reference, and allows of no more error than rounding's)."""
    exact = copy.deepcopy(module).double()
    try:
        return [observe(exact, exact, _doubled(inputs), training) for inputs in calls]
    except RuntimeError:
        return None


def _doubled(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, list):
        return [_doubled(item) for item in value]
    if isinstance(value, dict):
        return {key: _doubled(item) for key, item in value.items()}
    return value


def against_double(ours: Found, eager: Found, exact: Found) -> str | None:
    """None if errors against float64 are at most twice eager's."""
    structure = difference(dict.fromkeys(ours), dict.fromkeys(eager))
    if structure is not None:
        return structure
    for key, want in eager.items():
        got = ours[key]
        if not isinstance(want, torch.Tensor) or not want.is_floating_point():
            if (told := difference({key: got}, {key: want})) is not None:
                return told
            continue
        if not isinstance(got, torch.Tensor) or got.shape != want.shape or got.dtype != want.dtype:
            return difference({key: got}, {key: want})
        if got.numel() == 0 or _same_with_nan(got, want):
            continue
        reference = exact[key].double()
        error, allowed = (_rmse(found.double(), reference) for found in (got, want))
        if not error <= 2 * allowed + 1e-5:
            return f"{key}: error {error:.2e}, eager {allowed:.2e}"
    return None


def _rmse(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found - exact).square().mean().sqrt())
