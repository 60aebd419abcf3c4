"""Operators without a fake and with one, defined once a process whoever imports the hints."""

import torch


@torch.library.custom_op("flambeau_hints::twice", mutates_args=())
def twice(t: torch.Tensor) -> torch.Tensor:
    return t * 2


@torch.library.custom_op("flambeau_hints::doubled", mutates_args=())
def doubled(t: torch.Tensor) -> torch.Tensor:
    return t * 2


@torch.library.register_fake("flambeau_hints::doubled")
def _(t):
    return torch.empty_like(t)


LIBRARY = torch.library.Library("flambeau_hints", "FRAGMENT")  # its operators live as long as it
LIBRARY.define("thrice(Tensor t) -> Tensor")
LIBRARY.impl("thrice", lambda t: t * 3, "CPU")
