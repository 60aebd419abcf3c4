"""Random numbers from the program's generators.

In: calls such as `torch.randn(3, generator=g)` and `x.normal_(generator=g)`; `torch.Generator()`.
Out: a tensor that comes into the graph; a generator of the frame's own, which is its seed and what
was drawn from it since. Invariant: the generated code draws before it calls the graph, from the
program's own generator, in the program's order and in the mode of the program's line; so the
numbers, and the generator's state afterwards, are those of eager. A graph holds no generator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.source import Attr, CallResultSource, ConstantSource, Source
from flambeau_capture.values.base import Args, Kwargs, Tracer, Unreconstructible, Value, objects_of
from flambeau_capture.values.constant import Constant, constant_of, evaluate
from flambeau_capture.values.functions.call_rules import handles, knowing
from flambeau_capture.values.objects.opaque import OpaqueValue
from flambeau_capture.values.registry import itself, tracked, wraps_if
from flambeau_capture.values.tensors.graph_calls import graph_call, run_call
from flambeau_capture.values.tensors.tensor import TensorValue

LIKE = {"randn_like": "normal_", "rand_like": "uniform_"}
OF_DATA = ("bernoulli", "multinomial", "poisson")
FUNCTIONS: dict[str, Any] = {
    function.__name__: function
    for function in (
        torch.randn, torch.rand, torch.randint, torch.randperm, torch.normal, torch.randn_like,
        torch.rand_like, torch.bernoulli, torch.multinomial, torch.poisson,
    )
}  # fmt: skip
FILLED = (
    "normal_", "uniform_", "random_", "bernoulli_", "exponential_", "geometric_", "cauchy_",
    "log_normal_",
)  # fmt: skip


class GeneratorOfTensors(OpaqueValue):
    """A `torch.Generator`."""

    source: Source

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name == "device":
            return tx.wrap(self.real.device, Attr(self.source, "device"))
        return super().get_attr(tx, name)


_DRAWS = 4  # each is drawn again for those after it


class NewGenerator(GeneratorOfTensors):
    """One that the frame has made. `real`: one of its device, to ask."""

    built_once = True

    def __init__(self, device: Any) -> None:
        super().__init__(torch.Generator(device), None)  # type: ignore[arg-type]
        self.seed: int | None = None
        self.draws: list[tuple[Draw, tuple[Source, ...]]] = []

    def get_attr(self, tx: Tracer, name: str) -> Value:
        return Constant(self.real.device) if name == "device" else super().get_attr(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "initial_seed" and not (args or kwargs):
            made = torch.Generator(self.real.device)
            return Constant(made.initial_seed() if self.seed is None else self.seed)
        given = [*args, *kwargs.values()]
        if name != "manual_seed" or [arg.cls for arg in given] != [int] or {*kwargs} - {"seed"}:
            return super().call_method(tx, name, args, kwargs)
        self.seed = evaluate(tx, self.real.manual_seed, constant_of(given[0])).initial_seed()
        self.draws = []
        tx.heap.changed()
        return self

    def rebuild(self, writer: Any) -> None:
        with writer.building(self):
            if any(sources for _, sources in self.draws):
                raise Unreconstructible(self, f"{self.describe()}, which drew an open number")
            draws = tuple((draw, 0) for draw, _ in self.draws)
            device = Constant(self.real.device)
            writer.call(made_again, [device, Constant(self.seed), Constant(draws)])


def made_again(
    device: torch.device, seed: int | None, draws: tuple[tuple[Draw, int], ...], *numbers: Any
) -> torch.Generator:
    """A generator from which these have been drawn, each with so many of the numbers."""
    made = torch.Generator(device)
    if seed is not None:
        made.manual_seed(seed)
    for draw, count in draws:
        draw(made, *numbers[:count])
        numbers = numbers[count:]
    return made


@dataclass(frozen=True)
class DrawAnew:
    """A draw from a generator that is made for it."""

    draw: Draw
    generator: tuple[Any, ...]
    own: int

    def __call__(self, _: Any, *numbers: Any) -> torch.Tensor:
        place = len(numbers) - self.own
        return self.draw(made_again(*self.generator, *numbers[:place]), *numbers[place:])


@handles(torch.Generator)
def _generator(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    with knowing(torch.Generator, args):
        plain, named = objects_of(args, kwargs)
    return NewGenerator(evaluate(tx, torch.Generator, *plain, **named).device)


@wraps_if(lambda obj: issubclass(type(obj), torch.Generator), 60)
@tracked
def wrap_generator(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "TYPE_MATCH", type(obj))
    if compat.is_default_generator(obj):
        tx.guard(source, "ID_MATCH", obj)
    else:
        tx.guard(source, "CALL", _is_own, "is a generator of the program's own")
    return GeneratorOfTensors(obj, source)


def _is_own(generator: Any) -> bool:
    return not compat.is_default_generator(generator)


@dataclass(frozen=True)
class Draw:
    """What the generated code calls with a generator, and with the numbers for `Hole`s."""

    function: Callable[..., torch.Tensor]
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    inference: bool

    def __call__(self, generator: torch.Generator, *numbers: Any) -> torch.Tensor:
        args = _full(self.args, numbers)
        named = {name: _full(value, numbers) for name, value in self.kwargs}
        with torch.inference_mode(self.inference):
            return self.function(*args, generator=generator, **named)


@dataclass(frozen=True)
class Hole:
    """The place of a number that is open."""

    place: int


def _full(value: Any, numbers: tuple[Any, ...]) -> Any:
    if isinstance(value, Hole):
        return numbers[value.place]
    if isinstance(value, tuple | list):
        return type(value)(_full(item, numbers) for item in value)
    return value


def _new_and_filled(
    method: str, size: Any, stride: Any, dtype: Any, device: Any, *args: Any, **kwargs: Any
) -> torch.Tensor:
    made = torch.empty_strided(size, stride, dtype=dtype, device=device)
    filled: torch.Tensor = getattr(made, method)(*args, **kwargs)
    return filled


def draw(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """A call with a generator; None for one without, and for one of data of the graph's."""
    generator = kwargs.get("generator")
    if not isinstance(generator, GeneratorOfTensors):
        return None
    named = {key: value for key, value in kwargs.items() if key != "generator"}
    kind = "call_method" if name in FILLED else "call_function"
    target: Any = FUNCTIONS.get(name, name)
    if compat.is_default_generator(generator.real):
        return graph_call(tx, kind, target, args, named)
    if tx.graph is not tx.graph.outermost or name in OF_DATA or {"out", "requires_grad"} & {*named}:
        return None
    if name == "normal" and _of_tensors(args, named):
        return None
    if name in FILLED:
        return _fill(tx, generator, name, args, named)
    plain_args = tuple(arg.graph_argument() for arg in args)
    plain = {key: value.graph_argument() for key, value in named.items()}
    device = tx.graph.outermost.device
    if device is not None and plain.get("device") is None:
        plain["device"] = device
    fake = run_call(tx, target, plain_args, plain)
    if name in LIKE:
        return _drawn(tx, generator, _new_and_filled, (LIKE[name], *_layout(fake)), {}, fake)
    return _drawn(tx, generator, target, plain_args, plain, fake)


