"""What a caller can see of one call.

What comes in: a function, fresh inputs. What goes out: an `Outcome` in plain data and tensors.
Invariant: nothing here depends on how the function came to its results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .inputs import Made, make
from .program import Draft, grad_mode
from .scope import SCOPE


@dataclass
class Outcome:
    """Facts by name, and tensors by name; `error` if the call or its gradients raised."""

    facts: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, torch.Tensor | None] = field(default_factory=dict)
    error: BaseException | None = None
    stage: str = ""


def observe(fn: Callable[..., Any], draft: Draft, seed: int) -> Outcome:
    """Call on fresh inputs; look at everything; write to results; differentiate."""
    outcome = Outcome()
    made = make(draft.inputs, seed, SCOPE)
    versions = [value._version for value in made.inputs]
    torch.manual_seed(seed)
    outcome.stage = "call"
    try:
        with grad_mode(draft.mode):
            results = fn(*made.inputs)
    except Exception as error:
        outcome.error = error
        return outcome
    leaves, structure = pytree.tree_flatten(results)
    outcome.facts["structure"] = str(structure)
    outcome.facts["literals"] = [x for x in leaves if not isinstance(x, torch.Tensor)]
    named = {f"base {index}": value for index, value in enumerate(made.bases)}
    named |= {f"input {index}": value for index, value in enumerate(made.inputs)}
    named |= {
        f"result {index}": value
        for index, value in enumerate(leaves)
        if isinstance(value, torch.Tensor)
    }
    outcome.facts["version changed"] = [
        value._version != before for value, before in zip(made.inputs, versions)
    ]
    _look(outcome, named, draft)
    outcome.stage = "write after"
    _write_after(outcome, named, draft)
    for name, value in named.items():
        outcome.tensors[f"{name} at the end"] = _plain(value)
    outcome.stage = "gradients"
    _differentiate(outcome, made, named, draft)
    return outcome


def _look(outcome: Outcome, named: dict[str, torch.Tensor], draft: Draft) -> None:
    for name, value in named.items():
        outcome.tensors[name] = _plain(value)
        outcome.facts[f"{name}: metadata"] = (
            tuple(value.shape),
            value.dtype,
            value.device,
            value.layout,
            value.is_conj(),
            value.is_neg(),
            value.is_inference(),
        )
        outcome.facts[f"{name}: strides"] = _strides(value)
        outcome.facts[f"{name}: requires_grad, is_leaf"] = _history(value)
    items = list(named.items())
    for index, (name, value) in enumerate(items):
        for other_name, other in items[:index]:
            pair = f"{name}, {other_name}"
            outcome.facts[f"{pair}: same object"] = value is other
            if not value.numel() or not other.numel():
                continue
            shares = value.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
            outcome.facts[f"{pair}: same memory"] = shares
            if shares:
                outcome.facts[f"{pair}: distance"] = value.data_ptr() - other.data_ptr()
                if draft.mode != "inference":
                    outcome.facts[f"{pair}: is base"] = (value._base is other, other._base is value)
    if draft.mode == "inference":
        return
    for index, (name, value) in enumerate(items):
        before = [other._version for _, other in items]
        own = value._version
        torch.autograd.graph.increment_version(value)
        for (other_name, other), was in zip(items[:index], before):
            outcome.facts[f"{name}, {other_name}: one version counter"] = other._version != was
        torch._C._autograd._unsafe_set_version_counter((value,), (own,))


def _history(value: torch.Tensor) -> Any:
    """A view whose base was written to in another mode cannot even be asked."""
    try:
        return value.requires_grad, value.is_leaf
    except RuntimeError:
        return "cannot be asked"


def _strides(value: torch.Tensor) -> Any:
    if value.numel() == 0:
        return None
    return [step for size, step in zip(value.shape, value.stride()) if size > 1]


def _plain(value: torch.Tensor) -> torch.Tensor:
    return value.detach().resolve_conj().resolve_neg().clone()


def _write_after(outcome: Outcome, named: dict[str, torch.Tensor], draft: Draft) -> None:
    """What a caller may do to what it got: write to it, now and then what requires grad."""
    factor = torch.tensor(0.5, requires_grad=True)
    writable = [
        (name, value)
        for name, value in named.items()
        if not name.startswith("base") and (value.is_floating_point() or value.is_complex())
    ]
    for pick in draft.writes_after:
        if not writable:
            return
        name, value = writable[pick % len(writable)]
        try:
            with grad_mode(draft.mode):
                value.mul_(factor if pick % 2 else 0.5)
            outcome.facts[f"writing to {name}"] = "done"
        except RuntimeError:
            outcome.facts[f"writing to {name}"] = "refused"


def _differentiate(
    outcome: Outcome, made: Made, named: dict[str, torch.Tensor], draft: Draft
) -> None:
    if draft.mode == "inference":
        return
    try:
        terms = list(_terms(named, draft.seed))
        if terms and made.leaves:
            sum(terms).backward()  # type: ignore[union-attr]
    except RuntimeError as error:
        outcome.error = error
        return
    for index, leaf in enumerate(made.leaves):
        outcome.tensors[f"gradient of leaf {index}"] = leaf.grad
    for name, value in named.items():
        if _history(value) == (True, True):
            outcome.tensors[f"gradient of {name}"] = value.grad


def _terms(named: dict[str, torch.Tensor], seed: int) -> Iterator[torch.Tensor]:
    """Scalars to differentiate: of every second value or so, weighted so that no two are alike."""
    for index, value in enumerate(named.values()):
        if value.requires_grad and not (seed >> index) & 1:
            part = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
            weights = torch.linspace(0.5, 1.5, max(part.numel(), 1))[: part.numel()]
            yield (part * weights.reshape(part.shape).to(part.dtype)).sum().double()
