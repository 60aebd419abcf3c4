"""Open numbers that transforms of torch.func map over: each level wraps them as a tensor."""

import pytest
import torch

import flambeau

BODIES = {
    "scaled": lambda x, c: torch.tanh(x / c) * c,
    "powers": lambda x, c: x.abs() ** c + c**x,
    "double": lambda x, c: x.double() * c,
    "integers": lambda x, c: (x * 3).int() * c,
}


@pytest.mark.parametrize("body", BODIES)
def test_a_number_of_a_closure_under_two_vmaps(body):
    def mapped(x, function):
        return torch.vmap(torch.vmap(function))(x)

    compiled = flambeau.compile(mapped, backend="aot_eager", fullgraph=True)
    for c in (20.0, 5.0, 3.0):
        x = torch.arange(12.0).reshape(4, 3) / 4 - 1.1

        def function(each, c=c):
            return BODIES[body](each, c)

        torch.testing.assert_close(compiled(x, function), mapped(x, function))
    report = flambeau.report(compiled)
    assert (report.graphs, report.faults) == (2, ())