def _of_tensors(args: Args, named: Kwargs) -> bool:
    return any(isinstance(value, TensorValue) for value in (*args, *named.values()))


def _layout(fake: torch.Tensor) -> tuple[Any, ...]:
    return tuple(fake.shape), tuple(fake.stride()), fake.dtype, fake.device


def _fill(
    tx: Tracer, generator: GeneratorOfTensors, name: str, args: Args, named: Kwargs
) -> Value | None:
    """`tensor.normal_(generator=g)`: new numbers in the tensor's layout, copied into it."""
    tensor, *rest = args
    if not isinstance(tensor, TensorValue) or _of_tensors(rest, named):
        return None
    fake = tensor.fake
    if any(stride == 0 and size != 1 for size, stride in zip(fake.shape, fake.stride())):
        return None
    given = (name, *_layout(fake), *(arg.graph_argument() for arg in rest))
    plain = {key: value.graph_argument() for key, value in named.items()}
    with tx.graph.outermost.fake_mode:
        empty = torch.empty_strided(*_layout(fake)[:2], dtype=fake.dtype, device=fake.device)
    made = _drawn(tx, generator, _new_and_filled, given, plain, empty)
    return graph_call(tx, "call_method", "copy_", [tensor, made], {})


@dataclass
class _Holes:
    """The open sizes in the arguments of a draw: where each comes from, and what it is."""

    tx: Tracer
    generator: GeneratorOfTensors
    sources: list[Source] = field(default_factory=list)
    present: list[Any] = field(default_factory=list)

    def opened(self, value: Any) -> Any:
        if isinstance(value, fx.Node):
            return self.opened(value.meta["val"])
        if isinstance(value, torch.SymInt | torch.SymFloat):
            source = self.tx.shapes.origin(value)
            if source is None or isinstance(source, ConstantSource):
                return self.tx.shapes.value(value)
            self.sources.append(source)
            self.present.append(self.tx.shapes.present(value))
            return Hole(len(self.sources) - 1)
        if isinstance(value, tuple | list):
            return tuple(map(self.opened, value))
        if isinstance(value, torch.Tensor):
            raise Break("FB0015", self.generator.describe())
        return value


def _drawn(
    tx: Tracer,
    generator: GeneratorOfTensors,
    function: Callable[..., torch.Tensor],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    fake: torch.Tensor,
) -> TensorValue:
    holes = _Holes(tx, generator)
    named = tuple((key, holes.opened(value)) for key, value in kwargs.items())
    call = Draw(function, holes.opened(args), named, torch.is_inference_mode_enabled())
    like = torch.Generator(generator.real.device).manual_seed(0)
    of, numbers = generator.source, tuple(holes.sources)
    made: Any = call
    if isinstance(generator, NewGenerator):
        before = tuple((draw, len(sources)) for draw, sources in generator.draws)
        if len(before) == _DRAWS:
            raise Break("FB0005", f"draw {_DRAWS} of {generator.describe()} made here")
        parts = (generator.real.device, generator.seed, before)
        made = DrawAnew(call, parts, len(numbers))
        generator.draws.append((call, numbers))
        of = itself(torch.Generator)
        numbers = tuple(each for _, sources in generator.draws for each in sources)
        tx.heap.changed()
    source = CallResultSource(of, made, numbers, "drawn", tx.step())
    return TensorValue(tx.graph.add_made(call(like, *holes.present), source, fake))
