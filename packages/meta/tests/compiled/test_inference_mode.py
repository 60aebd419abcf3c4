"""Inference mode that a program enters or leaves: what its results are, and what they require."""

from __future__ import annotations

import random
from textwrap import indent
from typing import Any

import pytest
import torch

import flambeau

CONTEXTS = (
    "with torch.inference_mode():", "with torch.inference_mode(False):", "with torch.no_grad():",
    "with torch.enable_grad():", "try:",
)  # fmt: skip
STATEMENTS = (
    "y = y * 2", "y = y + x", "z = y.view(-1)", "z = z + 1", "z.add_(1)", "y = y.clone()",
    "seen.append(y.is_inference())", "seen.append(torch.is_grad_enabled())", "y = y.detach()",
    "z.requires_grad_()", "w = y * x", "torch.set_grad_enabled(False)", "y = torch.ones(3) + y",
    "seen.append(y.sum().item())",
)  # fmt: skip


def block(chance: random.Random, depth: int = 0) -> str:
    lines = []
    for _ in range(chance.randrange(1, 4)):
        if depth < 3 and chance.random() < 0.4:
            context = chance.choice(CONTEXTS)
            lines += [context, indent(block(chance, depth + 1), "    ")]
            if context == "try:":
                lines.append("except RuntimeError:\n    seen.append('raised')")
        else:
            lines.append(chance.choice(STATEMENTS))
    return "\n".join(lines)


def drawn(chance: random.Random) -> Any:
    body = (
        f"y, z, w = x * 1, x + 1, x\nwith torch.inference_mode():\n{indent(block(chance), '    ')}"
    )
    text = f"def program(x, seen):\n{indent(body, '    ')}\n{indent(block(chance), '    ')}"
    space: dict[str, Any] = {"torch": torch}
    exec(f"{text}\n    return y, z, w", space)
    return space["program"]


def observed(call: Any, grad: bool, outside: bool) -> list[Any]:
    seen: list[Any] = []
    for _ in range(2):
        x = torch.arange(1.0, 4).requires_grad_(grad)
        try:
            with torch.inference_mode(outside):
                results = call(x, seen)
            seen += [(r.tolist(), r.is_inference(), r.requires_grad) for r in results]
        except RuntimeError as error:
            seen.append(str(error)[:40])
        finally:
            seen.append(torch.is_grad_enabled())
            torch.set_grad_enabled(True)
    return seen


@pytest.mark.sweep(5)
@pytest.mark.parametrize("seed", range(60))
def test_results_are_inference_tensors_and_require_grad_as_in_eager(seed: int) -> None:
    program = drawn(random.Random(seed))
    for grad, outside in ((True, False), (True, True), (False, seed % 2 == 0)):
        compiled = flambeau.compile(program, backend="aot_eager")
        assert observed(compiled, grad, outside) == observed(program, grad, outside)
        assert not flambeau.report(compiled).faults


VIEWS = {
    "view": lambda x: x.view(-1) * 2,
    "view alone": lambda x: x.view(-1),
    "transposed": lambda x: (x.t() @ x, x.t()),
    "detached": lambda x: x.detach() + 1,
    "of a result": lambda x: (x * 2)[0],
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_views_of_arguments_are_compiled(name: str, grad: bool) -> None:
    program = torch.inference_mode()(VIEWS[name])
    x = torch.arange(6.0).view(2, 3).requires_grad_(grad)
    compiled = flambeau.compile(lambda x: program(x), backend="aot_eager", fullgraph=True)
    for found, wanted in zip(compiled(x), program(x), strict=True):
        assert torch.equal(found, wanted)
        assert found.is_inference() == wanted.is_inference()
        assert found.requires_grad == wanted.requires_grad
