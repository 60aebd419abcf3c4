"""Contract check of a compiled graph's results at its first call.

In: a boxed callable and the fake values of the graph's outputs. Out: a boxed callable whose outputs
have the traced metadata, whose fresh results share memory neither with the inputs nor with each
other, and whose saved values cannot be written to without autograd's notice.
Invariant: the check runs at the first call only; sharing that it finds is undone by copies at every
call, since what a compiled graph aliases does not change from call to call. So are strides other
than those that were traced, but for graphs run as they are: a kernel of torch knows better than
torch's description of it how its result is laid out in eager.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from flambeau_aot._torch_compat import FakeTensor, base_of, copied, expression_of, is_functional
from flambeau_aot.errors import CompilerContractError
from flambeau_aot.inputs.memory_overlap import expanded
from flambeau_aot.interface import Boxed
from flambeau_aot.sizes import mentions_symbols, own_symbols, sized, symbols_of

Extent = tuple[int, int, int]

AS_IS = "runs the graph as it is"
"""Attribute of a boxed callable that runs a graph's operators one by one."""


@dataclass(frozen=True)
class Contract:
    """What a compiled graph has to keep, but for the metadata that is compared.

    fresh: the first so many outputs must own their memory. shareable: inputs that an output may be
    a view of all the same. differentiable: the outputs are those of an autograd function. strides:
    whether these matter, as those of gradients do not. roots: outputs that the caller gets together
    with views of them. updates: outputs that may be an input itself, with its new value. viewed:
    outputs of which results are made as views, which need the strides that were traced.
    """

    name: str
    fresh: int
    shareable: frozenset[int] = frozenset()
    differentiable: bool = False
    strides: bool = True
    roots: frozenset[int] = frozenset()
    updates: tuple[tuple[int, int], ...] = ()
    viewed: frozenset[int] = frozenset()
    origins: tuple[int, ...] = ()


class Checked:
    """A boxed callable with its outputs checked at the first call, against `gm` where given."""

    def __init__(self, call: Boxed, contract: Contract, gm: fx.GraphModule | None = None) -> None:
        self.call = call
        self.contract = contract
        self.nodes = [] if gm is None else _outputs(gm)
        self.layouts = None if gm is None else _OutputLayouts(gm, self.nodes)
        self.views: tuple[int, ...] = ()
        self.copies: tuple[int, ...] | None = None
        self.as_is = bool(getattr(call, AS_IS, False))
        self.laid_otherwise: tuple[int, ...] = ()

    @property
    def transparent(self) -> bool:
        """Whether later calls are those of the checked callable, with nothing done around them."""
        return self.copies == () and not self.views and not self.laid_otherwise

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        copies = self.copies
        if copies is None:
            return self._first(args)
        if not (copies or self.views or self.laid_otherwise):
            return self.call(args)
        wanted = None if self.layouts is None else self.layouts.given(args)
        outputs = list(self.call(args))
        if self.laid_otherwise and self.layouts is not None:
            layouts = self.layouts(wanted, outputs)
            for index in self.laid_otherwise:
                outputs[index] = laid(outputs[index], layouts[index][1])
        for index in copies:
            outputs[index] = copied(outputs[index])
        for index in self.views:
            outputs[index] = owner(outputs[index])
        return outputs

    def _first(self, args: list[Any]) -> Sequence[Any]:
        given = [value for value in args if isinstance(value, torch.Tensor)]
        others = [
            value
            for place, value in enumerate(args)
            if isinstance(value, torch.Tensor) and place not in self.contract.shareable
        ]
        taken = [(-1, value, extent(value)) for value in others]
        updated = {output: args[place] for output, place in self.contract.updates}
        wanted = None if self.layouts is None else self.layouts.given(args)
        returned = self.call(args)
        if not isinstance(returned, (list, tuple)):
            kind = type(returned).__name__
            raise CompilerContractError(
                f"the compiled {self.contract.name} returned a {kind}; it has to return a list or "
                f"tuple of {len(self.nodes)} outputs, in the order of the graph's"
            )
        outputs = list(returned)
        if self.layouts is not None:
            layouts = self.layouts(wanted, outputs)
            self._check(outputs, layouts)
            for index in self.laid_otherwise:
                outputs[index] = laid(outputs[index], layouts[index][1])
        copies: list[int] = []
        for index in range(min(self.contract.fresh, len(outputs))):
            if index in updated and outputs[index] is updated[index]:
                continue
            found, own = outputs[index], extent(outputs[index])
            origin = self.contract.origins[index] if self.contract.origins else index
            apart = [(value, reach) for kept, value, reach in taken if kept != origin]
            # Empty tensors share no memory, and may be one object all the same.
            if any(found is value or _overlap(own, reach) for value, reach in apart):
                copies.append(index)
                found = outputs[index] = copied(found)
            taken.append((origin, found, extent(found)))
        roots = range(self.contract.fresh) if self.contract.differentiable else self.contract.roots
        self.views = tuple(index for index in sorted(roots) if outputs[index]._base is not None)
        for index in self.views:
            outputs[index] = owner(outputs[index])
        if self.contract.differentiable:
            copies.extend(self._hidden_aliases(given, outputs))
        self.copies = tuple(copies)
        return outputs

    def _hidden_aliases(self, given: list[torch.Tensor], outputs: list[Any]) -> list[int]:
        """Values saved for backward in memory that the caller can write to unnoticed.

        Autograd notices a write through the version counter, which views made by torch share and
        tensors made over another's memory do not.
        """
        copies: list[int] = []
        for index in range(self.contract.fresh, len(outputs)):
            saved = outputs[index]
            own = extent(saved)
            hidden = any(
                _overlap(own, extent(value)) and saved is not value and not saved._is_view()
                for value in given
            ) or any(
                _overlap(own, extent(value)) and base_of(saved) is not base_of(value)
                for value in outputs[: self.contract.fresh]
            )
            if hidden:
                copies.append(index)
                outputs[index] = copied(saved)
        return copies

    def _check(self, outputs: list[Any], layouts: Sequence[Any]) -> None:
        if len(outputs) != len(self.nodes):
            raise CompilerContractError(
                f"the compiled {self.contract.name} returned {len(outputs)} outputs instead of "
                f"{len(self.nodes)}; return one for each output of the graph, in its order"
            )
        laid_otherwise: list[int] = []
        for index, (value, node) in enumerate(zip(outputs, self.nodes, strict=True)):
            if node is None or layouts[index] is None:
                continue
            shape, stride = layouts[index]
            problem = _difference(value, node.meta["val"].dtype, shape)
            held = self.contract.strides and (index in self.contract.viewed or not self.as_is)
            if not problem and held and _strides_differ(value, stride):
                laid_otherwise.append(index)
            if problem:
                raise CompilerContractError(
                    f"output {index} ({node.name}) of the compiled {self.contract.name} {problem}",
                    node.meta.get("stack_trace") or "",
                )
        self.laid_otherwise = tuple(laid_otherwise)


