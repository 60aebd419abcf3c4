"""A program of modules, functions and containers, and what registers ways to change it.

In: a seed. Out: `Program`, which compares the compiled program with the plain one, and `change`,
which fills `CHANGES`. Invariant: a program makes everything it reads anew; `undo` takes back what
outlives it.
"""

from __future__ import annotations

import dataclasses
import random
from collections import OrderedDict
from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any

import torch
from torch import nn

Change = Callable[["Program", random.Random], Any]
CHANGES: list[Change] = []


def change(fn: Change) -> Change:
    CHANGES.append(fn)
    return fn


@dataclasses.dataclass
class Config:
    gain: float = 1.5
    steps: int = 2
    mode: str = "add"


class Slotted:
    __slots__ = ("bias",)

    def __init__(self) -> None:
        self.bias = 0.25


SOURCE = """
def helper(x, power=2, *, offset=0.5):
    return x ** power + offset

class Meta(type):
    pass

class Plain(metaclass=Meta):
    factor = 2.0
    def apply(self, x):
        return x * self.factor

class Leaf(nn.Module):
    kind = "leaf"
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("shift", torch.ones(3))
        self.scale = 1.25
        self.flags = {"relu": True, "twice": False}
        self.weights = [1.0, 2.0]
        self.plain = Plain()
    @property
    def gain(self):
        return self.scale * 2
    def mix(self, x):
        return x * self.gain
    def forward(self, x):
        y = self.linear(x) + self.shift
        if self.training:
            y = y * 0.5
        if self.flags["relu"]:
            y = y.relu()
        if self.flags["twice"]:
            y = y + y
        for weight in self.weights:
            y = y + weight
        return self.plain.apply(self.mix(y))

class Root(nn.Module):
    def __init__(self):
        super().__init__()
        self.leaves = nn.ModuleList([Leaf(), Leaf()])
        self.named = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Identity()})
        self.norm = nn.BatchNorm1d(3)
        self.config = config
        self.slotted = slotted
        self.table = OrderedDict(one=1.0, two=2.0)
    def forward(self, x, extra=None):
        for leaf in self.leaves:
            x = leaf(x)
        for name, module in self.named.items():
            x = module(x)
        x = self.norm(x) * self.config.gain
        for _ in range(self.config.steps):
            x = x + CONSTANT
        x = x - 1 if self.config.mode == "sub" else x + 1
        for key, value in self.table.items():
            x = x * value + len(key)
        if space.on:
            x = x * space.value
        x = helper(x) + closed(x) + self.slotted.bias
        if extra is not None:
            x = x + extra["t"] * extra["n"]
        return x
"""


def _closed(value: float) -> FunctionType:
    def closed(x: torch.Tensor) -> torch.Tensor:
        return x * value

    return closed


class Program:
    """A module tree and all that its code reads, in a namespace of its own."""

    def __init__(self, seed: int) -> None:
        from flambeau_capture import Options, optimize

        torch.manual_seed(seed)
        self.space: dict[str, Any] = {
            "nn": nn, "torch": torch, "OrderedDict": OrderedDict, "CONSTANT": 0.75,
            "config": Config(), "slotted": Slotted(), "space": SimpleNamespace(on=False, value=3.0),
            "closed": _closed(0.1), "__name__": "fuzzed",
        }  # fmt: skip
        exec(compile(SOURCE, f"<fuzzed {seed}>", "exec"), self.space)
        self.root = self.space["Root"]().eval()
        self.x = torch.randn(4, 3)
        self.extra: Any = None
        self.grad = True
        self.undo: list[Callable[[], Any]] = []
        options = Options(cache_size_limit=64, raise_internal_errors=True)
        self.compiled = optimize("eager", options=options)(self.root)

    def leaf(self, pick: random.Random) -> Any:
        found = [m for m in self.root.modules() if hasattr(m, "plain")]
        return pick.choice(found)

    def parameter(self, pick: random.Random) -> Any:
        return pick.choice(list(self.root.parameters()))

    def call(self, fn: Callable[..., Any]) -> Any:
        """The result, as something to compare; buffers are put back as they were."""
        before = {name: b.clone() for name, b in self.root.named_buffers()}
        try:
            with torch.set_grad_enabled(self.grad):
                out = fn(self.x, self.extra)
            answer: Any = (out.detach().clone(), out.requires_grad, out.dtype)
        except Exception as error:  # what the program raises is part of its behaviour
            answer = type(error).__name__
        after = {name: b.clone() for name, b in self.root.named_buffers()}
        with torch.no_grad():
            for name, buffer in self.root.named_buffers():
                if buffer.shape == before[name].shape:
                    buffer.copy_(before[name])
        return answer, after

    def agree(self) -> str | None:
        """None, or in what compiled and plain program differ."""
        plain, buffers = self.call(self.root)
        ours, our_buffers = self.call(self.compiled)
        if isinstance(plain, str) or isinstance(ours, str):
            return None if plain == ours else f"plain {plain}, compiled {ours}"
        if plain[1:] != ours[1:]:
            return f"plain {plain[1:]}, compiled {ours[1:]}"
        if not torch.allclose(plain[0], ours[0], rtol=1e-4, atol=1e-5, equal_nan=True):
            return f"values differ by {(plain[0] - ours[0]).abs().max()}"
        for name, buffer in buffers.items():
            if not torch.allclose(buffer, our_buffers[name], rtol=1e-4, equal_nan=True):
                return f"buffer {name} differs"
        return None

    def close(self) -> None:
        for undo in reversed(self.undo):
            undo()


def number(pick: random.Random) -> float:
    return pick.choice((0.5, 1.0, 1.25, 2.0, 3.5, -1.0))
