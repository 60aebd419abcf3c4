"""Habits that read nn.Modules, torch's functions and torch's modes; see `habit`."""

from __future__ import annotations

import copy
import functools
import random
from types import SimpleNamespace
from typing import Any

import torch
from habit import Case, habit, x
from torch import nn
from torch.nn.modules import module as module_module


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("shift", torch.ones(4))
        self.gain = 1.5

    def forward(self, t: Any) -> Any:
        return self.linear(t) * self.gain + self.shift


def _tree() -> Any:
    torch.manual_seed(5)
    return nn.Sequential(Block(), nn.Tanh(), Block()).eval()


@habit
def tree_of_modules(pick: random.Random) -> Case:
    tree = _tree()
    start = copy.deepcopy(tree.state_dict())

    def fn(t: Any) -> Any:
        return tree(t)

    case = Case(fn, [x()])

    def one() -> Any:
        return pick.choice([m for m in tree.modules() if isinstance(m, Block)])

    def turned(m: Any) -> None:
        name = next(iter(m._modules))
        m._modules[name] = m._modules.pop(name)

    case.changes["order of modules"] = lambda: turned(tree)
    case.changes["module replaced"] = lambda: tree._modules.update({"1": pick.choice(
        (nn.Tanh(), nn.ReLU(), nn.Identity()))})  # fmt: skip
    case.changes["module added"] = lambda: tree.append(nn.Sigmoid())
    case.changes["module removed"] = lambda: tree.pop(len(tree) - 1) if len(tree) > 2 else None
    case.changes["gain"] = lambda: setattr(one(), "gain", pick.random())
    case.changes["hook"] = lambda: one().linear.register_forward_hook(lambda m, a, out: out + 1)
    case.changes["hook with keywords"] = lambda: one().register_forward_pre_hook(
        lambda m, args, kwargs: ((args[0] * 2,), kwargs), with_kwargs=True
    )
    case.changes["hooks gone"] = lambda: [
        (m._forward_hooks.clear(), m._forward_pre_hooks.clear()) for m in tree.modules()
    ]
    case.changes["backward hook"] = lambda: one().register_full_backward_hook(
        lambda m, grad_in, grad_out: None
    )
    case.changes["requires grad"] = lambda: one().linear.weight.requires_grad_(pick.random() < 0.5)
    case.changes["frozen"] = lambda: tree.requires_grad_(False)
    case.changes["same weight again"] = lambda: setattr(
        one().linear, "weight", nn.Parameter(one().linear.weight.detach().clone())
    )
    case.changes["weight of the same kind"] = lambda: setattr(
        one().linear, "weight", nn.Parameter(torch.randn(4, 4))
    )
    case.changes["tied"] = lambda: setattr(tree[0], "linear", tree[-1].linear) if isinstance(
        tree[0], Block) and isinstance(tree[-1], Block) else None  # fmt: skip
    case.changes["loaded"] = lambda: tree.load_state_dict(start, strict=False)
    case.changes["assigned"] = lambda: tree.load_state_dict(
        copy.deepcopy(start), strict=False, assign=True
    )
    case.changes["training"] = lambda: one().train(pick.random() < 0.5)
    case.changes["double"] = lambda: (tree.double(), case.own.__setitem__(0, x().double()))
    case.changes["float"] = lambda: (tree.float(), case.own.__setitem__(0, x()))
    case.changes["half of it double"] = lambda: tree[0].double()
    case.changes["buffer"] = lambda: setattr(one(), "shift", torch.randn(4))
    case.changes["buffer resized"] = lambda: one().shift.resize_(1).fill_(0.5)
    case.changes["buffer gone"] = lambda: one()._buffers.update(shift=None)
    case.changes["bias gone"] = lambda: one().linear._parameters.update(bias=None)
    case.changes["instance forward"] = lambda: setattr(one(), "forward", lambda t: t * 4)
    case.changes["instance forward gone"] = lambda: [
        vars(m).pop("forward", None) for m in tree.modules()
    ]
    case.changes["dict of modules"] = lambda: setattr(tree, "_modules", dict(tree._modules))
    case.changes["class"] = lambda: setattr(
        one(), "__class__", type("Second", (Block,), {"forward": lambda self, t: t - self.gain})
    )
    case.changes["parametrized"] = lambda: nn.utils.parametrizations.weight_norm(one().linear)
    return case


