"""Operands of several dtypes: tensors, tensors without dimensions, numbers of Python.

In: chance. Out: operators of two or three operands on values of any dtypes and shapes that
broadcast, as functions, methods, in place, with `out=`; each result is judged by itself.
Invariant: every statement runs in eager on the CPU and writes to memory of its own alone.
"""

from __future__ import annotations

import functools
import random
import warnings

import torch
from flambeau_prims.sweep import database

from integration_tests.campaign.exactness import Overloads, seeded
from integration_tests.campaign.families.operators import labels, pick, usable
from integration_tests.campaign.observing import Setting, namespace
from integration_tests.campaign.program import Call, Program

DTYPES = {
    torch.float32: 5, torch.float64: 4, torch.float16: 3, torch.bfloat16: 3, torch.int64: 4,
    torch.int32: 3, torch.int16: 2, torch.int8: 2, torch.uint8: 3, torch.bool: 4,
    torch.complex64: 2, torch.complex128: 2,
}  # fmt: skip
SHAPES = {"()": 5, "(3,)": 3, "(2, 3)": 4, "(2, 1)": 2, "(1, 3)": 1, "(1,)": 2, "(0, 3)": 1}
NUMBERS = ("2", "0", "-1", "3", "0.5", "-2.5", "True", "False", "1.0", "7", "2 + 1j", "300", "1e-3")
#: {a}, {b}, {c}: operands; {o}: what is written; {d}: a dtype
THREE = (
    "torch.where({a} > 0, {b}, {c})", "torch.where({a} != {b}, {b}, {c})",
    "torch.addcmul({a}, {b}, {c})", "torch.addcmul({a}, {b}, {c}, value=2)",
    "torch.addcdiv({a}, {b}, {c})", "torch.lerp({a}, {b}, {c})", "torch.clamp({a}, {b}, {c})",
    "torch.clamp({a}, min={b})", "torch.add({a}, {b}, alpha=2)", "torch.sub({a}, {b}, alpha=3)",
    "torch.rsub({a}, {b})", "{a}.clone().copy_({b})", "{a}.masked_fill({b} != 0, {c})",
    "torch.stack([torch.as_tensor({a}), torch.as_tensor({a})])", "{a}.type_as({b}) * {c}",
    "torch.cat([{a}.reshape(-1), {b}.reshape(-1)])", "torch.addmm({a}, {b}.reshape(-1, 1),"
    " {c}.reshape(1, -1))", "torch.full((2,), {a})", "torch.full_like({a}, {b})",
    "torch.result_type({a}, {b}) == {c}.dtype", "torch.promote_types({a}.dtype, {b}.dtype)",
    "torch.can_cast({a}.dtype, {b}.dtype)", "{a}.new_tensor([1, 2]) * {b}",
    "torch.tensor([1.5, 2]) * {a}", "{a}.to({d}) + {b}", "torch.sum({a}, dtype={d}) * {b}",
    "{a}.sum() * {b}", "{a}.mean(dtype=torch.float64) + {b}", "torch.prod({a}) + {b}",
    "torch.cumsum({a}.reshape(-1), 0) - {b}", "torch.bucketize({a}, {b}.reshape(-1).sort()[0])",
    "torch.searchsorted({a}.reshape(-1).sort()[0], {b})", "torch.isin({a}, {b})",
    "torch.linspace({a}, 3, 4)" , "torch.ldexp({a}, {b})", "torch.float_power({a}, {b})",
    "torch.arange(4) * {a}", "{a}.clone().index_fill_(0, torch.tensor([0]), {b})",
    "{a}.clone().masked_fill_({b} > 0, {c})", "torch.maximum({a}, {b}) * {c}",
    "torch.fmod({a}, {b}) + {c}", "torch.complex({a}, {b})", "torch.polar({a}, {b})",
    "{a} // {b}", "{a} % {b}", "{a} ** {b}", "{a} & {b}", "{a} << {b}", "{a} == {b}", "{a} / {b}",
    "{a} - {b}", "~{a} | {b}", "-{a} * {b}", "abs({a}) + {b}", "divmod({a}, {b})[0]",
    "torch.view_as_real({a} * (1 + 1j)) * {b}", "({a} * 1j).real + {b}", "{a}.conj() * {b}",
)  # fmt: skip
PLACES = (
    "{o}.{n}_({b})", "torch.{n}({a}, {b}, out=torch.zeros((2, 3), dtype={d}, device=DEVICE))",
    "torch.{n}({a}, {b}, out=torch.zeros(0, dtype={d}, device=DEVICE))",
    "torch.{n}({a}, {b}, out=torch.zeros((3, 2), dtype={d}, device=DEVICE).T)",
)  # fmt: skip


