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


#: tensors of one element that sizes alone decide, and those that data decides, too
BY_SIZES = {
    "torch.ones(n, n).triu(1).eq(torch.ones(n, n).triu(1)).all()": 2,
    "torch.arange(n).sum() > 60": 2,
    "(torch.full((n,), float(n)) * 2 == 2 * n).any()": 2,
    "(torch.arange(n) == places).all()": 8,
    "(torch.zeros(n) + x[:, 0] > 0).all()": 8,
    "torch.zeros(n).copy_(x[:, 0]).sum() > 0": 8,
}


@pytest.mark.parametrize(("text", "most"), BY_SIZES.items(), ids=range(len(BY_SIZES)))
def test_branches_by_tensors_that_sizes_decide(text: str, most: int) -> None:
    names = {"torch": torch}
    exec(f"def program(x, places):\n n = len(x)\n if {text}: return x.sin()\n return x * 2", names)
    program = names["program"]
    compiled = flambeau.compile(program, backend="aot_eager")
    for size in (5, 7, 9, 12, 13, 6, 20, 4):
        x, places = torch.randn(size, 3), torch.arange(size) + size % 2
        torch.testing.assert_close(compiled(x, places), program(x, places))
    report = flambeau.report(compiled)
    assert report.graphs <= most, report
    assert most > 2 or not report.breaks, report
