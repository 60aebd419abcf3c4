"""Arguments that are views of one tensor, one written to after the other was read: what was read
stays as it was, also where a kernel could write into memory that nobody reads any more."""

import pytest
import torch

import flambeau

VIEWS = {
    "rows": lambda base: base[1:],
    "columns": lambda base: base[..., ::2],
    "transposed": lambda base: base.t()[:3],
}


def program(x, y):
    read = y.to(torch.float64)
    x.abs_()
    y.ne_(read)
    return y


@pytest.mark.parametrize("one", VIEWS)
@pytest.mark.parametrize("other", VIEWS)
def test_what_was_read_is_kept(one, other):
    seen = []
    for run in (program, flambeau.compile(program, backend="inductor")):
        base = torch.tensor([-1.0, -3, 2, 3] * 3).reshape(3, 4)
        run(VIEWS[one](base), VIEWS[other](base))
        seen.append(base)
    assert torch.equal(*seen)
