"""Operators that the program defines itself, through `torch.library`.

In: chance. Out: programs that define one to three operators with random signatures and call them on
views, on the same tensor twice, on lists and on None. Invariant: arithmetic is exact; what an
operator gives back is new memory, as the documentation demands.
"""

from __future__ import annotations

import random

from integration_tests.campaign.program import Call, Program, tried

KINDS = {
    "Tensor": "torch.Tensor", "Tensor?": "Optional[torch.Tensor]", "Tensor[]": "List[torch.Tensor]",
    "int": "int", "float": "float", "bool": "bool", "int[]": "List[int]", "str": "str",
}  # fmt: skip
WRITES = {
    "Tensor": ("{n}.add_(1)", "{n}.mul_(2)", "{n}.zero_()", "{n}.copy_({n} + 3)", "{n}.neg_()"),
    "Tensor?": ("if {n} is not None:\n    {n}.add_(2)",),
    "Tensor[]": (
        "for k, each in enumerate({n}):\n    each.add_(k + 1)",
        "for each in {n}:\n    each.mul_(2)",
    ),
}
READS = {
    "Tensor": "total = total + {n}.sum()",
    "Tensor?": "total = total + (0 if {n} is None else {n}.sum())",
    "Tensor[]": "total = total + sum(each.sum() for each in {n})", "int": "total = total + {n}",
    "float": "total = total + {n}", "bool": "total = total + int({n})",
    "int[]": "total = total + sum({n})", "str": "total = total + len({n})",
}  # fmt: skip
RESULTS = {
    "None": (
        "None", "",
    ),
    "Tensor": (
        "torch.Tensor", "return total * torch.ones_like({a})",
    ),
    "Tensor ": (
        "torch.Tensor", "return {a} * 2 + total",
    ),
    "pair": (
        "Tuple[torch.Tensor, torch.Tensor]", "return {a} * 2, total * torch.ones_like({a})",
    ),
    "list": (
        "List[torch.Tensor]", "return [{a} + 1, {a} * 3]",
    ),
    "sum": (
        "torch.Tensor", "return torch.stack([total])",  # no view: writes to one are refused
    ),
    "t": (  # no view, of which eager raises where it is written to
        "torch.Tensor",
        "return ({a} + 1).t().contiguous().t().clone() if {a}.dim() == 2 else {a} + 1",
    ),
}  # fmt: skip
#: a fake lays its results out as the operator does, dimensions of one too
FAKES = {
    "None": "return None", "Tensor": "return torch.empty_like({a})",
    "Tensor ": "return {a} * 2 + 0",
    "pair": "return {a} * 2, torch.empty_like({a})",
    "list": "return [{a} + 1, {a} * 3]",
    "sum": "return {a}.new_empty(1)",
    "t": "return ({a} + 1).t().contiguous().t().clone() if {a}.dim() == 2 else {a} + 1",
}  # fmt: skip


