"""Habits that read numbers, containers, enums and globals; see `habit`."""

from __future__ import annotations

import enum
import functools
import math
import random
from collections import OrderedDict, defaultdict, deque
from types import SimpleNamespace
from typing import Any

import torch
from habit import Case, habit, x

NUMBERS: tuple[Any, ...] = (0, 1, 2, 3, -1, True, False, 0.0, -0.0, 1.0, 1.5, 2.5, 7.25, math.nan,
                            math.inf, -math.inf, 2**40, 1e-30)  # fmt: skip


class Whole(int):
    """An int of another class, which says so."""

    def __repr__(self) -> str:
        return f"Whole({int(self)})"

    def __mul__(self, other: Any) -> Any:
        return other * (int(self) + 100)

    __rmul__ = __mul__


@habit
def number_in_an_object(pick: random.Random) -> Case:
    box = SimpleNamespace(n=1)

    def fn(t: Any) -> Any:
        return t * box.n, str(box.n), type(box.n).__name__

    case = Case(fn, [x()])
    for number, value in enumerate((*NUMBERS, Whole(1), Whole(3))):
        case.changes[f"n{number}"] = functools.partial(setattr, box, "n", value)
    return case


@habit
def number_argument(pick: random.Random) -> Case:
    def fn(t: Any, n: Any) -> Any:
        if n:
            t = t + 1
        return t * n if n != 2 else t - n

    case = Case(fn, [x(), 1])
    for number, value in enumerate((*NUMBERS, Whole(1), Whole(3))):
        case.changes[f"n{number}"] = functools.partial(case.own.__setitem__, 1, value)
    return case


@habit
def divided_by_a_number(pick: random.Random) -> Case:
    def fn(t: Any, n: Any) -> Any:
        return t / n + math.copysign(1.0, n) + (n < 0.5) + (n == n)

    case = Case(fn, [x(), 1.5])
    for number, value in enumerate(NUMBERS):
        case.changes[f"n{number}"] = functools.partial(case.own.__setitem__, 1, value)
    return case


@habit
def float_that_varies(pick: random.Random) -> Case:
    box = {"lr": 0.5, "step": 1}

    def fn(t: Any) -> Any:
        lr = box["lr"] / (1 + 0.1 * box["step"])
        return t * lr if lr > 0.2 else t - lr

    case = Case(fn, [x()])

    @case.change
    def next_step() -> None:
        box["step"] += 1

    @case.change
    def smaller() -> None:
        box["lr"] *= 0.7

    @case.change
    def not_a_number() -> None:
        box["lr"] = math.nan

    @case.change
    def negative_zero() -> None:
        box["lr"] = -0.0

    @case.change
    def whole() -> None:
        box["lr"] = 1

    @case.change
    def a_tensor() -> None:
        box["lr"] = torch.tensor(0.25)  # type: ignore[assignment]

    return case


@habit
def set_of_names(pick: random.Random) -> Case:
    names = {"a", "b"}

    def fn(t: Any) -> Any:
        return (t + len(names)) * (2 if "c" in names else 3)

    case = Case(fn, [x()])
    for name in "abcd":
        case.changes[f"add {name}"] = functools.partial(names.add, name)
        case.changes[f"discard {name}"] = functools.partial(names.discard, name)
    return case


@habit
def order_of_a_dict(pick: random.Random) -> Case:
    table: dict[str, float] = {"a": 1.0, "b": 2.0, "c": 3.0}

    def fn(t: Any) -> Any:
        for key, value in table.items():
            t = t * value + ord(key)
        return t

    case = Case(fn, [x()])
    for key in "abcd":
        case.changes[f"last {key}"] = lambda key=key: table.update({key: table.pop(key, 4.0)})
        case.changes[f"gone {key}"] = lambda key=key: table.pop(key, None)
        case.changes[f"other {key}"] = lambda key=key: table.update({key: pick.random()})
    return case


