"""Programs that are compiled while `torch.autograd.detect_anomaly` watches."""

import warnings

import pytest
import torch
from flambeau_aot import aot_function, run_as_is


@pytest.mark.parametrize("check_nan", [True, False])
def test_a_program_is_traced_under_anomaly_mode(check_nan):
    x = torch.randn(3, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "Anomaly Detection has been enabled")
        with torch.autograd.detect_anomaly(check_nan=check_nan):
            aot_function(lambda x: (x.sin() * 2).exp().sum(), run_as_is)(x).backward()
            assert torch.is_anomaly_enabled()
    got, x.grad = x.grad, None
    (x.sin() * 2).exp().sum().backward()
    torch.testing.assert_close(got, x.grad)


def test_a_nan_is_still_found():
    x = torch.zeros(2, requires_grad=True)
    compiled = aot_function(lambda x: x.sqrt() * 0, run_as_is)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="nan values"):
            compiled(x).sum().backward()
