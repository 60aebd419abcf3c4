"""Operators of torch's database in random chains, each result judged by itself.

In: chance. Out: a program of 1 to 14 statements, each one call. Invariant: every statement runs in
eager on the CPU, draws no random numbers and gives values that are defined.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
import warnings
from typing import Any

import torch
from flambeau_prims.sweep import database

from integration_tests.campaign.exactness import Overloads, seeded
from integration_tests.campaign.observing import Setting, namespace
from integration_tests.campaign.program import Call, Program

DTYPES = {
    torch.float32: 8, torch.float64: 3, torch.float16: 3, torch.bfloat16: 3, torch.int64: 3,
    torch.int32: 2, torch.int16: 2, torch.int8: 2, torch.uint8: 3, torch.bool: 3,
    torch.complex64: 2,
}  # fmt: skip
KINDS = {"normal": 9, "special": 4, "extreme": 2, "unit": 2, "positive": 2, "whole": 2}
LAYOUTS = {
    "dense": 8, "transposed": 3, "sliced": 2, "offset": 2, "expanded": 2, "overlapping": 1,
    "channels_last": 2,
}  # fmt: skip
MOST = 2_000
#: dtypes of arguments that name places: a library reads and writes where wrong pivots say
NAMING = (torch.int64, torch.int32)
UNDEFINED = (
    "empty",
    "resize",
    "record_stream",
    "set_",
    "data_ptr",
    "to_sparse",
    "sparse",
    "jiterator",
    "max_unpool",  # windows that overlap write one place from several: eager's threads race
)
SCALARS = (0, 1, -1, 2, 3, 0.5, -2.5, 1e-3, 255, 2**31, float("inf"), float("nan"), True, -0.0, 0.1)


class NoText(Exception):
    """A value that no expression makes."""


def pick(chance: random.Random, shares: dict[Any, int]) -> Any:
    return chance.choices([*shares], weights=[*shares.values()])[0]


def made(chance: random.Random, shape: Any, dtype: torch.dtype) -> str:
    """An expression for an input."""
    kind, layout = pick(chance, KINDS), pick(chance, LAYOUTS)
    return f"make({tuple(shape)}, {dtype}, {chance.randrange(1000)}, {kind!r}, {layout!r})"


@functools.cache
def labels() -> list[str]:
    """Names of the database that are called in text."""
    return [
        label
        for label, entry in database.by_name().items()
        if not any(word in entry.name for word in UNDEFINED) and spellings(entry)
    ]


@functools.cache
def elementary() -> list[str]:
    """Those that the database has as functions of elements or as reductions."""
    found = [label for label in labels() if not label.startswith("masked")]
    kinds = ("UnaryUfuncInfo", "BinaryUfuncInfo", "ReductionOpInfo")
    return [label for label in found if type(database.by_name()[label]).__name__ in kinds]


@functools.cache
def _spellings(name: str) -> tuple[str, ...]:
    value: Any = torch
    for part in name.split("."):
        value = getattr(value, part, None)
    found = [f"torch.{name}("] if callable(value) else []
    if callable(getattr(torch.Tensor, name, None)):
        found.append(f".{name}(")
    if callable(getattr(torch.Tensor, f"{name}_", None)) and name[:2] != "__":
        found.append(f".clone().{name}_(")
    return tuple(found)


def spellings(entry: Any) -> list[str]:
    """How an operation is called: `torch.f(`, `.f(` after its first argument, `.clone().f_(`."""
    names = (entry.name, *(str(alias) for alias in entry.aliases))
    return [spelling for name in names for spelling in _spellings(name)]


@functools.cache
def samples(label: str) -> tuple[torch.dtype, tuple[Any, ...]]:
    """Sample calls that the database has, and the dtype that they are of."""
    entry = database.by_name()[label]
    dtype = next((d for d in DTYPES if database.takes(entry, d)), torch.float32)
    torch.default_generator.manual_seed(0)
    made = itertools.islice(entry.sample_inputs_func(entry, "cpu", dtype, False), 12)
    found = [s for s in made if isinstance(s.input, torch.Tensor | list | tuple)]
    return dtype, tuple(s for s in found if _elements(s.input) <= MOST)


def _elements(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel()
    return sum(map(_elements, value)) if isinstance(value, list | tuple) else 0


class Drawing:
    """A program as it grows. space: what its statements gave in eager."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.space = namespace(Setting())
        self.inputs: dict[str, str] = {}
        self.body: list[str] = []
        self.values: list[str] = []
        self.dtypes: dict[torch.dtype, torch.dtype] = {}
        self.shapes: dict[torch.Size, torch.Size] = {}

    def input(self, text: str) -> str:
        """A new parameter, made by an expression."""
        name = f"x{len(self.inputs)}"
        self.space[name] = eval(text, self.space)
        self.inputs[name] = text
        return name

    def tensors(self) -> list[tuple[str, torch.Tensor]]:
        """All tensors there are, by the expression that reads them."""
        found = []
        for name in (*self.inputs, *self.values):
            value = self.space[name]
            if isinstance(value, torch.Tensor):
                found.append((name, value))
            elif isinstance(value, list | tuple):
                found += [
                    (f"{name}[{n}]", v) for n, v in enumerate(value) if isinstance(v, torch.Tensor)
                ]
        return found

    def like(self, t: torch.Tensor, same_shape: bool) -> str | None:
        """Something that is there and may stand for a tensor."""
        fits = [
            name for name, value in self.tensors()
            if (value.shape == t.shape or not same_shape)
            and (value.dtype == t.dtype or (not same_shape and self.chance.random() < 0.3))
        ]  # fmt: skip
        return self.chance.choice(fits) if fits else None

    def text(self, value: Any, first: bool = False) -> str:
        """An expression for an argument of a sample; tensors become inputs or what is there."""
        chance = self.chance
        if isinstance(value, torch.Tensor):
            if value.layout != torch.strided or value.is_quantized:
                raise NoText
            if first or value.dtype not in NAMING:
                shape = self.shapes.get(value.shape, value.shape)
                value = torch.empty(shape, dtype=self.dtypes.get(value.dtype, value.dtype))
                found = self.like(value, same_shape=not first or chance.random() < 0.3)
                if found and chance.random() < (0.85 if first else 0.6):
                    if first:
                        self.shapes = {value.shape: eval(found, self.space).shape}
                    return found
                if chance.random() < 0.08 and not first:
                    return self.constant(value)
                return self.input(made(chance, value.shape, value.dtype))
            if value.numel() > 64:
                raise NoText
            literal = f"torch.tensor({value.tolist()!r}, dtype={value.dtype}, device=DEVICE)"
            if value.numel() == 0:
                literal = f"torch.zeros({tuple(value.shape)}, dtype={value.dtype}, device=DEVICE)"
            form = chance.random()
            if form < 0.3:
                return literal
            if form < 0.45 and value.numel() and value.dim() and value.dtype == torch.int64:
                least = int(value.min())
                return (
                    f"torch.full({tuple(value.shape)}, {least}, dtype={value.dtype}, device=DEVICE)"
                )
            return self.input(literal)
        if value == "cpu" and isinstance(value, str):
            return "DEVICE"
        if isinstance(value, bool | int | type(None) | str | torch.dtype | torch.memory_format):
            return repr(value)
        if isinstance(value, float):
            if not first and chance.random() < 0.2:
                value = chance.choice(SCALARS)
            if isinstance(value, float) and not math.isfinite(value):
                return f"float('{value}')"
            return repr(value)
        if isinstance(value, complex):
            return repr(value)
        if isinstance(value, torch.device):
            return "DEVICE"
        if isinstance(value, torch.Size):
            return repr(tuple(value))
        if isinstance(value, slice):
            return (
                f"slice({self.text(value.start)}, {self.text(value.stop)}, {self.text(value.step)})"
            )
        if value is Ellipsis:
            return "..."
        if isinstance(value, list):
            return f"[{', '.join(map(self.text, value))}]"
        if type(value) is tuple:
            return f"({', '.join(map(self.text, value))}{',' if len(value) == 1 else ''})"
        raise NoText

    def constant(self, value: torch.Tensor) -> str:
        """A tensor that the program makes itself, mostly one value repeated."""
        form = self.chance.choice(("ones", "zeros", "expanded"))
        if form == "expanded" and value.dim():
            return f"torch.ones(1, dtype={value.dtype}, device=DEVICE).expand({tuple(value.shape)})"
        form = "ones" if form == "expanded" else form
        return f"torch.{form}({tuple(value.shape)}, dtype={value.dtype}, device=DEVICE)"

    def statement(self) -> bool:
        """Add one call, if what was drawn runs."""
        chance = self.chance
        label = chance.choice(elementary() if chance.random() < 0.6 else labels())
        entry = database.by_name()[label]
        dtype = pick(chance, DTYPES)
        if chance.random() < 0.6:
            present = [t.dtype for _, t in self.tensors()]
            dtype = chance.choice(present) if present else dtype
        if not database.takes(entry, dtype):
            dtype = next((d for d in DTYPES if database.takes(entry, d)), torch.float32)
        before = dict(self.inputs)
        try:
            of, found = samples(label)
            if not found:
                return False
            self.dtypes, self.shapes = {of: dtype}, {}
            text = self.called(entry, chance.choice(found))
            name = f"v{len(self.values)}"
            statement = f"{name} = {text}"
            noted = Overloads()
            torch.default_generator.manual_seed(0)
            copies = {k: v.clone() for k, v in self.tensors() if k in self.space}
            with noted:
                exec(statement, self.space)
            value = self.space[name]
            if not usable(value) or seeded(noted) or _written(copies, self.space):
                raise NoText
            if any("empty" in str(f) and "empty_like" not in str(f) for f in noted.called[-1:]):
                raise NoText
        except Exception:  # eager does not take it so: another is drawn
            for name in [n for n in self.inputs if n not in before]:
                del self.inputs[name]
            return False
        self.body.append(statement)
        self.values.append(name)
        return True

    def called(self, entry: Any, sample: Any) -> str:
        chance = self.chance
        if sample.kwargs.get("unsafe"):  # lengths that nothing checks: eager reads past the end
            raise NoText
        spelling = chance.choice(spellings(entry))
        first = self.text(sample.input, first=True)
        rest = [self.text(value) for value in sample.args]
        rest += [f"{key}={self.text(value)}" for key, value in sample.kwargs.items()]
        if spelling.startswith("torch."):
            if entry.supports_out and chance.random() < 0.06:
                plain = eval(f"{spelling}{', '.join([first, *rest])})", self.space)
                form = f"{tuple(plain.shape)}, dtype={plain.dtype}, device=DEVICE"
                rest.append(f"out=torch.zeros({form})")
            return f"{spelling}{', '.join([first, *rest])})"
        if not isinstance(sample.input, torch.Tensor):
            raise NoText
        return f"{first}{spelling}{', '.join(rest)})"


