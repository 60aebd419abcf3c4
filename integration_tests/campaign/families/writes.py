"""Views of inputs and of results, and writes through them.

In: chance. Out: programs whose arithmetic is exact, so that all is compared to the bit.
Invariant: which operators give views and which write is read from ATen's schemas.
"""

from __future__ import annotations

import contextlib
import functools
import random
import warnings
from typing import Any

import torch

from integration_tests.campaign.exactness import EXACT, Overloads, exact, seeded
from integration_tests.campaign.families.operators import pick
from integration_tests.campaign.observing import Setting, namespace
from integration_tests.campaign.program import Call, Program

DTYPES = {
    torch.float32: 8, torch.float64: 2, torch.int64: 3, torch.int32: 1, torch.bool: 1,
    torch.uint8: 1, torch.bfloat16: 1, torch.complex64: 1,
}  # fmt: skip
SHAPES = (
    (4,),
    (3, 4),
    (2, 3, 4),
    (1, 4),
    (4, 1),
    (2, 2),
    (),
    (0, 3),
    (1,),
    (6,),
    (2, 1, 3),
    (2, 2, 3, 1),
)
NOT_WANTED = (
    "resize", "set_", "sparse", "data", "as_strided_copy", "rename", "requires_grad", "_fw_",
    "nested", "swap", "names", "quant", "_reshape", "_neg_view", "lift", "record",
)  # fmt: skip
#: views that no method gives
VIEWS = (
    "{}[0]", "{}[..., 0]", "{}[1:]", "{}[:, None]", "{}[::2]", "{}[None]", "{}[-1]", "{}[...]",
    "{}.T", "{}.mT", "{}.H", "{}.mH", "{}.real", "{}.imag", "{}.data", "torch.view_as_real({})",
    "torch.view_as_complex({})", "{}.view(torch.int32)", "torch.conj({})",
)  # fmt: skip


@functools.cache
def methods() -> tuple[list[Any], list[Any]]:
    """Schemas of methods that give views, and of methods that write to their tensor."""
    views, writers = [], []
    for schema in torch._C._jit_get_all_schemas():
        name = schema.name.partition("::")[2]
        if schema.name[:6] != "aten::" or not hasattr(torch.Tensor, name):
            continue
        if any(word in name for word in NOT_WANTED) or not schema.arguments:
            continue
        first = schema.arguments[0]
        if str(first.type) != "Tensor" or first.alias_info is None:
            continue
        if first.alias_info.is_write:
            if name.endswith("_") and (name[:-1] in EXACT or name in EXACT):
                writers.append(schema)
        elif any(r.alias_info is not None for r in schema.returns):
            views.append(schema)
    key = lambda schema: str(schema)  # noqa: E731
    return sorted(views, key=key), sorted(writers, key=key)


