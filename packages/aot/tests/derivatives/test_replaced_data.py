"""Inputs whose `.data` is assigned to between the call and the backward pass."""

from __future__ import annotations

from collections.abc import Callable

import flambeau_aot as aot
import pytest
import torch
import torch.nn.functional as F

SAVING: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "itself": lambda x, w: x * w,
    "a view": lambda x, w: x.view(-1) * w.view(-1),
    "a transposed view": lambda x, w: F.linear(w, x),
    "an alias": lambda x, w: x[:] * w,
    "a view that is read by another": lambda x, w: x.view(-1).sin() * w.view(-1),
    "a result": lambda x, w: x.exp() * w,
}


@pytest.mark.parametrize("name", SAVING)
def test_one_is_saved_as_eager_saves_it(name: str) -> None:
    """Itself, which has the new data, or a view, which has the memory that it was made of."""

    def gradient(call: Callable[..., torch.Tensor]) -> torch.Tensor | None:
        x, w = torch.arange(4.0).reshape(2, 2), torch.ones(2, 2, requires_grad=True)
        loss = call(x, w).sum()
        x.data = torch.full((2, 2), 100.0)
        loss.backward()
        return w.grad

    torch.testing.assert_close(
        gradient(aot.aot_function(SAVING[name], aot.run_as_is)), gradient(SAVING[name])
    )
