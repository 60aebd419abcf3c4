"""Backed and unbacked symbols: sizes and numbers left dynamic.

In: a fake mode, tensors and numbers. Out: symbols, and what was assumed of them. Invariant: all of
torch's is imported at first use; the shape environment brings sympy with it. Tried on torch 2.11,
2.13 and 2.14.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakMethod

import torch

#: what stands for a number of the program in a capture
NUMBERS: tuple[Any, ...] = (torch.SymInt, torch.SymFloat, torch.SymBool)


@functools.cache
def stand_ins() -> tuple[type, ...]:
    """What stands for numbers and tensors of the program in a capture, and never leaves it."""
    from torch._subclasses.fake_tensor import FakeTensor

    return (*NUMBERS, FakeTensor)


class _Name(str):
    """A name that is an attribute in some releases and a method in others."""

    def __call__(self) -> str:
        return str(self)


@functools.cache
def _source_class() -> type:
    from torch._guards import Source

    class Named(Source):  # type: ignore[misc]
        _flambeau_name: _Name

        def __init__(self, name: str) -> None:
            object.__setattr__(self, "_flambeau_name", _Name(name))

        @property
        def name(self) -> Any:
            return self._flambeau_name

        def __hash__(self) -> int:
            return hash(self._flambeau_name)

        def __eq__(self, other: object) -> bool:
            return type(other) is type(self) and other.name == self.name

    return Named


@functools.cache
def _environment_class() -> Any:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    class Environment(ShapeEnv):
        """One that decides nothing new once its conditions have become guards.

        by_data: operators may make unbacked symbols. general: queries about these are answered as
        for sizes in general, which are neither 0 nor 1 nor equal to another: the program has been
        captured, and who compiles it decides nothing for it. supposed: answers that are tried.
        from_one: a new size may be 1 too, until something is decided by its being another. line:
        where the program is.
        """

        closed = False
        by_data = True
        general = False
        supposed: Mapping[Any, bool] = {}
        from_one = False
        line: Callable[[], Any] = staticmethod(lambda: None)

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            #: symbols that have been made constants, with where the program was then
            self.made_constants: dict[Any, Any] = {}

        def _set_replacement(self, a: Any, tgt: Any, *args: Any) -> None:
            if tgt.is_number:
                self.made_constants.setdefault(a, self.line())
            super()._set_replacement(a, tgt, *args)

        def _default_value_range(self, *args: Any) -> Any:
            found = super()._default_value_range(*args)
            return type(found)(min(found.lower, 1), found.upper) if self.from_one else found

        def evaluate_sym_node(
            self, sym_node: Any, size_oblivious: bool = False, fallback_value: bool | None = None
        ) -> Any:
            if sym_node.expr in self.supposed:
                return self.supposed[sym_node.expr]
            if self.general and fallback_value is None:
                fallback_value = self._in_general(sym_node.expr)
            return super().evaluate_sym_node(sym_node, size_oblivious, fallback_value)

        def _in_general(self, condition: Any) -> bool | None:
            if not getattr(condition, "is_Relational", False) or not data_symbols(condition):
                return None
            if condition.rel_op in ("==", "!="):
                return bool(condition.rel_op == "!=")
            for symbol in data_symbols(condition) - self.size_like:
                if self.var_to_range[symbol].lower >= 0:  # an operator takes it for a size
                    self.size_like.add(symbol)
                    self._update_version_counter()  # by which answers are kept
            found = self._maybe_evaluate_static(condition, size_oblivious=True)
            found = _of_strides(condition) if found is None else found
            return None if found is None else bool(found)

        @property
        def allow_scalar_outputs(self) -> bool:  # type: ignore[override]
            return self.by_data

        @property
        def allow_dynamic_output_shape_ops(self) -> bool:  # type: ignore[override]
            return self.by_data

        def _check_frozen(self, expr: Any, concrete_val: Any) -> None:
            # torch queries this before it assumes anything (2.11 to 2.14), and only logs if frozen
            if self.closed:
                raise RuntimeError(
                    f"guards are taken: {expr} cannot be assumed to be {concrete_val} any more"
                )
            super()._check_frozen(expr, concrete_val)

    return Environment


def _of_strides(condition: Any) -> bool | None:
    """What an inequality of strides is where each size in them, written as `Max(1, size)`, is at
    least 2: in which order two dimensions lie, which of those of 0 or 1 says nothing."""
    from torch.utils._sympy import functions

    sympy = sympy_of_torch()
    sizes = {each for each in condition.atoms(functions.Max) if 1 in each.args}
    if not sizes:
        return None
    more = {each: 2 + sympy.Dummy(integer=True, nonnegative=True) for each in sizes}
    apart = sympy.expand((condition.gts - condition.lts).xreplace(more))
    strict = condition.rel_op in ("<", ">")
    if apart.is_positive or (apart.is_nonnegative and not strict):
        return True
    return False if apart.is_negative or (apart.is_nonpositive and strict) else None


def new_environment() -> Any:
    """A shape environment."""
    return _environment_class()()


def _shape_environment(mode: Any) -> Any:
    """The environment of a fake mode; one without gets one that has sizes of inputs alone."""
    if mode.shape_env is None:
        mode.shape_env = new_environment()
        mode.static_shapes = False
        # what operators answered is kept for the process, and would keep every environment with it
        mode.cache_enabled = False
    return mode.shape_env


def symbolic_kernels(mode: Any) -> contextlib.AbstractContextManager[Any]:
    """Operators get their results by kernels that take symbols, where they have any."""
    if mode.shape_env is None:
        return contextlib.nullcontext()
    return torch._C._EnablePythonDispatcher()  # type: ignore[no-any-return]


def close_environment(mode: Any) -> None:
    """Nothing that is not known yet can be decided about the symbols of a fake mode any more."""
    if mode.shape_env is not None:
        mode.shape_env.closed = True


def reopen_environment(fake: Any) -> None:
    """The sizes of a fake tensor may be decided about again: nobody has made guards for good."""
    environment = fake.fake_mode.shape_env
    if environment is not None:
        environment.closed = False


def forget_environments() -> None:
    """Empty the tables of answers that torch keeps by environment for the life of the process."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    for method in vars(ShapeEnv).values():
        clear = getattr(method, "cache_clear", None)
        if clear is not None:
            clear()


