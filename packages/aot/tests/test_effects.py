"""Operators that are called for what they do stay, though nobody uses a result of theirs."""

from __future__ import annotations

from typing import Any

import flambeau_aot as aot
import pytest
import torch


def _targets(seen: list[Any]) -> list[str]:
    return [str(node.target) for gm in seen for node in gm.graph.nodes]


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("solve", [torch.linalg.inv, torch.linalg.cholesky])
def test_a_check_of_the_library_raises_as_in_eager(solve: Any, grad: bool) -> None:
    seen: list[Any] = []

    def compiler(gm: Any, inputs: Any, info: Any) -> Any:
        seen.append(gm)
        return aot.boxed(gm)

    fn = aot.aot_function(lambda x: solve(x) * 2, compiler)
    good = (torch.eye(3) * 2).requires_grad_(grad)
    torch.testing.assert_close(fn(good), solve(good) * 2)
    assert "aten._linalg_check_errors.default" in _targets(seen)
    bad = torch.zeros(3, 3).requires_grad_(grad)
    with pytest.raises(torch.linalg.LinAlgError) as expected:
        solve(bad)
    with pytest.raises(torch.linalg.LinAlgError) as raised:
        fn(bad)
    assert str(raised.value) == str(expected.value)


def test_an_assertion_of_the_program_stays() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        torch._assert_async((x > 0).all(), "x is positive")
        return x.log()

    compiled = aot.aot_function(fn, lambda gm, inputs, info: aot.boxed(gm))
    x = torch.rand(4) + 1
    torch.testing.assert_close(compiled(x), x.log())
    with pytest.raises(RuntimeError, match="x is positive"):
        compiled(-x)


def test_a_written_input_that_has_become_a_leaf() -> None:
    def write(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)

    gm = torch.fx.symbolic_trace(write)
    compiled = aot.compile(gm, [torch.ones(3, requires_grad=True) * 1], aot.run_as_is)
    given = torch.ones(3, requires_grad=True) * 1
    assert torch.equal(compiled(given), torch.full((3,), 2.0))
    refused = []
    compiled.otherwise = lambda error: (refused.append(error), gm.forward)[1]
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        compiled(torch.ones(3, requires_grad=True))
    assert [error.id for error in refused] == ["AO0036"]
