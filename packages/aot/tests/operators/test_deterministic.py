"""Programs under `torch.use_deterministic_algorithms`: eager's refusals and warnings are kept."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from flambeau_aot import Unsupported, aot_function, run_as_is
from flambeau_aot.intercept.eager_dtypes import _ANYWHERE, _ON_GPU, alerts
from torch._subclasses import FakeTensorMode

aten = torch.ops.aten
PLACES = torch.tensor([0, 0])


@pytest.fixture(autouse=True)
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


PROGRAMS = {
    "put": lambda x: x.clone().put_(PLACES, torch.ones(2)),
    "put, accumulated": lambda x: x.clone().put_(PLACES, torch.ones(2), accumulate=True),
    "max_unpool1d": lambda x: F.max_unpool1d(*F.max_pool1d(x[None], 2, return_indices=True), 2),
    "max_unpool2d": lambda x: F.max_unpool2d(
        *F.max_pool2d(x.reshape(1, 2, 2), 2, return_indices=True), 2
    ),
    "scatter_reduce": lambda x: x.scatter_reduce(0, PLACES, torch.ones(2), "prod"),
    "cumsum": lambda x: x.cumsum(0),
    "kthvalue": lambda x: x.kthvalue(2).values,
    "grid_sample": lambda x: F.grid_sample(
        x.reshape(1, 1, 2, 2), torch.zeros(1, 1, 1, 2), align_corners=False
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_eager_refuses_is_refused_and_nothing_else(name):
    program, x = PROGRAMS[name], torch.randn(4)
    compiled = aot_function(program, run_as_is)
    try:
        expected = program(x)
    except RuntimeError as error:
        assert "deterministic" in str(error)
        with pytest.raises(Unsupported, match="no deterministic implementation"):
            compiled(x)
    else:
        torch.testing.assert_close(compiled(x), expected)


def test_a_warning_alone_is_left_to_eager_too():
    torch.use_deterministic_algorithms(True, warn_only=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Unsupported, match="no deterministic implementation"):
            aot_function(PROGRAMS["put"], run_as_is)(torch.randn(4))


@pytest.mark.parametrize("name", sorted(_ANYWHERE | _ON_GPU))
def test_every_name_is_an_operators(name):
    assert hasattr(aten, name.removeprefix("aten::"))


def test_the_device_decides():
    with FakeTensorMode():
        for device, expected in (("cpu", False), ("cuda", True)):
            x = torch.empty(4, device=device)
            assert alerts(aten.cumsum.default, (x, 0), {}) is expected
            assert not alerts(aten.cumsum.default, (x.long(), 0), {})
            places = torch.empty(2, dtype=torch.int64, device=device)
            values = torch.empty(2, device=device)
            assert alerts(aten.put.default, (x, places, values), {})
            assert alerts(aten.put.default, (x, places, values, True), {}) is expected