def _outputs(gm: fx.GraphModule) -> list[fx.Node | None]:
    output = next(node for node in reversed(gm.graph.nodes) if node.op == "output")
    return list(output.args[0])  # type: ignore[arg-type]


class _OutputLayouts:
    """Shape and strides of a graph's outputs, at the sizes of a call: of symbols among its inputs,
    and of those that depend on data, which are read off the outputs. An output with one that is no
    size of any is not looked at."""

    def __init__(self, gm: fx.GraphModule, nodes: Sequence[fx.Node | None]) -> None:
        traced = [node.meta["val"] if node is not None else None for node in nodes]
        inputs = [node.meta["val"] for node in gm.graph.nodes if node.op == "placeholder"]
        symbols: dict[Any, int] = {}  # one place each: two inputs may be found to be equal
        for place, value in enumerate(inputs):
            if isinstance(value, torch.SymInt):
                symbols.setdefault(expression_of(value), place)
        self.places = [*symbols.values()]
        by_data: dict[Any, tuple[int, int]] = {}
        for place, value in enumerate(traced):
            for symbol, dim in own_symbols(value):
                by_data.setdefault(symbol, (place, dim))
        known = dict.fromkeys([*symbols, *by_data])
        self.read = [place for symbol, place in by_data.items() if symbol not in symbols]
        wanted = [
            (tuple(value.shape), tuple(value.stride()))
            if isinstance(value, torch.Tensor) and known.keys() >= set(symbols_of([value]))
            else None
            for value in traced
        ]
        self.at = sized(wanted, list(known)) if mentions_symbols(wanted) else None
        self.wanted = wanted

    def given(self, args: Sequence[Any]) -> list[int]:
        """The symbols among the inputs of a call."""
        return [args[place] for place in self.places]

    def __call__(self, given: Any, outputs: Sequence[Any]) -> Sequence[Any]:
        if self.at is None or len(outputs) != len(self.wanted):
            return self.wanted
        return self.at([*given, *(outputs[place].shape[dim] for place, dim in self.read)])  # type: ignore[no-any-return]


def _difference(value: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> str:
    if not isinstance(value, torch.Tensor):
        return f"is a {type(value).__name__}, not a tensor"
    if isinstance(value, FakeTensor) or is_functional(value):
        return "is a value of a trace, which has no data"
    if tuple(value.shape) != shape:
        return f"has shape {tuple(value.shape)}, not {shape}"
    if value.dtype != dtype:
        return f"has dtype {value.dtype}, not {dtype}"
    return ""


def _strides_differ(value: torch.Tensor, stride: tuple[int, ...]) -> bool:
    """Whether elements lie otherwise than with these strides."""
    pairs = zip(value.shape, value.stride(), stride, strict=True)
    return value.numel() > 0 and any(size > 1 and own != other for size, own, other in pairs)


def laid(value: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    """The same values with these strides."""
    if expanded(value.shape, stride):
        return value  # whether its elements are repeated is for the graph to say
    return copied(value, stride)


def extent(tensor: torch.Tensor) -> Extent:
    """A tensor's device and the addresses from its first to past its last element."""
    device = hash(tensor.device)
    if tensor.numel() == 0:
        return device, 0, 0
    start = tensor.data_ptr()
    span = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return device, start, start + (span + 1) * tensor.element_size()


def owner(value: torch.Tensor) -> torch.Tensor:
    """A tensor over the same memory that is no view; one made inside an autograd function may not
    be written to by the caller, who knows nothing of it."""
    return value.new_empty(0).set_(
        value.untyped_storage(), value.storage_offset(), value.shape, value.stride()
    )


def _overlap(one: Extent, other: Extent) -> bool:
    return one[0] == other[0] and one[1] < other[2] and other[1] < one[2]