@functools.cache
def binaries() -> list[str]:
    """Functions of two operands, by the database."""
    kinds = {n: type(e).__name__ for n, e in database.by_name().items()}
    names = {database.by_name()[n].name for n in labels() if kinds[n] == "BinaryUfuncInfo"}
    return sorted(n for n in names if callable(getattr(torch, n, None)))


class Mixing:
    """A program as it grows."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.space = chance, namespace(Setting())
        self.inputs: dict[str, str] = {}
        self.body: list[str] = []
        self.values: list[str] = []

    def operand(self, numbers: bool) -> str:
        """An input, a value of before, a number."""
        chance = self.chance
        form = chance.random()
        if numbers and form < 0.3:
            return f"({chance.choice(NUMBERS)})"
        if numbers and form < 0.36:
            return f"torch.tensor({chance.choice(NUMBERS)})"
        made = [v for v in self.values if isinstance(self.space[v], torch.Tensor)]
        if made and form < 0.5:
            return chance.choice(made)
        if self.inputs and (form < 0.75 or len(self.inputs) > 5):
            return chance.choice([*self.inputs])
        kind = chance.choice(("normal", "normal", "whole", "positive", "special"))
        layout = chance.choice(("dense", "dense", "transposed", "sliced", "expanded"))
        shape, dtype = pick(chance, SHAPES), pick(chance, DTYPES)
        name = f"x{len(self.inputs)}"
        text = f"make({shape}, {dtype}, {chance.randrange(900)}, {kind!r}, {layout!r})"
        self.inputs[name], self.space[name] = text, eval(text, self.space)
        return name

    def statement(self) -> None:
        chance, before = self.chance, dict(self.inputs)
        name = f"v{len(self.values)}"
        a, b, c = self.operand(False), self.operand(True), self.operand(True)
        if chance.random() < 0.2:
            a, b = b, a
        form, n = chance.random(), chance.choice(binaries())
        if form < 0.4:
            text = f"torch.{n}({a}, {b})"
        elif form < 0.55:
            text = chance.choice(PLACES)
        else:
            text = chance.choice(THREE)
        d, o = pick(chance, DTYPES), f"{a}.clone()"
        statement = f"{name} = " + text.format(a=a, b=b, c=c, d=d, o=o, n=n)
        noted = Overloads()
        try:
            with noted:
                exec(statement, self.space)
            if not usable(self.space[name]) or seeded(noted):
                raise ValueError(name)
        except Exception:  # eager does not take it so: another is drawn
            for new in set(self.inputs) - set(before):
                del self.inputs[new]
            return
        self.body.append(statement)
        self.values.append(name)


def draw(chance: random.Random) -> Program:
    """A program of one to ten operators, called once or twice."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mixing = Mixing(chance)
        wanted = chance.choice((1, 2, 4, 6, 10))
        for _ in range(12 * wanted + 20):
            mixing.statement()
            if len(mixing.body) == wanted:
                break
    used = mixing.inputs or {"x0": "make((2,), torch.float32, 1)"}
    calls = [Call(used)] * chance.choice((1, 1, 2))
    return Program(
        "promotion", 0, tuple(mixing.body), tuple(mixing.values), tuple(calls), steps=True
    )
