"""Operators at the sizes 0 and 1, which mean something else to some of them.

In: an operator, its arguments and its result, in which a symbol stands for a size that depends on
data. Out: whether the result is of the same form where the symbol is 0, or 1. Invariant: nothing is
assumed of any symbol: the operator is run in an environment of its own. Tried on torch 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from flambeau_capture._torch_compat.dispatching import perform
from flambeau_capture._torch_compat.sizes.shape_environments import (
    NUMBERS,
    data_symbols,
    new_environment,
    sympy_of_torch,
)
from flambeau_capture._torch_compat.sizes.symbols import hint, symbolic_condition, value_of
from flambeau_capture._torch_compat.sizes.unbacked_symbols import (
    assume,
    assumptions,
    known_condition,
)


def sizes_among(values: Any) -> Iterator[Any]:
    """The sizes of the tensors, and what is no tensor, in a nested structure; slices are some."""
    leaves: list[Any] = []
    fx.node.map_aggregate(values, leaves.append)
    for leaf in leaves:
        yield from leaf.shape if isinstance(leaf, torch.Tensor) else (leaf,)


def symbols_among(values: Any) -> set[Any]:
    """The unbacked symbols of sizes and integers in a nested structure."""
    found = set().union(*map(data_symbols, sizes_among(values)))
    return {symbol for symbol in found if symbol.is_integer}


def holds_at(mode: Any, target: Any, given: Any, result: Any, symbol: Any, value: int) -> bool:
    """Whether an operator gives what it has given, with the number in place of the symbol."""
    special = _Special(mode, symbol, value)
    try:
        special.assume(mode, symbols_among(given))
        with torch.no_grad(), torch._C._EnablePythonDispatcher(), special.mode:
            args, kwargs = fx.node.map_aggregate(given, special.moved)
            found = perform(target, args, kwargs)
    except Exception:  # whatever it is, the operator does not do the same there
        return False
    before, structure = pytree.tree_flatten(result)
    after, other = pytree.tree_flatten(found)
    return structure == other and all(map(special.is_same, before, after))


class _Special:
    """Values with a number in place of one symbol; of others, sizes in general."""

    def __init__(self, mode: Any, symbol: Any, value: int) -> None:
        self.environment = new_environment()
        self.mode = type(mode)(allow_non_fake_inputs=False, shape_env=self.environment)
        self.symbols: dict[Any, Any] = {symbol: value}
        for condition in assumptions(mode):  # a size that the graph checks to be equal is that, too
            sides = set(condition.args) if type(condition).__name__ == "Equality" else set()
            if sides & self.symbols.keys() and all(side.is_Symbol for side in sides):
                self.symbols |= dict.fromkeys(sides, value)

    def number(self, number: Any) -> Any:
        """A size, or a number, there."""
        if not isinstance(number, NUMBERS):
            return number
        expression = number.node.expr  # what is known to be equal stays so
        if expression.is_number:
            return int(expression)
        if not data_symbols(number) and (known := hint(number)) is not None:
            return known
        moved = self._expression(expression, number.node.shape_env)
        if moved.is_Integer:
            return int(moved)
        if moved.is_Boolean and not moved.free_symbols:
            return bool(moved)
        return self.environment.create_symintnode(moved, hint=None)

    def _expression(self, expression: Any, environment: Any) -> Any:
        for each in expression.free_symbols - self.symbols.keys():
            by_data = data_symbols(each)
            self.symbols[each] = self._size() if by_data else value_of(environment, each)
        return expression.subs(self.symbols)

    def assume(self, mode: Any, symbols: set[Any]) -> None:
        """Assume there what the graph checks of these symbols."""
        for condition in assumptions(mode):
            if data_symbols(condition) <= symbols:
                moved = self._expression(condition, mode.shape_env)
                if moved.is_Relational:
                    assume(symbolic_condition(self.mode, moved))

    def _size(self) -> Any:
        from torch.fx.experimental.symbolic_shapes import _constrain_range_for_size

        made = self.environment.create_unbacked_symint()
        _constrain_range_for_size(made)
        return made.node._expr

    def moved(self, value: Any) -> Any:
        """A tensor, or a number, there; anything else as it is."""
        if isinstance(value, torch.Tensor):
            sizes, strides = (tuple(map(self.number, x)) for x in (value.shape, value.stride()))
            kind = {"dtype": value.dtype, "device": value.device}
            return torch.empty_strided(sizes, strides, **kind)  # type: ignore[arg-type]
        return self.number(value)

    def is_same(self, before: Any, after: Any) -> bool:
        """Whether a result is what it was."""
        if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
            return isinstance(before, NUMBERS) or type(before) is type(after)
        if before.dim() != after.dim() or before.dtype != after.dtype:
            return False
        return all(map(self._is_same_size, before.shape, after.shape))

    def _is_same_size(self, before: Any, after: Any) -> bool:
        sympy = sympy_of_torch()
        if data_symbols(before) - self.symbols.keys():
            return True  # one that the operator counts
        wanted, found = (
            number.node.expr if isinstance(number, NUMBERS) else int(number)
            for number in (self.number(before), after)
        )
        apart = wanted - found
        bounds = sympy.Le(apart, 0), sympy.Ge(apart, 0)  # torch does not put the two together
        return apart == 0 or all(
            known_condition(symbolic_condition(self.mode, each)) is True for each in bounds
        )
