"""Several results of one derivative, of which any may be read: eager's gradients."""

import itertools

import flambeau_aot as aot
import pytest
import torch

FUNCTIONS = {
    "slogdet": torch.linalg.slogdet,
    "slogdet of a batch": lambda x: torch.linalg.slogdet(x[None]),
    "qr": torch.linalg.qr,
    "eigh": torch.linalg.eigh,
    "lu": torch.linalg.lu,
    "var_mean": torch.var_mean,
    "std_mean of rows": lambda x: torch.std_mean(x, 0),
    "aminmax": lambda x: tuple(torch.aminmax(x)),
    "unbind": torch.unbind,
    "split": lambda x: x.split(1),
}


def gradient(run, chosen):
    x = torch.tensor([[4.0, 1, 0.5], [1, 3, 0.2], [0.5, 0.2, 2]], requires_grad=True)
    results = run(x)
    read = [results[at] for at in chosen if results[at].requires_grad]
    if read:
        torch.autograd.backward(read, [torch.full_like(each, 0.5) for each in read])
    return x.grad


@pytest.mark.parametrize("name", FUNCTIONS)
def test_whichever_results_are_read(name) -> None:
    fn = FUNCTIONS[name]
    compiled = aot.aot_function(fn, aot.run_as_is)
    places = range(len(fn(torch.eye(3))))
    for count in (1, 2):
        for chosen in itertools.combinations(places, count):
            expected, given = gradient(fn, chosen), gradient(compiled, chosen)
            assert (expected is None) == (given is None), chosen
            if expected is not None:
                torch.testing.assert_close(given, expected)
