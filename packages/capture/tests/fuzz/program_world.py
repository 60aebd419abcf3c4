"""A program of modules, functions and containers, compiled, and ways to change what it reads.

In: a seed. Out: a `Program` and `CHANGES`. Invariant: after every change the compiled program and
the plain one give the same: result, `requires_grad`, or class of exception; a stale entry would
not.

    python packages/capture/tests/fuzz/program_world.py 2000 [seed]    # that many changes
"""

from __future__ import annotations

import dataclasses
import random
import sys
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


def _number(pick: random.Random) -> float:
    return pick.choice((0.5, 1.0, 1.25, 2.0, 3.5, -1.0))


@change
def scalar_attribute(p: Program, pick: random.Random) -> None:
    p.leaf(pick).scale = _number(pick)


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
    p.root.table[f"k{pick.randrange(3)}"] = _number(pick)


@change
def dict_entry_removed(p: Program, pick: random.Random) -> None:
    if len(p.root.table) > 1:
        del p.root.table[pick.choice(list(p.root.table))]


@change
def list_item(p: Program, pick: random.Random) -> None:
    p.leaf(pick).weights[0] = _number(pick)


@change
def list_longer(p: Program, pick: random.Random) -> None:
    p.leaf(pick).weights.append(_number(pick))


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
    leaf.__dict__ = {**leaf.__dict__, "scale": _number(pick)}


@change
def method_on_the_class(p: Program, pick: random.Random) -> None:
    gain = _number(pick)
    p.space["Leaf"].mix = lambda self, x: x * gain


@change
def method_on_the_instance(p: Program, pick: random.Random) -> None:
    gain = _number(pick)
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
def property_becomes_a_number(p: Program, pick: random.Random) -> None:
    p.space["Leaf"].gain = _number(pick)


@change
def class_attribute(p: Program, pick: random.Random) -> None:
    p.space["Plain"].factor = _number(pick)


@change
def instance_hides_class_attribute(p: Program, pick: random.Random) -> None:
    p.leaf(pick).plain.factor = _number(pick)


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
    p.space["CONSTANT"] = pick.choice((_number(pick), 1, True))


@change
def global_unread(p: Program, pick: random.Random) -> None:
    p.space["counter"] = p.space.get("counter", 0) + 1


@change
def global_function(p: Program, pick: random.Random) -> None:
    p.space["helper"] = _closed(_number(pick))


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
    p.space["helper"].__kwdefaults__ = {"offset": _number(pick)}


@change
def keyword_default_in_place(p: Program, pick: random.Random) -> None:
    if p.space["helper"].__kwdefaults__:
        p.space["helper"].__kwdefaults__["offset"] = _number(pick)


@change
def closure_cell(p: Program, pick: random.Random) -> None:
    p.space["closed"].__closure__[0].cell_contents = _number(pick)


@change
def builtin_hidden(p: Program, pick: random.Random) -> None:
    p.space["len"] = lambda x: 5


@change
def namespace_attribute(p: Program, pick: random.Random) -> None:
    p.space["space"].on = not p.space["space"].on
    p.space["space"].value = _number(pick)


@change
def dataclass_field(p: Program, pick: random.Random) -> None:
    config = p.root.config
    name = pick.choice(("gain", "steps", "mode"))
    values = {
        "gain": _number(pick),
        "steps": pick.randrange(4),
        "mode": pick.choice(("add", "sub")),
    }
    setattr(config, name, values[name])


@change
def dataclass_replaced(p: Program, pick: random.Random) -> None:
    p.root.config = dataclasses.replace(p.root.config, gain=_number(pick))


@change
def slot(p: Program, pick: random.Random) -> None:
    p.root.slotted.bias = pick.choice((_number(pick), 1))


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


def run(seed: int, changes: list[Change] | None = None, steps: int = 12) -> int:
    """Try one program; the number of changes made. Raises AssertionError at a stale answer."""
    pick = random.Random(seed)
    program = Program(seed)
    done = 0
    trail: list[str] = []
    try:
        for _ in range(3):  # what can be watched is watched by then
            wrong = program.agree()
            assert wrong is None, (seed, "before any change", wrong)
        for chosen in changes or [pick.choice(CHANGES) for _ in range(steps)]:
            try:
                chosen(program, pick)
            except (AttributeError, TypeError, RuntimeError, ValueError):
                continue  # earlier changes left nothing for it to change
            trail.append(chosen.__name__)
            done += 1
            for _ in range(pick.choice((1, 3))):
                wrong = program.agree()
                assert wrong is None, (seed, trail, wrong)
    finally:
        program.close()
    return done


def main(wanted: int, first: int = 0) -> None:
    """Try changes until that many were made; what disagrees is printed."""
    done, seed = 0, first
    wrong: list[AssertionError] = []
    while done < wanted:
        try:
            done += run(seed)
        except AssertionError as error:
            wrong.append(error)
            print(error, flush=True)
        seed += 1
    print(f"{done} changes in {seed - first} programs, {len(wrong)} stale answers")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:] or ["1000"]))
