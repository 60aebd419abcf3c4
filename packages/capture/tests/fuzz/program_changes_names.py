"""Ways to change the classes, functions, names, arguments and modes that a program reads; see
`fuzzed_program`."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import torch
from fuzzed_program import Program, _closed, change, number


@change
def method_on_the_class(p: Program, pick: random.Random) -> None:
    gain = number(pick)
    p.space["Leaf"].mix = lambda self, x: x * gain


@change
def method_on_the_instance(p: Program, pick: random.Random) -> None:
    gain = number(pick)
    p.leaf(pick).mix = lambda x: x * gain


@change
def forward_on_the_instance(p: Program, pick: random.Random) -> None:
    p.leaf(pick).forward = lambda x: x * 2


@change
def forward_on_the_class(p: Program, pick: random.Random) -> None:
    old = p.space["Leaf"].forward
    p.space["Leaf"].forward = lambda self, x: old(self, x) + 1


@change
def instance_attribute_deleted(p: Program, pick: random.Random) -> None:
    leaf = p.leaf(pick)
    for name in ("mix", "forward"):
        leaf.__dict__.pop(name, None)


@change
def property_replaced(p: Program, pick: random.Random) -> None:
    p.space["Leaf"].gain = property(lambda self: self.scale * 3)


@change
def property_becomes_anumber(p: Program, pick: random.Random) -> None:
    p.space["Leaf"].gain = number(pick)


@change
def class_attribute(p: Program, pick: random.Random) -> None:
    p.space["Plain"].factor = number(pick)


@change
def instance_hides_class_attribute(p: Program, pick: random.Random) -> None:
    p.leaf(pick).plain.factor = number(pick)


@change
def class_getattribute(p: Program, pick: random.Random) -> None:
    p.space["Plain"].__getattribute__ = lambda self, name: (
        7.0 if name == "factor" else object.__getattribute__(self, name)
    )


@change
def metaclass_attribute(p: Program, pick: random.Random) -> None:
    p.space["Meta"].factor = property(lambda cls: 100.0)


@change
def global_constant(p: Program, pick: random.Random) -> None:
    p.space["CONSTANT"] = pick.choice((number(pick), 1, True))


@change
def global_unread(p: Program, pick: random.Random) -> None:
    p.space["counter"] = p.space.get("counter", 0) + 1


@change
def global_function(p: Program, pick: random.Random) -> None:
    p.space["helper"] = _closed(number(pick))


@change
def code_of_a_function(p: Program, pick: random.Random) -> None:
    helper = p.space["helper"]
    if not helper.__code__.co_freevars:
        namespace: dict[str, Any] = {}
        exec("def helper(x, power=2, *, offset=0.5):\n    return x - power - offset", namespace)
        helper.__code__ = namespace["helper"].__code__


@change
def default_argument(p: Program, pick: random.Random) -> None:
    p.space["helper"].__defaults__ = (pick.choice((1, 2, 3)),)


@change
def keyword_default(p: Program, pick: random.Random) -> None:
    p.space["helper"].__kwdefaults__ = {"offset": number(pick)}


@change
def keyword_default_in_place(p: Program, pick: random.Random) -> None:
    if p.space["helper"].__kwdefaults__:
        p.space["helper"].__kwdefaults__["offset"] = number(pick)


@change
def closure_cell(p: Program, pick: random.Random) -> None:
    p.space["closed"].__closure__[0].cell_contents = number(pick)


@change
def builtin_hidden(p: Program, pick: random.Random) -> None:
    p.space["len"] = lambda x: 5


@change
def namespace_attribute(p: Program, pick: random.Random) -> None:
    p.space["space"].on = not p.space["space"].on
    p.space["space"].value = number(pick)


@change
def dataclass_field(p: Program, pick: random.Random) -> None:
    config = p.root.config
    name = pick.choice(("gain", "steps", "mode"))
    values = {"gain": number(pick), "steps": pick.randrange(4), "mode": pick.choice(("add", "sub"))}
    setattr(config, name, values[name])


@change
def dataclass_replaced(p: Program, pick: random.Random) -> None:
    p.root.config = dataclasses.replace(p.root.config, gain=number(pick))


@change
def slot(p: Program, pick: random.Random) -> None:
    p.root.slotted.bias = pick.choice((number(pick), 1))


@change
def input_size(p: Program, pick: random.Random) -> None:
    p.x = torch.randn(pick.choice((2, 4, 5, 7)), 3, dtype=p.x.dtype)


@change
def input_strides(p: Program, pick: random.Random) -> None:
    p.x = torch.randn(3, 4, dtype=p.x.dtype).t()


@change
def input_requires_grad(p: Program, pick: random.Random) -> None:
    p.x = p.x.detach().clone().requires_grad_(pick.random() < 0.5)


@change
def input_dtype(p: Program, pick: random.Random) -> None:
    p.x = p.x.detach().to(pick.choice((torch.float32, torch.float64)))


@change
def extra_argument(p: Program, pick: random.Random) -> None:
    p.extra = pick.choice((None, {"t": torch.randn(3), "n": 2}, {"t": torch.randn(1), "n": 2.5}))


@change
def item_of_an_argument(p: Program, pick: random.Random) -> None:
    if p.extra is not None:
        p.extra["n"] = pick.choice((1, 2, 3.0))


@change
def grad_mode(p: Program, pick: random.Random) -> None:
    p.grad = not p.grad


@change
def default_dtype(p: Program, pick: random.Random) -> None:
    before = torch.get_default_dtype()
    p.undo.append(lambda: torch.set_default_dtype(before))
    torch.set_default_dtype(pick.choice((torch.float32, torch.float64)))
