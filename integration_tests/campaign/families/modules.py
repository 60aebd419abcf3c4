"""Modules of `torch.nn`, by torch's own database of their arguments, alone and in sequence.

In: chance. Out: programs that make one to three modules, call them in train and eval, step
optimizers, change what they hold. Invariant: values come from `filled`; a module that eager does
not take so is not drawn.
"""

from __future__ import annotations

import contextlib
import functools
import random
import sys
import types
import unittest
import warnings
from typing import Any

import torch

from integration_tests.campaign.observing import Setting, namespace
from integration_tests.campaign.program import Call, Program

NOT_WANTED = ("Lazy", "quantized")
FOLLOWERS = (
    "torch.nn.ReLU()", "torch.nn.GELU()", "torch.nn.Dropout(0.5)", "torch.nn.Dropout(0.0)",
    "torch.nn.Softmax(-1)", "torch.nn.Flatten()", "torch.nn.Tanh()", "torch.nn.Identity()",
    "torch.nn.LayerNorm({last})", "torch.nn.Linear({last}, 4)",
    "torch.nn.BatchNorm1d({second})", "torch.nn.BatchNorm2d({second})",
    "torch.nn.ReLU(inplace=True)", "torch.nn.LeakyReLU(0.1, inplace=True)", "torch.nn.PReLU()",
    "torch.nn.SiLU(inplace=True)", "torch.nn.Hardswish()", "torch.nn.GroupNorm(1, {second})",
    "torch.nn.RMSNorm({last})", "torch.nn.Unflatten(-1, (1, {last}))",
    "torch.nn.AlphaDropout(0.3)", "torch.nn.InstanceNorm1d({second})",
    "torch.nn.LocalResponseNorm(2)", "torch.nn.Mish()",
)  # fmt: skip
OPTIMIZERS = (
    "SGD(ps, lr=0.1)", "SGD(ps, lr=0.1, momentum=0.9, nesterov=True)", "Adam(ps, lr=0.01)",
    "AdamW(ps, lr=0.01, weight_decay=0.1)", "Adam(ps, lr=0.01, amsgrad=True, foreach=False)",
    "RMSprop(ps, lr=0.01, momentum=0.5)", "Adagrad(ps, lr=0.05)", "Adadelta(ps)", "Adamax(ps)",
    "NAdam(ps)", "RAdam(ps)", "Rprop(ps)", "ASGD(ps)", "SGD(ps, lr=0.1, foreach=True)",
)  # fmt: skip
CHANGES = (
    "model.eval()", "model.train()", "model.requires_grad_(False)",
    "model.requires_grad_(True)", "model.zero_grad()", "filled(model, 50)",
    "model.register_forward_hook(lambda m, a, o: LOG.append(type(m).__name__))",
    "for m in model.modules():\n    m.training = not m.training",
    "model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()})",
    "for p in model.parameters():\n    p.data = p.data * 0.5", "torch.set_grad_enabled(False)",
)  # fmt: skip


@functools.cache
def database() -> tuple[Any, ...]:
    """torch's modules; its file wants a package that only its tests use."""
    if "expecttest" not in sys.modules:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    from torch.testing._internal.common_modules import module_db  # seconds to import

    wanted = (
        info for info in module_db if info.module_cls.__module__.startswith("torch.nn.modules")
    )
    return tuple(i for i in wanted if not any(word in i.module_cls.__name__ for word in NOT_WANTED))


@functools.cache
def samples(number: int) -> tuple[Any, ...]:
    """Ways to make the module and to call it, by the database."""
    info = database()[number]
    torch.default_generator.manual_seed(0)
    found = []
    for training in (False,) if info.train_and_eval_differ is False else (True, False):
        made = info.module_inputs_func(info, "cpu", torch.float32, False, training)
        found += [(each, training) for each in list(made)[:12]]
    return tuple(found)


SQUARES = (
    "sum((o.float() * o.float()).sum() for o in (V if isinstance(V, (list, tuple)) else [V]) "
    "if isinstance(o, torch.Tensor))"
)


class NoText(Exception):
    """A value that no expression makes."""


