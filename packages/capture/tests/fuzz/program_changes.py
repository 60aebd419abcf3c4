"""Ways to change the modules, tensors and containers that a program reads; see `fuzzed_program`."""

from __future__ import annotations

import random

import torch
from fuzzed_program import Program, change, number
from torch import nn


@change
def scalar_attribute(p: Program, pick: random.Random) -> None:
    p.leaf(pick).scale = number(pick)


@change
def unread_attribute(p: Program, pick: random.Random) -> None:
    p.leaf(pick).calls = pick.random()


@change
def flag_in_dict(p: Program, pick: random.Random) -> None:
    flags = p.leaf(pick).flags
    name = pick.choice(("relu", "twice"))
    flags[name] = not flags[name]


@change
def dict_replaced(p: Program, pick: random.Random) -> None:
    p.leaf(pick).flags = {"relu": pick.random() < 0.5, "twice": True}


@change
def dict_of_other_order(p: Program, pick: random.Random) -> None:
    p.root.table.move_to_end(pick.choice(list(p.root.table)), last=pick.random() < 0.5)


@change
def dict_entry_added(p: Program, pick: random.Random) -> None:
    p.root.table[f"k{pick.randrange(3)}"] = number(pick)


@change
def dict_entry_removed(p: Program, pick: random.Random) -> None:
    if len(p.root.table) > 1:
        del p.root.table[pick.choice(list(p.root.table))]


@change
def list_item(p: Program, pick: random.Random) -> None:
    p.leaf(pick).weights[0] = number(pick)


@change
def list_longer(p: Program, pick: random.Random) -> None:
    p.leaf(pick).weights.append(number(pick))


@change
def list_shorter(p: Program, pick: random.Random) -> None:
    weights = p.leaf(pick).weights
    if len(weights) > 1:
        weights.pop()


@change
def training_of_all(p: Program, pick: random.Random) -> None:
    p.root.train(not p.root.training)


@change
def training_of_one(p: Program, pick: random.Random) -> None:
    module = pick.choice(list(p.root.modules()))
    module.training = not module.training


@change
def parameter_replaced(p: Program, pick: random.Random) -> None:
    linear = p.leaf(pick).linear
    linear.weight = nn.Parameter(torch.randn(3, 3), requires_grad=pick.random() < 0.5)


@change
def parameter_in_its_dict(p: Program, pick: random.Random) -> None:
    p.leaf(pick).linear._parameters["bias"] = pick.choice((None, nn.Parameter(torch.randn(3))))


@change
def parameter_data(p: Program, pick: random.Random) -> None:
    parameter = p.parameter(pick)
    parameter.data = torch.randn(parameter.shape)


@change
def parameter_in_place(p: Program, pick: random.Random) -> None:
    with torch.no_grad():
        p.parameter(pick).mul_(1.5)


@change
def parameter_of_other_dtype(p: Program, pick: random.Random) -> None:
    linear = p.leaf(pick).linear
    linear.weight.data = linear.weight.data.to(pick.choice((torch.float32, torch.float64)))


@change
def parameter_of_other_strides(p: Program, pick: random.Random) -> None:
    linear = p.leaf(pick).linear
    linear.weight.data = linear.weight.data.t()


@change
def parameter_requires_grad(p: Program, pick: random.Random) -> None:
    parameter = p.parameter(pick)
    parameter.requires_grad_(not parameter.requires_grad)


@change
def parameters_tied(p: Program, pick: random.Random) -> None:
    p.root.leaves[0].linear.weight = p.root.leaves[1].linear.weight


@change
def all_frozen(p: Program, pick: random.Random) -> None:
    p.root.requires_grad_(pick.random() < 0.5)


@change
def whole_tree_of_other_dtype(p: Program, pick: random.Random) -> None:
    dtype = pick.choice((torch.float64, torch.float32))
    p.root.to(dtype)
    p.x = p.x.to(dtype)


@change
def buffer_replaced(p: Program, pick: random.Random) -> None:
    p.leaf(pick).shift = pick.choice((torch.randn(3), torch.randn(1), torch.randn(4, 3)))


@change
def buffer_in_place(p: Program, pick: random.Random) -> None:
    p.leaf(pick).shift.add_(1.0)


@change
def buffer_resized(p: Program, pick: random.Random) -> None:
    p.leaf(pick).shift.resize_(pick.choice((1, 3))).fill_(0.5)


@change
def forward_hook(p: Program, pick: random.Random) -> None:
    pick.choice(list(p.root.modules())).register_forward_hook(lambda m, a, out: out * 1.5)


@change
def forward_pre_hook(p: Program, pick: random.Random) -> None:
    p.leaf(pick).register_forward_pre_hook(lambda m, a: (a[0] + 1,))


@change
def hooks_removed(p: Program, pick: random.Random) -> None:
    for module in p.root.modules():
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()


@change
def global_hook(p: Program, pick: random.Random) -> None:
    handle = nn.modules.module.register_module_forward_hook(
        lambda m, a, out: out + 1 if isinstance(m, nn.Linear) else None
    )
    p.undo.append(handle.remove)


@change
def submodule_replaced(p: Program, pick: random.Random) -> None:
    p.root.named[pick.choice(("a", "b"))] = pick.choice((nn.Linear(3, 3), nn.Tanh(), nn.Identity()))


@change
def submodule_added(p: Program, pick: random.Random) -> None:
    p.root.named[f"c{pick.randrange(2)}"] = nn.Tanh()


@change
def submodule_appended(p: Program, pick: random.Random) -> None:
    if len(p.root.leaves) < 4:
        p.root.leaves.append(p.space["Leaf"]())


@change
def submodule_removed(p: Program, pick: random.Random) -> None:
    if len(p.root.leaves) > 2:
        del p.root.leaves[-1]


@change
def class_of_a_module(p: Program, pick: random.Random) -> None:
    leaf = p.leaf(pick)

    class Other(type(leaf)):  # type: ignore[misc]
        def mix(self, x: torch.Tensor) -> torch.Tensor:
            return x - 3

    leaf.__class__ = Other


@change
def class_of_a_plain_object(p: Program, pick: random.Random) -> None:
    plain = p.leaf(pick).plain
    plain.__class__ = type("Other", (p.space["Plain"],), {"apply": lambda self, x: x + 9})


@change
def dict_of_a_module_replaced(p: Program, pick: random.Random) -> None:
    leaf = p.leaf(pick)
    leaf.__dict__ = {**leaf.__dict__, "scale": number(pick)}
