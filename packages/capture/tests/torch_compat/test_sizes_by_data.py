"""Sizes that operators count, as the shape environment of a capture notes them."""

from __future__ import annotations

from typing import Any

import torch
from flambeau_capture import _torch_compat as compat
from flambeau_capture import optimize


def test_no_symbol_is_left_pending_for_torchs_own_tracers() -> None:
    left: list[list[Any]] = []
    sized_by_data = compat.sized_by_data

    def watched(mode: Any, wanted: bool) -> Any:
        left.append(list(getattr(mode.shape_env, "pending_fresh_unbacked_symbols", ())))
        return sized_by_data(mode, wanted)

    @optimize("eager", nopython=True)
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        places = torch.argwhere(x)
        return places, y.expand(3, 2) + places.shape[0]

    compat.sized_by_data = watched
    try:
        places, sums = f(torch.tensor([0.0, 1.0, 2.0]), torch.ones(2))
    finally:
        compat.sized_by_data = sized_by_data
    assert places.tolist() == [[1], [2]] and sums.tolist() == [[3.0, 3.0]] * 3
    assert len(left) > 2 and not any(left)