def text_of(value: Any, chance: random.Random, inputs: dict[str, str] | None) -> str:
    """An expression; tensors become inputs, where they are taken."""
    if isinstance(value, torch.Tensor):
        if inputs is None or value.layout != torch.strided:
            raise NoText
        name = f"x{len(inputs)}"
        if value.dtype.is_floating_point:
            kind = (
                "positive"
                if value.numel() and float(value.min()) >= 0
                else chance.choice(("normal", "normal", "unit", "whole"))
            )
            layout = chance.choice(("dense", "dense", "transposed", "channels_last", "sliced"))
            form = f"torch.float32, {chance.randrange(90)}, {kind!r}, {layout!r}"
            inputs[name] = f"make({tuple(value.shape)}, {form})"
        elif value.numel() <= 100:
            form = f"torch.tensor({value.tolist()!r}, dtype={value.dtype}, device=DEVICE)"
            inputs[name] = f"{form}.reshape({tuple(value.shape)})"
        else:
            raise NoText
        return name
    if isinstance(value, torch.device) or value == "cpu":
        return "DEVICE"
    if isinstance(value, bool | int | float | str | type(None) | torch.dtype):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(text_of(v, chance, inputs) for v in value)}]"
    if type(value) in (tuple, torch.Size):
        listed = ", ".join(text_of(v, chance, inputs) for v in value)
        return f"({listed}{',' if len(value) == 1 else ''})"
    raise NoText


def given(
    each: Any, chance: random.Random, inputs: dict[str, str] | None, without: tuple[str, ...] = ()
) -> str:
    parts = [text_of(v, chance, inputs) for v in each.args]
    parts += [
        f"{k}={text_of(v, chance, inputs)}" for k, v in each.kwargs.items() if k not in without
    ]
    return ", ".join(parts)


def attempt(chance: random.Random) -> Program | None:
    """A program, if eager takes what was drawn."""
    number = chance.randrange(len(database()))
    info = database()[number]
    inputs: dict[str, str] = {}
    try:
        found = samples(number)
        sample, training = chance.choice(found)
        built = given(sample.constructor_input, chance, None, ("device", "dtype"))
        made = f"torch.nn.{info.module_cls.__name__}({built})"
        called = given(sample.forward_input, chance, inputs)
    except Exception:
        return None
    seed = chance.randrange(40)
    setup = [f"model = torch.nn.ModuleList([filled({made}, {seed})])"]
    setup.append(f"model.train({training})")
    body = [f"v0 = model[0]({called})"]
    space = namespace(Setting())
    try:
        for text in (*setup, *(f"{n} = {t}" for n, t in inputs.items()), *body):
            exec(text, space)
        value = space["v0"]
        follow = chance.choice((0, 0, 1, 1, 2, 3)) if isinstance(value, torch.Tensor) else 0
        for k in range(8 * follow):
            if len(body) > follow:
                break
            shape = value.shape
            form = chance.choice(FOLLOWERS).format(
                last=shape[-1] if shape else 1, second=shape[1] if len(shape) > 1 else 1
            )
            n = len(body)
            space["value"] = None
            with contextlib.suppress(Exception):  # one that does not take this result
                exec(f"extra = filled({form}, {seed + k})", space)
                exec(f"value = extra(v{n - 1}.clone())", space)
            if space["value"] is None:
                continue
            setup.append(f"model.append(filled({form}, {seed + k}))")
            body.append(f"v{n} = model[{n}](v{n - 1})")
            value = space[f"v{n}"] = space["value"]
    except Exception:
        return None
    last = f"v{len(body) - 1}"
    results = [last] + [f"v{n}" for n in range(len(body) - 1) if chance.random() < 0.2]
    after: list[str] = []
    inside = chance.random()
    flat = SQUARES.replace("V", last)
    trained = isinstance(value, torch.Tensor) and chance.random() < 0.6
    if trained:
        step = ""
        if chance.random() < 0.5:
            setup.append("ps = [p for p in model.parameters()]")
            setup.append(f"opt = torch.optim.{chance.choice(OPTIMIZERS)} if ps else None")
            step = "if opt is not None:\n    opt.step()\n    opt.zero_grad()"
        if inside < 0.25:
            body.append(f"loss = {flat}\nif loss.requires_grad:\n    loss.backward()")
            if step:
                body.append(step)
            results = [f"{r}.detach()" for r in results[:1]]
        else:
            after.append(
                f"loss = {SQUARES.replace('V', 'out[0]')}\n"
                "if loss.requires_grad:\n    loss.backward()"
            )
            after += [step] if step else []
            after.append("loss = loss.detach()")
    calls = []
    for k in range(chance.choice((1, 2, 2, 3))):
        before = [chance.choice(CHANGES)] if k and chance.random() < 0.5 else []
        arguments = {
            n: t.replace(", torch.float32, ", f", torch.float32, {k + 1}")
            for n, t in inputs.items()
        }
        if chance.random() < 0.3:
            arguments = {
                n: f"leaf({t})" if "torch.float32" in t and t.startswith("make") else t
                for n, t in arguments.items()
            }
        calls.append(Call(arguments, tuple(before), tuple(after)))
    return Program("modules", 0, tuple(body), tuple(results), tuple(calls), tuple(setup))


def draw(chance: random.Random) -> Program:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(50):
            program = attempt(chance)
            if program is not None:
                return program
    raise RuntimeError("no module was found that eager takes")
