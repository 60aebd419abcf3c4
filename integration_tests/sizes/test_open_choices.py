"""Slices that may be cut off, compiled: values, strides and gradients, forward and backward."""

import pytest
import torch

import flambeau

PROGRAMS = ["x[-5:] * 2", "x[:7].cumsum(0)", "x[3:-2] + x[:, :1].mean()", "x[-4:].softmax(0) @ x.T"]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("text", PROGRAMS)
def test_cut_off_or_not(text: str) -> None:
    program = eval(f"lambda x: ({text}, (x[1:, -6:].sin() ** 2).sum())")
    compiled = flambeau.compile(program)
    for size in (8, 9, 6, 12, 4, 7, 20, 5):
        one = torch.randn(size, size, requires_grad=True)
        other = one.detach().clone().requires_grad_()
        given, wanted = compiled(other), program(one)
        torch.testing.assert_close(given, wanted)
        assert given[0].stride() == wanted[0].stride()
        (given[0].sum() + given[1]).backward()
        (wanted[0].sum() + wanted[1]).backward()
        torch.testing.assert_close(other.grad, one.grad)
    report = flambeau.report(compiled)
    assert not report.faults and not report.breaks, report
    assert report.graphs <= 6, report