@habit
def nested_containers(pick: random.Random) -> Case:
    data: dict[Any, Any] = {"a": [1, (2, [3.0])], 1: deque([1, 2]), "d": defaultdict(int)}

    def fn(t: Any) -> Any:
        t = t + data["a"][1][1][0] + data["a"][0]
        return t * sum(data[1]) + data["d"].get("k", 5)

    case = Case(fn, [x()])
    case.changes["inner"] = lambda: data["a"][1][1].__setitem__(0, pick.random())
    case.changes["inner longer"] = lambda: data["a"][1][1].insert(0, 9.0)
    case.changes["tuple"] = lambda: data["a"].__setitem__(1, (2, [4.0]))
    case.changes["deque"] = lambda: data[1].append(3)
    case.changes["deque turned"] = lambda: data[1].rotate(1)
    case.changes["default"] = lambda: data["d"].__getitem__("k")
    case.changes["same again"] = lambda: data.update(a=list(data["a"]))
    case.changes["key of other kind"] = lambda: data.update({True: deque([7])})
    return case


@habit
def ordered_dict(pick: random.Random) -> Case:
    table = OrderedDict(a=1.0, b=2.0)

    def fn(t: Any) -> Any:
        first = next(iter(table))
        return t * table[first] - len(first) + list(table).index("a")

    case = Case(fn, [x()])
    case.changes["turned"] = lambda: table.move_to_end(next(iter(table)))
    case.changes["value"] = lambda: table.update(a=pick.random())
    case.changes["longer name first"] = lambda: (
        table.update(long=3.0), table.move_to_end("long", last=False)
    )  # fmt: skip
    return case


@habit
def list_in_a_closure(pick: random.Random) -> Case:
    items: list[Any] = [1.0, 2.0]

    def fn(t: Any) -> Any:
        for item in items:
            t = t + item
        return t if items else t - 1

    case = Case(fn, [x()])
    case.changes["append"] = lambda: items.append(pick.random())
    case.changes["pop"] = lambda: items and items.pop()
    case.changes["reverse"] = items.reverse
    case.changes["clear"] = items.clear
    case.changes["tensor"] = lambda: items.append(torch.ones(4) * pick.random())
    case.changes["nested"] = lambda: items.append(True)
    return case


class Mode(enum.Enum):
    ADD = 1
    SUB = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


class Flags(enum.Flag):
    A = 1
    B = 2


@habit
def enum_members(pick: random.Random) -> Case:
    box = SimpleNamespace(mode=Mode.ADD, level=Level.LOW, flags=Flags.A)

    def fn(t: Any) -> Any:
        t = t + 1 if box.mode is Mode.ADD else t - 1
        t = t * box.level
        return t + 3 if Flags.B in box.flags else t, box.mode.name

    case = Case(fn, [x()])
    values: dict[str, tuple[Any, ...]] = {
        "mode": (Mode.ADD, Mode.SUB),
        "level": (Level.LOW, Level.HIGH, 1, 5, True),
        "flags": (Flags.A, Flags.B, Flags.A | Flags.B),
    }
    for name, choices in values.items():
        for value in choices:
            case.changes[f"{name} {value!r}"] = functools.partial(setattr, box, name, value)
    case.changes["value of a member"] = lambda: case.patch(Mode.ADD, "_value_", 7)
    return case


@habit
def names_of_strings(pick: random.Random) -> Case:
    box = SimpleNamespace(kind="relu", part="x")

    def fn(t: Any) -> Any:
        return getattr(torch, box.kind)(t) if box.kind.startswith("r") else t + len(box.part)

    case = Case(fn, [x()])
    for kind in ("relu", "rsqrt", "sin", "re" + "lu"):
        case.changes[f"kind {kind}"] = functools.partial(setattr, box, "kind", kind)
    case.changes["part"] = lambda: setattr(box, "part", str(box.part) + "y")
    case.changes["bytes"] = lambda: setattr(box, "part", "xyz".encode("utf-16"))
    return case