def to_symbolic_fake(
    mode: Any, tensor: torch.Tensor, dims: Any, strides: frozenset[int] = frozenset()
) -> torch.Tensor:
    """A fake tensor whose sizes in `dims` (a mapping to bounds) are symbols: from 2 on, or from 1
    where a bound says so. strides: dimensions whose strides are symbols of their own."""
    from torch.fx.experimental import symbolic_shapes

    environment = _shape_environment(mode)
    kinds = symbolic_shapes.DimDynamic
    rank = tensor.dim()
    context: Any = symbolic_shapes.StatelessSymbolicContext(
        dynamic_sizes=[kinds.DYNAMIC if i in dims else kinds.STATIC for i in range(rank)],
        dynamic_strides=[
            kinds.DYNAMIC if i in strides else kinds.INFER_STRIDE for i in range(rank)
        ],
        constraint_sizes=[None] * rank,
    )
    environment.from_one = any(least == 1 for least, _ in dims.values())
    fake: torch.Tensor = mode.from_tensor(tensor, static_shapes=False, symbolic_context=context)
    environment.from_one = False
    for dim, (least, most) in dims.items():
        size = fake.shape[dim]
        now = tensor.size(dim)
        within = (now if least is None else least) <= now <= (now if most is None else most)
        if isinstance(size, torch.SymInt) and within and (least, most) != (None, None):
            symbolic_shapes.constrain_range(size, min=least, max=most)
    return fake


def strides_of_their_own(tensor: torch.Tensor) -> set[int]:
    """The dimensions of a fake tensor whose open strides are no size times a stride."""
    spans: list[Any] = [size * stride for size, stride in zip(tensor.shape, tensor.stride())]
    known = {span.node.expr for span in spans if isinstance(span, torch.SymInt)}
    return {
        dim
        for dim, stride in enumerate(tensor.stride())
        if isinstance(stride, torch.SymInt) and stride.node.expr not in known
    }


def symbolic_number(mode: Any, value: int | float, name: str) -> Any:
    """A symbol for an integer or a float."""
    from torch.fx.experimental.symbolic_shapes import DimDynamic

    environment = _shape_environment(mode)
    source = _source_class()(name)
    symbol = environment.create_unspecified_symbol(
        value, source=source, dynamic_dim=DimDynamic.DYNAMIC
    )
    is_float = isinstance(value, float)
    make = environment.create_symfloatnode if is_float else environment.create_symintnode
    return make(symbol, hint=value, source=source)


