"""Readers of the modes and defaults of thread and process, by name.

In: the state as it is. Out: `readers()`. Invariant: a reader changes nothing; its values compare
by `==`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

AUTOCAST_DEVICES = ("cpu", "cuda")


def readers() -> dict[str, Callable[[], Any]]:
    """Name of the state and the function that reads it. Torch is imported here, at first use."""
    import torch

    from flambeau_capture import _torch_compat as compat

    table: dict[str, Callable[[], Any]] = {
        "grad_mode": torch.is_grad_enabled,
        "inference_mode": torch.is_inference_mode_enabled,
        "torch_function": compat.torch_function_state,
        "torch_function_modes": compat.torch_function_modes,
        "default_dtype": torch.get_default_dtype,
        "deterministic": compat.deterministic_algorithms,
        "autocast_cache": torch.is_autocast_cache_enabled,
        "dispatch_keys": compat.dispatch_key_sets,
        "forward_ad": compat.forward_ad_level,
    }

    def autocast(device: str) -> tuple[bool, torch.dtype]:
        return torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)

    return table | {f"autocast_{name}": partial(autocast, name) for name in AUTOCAST_DEVICES}