class Writing:
    """A program as it grows."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.space = namespace(Setting())
        self.inputs: dict[str, str] = {}
        self.before: list[str] = []
        self.body: list[str] = []
        self.values: list[str] = []

    def run(self, text: str) -> bool:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            noted = Overloads()
            try:
                with noted:
                    exec(text, self.space)
            except Exception:
                return False
        value = self.space.get(text.partition(" = ")[0])
        operands = [t for t in self.space.values() if isinstance(t, torch.Tensor)]
        ok = exact(noted, operands) and not seeded(noted)
        return ok and not (isinstance(value, torch.Tensor) and value.numel() > 500)

    def tensors(self) -> list[str]:
        return [n for n in (*self.inputs, *self.values) if isinstance(self.space[n], torch.Tensor)]

    def any(self) -> str:
        return self.chance.choice(self.tensors())

    def start(self) -> None:
        chance = self.chance
        shape, dtype = chance.choice(SHAPES), pick(chance, DTYPES)
        base = f"base = make({shape}, {dtype}, {chance.randrange(100)}, 'whole')"
        grad = dtype.is_floating_point and chance.random() < 0.35
        if grad:
            base = base.replace("base = ", "base = leaf(") + ")"
        self.before.append(base)
        if grad:
            self.before.append(
                "base = base * 1" if chance.random() < 0.8 else "base = base.clone()"
            )
        for text in self.before:
            exec(text, self.space)
        forms = [
            *["base"] * 4, "base.t()" if len(shape) == 2 else "base", "base[...]", "base.view(-1)",
            "base.detach()", "base[1:]", "base.unsqueeze(0)", "base.expand(2, *base.shape)",
            "base.clone()", "base[..., ::2]", "base.flatten()[1:]",
        ]  # fmt: skip
        for _ in range(chance.choice((1, 1, 2, 2, 3))):
            text = chance.choice(forms)
            if chance.random() < 0.35:
                other = chance.choice((shape, *SHAPES))
                text = f"make({other}, {dtype}, {chance.randrange(100)}, 'whole')"
            with contextlib.suppress(Exception):  # a view that this shape has not
                self.space[f"x{len(self.inputs)}"] = eval(text, self.space)
            if f"x{len(self.inputs)}" not in self.space:
                continue
            self.inputs[f"x{len(self.inputs)}"] = text
        if not self.inputs:
            self.space["x0"] = self.space["base"]
            self.inputs["x0"] = "base"

    def argument(self, kind: str, name: str, of: torch.Tensor) -> str:
        """An expression for an argument of a schema."""
        chance = self.chance
        dim = of.dim()
        if kind == "Tensor":
            form = chance.random()
            if name in ("index", "indices"):
                size = max(1, of.shape[0] if dim else 1)
                entries = [chance.randrange(size) for _ in range(chance.choice((1, 2, 3)))]
                return f"torch.tensor({entries}, device=DEVICE)"
            if "mask" in name or name == "condition":
                return f"({self.any()} > 0)"
            if form < 0.6:
                return self.any()
            if form < 0.8:
                return f"torch.ones(1, dtype={of.dtype}, device=DEVICE).expand({tuple(of.shape)})"
            return f"torch.tensor({chance.choice((2, 3, 0))}, dtype={of.dtype}, device=DEVICE)"
        if "dtype" in name or kind == "Optional[ScalarType]":
            return str(of.dtype)
        if kind in ("int", "Optional[int]"):
            if "dim" in name or "axis" in name:
                return str(chance.randrange(-dim, dim) if dim else 0)
            return str(chance.choice((0, 1, 1, 2, 3, -1)))
        if kind in ("number", "float", "Optional[number]", "Optional[float]"):
            return str(chance.choice((2, 0, -1, 3, 1)))
        if kind == "bool":  # whoever reads what is copied without blocking has to wait himself
            return str(chance.random() < 0.5 and name != "non_blocking")
        if kind == "List[int]":
            if name in ("size", "shape"):
                sizes = [*of.shape]
                return chance.choice(
                    (str(sizes), "[-1]", str(sizes[::-1]), str([2, *sizes]), "[2, -1]")
                )
            if "dim" in name or name in ("source", "destination"):
                order = [*range(dim)]
                chance.shuffle(order)
                return str(order)
            if name == "stride":
                return str([*of.stride()][::-1])
            return str([chance.choice((0, 1, 2)) for _ in range(max(1, dim))])
        raise ValueError(kind)

    def call(self, schema: Any) -> str:
        target = self.any()
        of = self.space[target]
        name = schema.name.partition("::")[2]
        given = []
        for a in schema.arguments[1:]:
            if a.has_default_value() and self.chance.random() < 0.6:
                continue
            text = self.argument(str(a.type), a.name, of)
            given.append(
                f"{a.name}={text}"
                if a.kwarg_only or len(given) < len(schema.arguments) - 9
                else text
            )
        return f"{target}.{name}({', '.join(given)})"

    def step(self) -> None:
        chance = self.chance
        views, writers = methods()
        form = chance.random()
        name = f"v{len(self.values)}"
        try:
            if form < 0.3:
                text = f"{name} = {self.call(chance.choice(views))}"
            elif form < 0.4:
                text = f"{name} = {chance.choice(VIEWS).format(self.any())}"
            elif form < 0.7:
                text = self.call(chance.choice(writers))
                if chance.random() < 0.2:
                    text = f"{name} = {text}"
            elif form < 0.8:
                index = chance.choice(("[0]", "[..., 0]", "[1:]", "[::2]", "[-1]", "[...]"))
                value = chance.choice(
                    (self.any(), "2", f"{self.any()} + 1", f"{self.any()}{index}")
                )
                text = f"{self.any()}{index} {chance.choice(('=', '=', '+=', '*='))} {value}"
            elif form < 0.84:
                out = self.any()
                function = chance.choice(("add", "mul", "sub", "maximum"))
                text = f"torch.{function}({self.any()}, {self.any()}, out={out})"
            else:
                call = chance.choice((
                    "+ 1", "* 2", ".clone()", ".sum(0)", f"+ {self.any()}", f"* {self.any()}",
                    ".contiguous()", ".detach()", ".reshape(-1)", ".to(torch.float64)", ".add(1)",
                    "- 3",
                ))  # fmt: skip
                text = f"{name} = {self.any()} {call}".replace(" .", ".")
            if chance.random() < 0.08 and " = " not in text:
                text = f"with torch.no_grad():\n    {text}"
        except ValueError:
            return
        before = set(self.space)
        kept = {n: self.space[n] for n in self.tensors()}
        if self.run(text):
            self.body.append(text)
            if text.startswith(f"{name} = "):
                self.values.append(name)
        else:
            self.space.update(kept)
            for n in set(self.space) - before:
                del self.space[n]
            self.again()

    def again(self) -> None:
        """What failed may have written: the space is made anew."""
        self.space = namespace(Setting())
        for text in self.before:
            exec(text, self.space)
        for name, text in self.inputs.items():
            self.space[name] = eval(text, self.space)
        if self.body:
            exec("\n".join(self.body), self.space)


def draw(chance: random.Random) -> Program:
    """A program of two to ten statements, called twice or thrice."""
    w = Writing(chance)
    w.start()
    wanted = chance.randrange(2, 11)
    for _ in range(3 * wanted):
        w.step()
        if len(w.body) >= wanted:
            break
    names = [*w.inputs, *w.values]
    results = [n for n in names if chance.random() < 0.5] or names[-1:]
    if chance.random() < 0.1:
        results.append(results[0])
    after: tuple[str, ...] = ()
    if any("leaf(" in text for text in w.before):
        after = (
            "outs = [o for o in out if isinstance(o, torch.Tensor) and o.requires_grad]",
            "if outs:\n    sum(o.double().sum() * (n + 1) for n, o in enumerate(outs)).backward()",
            "base_grad = None",
        )
        w.before.insert(1, "root = base")
    calls = [Call(dict(w.inputs), tuple(w.before), after)]
    seeds = [text.replace(", 'whole'", " + 700, 'whole'") for text in w.before]
    if chance.random() < 0.6:
        calls.append(Call(dict(w.inputs), tuple(seeds), after))
    if chance.random() < 0.25:  # the same memory in another way
        other = {
            name: text.replace("base", "base.clone()") if n else text
            for n, (name, text) in enumerate(w.inputs.items())
        }
        calls.append(Call(other, tuple(w.before), after))
    return Program("writes", 0, tuple(w.body), tuple(results), tuple(calls), exact=not after)