@habit
def arguments_of_other_sizes(pick: random.Random) -> Case:
    def fn(t: Any, u: Any) -> Any:
        if t.shape[0] > 4:
            t = t[:4] * t.shape[0]
        return t.sum() * u.shape[-1] + (1 if t is u else 0) + t.stride(0) + u.dim()

    first = x()
    case = Case(fn, [first, first])
    for size in (0, 1, 2, 4, 5, 9):
        case.changes[f"t of {size}"] = lambda size=size: case.own.__setitem__(0, torch.ones(size))
        case.changes[f"u of {size}"] = lambda size=size: case.own.__setitem__(
            1, torch.ones(2, size)
        )
    case.changes["the same"] = lambda: case.own.__setitem__(1, case.own[0])
    case.changes["strided"] = lambda: case.own.__setitem__(0, torch.arange(12.0)[::3])
    case.changes["expanded"] = lambda: case.own.__setitem__(0, torch.ones(1).expand(4))
    return case


@habit
def metadata_of_an_argument(pick: random.Random) -> Case:
    def fn(t: Any) -> Any:
        return t * 2 + t.is_contiguous() + t.element_size() + (3 if t.requires_grad else 0)

    case = Case(fn, [x()])

    def put(make: Any) -> Any:
        return lambda: case.own.__setitem__(0, make(case.own[0].detach().clone()))

    for dtype in (torch.float64, torch.float16, torch.int64, torch.bool, torch.complex64):
        case.changes[f"to {dtype}"] = put(lambda t, d=dtype: t.to(d))
    case.changes["requires grad"] = put(lambda t: t.float().requires_grad_())
    case.changes["a parameter"] = put(lambda t: torch.nn.Parameter(t.float()))
    case.changes["conjugated"] = put(lambda t: t.to(torch.complex64).conj())
    case.changes["negative"] = put(lambda t: torch.imag(t.to(torch.complex64).conj()))
    case.changes["resized"] = lambda: case.own[0].requires_grad or case.own[0].resize_(2).fill_(1)
    case.changes["of two dims"] = put(lambda t: t.reshape(1, -1))
    case.changes["transposed"] = put(lambda t: torch.ones(2, 3).t())
    case.changes["a number"] = lambda: case.own.__setitem__(0, torch.tensor(2.5))
    case.changes["inference"] = put(lambda t: _inferred(t))
    case.changes["view of"] = put(lambda t: torch.cat((t.flatten(), t.flatten()))[2:])
    return case


def _inferred(t: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return t.float() + 1


@habit
def tensors_that_overlap(pick: random.Random) -> Case:
    base = torch.zeros(8)

    def fn(a: Any, b: Any) -> Any:
        a.add_(1)
        return b * 2 + a

    case = Case(fn, [base[:4], base[4:]])
    case.before = lambda: base.copy_(torch.arange(8.0, device="cpu"))  # type: ignore[assignment]
    case.changes["overlapping"] = lambda: case.own.__setitem__(1, base[2:6])
    case.changes["apart"] = lambda: case.own.__setitem__(1, base[4:])
    case.changes["same"] = lambda: case.own.__setitem__(1, case.own[0])
    case.changes["equal views"] = lambda: case.own.__setitem__(1, base[:4])
    case.changes["own memory"] = lambda: case.own.__setitem__(1, torch.ones(4))
    return case


@habit
def global_tensor(pick: random.Random) -> Case:
    box = SimpleNamespace(weight=torch.ones(4))

    def fn(t: Any) -> Any:
        return t * box.weight + box.weight.dim()

    case = Case(fn, [x()])

    def put(make: Any) -> Any:
        return lambda: setattr(box, "weight", make(box.weight.detach()))

    case.changes["new of the same kind"] = put(lambda w: torch.randn(4))
    case.changes["in place"] = lambda: box.weight.detach().mul_(1.5)
    case.changes["requires grad"] = put(lambda w: w.clone().requires_grad_())
    case.changes["double"] = put(lambda w: w.double())
    case.changes["one"] = put(lambda w: torch.ones(1))
    case.changes["rows"] = put(lambda w: torch.ones(3, 4))
    case.changes["data"] = lambda: setattr(box.weight, "data", torch.randn(4))
    case.changes["the input"] = lambda: setattr(box, "weight", case.own[0])
    case.changes["a float"] = lambda: (
        setattr(box, "weight", torch.ones(4))
        or setattr(box, "weight", torch.nn.Parameter(torch.randn(4)))
    )
    return case
