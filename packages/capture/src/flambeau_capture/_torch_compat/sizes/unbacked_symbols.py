"""Unbacked symbols: sizes and numbers that depend on data.

In: a fake mode, numbers that operators have made. Out: what holds for all of them, what holds in
general, what is assumed. Invariant: all of torch's is imported at first use. Tried on torch 2.11,
2.13 and 2.14.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from flambeau_capture._torch_compat.sizes.shape_environments import (
    NUMBERS,
    data_symbols,
    shape_environment,
)
from flambeau_capture._torch_compat.sizes.symbols import symbolic_condition, symbolic_integer


@contextlib.contextmanager
def sized_by_data(mode: Any, wanted: bool) -> Iterator[None]:
    """In the block, a size or a number that depends on data is an unbacked symbol, or no answer."""
    if mode.shape_env is None and not wanted:
        yield
        return
    environment = shape_environment(mode)
    before, environment.by_data = environment.by_data, wanted
    try:
        yield
    finally:
        environment.by_data = before
        # torch notes what is new for tracers of its own, which would miss it in a later result:
        # this one finds new symbols in results itself
        environment.pending_fresh_unbacked_symbols.clear()


def is_captured(mode: Any) -> None:
    """The program has made its decisions: queries about an unbacked symbol from here on are
    answered as for a size in general."""
    if mode.shape_env is not None:
        mode.shape_env.general = True


def own_data_symbols(number: Any) -> set[Any]:
    """The unbacked symbols that a number was made with, whatever was learnt of them since."""
    return data_symbols(number.node._expr) if isinstance(number, NUMBERS) else set()


def data_expressions(sizes: Iterable[Any]) -> set[Any]:
    """The sizes among these that depend on data, as expressions with what is known of them."""
    return {size.node.expr for size in sizes if isinstance(size, NUMBERS) and data_symbols(size)}


def count_of(mask: Any) -> Any:
    """How many elements of a fake tensor are true, where an operator has counted them."""
    return getattr(mask, "nonzero_memo", None)


def is_undecided(error: BaseException | None) -> bool:
    """Whether torch had to decide something about an unbacked symbol."""
    return undecided_condition(error) is not None


def known_condition(condition: Any) -> bool | None:
    """What a symbolic condition is for all values of the symbols; None where that differs."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    if not isinstance(condition, torch.SymBool):
        return bool(condition)
    if statically_known_true(condition):
        return True
    return False if statically_known_true(condition.__sym_not__()) else None


def supposing(mode: Any, error: Exception | None, run: Callable[[], Any]) -> Any:
    """What `run` gives with an answer to each condition on an unbacked symbol that it cannot go
    without, the first by which it gives anything: which is assumed. None: there is no such."""
    environment, tried = mode.shape_env, dict[Any, bool]()

    def answered(error: BaseException | None) -> Any:
        condition = undecided_condition(error)
        if condition is None or condition in tried or len(tried) == _MOST_SUPPOSED:
            return None
        first = getattr(condition, "rel_op", "") == "!="  # two sizes differ in general
        for answer in (first, not first):
            if not _relations(condition, answer):
                continue
            tried[condition] = answer
            environment.supposed = dict(tried)
            try:
                result = run()
            except Exception as other:
                result = answered(other)
            if result is not None:
                return result
        tried.pop(condition, None)
        return None

    try:
        result = answered(error)
    finally:
        environment.supposed = {}
    for condition, answer in tried.items():
        for relation in _relations(condition, answer):
            assume(symbolic_condition(mode, relation))
    return result


def _relations(condition: Any, answer: bool) -> list[Any]:
    """The relations that all hold where a condition has this answer; none: it is no sum of such."""
    kind = type(condition).__name__
    if kind == "Not":
        return _relations(condition.args[0], not answer)
    if kind == ("And" if answer else "Or"):
        parts = [_relations(part, answer) for part in condition.args]
        return [each for part in parts for each in part] if all(parts) else []
    if not condition.is_Relational:
        return []
    return [condition if answer else condition.negated]


_MOST_SUPPOSED = 8


def undecided_condition(error: BaseException | None) -> Any:
    """The condition on an unbacked symbol that torch had to decide; None: it was another error."""
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    while error is not None:
        if isinstance(error, GuardOnDataDependentSymNode):
            return error.cond
        error = error.__cause__ or error.__context__
    return None


def condition_in_general(condition: Any) -> bool | None:
    """What a condition is for sizes in general, which are neither 0 nor 1; None: that differs, or
    a number in it is no size of a tensor."""
    environment, expression = condition.node.shape_env, condition.node.expr
    symbols = data_symbols(expression)
    if not symbols or not symbols <= environment.size_like:
        return None
    found = environment._maybe_evaluate_static(expression, size_oblivious=True)
    return None if found is None else bool(found)


def assume(condition: Any) -> None:
    """Take a symbolic condition for true from here on: the graph is to check it."""
    from torch.fx.experimental.symbolic_shapes import expect_true

    expect_true(condition)


def differs(mode: Any, symbol: Any, value: int) -> Any:
    """The condition that a symbol that depends on data is not this number."""
    return symbolic_integer(mode, symbol, None) != value


def assumptions(mode: Any) -> list[Any]:
    """What is assumed of unbacked symbols, as expressions."""
    known = {} if mode.shape_env is None else mode.shape_env.deferred_runtime_asserts
    return [each.expr for found in known.values() for each in found]