def _written(copies: dict[str, torch.Tensor], space: dict[str, Any]) -> bool:
    return any(
        not torch.equal(torch.nan_to_num(v) if v.dtype.is_floating_point else v,
                        torch.nan_to_num(space[k]) if v.dtype.is_floating_point else space[k])
        for k, v in copies.items()
        if isinstance(space[k], torch.Tensor) and space[k].shape == v.shape
    )  # fmt: skip


def usable(value: Any) -> bool:
    """Tensors of a moderate size, or a list or tuple of them."""
    if isinstance(value, torch.Tensor):
        return value.layout == torch.strided and value.numel() <= MOST and not value.is_quantized
    return isinstance(value, list | tuple) and bool(value) and all(
        isinstance(v, torch.Tensor) and usable(v) for v in value
    )  # fmt: skip


def draw(chance: random.Random) -> Program:
    """A program of one to fourteen operators, and two calls."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawing = Drawing(chance)
        wanted = chance.choice((1, 2, 3, 4, 5, 6, 8, 10, 14))
        for _ in range(6 * wanted + 10):
            if drawing.statement() and len(drawing.body) == wanted:
                break
        first = Call({name: drawing.inputs[name] for name in drawing.inputs})
        calls = [first]
        second = Call({name: again(chance, text) for name, text in drawing.inputs.items()})
        if chance.random() < 0.6 and runs(drawing.body, second):
            calls.append(second)
        longer = Call({name: grown(text) for name, text in drawing.inputs.items()})
        if chance.random() < 0.3 and longer != first and runs(drawing.body, longer):
            calls.append(longer)
    return Program(
        "operators", 0, tuple(drawing.body), tuple(drawing.values), tuple(calls), steps=True
    )


def again(chance: random.Random, text: str) -> str:
    """An input of the same kind with other values."""
    if not text.startswith("make("):
        return text
    head, _, rest = text.partition(", torch.")
    dtype, _, _, layout = rest[:-1].split(", ")
    return f"{head}, torch.{dtype}, {chance.randrange(1000)}, {pick(chance, KINDS)!r}, {layout})"


def grown(text: str) -> str:
    """An input that is longer by one where it has five elements."""
    if not text.startswith("make("):
        return text
    shape, _, rest = text[5:].partition("), ")
    return f"make({shape.replace('5', '6')}), {rest}"


def runs(body: list[str], call: Call) -> bool:
    """Whether eager takes these arguments."""
    space = namespace(Setting())
    try:
        for name, text in call.arguments.items():
            space[name] = eval(text, space)
        exec("\n".join(body), space)
    except Exception:
        return False
    return all(usable(v) for k, v in space.items() if k[:1] == "v" and k[1:].isdigit())
