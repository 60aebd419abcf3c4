"""Other forms of kernels: each is right, each is another kernel, and few are offered."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
import torch.nn.functional as F
from flambeau_inductor import Options
from flambeau_inductor.codegen.cpp.analysis.alternatives import alternatives
from flambeau_inductor.codegen.cpp.analysis.variant import MOST, Form
from flambeau_inductor.codegen.cpp.toolchain import find_toolchain
from flambeau_inductor.codegen.cpp.unit import anonymous, from_starts, prepared
from flambeau_inductor.ir.program import Program
from flambeau_inductor.ir.steps import loops_of
from torch import Tensor, fx

CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "rows": (lambda x: torch.softmax(x, -1), ((9, 1037),)),
    "a norm": (lambda x: F.gelu(F.layer_norm(x, (519,))), ((33, 519),)),
    "rows that are added": (lambda x: (x.sum(1), (x * 2).amax(1)), ((40, 700),)),
    "columns": (lambda x: x.var(0), ((301, 517),)),
    "a transpose": (lambda x, y: x.t() + y, ((331, 145), (145, 331))),
    "a transpose between images": (
        lambda x, y: x.permute(0, 3, 1, 2) * torch.tanh(y),
        ((2, 37, 19, 40), (2, 40, 37, 19)),
    ),
    "points": (lambda x, y: torch.erf(x).exp() * torch.sigmoid(y) + torch.tanh(x), ((70, 91),) * 2),
}
KINDS = (torch.float32, torch.bfloat16)


class _Asked:
    """The stage that chooses, told what to choose."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.offered: set[str] = set()

    def __call__(self, work: Any, program: Program) -> tuple[Program, int]:
        for loop in loops_of(program):
            forms = offered(loop)
            self.offered |= set(forms)
            if self.name in forms:
                work.forms[loop.name] = forms[self.name]
        return program, 0


def offered(loop: Any) -> dict[str, Form]:
    planned = prepared(from_starts(anonymous(loop)[0])[0])
    return alternatives(planned, find_toolchain().vector_bytes)


def results(
    function: Callable[..., Any],
    inputs: list[Tensor],
    asked: _Asked,
    monkeypatch: pytest.MonkeyPatch,
    cache: Path,
) -> tuple[list[Tensor], str]:
    """What comes out, and the text of the kernels."""
    monkeypatch.setattr(
        import_module("flambeau_inductor.autotune.cpp_variants"), "select_variants", asked
    )
    gm = flambeau_prims.lower(fx.symbolic_trace(function), inputs)
    options = Options(max_autotune=True, autotune_seconds=1e4, cache_dir=str(cache))
    compiled = flambeau_inductor.compile(gm, inputs, options=options)
    return list(compiled(list(inputs))), compiled.report.sources["kernels.cpp"]


def flat(result: Any) -> list[Tensor]:
    return list(result) if isinstance(result, tuple) else [result]


@pytest.mark.sweep(6)
@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_every_form_gives_the_answer(
    case: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tmp_path.chmod(0o700)
    function, shapes = CASES[case]
    inputs = [torch.randn(shape).to(dtype) for shape in shapes]
    eager = flat(function(*inputs))
    exact = flat(function(*(x.double() for x in inputs)))
    plain = _Asked("")
    ruled, text = results(function, inputs, plain, monkeypatch, tmp_path)
    assert dtype is not torch.float32 or plain.offered
    assert len(plain.offered) <= MOST
    texts = {text}
    for name in sorted(plain.offered):
        got, text = results(function, inputs, _Asked(name), monkeypatch, tmp_path)
        texts.add(text)
        for made, want, right, other in zip(got, eager, exact, ruled, strict=True):
            assert made.stride() == want.stride() and made.dtype == want.dtype
            error, allowed, before = (
                (x - right).square().mean().sqrt() for x in (made, want, other)
            )
            assert error <= max(2 * allowed, before) + 1e-7, name
    assert len(texts) == 1 + len(plain.offered)


def test_what_only_moves_memory_in_order_has_no_other_form() -> None:
    gm = flambeau_prims.lower(fx.symbolic_trace(lambda x: x + 1), [torch.randn(64, 64)])
    seen: list[Any] = []
    watched = Options(observer=lambda stage, work: seen.append(work))
    flambeau_inductor.compile(gm, [torch.randn(64, 64)], options=watched)
    (loop,) = seen[-1].loops()
    assert offered(loop) == {}
