"""Fills whose number is a tensor of no dimension: torch reads it, a graph has the tensor."""

import pytest
import torch

FORMS = {
    "full": lambda x, t, **given: torch.full((3, 2), t, **given),
    "full_like": lambda x, t, **given: torch.full_like(x, t, **given),
    "new_full": lambda x, t, **given: x.new_full([2, 3], t, **given),
}


@pytest.fixture(params=FORMS)
def form(request):
    return FORMS[request.param]


@pytest.mark.parametrize("given", [{}, {"dtype": torch.float64}, {"dtype": torch.int32}])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16])
def test_one_graph_for_any_number(capture, backend, form, kind, given):
    compiled = capture(lambda x, t: form(x, t, **given) * 2)
    x = torch.ones(2, 3).t()
    for number in (2.5, -1.25):
        t = torch.tensor(number, dtype=kind)
        got, wanted = compiled(x, t), form(x, t, **given) * 2
        assert (got.dtype, got.stride()) == (wanted.dtype, wanted.stride())
        assert torch.equal(got, wanted)
    assert len(backend) == 1
    assert "fill_" in str(backend.operations())


def test_a_number_that_requires_grad_is_refused_as_in_eager(capture, form):
    x, t = torch.ones(2, 3), torch.tensor(2.0, requires_grad=True)
    for fn in (form, capture(form)):
        with pytest.raises(TypeError):
            fn(x, t)


def test_a_size_that_is_no_sequence_is_refused_as_in_eager(capture):
    def fill(t):
        return torch.full(3, t)

    for fn in (fill, capture(fill)):
        with pytest.raises(TypeError):
            fn(torch.tensor(2.0))
