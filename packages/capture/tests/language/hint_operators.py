"""Operators without a fake, with one, with a wrong one: once a process, whoever imports them."""

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


@torch.library.custom_op("flambeau_hints::wrongly", mutates_args=())
def wrongly(t: torch.Tensor) -> torch.Tensor:
    return t * 2


@torch.library.register_fake("flambeau_hints::wrongly")
def _(t):
    return torch.empty_like(t), None


LIBRARY = torch.library.Library("flambeau_hints", "FRAGMENT")  # its operators live as long as it
LIBRARY.define("thrice(Tensor t) -> Tensor")
LIBRARY.impl("thrice", lambda t: t * 3, "CPU")
