"""Programs of sizes, called with several shapes, under every mark and policy.

In: chance. Out: programs that compute with sizes, slice, pad, join and branch by them; each is
called with six pairs of shapes and an integer, its tensors marked as open, bounded or constant, by
marks or by policies, or padded, where a row of a result follows from no row behind it. Invariant:
arithmetic is of small whole numbers, so that all is compared to the bit; every statement
runs in eager for the first shapes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from integration_tests.campaign.families.operators import pick
from integration_tests.campaign.observing import Setting, namespace
from integration_tests.campaign.program import Call, Program

LENGTHS = {2: 2, 3: 3, 4: 3, 5: 3, 6: 2, 7: 2, 8: 2, 9: 1, 12: 1, 16: 1, 1: 2, 0: 1}
#: {n}: an integer, {c}: a small constant, {x}: a tensor of two dimensions or more, {y}: another
INTEGERS = (
    "{x}.shape[0]", "{x}.size(-1)", "len({x})", "{x}.numel()", "{x}.shape[0] - {x}.shape[-1]",
    "{n} // {c}", "{n} % {c}", "{n} * {c}", "{n} + {m}", "{n} - {m}", "{n} * {m} % 7",
    "max({n}, {m})", "min({n}, {m})", "max({n} - {c}, 0)", "abs({n} - {m})", "-{n} // {c}",
    "{n} if {n} > {c} else {m}", "{c} if {n} < {m} else {n}", "int({n} * 0.5)", "int({n} ** 0.5)",
    "({n} + {c} - 1) // {c} * {c}", "{n} + ({n} > {c})", "({n} == {m}) * {c}",
    "divmod({n}, {c})[1]",
    "{n} << 1", "{n} & 1", "round({n} / {c})", "sum({x}.shape)", "1 if {n} % 2 else 2",
    "{x}.shape[0] if {x}.shape[0] <= {x}.shape[-1] else {x}.shape[-1]", "{x}.stride(0)",
)  # fmt: skip
TENSORS = (
    "{x}[:{n}]", "{x}[{n}:]", "{x}[-{n}:]", "{x}[:, :{n}]", "{x}[..., -{c}:]", "{x}[{c}:{n}]",
    "{x}[::{c}]", "{x}.narrow(0, 0, min({n}, {x}.shape[0]) if {n} > 0 else 0)", "{x} * {n}",
    "{x} + torch.arange({x}.shape[-1])", "torch.arange({n} % 20)[:, None] * {x}[:1, :1]",
    "torch.zeros({x}.shape[0], {n} % 9)", "torch.full(({n} % 9, {x}.shape[-1]), {n})", "{x}.mT",
    "{x}.view(-1)[:, None]", "{x}.reshape(-1, {x}.shape[0])", "{x}.flatten()[None]",
    "torch.cat([{x}, {x}[:{n}]])", "torch.cat([{x}, {y}], -1)", "torch.cat([{x}, {y}.mT])",
    "torch.cat([{x}[:, :{c}], {y}[:, :{c}]])", "{x}.repeat({n} % 3 + 1, 1)", "{x} + {y}",
    "{x}[None].expand({n} % 4 + 1, -1, -1).sum(0)", "{x} @ {x}.mT % 9", "{x} @ {y}.mT % 9",
    "torch.nn.functional.pad({x}, (0, {n} % 4))", "torch.nn.functional.pad({x}, (1, 0, {c}, 0))",
    "torch.nn.functional.pad({x}, (0, {c} - {x}.shape[-1] % {c}))", "{x}.sum(0, keepdim=True)",
    "{x}.cumsum(0)", "{x}.amax(-1, keepdim=True)", "{x}.roll({n}, 0)", "{x}.flip(0)",
    "{x}.tril({n} - {c})", "torch.where(torch.arange({x}.shape[-1]) < {n}, {x}, 0)",
    "{x}.split({c})[0]", "{x}.chunk({c})[-1]", "torch.cat({x}.split({c})[::-1])",
    "torch.stack([{x}, {x}], 1).flatten(0, 1)", "{x}.sort(0, stable=True).values",
    "{x}.unfold(0, min({c}, {x}.shape[0]), 1).sum(-1)", "{x}.swapaxes(0, 1)",
    "{x}.index_select(0, torch.arange({c} - 1))",
    "{x}.clone().index_fill_(0, torch.arange({x}.shape[0] // 2), {n})", "{x}.squeeze(0)[None]",
    "{x}.diff(dim=0)", "{x}.broadcast_to({x}.shape)", "{x}.new_ones({x}.shape[::-1])", "{x}.T.T",
    "torch.eye({x}.shape[0]) @ {x}", "torch.ones_like({x})[: {n}] * {m}", "{x}.contiguous()",
    "{x}.unflatten(0, (-1, 1))[:, 0]", "{x}.topk(min({c}, {x}.shape[-1]), -1).values",
    "{x}.permute(1, 0).contiguous()", "{x}.diagonal()[None]", "{x}[{x}[:, 0] > 0]",
    "{x}[torch.arange({x}.shape[0] - 1, -1, -1)]", "{x}.count_nonzero(0)[None]", "{x}.clone()",
)  # fmt: skip
#: {v}: a new name
STATEMENTS = (
    "{v} = {x} + 1 if {n} > {c} else {x} - 1", "{v} = {x} if {n} >= {m} else {x}.flip(0)",
    "{v} = {x}.clone()\n{v}[{n}:] = {c}", "{v} = {x}.clone()\n{v}[:, : {c}] += {n}",
    "{v} = {x} * 1\nfor i in range({n} % 4):\n    {v} = {v} + i", "{v} = {x} + sum(range({n} % 5))",
    "{v} = {x}\nif {n} > {c}:\n    {v} = {v} * 2\nelse:\n    {v} = {v}[:{c}]",
    "{v} = {x}\nwhile {v}.shape[0] > {c}:\n    {v} = {v}[{v}.shape[0] // 2 :]",
    "torch._check({x}.shape[0] >= 0)\n{v} = {x}[: {x}.shape[0]]",
    "torch._check({x}.shape[0] > {c})\n{v} = {x}[{c}:]", "assert {n} > -50\n{v} = {x} - {n}",
    "torch._check({n} != 3, lambda: 'three')\n{v} = {x} + {n}",
    "torch._check_is_size({x}.shape[-1])\n{v} = {x}[..., : {c}]",
    "{v} = sum(row * k for k, row in enumerate({x}[: {c}]))[None] + {x}",
    "{v} = {x} + {{{n}: 1, {m}: 2}}[{n}]", "{v} = {x} * len(str({n}))",
    "{v} = {x} + (0, 1, 2)[{n} % 3]",
)  # fmt: skip
MARKS = (
    "dynamic", "maybe", "static", "maybe 1", "maybe 2 6", "maybe 3", "theirs", "unbacked",
    "maybe, static", "weak",
)  # fmt: skip


class Sizing:
    """A program as it grows."""

    def __init__(self, chance: random.Random, given: dict[str, str]) -> None:
        self.chance, self.space = chance, namespace(Setting())
        self.space |= {name: eval(text, self.space) for name, text in given.items()}
        self.body: list[str] = []
        self.numbers, self.tensors = ["k"], ["x", "y"]

    def form(self, text: str, name: str) -> str:
        choice = self.chance.choice
        n, m = choice([*self.numbers, "k"]), choice([*self.numbers, "3"])
        x, y = choice(self.tensors[-3:]), choice(self.tensors)
        return text.format(n=n, m=m, x=x, y=y, c=choice((1, 2, 3, 4, 5, 6, 8)), v=name)

    def statement(self) -> None:
        form, place = self.chance.random(), len(self.body)
        if form < 0.3:
            name, names = f"n{place}", self.numbers
            text = f"{name} = " + self.form(self.chance.choice(INTEGERS), name)
        else:
            name, names = f"v{place}", self.tensors
            chosen = STATEMENTS if form > 0.75 else TENSORS
            head = "" if form > 0.75 else f"{name} = "
            text = head + self.form(self.chance.choice(chosen), name)
        self.keep(text, name, names)

    def assign(self, form: str) -> None:
        """A statement that gives a tensor a name."""
        name = f"v{len(self.body)}"
        self.keep(f"{name} = " + self.form(form, name), name, self.tensors)

    def keep(self, text: str, name: str, names: list[str]) -> None:
        """A statement becomes part of the program where eager takes it."""
        try:
            exec(text, self.space)
            value = self.space[name]
            if isinstance(value, torch.Tensor):
                if value.dim() != 2 or value.numel() > 600 or not value.abs().max() < 1e5:
                    return
            elif type(value) is not int or abs(value) > 1000:
                return
        except Exception:  # eager does not take it so: another is drawn
            return
        self.body.append(text)
        names.append(name)


def _given(chance: random.Random, marks: Sequence[str], same: bool) -> dict[str, str]:
    rows, columns, more = (pick(chance, LENGTHS) for _ in range(3))
    found = {}
    layouts = ("dense", "dense", "dense", "transposed", "sliced")
    for name, shape in (("x", (rows, columns)), ("y", (rows if same else more, columns))):
        text = f"make({shape}, torch.float32, {chance.randrange(900)}, 'whole', "
        text += f"{chance.choice(layouts)!r})"
        found[name] = f"marked({text}, {[*marks]})" if marks else text
    return found | {"k": str(chance.choice((0, 1, 2, 3, 4, 5, 7, 10, -1)))}


#: each row of a result follows from the same row and those before it
BY_ROWS = (
    "{x} * {c}", "{x} + {y}", "{x} - {c}", "torch.where({x} > {y}, {x}, {y})", "{x}.relu()",
    "{x}.sort(-1, stable=True).values", "{x}.flip(-1)", "{x}.cumsum(-1) % 9", "{x}.cumsum(0) % 9",
    "{x} - {x}.amax(-1, keepdim=True)", "torch.cat([{x}, {y}[:, :1]], -1)", "{x}[:, :{c}]",
    "{x}.roll(1, -1)", "{x} @ torch.ones({x}.shape[-1], {c}) % 9", "{x}.cummax(0).values",
    "{x}[:, None].expand(-1, {c}, -1).sum(1)", "{x}.repeat(1, 2)", "{x}.sum(-1, keepdim=True)",
)  # fmt: skip
POLICIES = ("'open'", "'fixed'", "flambeau.Bucket()", "flambeau.Bucket()")
PADDED = ("flambeau.Bucket(pad={p})", "flambeau.PadTo({n}, {p})")


def _padded(chance: random.Random) -> Program:
    """A program of rows, both of whose arguments are padded."""
    first = {"x": "make((5, 4), torch.float32, 1, 'whole')"}
    growing = Sizing(chance, first | {"y": "make((5, 4), torch.float32, 2, 'whole')", "k": "3"})
    wanted = chance.choice((1, 2, 3, 5))
    for _ in range(12 * wanted):
        growing.assign(chance.choice(BY_ROWS))
        if len(growing.body) == wanted:
            break
    padding = chance.choice(PADDED).format(
        n=chance.choice((4, 8, 16)), p=chance.choice((0, -1, 2.5))
    )
    calls = tuple(Call(_given(chance, (), True)) for _ in range(6))
    sizes = f"{{'x': {{0: {padding}}}, 'y': {{0: {padding}}}}}"
    results = tuple(growing.tensors[-3:])
    return Program("sizes", 0, tuple(growing.body), results, calls, exact=True, sizes=sizes)


def _policies(chance: random.Random) -> str:
    parts = []
    for name in ("x", "y"):
        dims = [f"{dim}: {chance.choice(POLICIES)}" for dim in (0, -1) if chance.random() < 0.6]
        parts += [f"{name!r}: {{{', '.join(dims)}}}"] if dims else []
    return f"{{{', '.join(parts)}}}" if parts else ""


def draw(chance: random.Random) -> Program:
    """A program of one to eight statements, called with six pairs of shapes."""
    marks = [chance.choice(MARKS), chance.choice(MARKS)] if chance.random() < 0.7 else []
    same = chance.random() < 0.5
    first = {"x": "make((5, 4), torch.float32, 1, 'whole')"}
    first |= {"y": "make((5, 4), torch.float32, 2, 'whole')", "k": "3"}
    growing = Sizing(chance, first)
    wanted = chance.choice((1, 2, 3, 5, 8))
    for _ in range(12 * wanted):
        growing.statement()
        if len(growing.body) == wanted:
            break
    calls = [Call(_given(chance, marks, same)) for _ in range(6)]
    results = tuple(growing.tensors[-3:] + growing.numbers[-2:])
    dynamic = chance.choice((None, None, None, True, False))
    form = chance.random()
    if form < 0.15:
        return _padded(chance)
    sizes = _policies(chance) if form < 0.4 else ""
    return Program(
        "sizes", 0, tuple(growing.body), results, tuple(calls), exact=True, dynamic=dynamic,
        sizes=sizes,
    )  # fmt: skip
