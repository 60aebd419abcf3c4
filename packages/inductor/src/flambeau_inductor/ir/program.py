"""The scheduled program: buffers, and steps in order with lifetimes.

In: the schedule. Out: what the wrapper generator prints as straight-line Python.
Invariant: a buffer is allocated (or given as an input) before the first step that touches it and
freed after the last one; every step names the buffers it reads and writes.

A library call with a pointwise function that it applies to what it computes, as one call. In: a
small graph of primitives. Out: `CallWithEpilogue`, what an FX node calls. Invariant: it gives what
the graph gives, whoever computes it: a library that does not take the function leaves the nodes to
their own rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import fx

from flambeau_inductor.indexing import Expr, Size, static_sizes
from flambeau_inductor.ir.loops import Load, Loop, Scalar, Store


@dataclass(frozen=True, slots=True)
class Layout:
    """Shape, strides and offset in elements, with dtype and device."""

    shape: tuple[Size, ...]
    stride: tuple[Size, ...]
    dtype: torch.dtype
    device: torch.device
    offset: Size = 0

    def static(self) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """Shape, strides and offset as ints; a TypeError if one is a symbol."""
        return _ints(self.shape), _ints(self.stride), _ints((self.offset,))[0]


def _ints(sizes: tuple[Size, ...]) -> tuple[int, ...]:
    ints = static_sizes(sizes)
    if ints is None:
        raise TypeError(f"symbolic sizes {sizes} where numbers are needed")
    return ints


@dataclass(frozen=True, slots=True)
class SymbolSource:
    """Where a symbol's value is: item `position` of the boxed list, or its size or stride `dim`,
    which is `factor` times the value, and `offset` more; or `text`, what Python computes of symbols
    before it."""

    position: int
    dim: int | None = None
    stride: bool = False
    factor: int = 1
    offset: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class SizeOfResult:
    """A symbol that depends on data: size `dim` of result `result` of a call, or the number that
    the call gives (None)."""

    name: str
    result: int = 0
    dim: int | None = None


@dataclass(frozen=True, slots=True)
class ComputedNumber:
    """A number that is known when the program runs, as Python."""

    text: str


@dataclass(frozen=True, slots=True)
class Buffer:
    """A named piece of memory. An input's data pointer is the tensor's own (offset included)."""

    name: str
    layout: Layout


@dataclass(frozen=True, slots=True)
class Ref:
    """An operand of an extern call: the buffer `buffer` seen through `layout` (None: its own)."""

    buffer: str
    layout: Layout | None = None


TorchConstant = torch.dtype | torch.device | torch.layout | torch.memory_format
PlainArgument = ComputedNumber | Scalar | Expr | str | TorchConstant | None
"""Argument of a library call that is no tensor."""
Argument = Ref | PlainArgument | tuple["Argument", ...]


def leaves(argument: Any) -> Iterator[Any]:
    """An argument of a call, or what it is made of."""
    if isinstance(argument, tuple):
        for each in argument:
            yield from leaves(each)
    else:
        yield argument


def each_leaf(change: Callable[[Any], Any], argument: Any) -> Any:
    """An argument with what it is made of changed."""
    if isinstance(argument, tuple):
        return tuple(each_leaf(change, each) for each in argument)
    return change(argument)


@dataclass(frozen=True, slots=True)
class Alloc:
    """Make `buffer`, uninitialised."""

    buffer: str


@dataclass(frozen=True, slots=True)
class Reuse:
    """Give the memory of `old` to `buffer` (same size in bytes and device).

    `old` is dead, or dies in the very next loop, which reads it only at the element it stores.
    """

    buffer: str
    old: str
    dead: bool = False


Touched = tuple[frozenset[str], frozenset[str]]
"""Buffers that a step reads, and those it writes into (which must exist before)."""


@dataclass(frozen=True)
class RunLoop:
    """Launch a generated kernel."""

    loop: Loop

    @cached_property
    def touched(self) -> Touched:
        """By loads and by stores; passes ask for each pair of steps."""
        body = self.loop.body
        reads = frozenset(i.buffer for i in body if isinstance(i, Load))
        return reads, frozenset(i.buffer for i in body if isinstance(i, Store))


@dataclass(frozen=True)
class Extern:
    """Call a library operator.

    `target` is the qualified overload (`aten.mm.out`). With `into`, the results are written to
    those existing buffers (passed as the overload's out arguments); else the call's results
    become the buffers `results` (None: a result that nobody uses). `sizes`: the symbols that are
    read off what it gives.
    """

    target: str
    args: tuple[Argument, ...]
    kwargs: tuple[tuple[str, Argument], ...] = ()
    into: tuple[Ref, ...] = ()
    results: tuple[str | None, ...] = ()
    origins: tuple[str, ...] = ()
    sizes: tuple[SizeOfResult, ...] = ()

    @property
    def reads(self) -> list[Ref]:
        """What it is given of the memory of buffers."""
        given = leaves((*self.args, *(value for _, value in self.kwargs)))
        return [each for each in given if isinstance(each, Ref)]

    @cached_property
    def touched(self) -> Touched:
        """What it is given, and what it writes its results to."""
        reads = frozenset(ref.buffer for ref in self.reads)
        return reads, frozenset(ref.buffer for ref in self.into)


@dataclass(frozen=True, slots=True)
class CheckIndex:
    """Raise unless every element of the integer tensor `ref` addresses a dimension of `size`.

    Valid are `0 <= i < size`, and `-size <= i < 0` too with `wrap`. `error` names the exception
    (`IndexError`, `RuntimeError`: what eager raises for that operator); `{index}` in `message`
    stands for the first offender, `{size}` for the size. It runs before the loop that reads through
    the index, so that no kernel ever reads or writes out of bounds. With `after` it follows a loop
    that has looked itself, and names its offender.
    """

    ref: Ref
    size: Size
    wrap: bool
    error: str
    message: str
    after: bool = False

    @property
    def touched(self) -> Touched:
        """The index tensor, which it reads."""
        return frozenset((self.ref.buffer,)), frozenset()


@dataclass(frozen=True, slots=True)
class FreeBuffer:
    """Drop the reference to `buffer`."""

    buffer: str


Step = Alloc | Reuse | RunLoop | Extern | CheckIndex | FreeBuffer


@dataclass(frozen=True, slots=True)
class BufferOwnership:
    """Buffers by what may be done with them: `given` exist already (inputs, constants), `kept` are
    returned, `shared` may share memory with another tensor, `donated` are inputs that nobody else
    reads and that may be overwritten, `updates` those that are the new value of an input, which
    `updated` of them are given where that input is; `empty` hold no elements."""

    given: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    donated: frozenset[str] = frozenset()
    updated: Mapping[str, str] = field(default_factory=dict)
    updates: Mapping[str, str] = field(default_factory=dict)
    empty: tuple[str, ...] = ()

    @property
    def outlive(self) -> frozenset[str]:
        """Buffers whose memory is free at no time."""
        return self.kept | self.shared


@dataclass(frozen=True, slots=True)
class Program:
    """`inputs` in the order of the boxed list; `outputs` as (buffer or literal, view layout).

    `numbers` are the positions of the boxed list that are no tensors; `symbols` the open sizes;
    `scalars` the buffers that hold numbers which are not integers, each with its value. Until
    lifetimes are planned, its steps are those that compute.
    """

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Ref | Scalar | None, ...]
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    constants: tuple[tuple[str, torch.Tensor], ...] = ()
    numbers: tuple[int, ...] = ()
    symbols: tuple[tuple[str, SymbolSource], ...] = ()
    scalars: tuple[tuple[str, ComputedNumber], ...] = ()
    owned: BufferOwnership = field(default_factory=BufferOwnership)

    @property
    def by_name(self) -> dict[str, Buffer]:
        """The buffers by their names."""
        return {buffer.name: buffer for buffer in self.buffers}


Asked = tuple[str, tuple[float, ...], str]
"""The last arguments of oneDNN's operators: a function, its numbers, its form."""

NOTHING: Asked = ("none", (), "")
"""The same without a function."""


@dataclass(frozen=True, eq=False)
class CallWithEpilogue:
    """`body` has the operands as placeholders, `call`, after it `seen`, which is the call's
    result, maybe in another shape, and `nodes`: what the function is made of, its result the last.
    `asked`: oneDNN's arguments."""

    asked: Asked
    body: fx.Graph
    call: fx.Node
    seen: fx.Node
    nodes: tuple[fx.Node, ...]

    @property
    def __name__(self) -> str:
        return f"{self.call.name}_with_{self.asked[0]}"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes)

    def __call__(self, *operands: object) -> object:
        return fx.Interpreter(fx.GraphModule({}, self.body)).run(*operands)