class Operator:
    """A signature and its definition."""

    def __init__(self, chance: random.Random, number: int) -> None:
        self.name = f"op{number}"
        self.kinds = ["Tensor", *(chance.choice([*KINDS]) for _ in range(chance.randrange(0, 4)))]
        self.names = [f"p{k}" for k in range(len(self.kinds))]
        able = [k for k, kind in enumerate(self.kinds) if kind in WRITES]
        self.written = [k for k in able if chance.random() < 0.45]
        self.result = (
            chance.choice([*RESULTS])
            if self.written
            else chance.choice([r for r in RESULTS if r != "None"])
        )
        self.autograd = (
            not self.written
            and self.result in ("Tensor", "Tensor ", "pair", "sum")
            and chance.random() < 0.6
        )

    def text(self, chance: random.Random) -> str:
        kind, answer = RESULTS[self.result]
        listed = ", ".join(f"{n}: {KINDS[k]}" for n, k in zip(self.names, self.kinds, strict=True))
        written = ", ".join(repr(self.names[k]) for k in self.written)
        lines = ["from typing import List, Optional, Tuple"]
        lines += [
            f'@torch.library.custom_op(f"{{WORLD}}::{self.name}", '
            f"mutates_args=({written}{',' if written else ''}))"
        ]
        lines += [f"def {self.name}({listed}) -> {kind}:"]
        inner = ["total = p0.new_zeros(())"]
        inner += [READS[k].format(n=n) for n, k in zip(self.names, self.kinds, strict=True)]
        inner += [
            chance.choice(WRITES[self.kinds[k]]).format(n=self.names[k]) for k in self.written
        ]
        inner += [answer.format(a="p0")] if answer else []
        lines += ["    " + text.replace("\n", "\n    ") for text in inner]
        if chance.random() < 0.9:
            lines += [
                f"@{self.name}.register_fake",
                f"def fake({', '.join(self.names)}):",
                f"    {FAKES[self.result].format(a='p0')}",
            ]
        if self.autograd:
            count = len(self.names)
            zeros = ", ".join(["None"] * (count - 1))
            grads = "g, h" if self.result == "pair" else "g"
            sums = "g * 2" if self.result != "sum" else "g.expand_as(ctx.saved_tensors[0]) * 1"
            if self.result == "pair":
                sums = "g * 2 + h"
            lines += [
                "def prepare(ctx, inputs, output):",
                "    ctx.save_for_backward(inputs[0])",
                f"def back(ctx, {grads}):",
            ]
            lines += [
                f"    return {sums}{', ' + zeros if zeros else ''}",
                f"{self.name}.register_autograd(back, setup_context=prepare)",
            ]
        return "\n".join(lines)

    def call(self, chance: random.Random, tensors: list[str]) -> str:
        def one() -> str:
            base = chance.choice(tensors)
            forms = (
                base,
                base,
                base,
                f"{base}[1:]",
                f"{base}[:-1]",
                f"{base}.t()",
                f"{base}[..., ::2]",
                f"{base} + 1",
                f"{base}[0]",
                f"{base}.view(-1)",
            )
            return chance.choice(forms)

        given = []
        for kind in self.kinds:
            given.append({
                "Tensor": one(), "Tensor?": chance.choice(("None", one())),
                "Tensor[]": f"[{', '.join(one() for _ in range(chance.randrange(0, 4)))}]",
                "int": str(chance.randrange(5)), "float": chance.choice(("1.5", "2.0")),
                "bool": str(chance.random() < 0.5), "int[]": chance.choice(("[1, 2]", "[]")),
                "str": "'ab'",
            }[kind])  # fmt: skip
        if chance.random() < 0.15:
            k = chance.randrange(len(given))
            given = [
                *given[:k],
                *(f"{n}={g}" for n, g in zip(self.names[k:], given[k:], strict=True)),
            ]
        called = self.name if chance.random() < 0.7 else f"getattr(torch.ops, WORLD).{self.name}"
        return f"{called}({', '.join(given)})"


def draw(chance: random.Random) -> Program:
    operators = [Operator(chance, k) for k in range(chance.choice((1, 1, 2, 3)))]
    setup = [each.text(chance) for each in operators]
    names, body = ["x0", "x1"], []
    for number in range(chance.randrange(1, 6)):
        n = f"v{number}"
        if chance.random() < 0.65 or not number:
            op = chance.choice(operators)
            text = op.call(chance, names)
            if op.result in ("pair", "list"):
                text = f"{n} = {text}[{chance.randrange(2)}]"
            elif op.result != "None":
                text = f"{n} = {text}"
        else:
            text = f"{n} = {chance.choice(names)} {chance.choice(('* 2', '+ 1', '- 1'))}"
            if chance.random() < 0.3:
                text = f"{chance.choice(names)}.{chance.choice(('add_(1)', 'mul_(2)'))}"
        body.append(text)
        if text.startswith(f"{n} = "):
            names.append(n)
    results = [n for n in names if chance.random() < 0.5] or [names[-1]]
    calls = []
    grads = chance.random() < 0.5
    for _ in range(chance.choice((1, 2, 2))):
        texts = [f"make((3, 4), torch.float32, {chance.randrange(90)}, 'whole')" for _ in range(2)]
        if grads and chance.random() < 0.8:
            texts[0] = f"leaf({texts[0]})" + chance.choice(("", ".mul(1)"))
        after = (
            "outs = [o for o in out if isinstance(o, torch.Tensor) and o.requires_grad]",
            "if outs:\n    weighed(outs).backward()",
            "del outs",
        )
        if not grads and chance.random() < 0.2:
            texts = ["base[1:]", "base[:-1]"]
            calls.append(
                Call(
                    {"x0": texts[0], "x1": texts[1]},
                    ("base = make((4, 4), torch.float32, 3, 'whole')",),
                )
            )
        else:
            calls.append(Call({"x0": texts[0], "x1": texts[1]}, (), after if grads else ()))
    if chance.random() < 0.12:  # a cell that is run again
        again = Operator(chance, 0).text(chance)
        calls.append(Call(calls[0].arguments, (tried(again), *calls[0].before), calls[0].after))
    return Program(
        "customops", 0, tuple(body), tuple(results), tuple(calls), tuple(setup), exact=True
    )
