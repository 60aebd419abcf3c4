"""`istft` in all its forms: eager's values, strides and gradients, and its check of the window."""

import itertools

import flambeau_aot as aot
import pytest
import torch

FORMS = [
    {"center": center, "normalized": normalized, "onesided": onesided, "length": length}
    for center, normalized, onesided, length in itertools.product(
        (True, False), (True, False), (True, False), (None, 24)
    )
]


def spectrum(form, *batch):
    """Of the form's number of frequencies; without `center` of a window without zeros."""
    count = 5 if form["onesided"] else 8
    return torch.randn(*batch, count, 16, dtype=torch.complex64)


@pytest.mark.parametrize("batch", [(), (2,)], ids=["one", "batch"])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(str, form.values())))
def test_values_and_gradients(form, batch):
    def fn(x, window):
        return torch.istft(x * 2, 8, 2, window=window, **form)

    given = spectrum(form, *batch), torch.hamming_window(8)
    results = []
    for run in (fn, aot.aot_function(fn, aot.run_as_is)):
        leaves = [each.clone().requires_grad_() for each in given]
        made = run(*leaves)
        made.square().sum().backward()
        results.append((made.detach(), *[leaf.grad for leaf in leaves]))
        assert made.stride() == results[0][0].stride()
    torch.testing.assert_close(results[1], results[0])


def test_a_window_that_leaves_elements_out_is_an_error_when_it_is_met():
    fn = aot.aot_function(lambda x, window: torch.istft(x, 8, window=window), aot.run_as_is)
    x = torch.randn(5, 16, dtype=torch.complex64)
    fn(x, torch.hann_window(8))
    with pytest.raises(RuntimeError, match="window overlap add min"):
        fn(x, torch.zeros(8))
