"""The shape environment of a capture: torch's own, which assumes nothing once it is closed.

In: a fake mode. Out: its environment. Invariant: all of torch's is imported at first use; the
shape environment brings sympy with it. Tried on torch 2.11, 2.13 and 2.14.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any

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
def source_class() -> type:
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


def shape_environment(mode: Any) -> Any:
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


def data_symbols(*numbers: Any) -> set[Any]:
    """The unbacked symbols of symbolic numbers, and of expressions."""
    if not any(isinstance(each, NUMBERS) or hasattr(each, "free_symbols") for each in numbers):
        return set()
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return set().union(*(free_unbacked_symbols(each) for each in numbers))


def sympy_of_torch() -> Any:
    """The sympy whose classes torch's expressions are of, which this package does without."""
    from torch.utils._sympy import functions

    return functions.sympy  # type: ignore[attr-defined]