@habit
def hooks_of_all_modules(pick: random.Random) -> Case:
    tree = _tree()

    def fn(t: Any) -> Any:
        return tree(t)

    case = Case(fn, [x()])

    def register(make: Any) -> None:
        case.own_undo.append(make().remove)

    case.changes["forward"] = lambda: register(
        lambda: module_module.register_module_forward_hook(
            lambda m, a, out: out + 1 if isinstance(m, Block) else None
        )
    )
    case.changes["pre"] = lambda: register(
        lambda: module_module.register_module_forward_pre_hook(
            lambda m, a: (a[0] * 2,) if isinstance(m, nn.Tanh) else None
        )
    )
    case.changes["full backward"] = lambda: register(
        lambda: module_module.register_module_full_backward_hook(lambda m, gi, go: None)
    )
    case.changes["removed"] = lambda: [undo() for undo in case.own_undo]
    return case


@habit
def patched_call(pick: random.Random) -> Case:
    tree = _tree()

    def fn(t: Any) -> Any:
        return tree(t)

    case = Case(fn, [x()])
    plain_call, plain_linear = nn.Module.__call__, nn.Linear.forward
    plain_impl = nn.Module._call_impl
    case.changes["call"] = lambda: case.patch(
        nn.Module, "__call__", lambda self, *a, **k: plain_call(self, *a, **k) + 1
    )
    case.changes["call of a class"] = lambda: case.patch(
        nn.Tanh, "__call__", lambda self, t: plain_call(self, t) * 2
    )
    case.changes["call impl"] = lambda: case.patch(
        nn.Module, "_call_impl", lambda self, *a, **k: plain_impl(self, *a, **k) - 3
    )
    case.changes["forward of Linear"] = lambda: case.patch(
        nn.Linear, "forward", lambda self, t: plain_linear(self, t) * 3
    )
    case.changes["getattr"] = lambda: case.patch(
        Block, "__getattr__", lambda self, name: nn.Module.__getattr__(self, name)
    )
    case.changes["forward of Block"] = lambda: case.patch(Block, "forward", lambda self, t: t + 0.5)
    return case


@habit
def patched_functions(pick: random.Random) -> Case:
    def fn(t: Any) -> Any:
        t = torch.relu(t) + nn.functional.gelu(t)
        return t.sin() + torch.ones(4) + t.sum()

    case = Case(fn, [x()])
    case.changes["relu"] = lambda: case.patch(torch, "relu", lambda t: t * 5)
    case.changes["relu is another"] = lambda: case.patch(torch, "relu", torch.sigmoid)
    case.changes["gelu"] = lambda: case.patch(nn.functional, "gelu", lambda t: t - 5)
    case.changes["gelu is another"] = lambda: case.patch(nn.functional, "gelu", torch.tanh)
    case.changes["method"] = lambda: case.patch(torch.Tensor, "sin", lambda self: self * 7)
    case.changes["method is another"] = lambda: case.patch(torch.Tensor, "sin", torch.Tensor.cos)
    case.changes["ones"] = lambda: case.patch(torch, "ones", torch.zeros)
    case.changes["sum"] = lambda: case.patch(torch.Tensor, "sum", torch.Tensor.mean)
    case.changes["operator"] = lambda: case.patch(
        torch.Tensor, "__add__", lambda self, other: torch.sub(self, other)
    )
    return case


@habit
def modes_of_the_caller(pick: random.Random) -> Case:
    weight = torch.ones(4, 4, requires_grad=True)

    def fn(t: Any) -> Any:
        made = torch.ones(4) * 0.5
        return t @ weight + made, torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    case = Case(fn, [x()])

    def only(*modes: Any) -> Any:
        return lambda: case.own_modes.__setitem__(slice(None), list(modes))

    case.changes["none"] = only()
    case.changes["no grad"] = only(torch.no_grad)
    case.changes["inference"] = only(torch.inference_mode)
    case.changes["autocast"] = only(lambda: torch.autocast("cpu", torch.bfloat16))
    case.changes["autocast half"] = only(lambda: torch.autocast("cpu", torch.float16))
    case.changes["autocast off"] = only(lambda: torch.autocast("cpu", enabled=False))
    case.changes["autocast uncached"] = only(
        lambda: torch.autocast("cpu", torch.bfloat16, cache_enabled=False)
    )
    case.changes["both"] = only(torch.no_grad, lambda: torch.autocast("cpu", torch.bfloat16))
    case.changes["device"] = only(lambda: torch.device("meta"))
    case.changes["function mode"] = only(_Doubling)
    case.changes["disabled functions"] = only(torch._C.DisableTorchFunction)
    return case


