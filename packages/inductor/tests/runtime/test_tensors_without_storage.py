"""Tensors that have elements and no memory: their values are zeros inside of a graph, and a kernel
that is given one raises rather than read from address 0."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import Options
from torch import Tensor, fx


def zero(*shape: int) -> Tensor:
    """A zero tensor, as forward-mode differentiation makes them."""
    return torch._efficientzerotensor(shape)


READ: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "whole": lambda x, z: x * 2 + z,
    "part": lambda x, z: x[1:] + z[1:],
    "reduced": lambda x, z: (x + z).sum(-1),
    "turned": lambda x, z: (x.t() + z).softmax(0),
    "vectors": lambda x, z: torch.exp(x) * z,
}


@pytest.mark.parametrize("name", READ)
def test_an_input_without_memory_is_refused(name: str, tmp_path: Path) -> None:
    x, other = torch.randn(20, 20), torch.randn(20, 20)
    low = flambeau_prims.lower(fx.symbolic_trace(READ[name]), [x, other])
    options = Options(cache_dir=str(tmp_path), check_inputs=False)
    made = flambeau_inductor.compile(low, [x, other], options=options)
    with pytest.raises(RuntimeError, match="has elements, but no memory"):
        made([x, zero(20, 20)])
    torch.testing.assert_close(made([x, other])[0], READ[name](x, other))


def test_memory_of_no_elements_is_no_error(tmp_path: Path) -> None:
    def fn(x: Tensor, none: Tensor) -> Any:
        return torch.cat([x, none]) * 2, none.sum(0), none.exp()

    args = [torch.randn(3, 4), torch.empty(0, 4)]
    assert args[1].data_ptr() == 0
    low = flambeau_prims.lower(fx.symbolic_trace(fn), args)
    made = flambeau_inductor.compile(low, args, options=Options(cache_dir=str(tmp_path)))
    for got, want in zip(made(list(args)), fn(*args), strict=True):
        torch.testing.assert_close(got, want)


def test_zeros_that_a_graph_makes_without_memory(tmp_path: Path) -> None:
    def fn(x: Tensor) -> Any:
        z = torch.ops.aten._efficientzerotensor.default([20, 20])
        return x + z, (z * 3).sum(), x @ z

    x = torch.randn(20, 20)
    low = flambeau_prims.lower(fx.symbolic_trace(fn), [x])
    made = flambeau_inductor.compile(low, [x], options=Options(cache_dir=str(tmp_path)))
    assert not any("zerotensor" in name for name in made.report.externs)
    for got, want in zip(made([x]), fn(x), strict=True):
        torch.testing.assert_close(got, want + torch.zeros_like(want))


STORED: dict[str, Callable[[Tensor], Tensor]] = {
    "zeros": lambda x: zero(*x.shape),
    "negated": torch._neg_view,
    "conjugated": lambda x: torch.complex(x, x + 1).conj(),
    "imaginary": lambda x: torch.complex(x, x + 1).conj().imag,
}


@pytest.mark.parametrize("name", STORED)
def test_constants_are_read_as_their_elements(name: str, tmp_path: Path) -> None:
    """Not as what their memory holds, if there is any."""
    constant = STORED[name](torch.randn(20, 20))

    def plain(x: Tensor) -> Any:
        return x * constant, constant @ x, constant + 0

    x = torch.randn(20, 20).to(constant.dtype)
    low = flambeau_prims.lower(fx.symbolic_trace(plain), [x])
    made = flambeau_inductor.compile(low, [x], options=Options(cache_dir=str(tmp_path)))
    for got, want in zip(made([x]), plain(x), strict=True):
        torch.testing.assert_close(got, want + torch.zeros_like(want), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", STORED)
def test_inputs_that_are_no_plain_memory_are_refused(name: str, tmp_path: Path) -> None:
    given = STORED[name](torch.randn(20, 20))
    plain = torch.randn(20, 20).to(given.dtype)
    low = flambeau_prims.lower(fx.symbolic_trace(lambda x: x + 1), [plain])
    options = Options(cache_dir=str(tmp_path), check_inputs=True)
    made = flambeau_inductor.compile(low, [plain], options=options)
    with pytest.raises(ValueError, match="not plain memory"):
        made([given])