@contextlib.contextmanager
def sized_by_data(mode: Any, wanted: bool) -> Iterator[None]:
    """In the block, a size or a number that depends on data is an unbacked symbol, or no answer."""
    if mode.shape_env is None and not wanted:
        yield
        return
    environment = _shape_environment(mode)
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


def data_symbols(*numbers: Any) -> set[Any]:
    """The unbacked symbols of symbolic numbers, and of expressions."""
    if not any(isinstance(each, NUMBERS) or hasattr(each, "free_symbols") for each in numbers):
        return set()
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return set().union(*(free_unbacked_symbols(each) for each in numbers))


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


def is_negated(number: Any) -> bool:
    """Whether a number is written as the negative of another."""
    return bool(number.node.expr.as_coeff_Mul()[0].is_negative)


def is_extreme(number: Any) -> bool:
    """Whether a number is written as the larger or the smaller of others."""
    return isinstance(number, NUMBERS) and type(number.node.expr).__name__ in ("Max", "Min")


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


def symbolic_condition(mode: Any, expression: Any) -> Any:
    """A condition for an expression."""
    from torch.fx.experimental.sym_node import SymNode

    return torch.SymBool(SymNode(expression, mode.shape_env, bool, None))


def assert_operator() -> Any:
    """What raises in a graph where a condition on numbers does not hold."""
    return torch.ops.aten._assert_scalar.default


def symbolic_integer(mode: Any, symbol: Any, value: int | None) -> Any:
    """The integer that a symbol of a size is; None: it depends on data."""
    return mode.shape_env.create_symintnode(symbol, hint=value)


def number_of(mode: Any, expr: Any) -> Any:
    """A number for an expression, a plain one for a constant; it depends on data else."""
    if expr.is_number:
        return int(expr) if expr.is_Integer else float(expr)
    if expr.is_integer:
        return symbolic_integer(mode, expr, None)
    return mode.shape_env.create_symfloatnode(expr, hint=None)


def expression(number: Any) -> Any:
    """The symbolic expression that a number was made as."""
    return number.node._expr


def decided(number: Any) -> Any:
    """That expression by all that has been assumed since; an int where one number is left."""
    known = number.node.expr
    return int(known) if known.is_number else known


def hint(number: Any) -> Any:
    """The value that a symbolic number has in this capture."""
    return number.node.hint


def is_decided(mode: Any, symbol: Any) -> bool:
    """Whether a symbol has been assumed to be the number that it is now."""
    return bool(mode.shape_env.replace(symbol).is_number)


def note_constants(mode: Any, line: WeakMethod[Callable[[], Any]]) -> None:
    """Note from here on where the program is when a symbol becomes a constant."""

    def now() -> Any:
        found = line()
        return None if found is None else found()

    _shape_environment(mode).line = now


def made_constant(mode: Any, symbol: Any) -> Any:
    """Where the program was when a symbol became a constant; None: that was not in its code."""
    return mode.shape_env.made_constants.get(symbol)


def count_of_decisions(mode: Any) -> int:
    """A number that grows with whatever is assumed of the symbols of a fake mode."""
    known = mode.shape_env
    return 0 if known is None else len(known.guards) + len(known.replacements)


@dataclass(frozen=True)
class ShapeConditions:
    """What an environment has assumed: conditions, symbols that equal expressions, and ranges."""

    guards: tuple[Any, ...]
    equal: tuple[tuple[Any, Any], ...]
    ranges: tuple[tuple[Any, int | None, int | None], ...]


def shape_conditions(mode: Any) -> ShapeConditions:
    """The assumptions of a fake mode's environment."""
    known = mode.shape_env
    guards = tuple(guard.expr for guard in known.guards)
    ranges = [(s, _bound(r.lower), _bound(r.upper)) for s, r in known.var_to_range.items()]
    # what is assumed of unbacked symbols the graph checks
    equal = [pair for pair in known.replacements.items() if not data_symbols(*pair)]
    return ShapeConditions(guards, tuple(equal), tuple(ranges))


def _bound(number: Any) -> int | None:
    return int(number) if number.is_Integer else None


def same(one: Any, other: Any) -> Any:
    """The condition that two symbolic expressions are equal."""
    return sympy_of_torch().Eq(one, other)


def symbol(name: str) -> Any:
    """A symbol to show in a condition."""
    return sympy_of_torch().Symbol(name)


def sympy_of_torch() -> Any:
    """The sympy whose classes torch's expressions are of, which this package does without."""
    from torch.utils._sympy import functions

    return functions.sympy  # type: ignore[attr-defined]