class _Doubling(torch.overrides.TorchFunctionMode):
    """Whatever is made with ones is twice that."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        return out * 2 if func is torch.ones else out


@habit
def defaults_of_the_process(pick: random.Random) -> Case:
    def fn(t: Any) -> Any:
        made = torch.ones(4) + torch.tensor(0.5) + torch.arange(4) / 2
        return t * made, torch.get_default_dtype(), torch.get_num_threads()

    case = Case(fn, [x()])
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    case.own_undo += [
        lambda: torch.set_default_dtype(dtype),
        lambda: torch.set_num_threads(threads),
        lambda: torch.use_deterministic_algorithms(False),
        lambda: torch.set_default_device(None),
        lambda: torch.set_float32_matmul_precision("highest"),
    ]
    for other in (torch.float64, torch.float32, torch.float16):
        case.changes[f"dtype {other}"] = functools.partial(torch.set_default_dtype, other)
    case.changes["threads 1"] = lambda: torch.set_num_threads(1)
    case.changes["threads 2"] = lambda: torch.set_num_threads(2)
    case.changes["deterministic"] = lambda: torch.use_deterministic_algorithms(True)
    case.changes["not deterministic"] = lambda: torch.use_deterministic_algorithms(False)
    case.changes["warn only"] = lambda: torch.use_deterministic_algorithms(True, warn_only=True)
    case.changes["device"] = lambda: torch.set_default_device("meta")
    case.changes["no device"] = lambda: torch.set_default_device(None)
    return case


@habit
def flags_that_are_read(pick: random.Random) -> Case:
    def fn(t: Any) -> Any:
        t = t + 1 if torch.are_deterministic_algorithms_enabled() else t - 1
        t = t * 2 if torch.get_float32_matmul_precision() == "high" else t * 3
        t = t + 5 if torch.backends.mkldnn.enabled else t
        return t * 7 if torch.is_anomaly_enabled() else t, torch.is_autocast_enabled("cpu")

    case = Case(fn, [x()])
    case.own_undo += [
        lambda: torch.use_deterministic_algorithms(False),
        lambda: torch.set_float32_matmul_precision("highest"),
        lambda: torch.autograd.set_detect_anomaly(False),
        lambda: setattr(torch.backends.mkldnn, "enabled", True),
    ]
    case.changes["deterministic"] = lambda: torch.use_deterministic_algorithms(True)
    case.changes["not deterministic"] = lambda: torch.use_deterministic_algorithms(False)
    case.changes["high"] = lambda: torch.set_float32_matmul_precision("high")
    case.changes["highest"] = lambda: torch.set_float32_matmul_precision("highest")
    case.changes["anomaly"] = lambda: torch.autograd.set_detect_anomaly(True)
    case.changes["no anomaly"] = lambda: torch.autograd.set_detect_anomaly(False)
    case.changes["mkldnn off"] = lambda: setattr(torch.backends.mkldnn, "enabled", False)
    case.changes["mkldnn on"] = lambda: setattr(torch.backends.mkldnn, "enabled", True)
    case.changes["autocast"] = lambda: case.own_modes.__setitem__(
        slice(None), [lambda: torch.autocast("cpu", torch.bfloat16)]
    )
    case.changes["no autocast"] = case.own_modes.clear
    return case


@habit
def tensor_attributes(pick: random.Random) -> Case:
    weight = torch.ones(4)
    box = SimpleNamespace(weight=weight)

    def fn(t: Any) -> Any:
        t = t * getattr(box.weight, "gain", 2.0)
        return t + 1 if box.weight.grad is None else t + box.weight.grad

    case = Case(fn, [x()])
    case.changes["gain"] = lambda: setattr(box.weight, "gain", pick.random())
    case.changes["grad"] = lambda: setattr(box.weight, "grad", torch.randn(4))
    case.changes["no grad"] = lambda: setattr(box.weight, "grad", None)
    case.changes["grad in place"] = lambda: (
        box.weight.grad.add_(1) if box.weight.grad is not None else None
    )
    case.changes["other"] = lambda: setattr(box, "weight", torch.ones(4))
    return case


@habit
def random_state(pick: random.Random) -> Case:
    box = SimpleNamespace(p=0.5, training=True)

    def fn(t: Any) -> Any:
        return nn.functional.dropout(t, box.p, box.training) + torch.rand(4)

    case = Case(fn, [x()])
    for p in (0.0, 0.25, 0.5, 1.0):
        case.changes[f"p {p}"] = functools.partial(setattr, box, "p", p)
    case.changes["training"] = lambda: setattr(box, "training", not box.training)
    return case


@habit
def optimizer_settings(pick: random.Random) -> Case:
    weight = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def fn(t: Any) -> Any:
        group = optimizer.param_groups[0]
        return t * group["lr"] + (t * group["momentum"] if group["momentum"] else 0)

    case = Case(fn, [x()])
    group = optimizer.param_groups[0]
    case.changes["lr"] = lambda: group.update(lr=pick.random())
    case.changes["lr tensor"] = lambda: group.update(lr=torch.tensor(0.3))
    case.changes["momentum"] = lambda: group.update(momentum=pick.choice((0, 0.9)))
    case.changes["state"] = lambda: optimizer.load_state_dict(optimizer.state_dict())
    return case
