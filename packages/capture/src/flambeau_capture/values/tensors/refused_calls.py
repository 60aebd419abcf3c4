"""Operators that refuse their arguments, as a program may expect of them.

In: an operator that fails on fake tensors, with its arguments. Out: the exception that a handler of
the program gets, or that leaves the frame, or a break. Invariant: it is what eager raises: the
operator was run by itself on tensors of the same form, on the CPU, and has raised there too.
"""

from __future__ import annotations

import re
import types
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.values.base import Tracer, UserError
from flambeau_capture.values.objects.exceptions import raised_by_python

#: elements of the tensors that are made to hear what an operator says
_MOST = 1 << 20


def refusal(
    tx: Tracer, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
) -> Exception:
    """What to raise for an operator that fails on fake tensors with `error`."""
    stop = _as_break(target, error)
    if stop.reason.id != "FB0011" or isinstance(error, AttributeError):
        return stop  # of what is no tensor there
    raised = _raised_by_eager(target, args, kwargs)
    if raised is None or type(raised).__module__ != "builtins":  # others are about data
        return stop
    return UserError(raised_by_python(tx, raised))


def hear(tx: Tracer, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise what a handler of the program gets where an operator of the language, or one that
    writes, has no kernel for its tensors or cannot write its own dtype, which fake tensors take: a
    call that has written is not run again as it is."""
    of_language = getattr(target, "__module__", "") == "_operator"
    if not (of_language or _is_in_place(target) or "out" in kwargs) or not tx.is_handled():
        return
    call = target, _kinds(args), _kinds(kwargs)
    if call in _TAKEN:
        return
    raised = _raised_by_eager(target, args, kwargs)
    if not isinstance(raised, RuntimeError | IndexError):  # fake tensors refuse the others
        if raised is None:
            _TAKEN.add(call)
        return
    if isinstance(raised, NotImplementedError) or _NOT_OF_DATA.search(str(raised)):
        raise UserError(raised_by_python(tx, raised))


#: words of an error that says which dtypes are taken
_NOT_OF_DATA = re.compile(
    "can't be cast|not supported|only supports|dtype|scalar type|a long tensor|used as indices must"
)


#: calls that kernels take, by the kinds of their arguments, of which that depends
_TAKEN: set[Any] = set()


def _kinds(part: Any) -> Any:
    """What a kernel is chosen by: dtypes and dimensions of tensors, classes of others."""
    if isinstance(part, list | tuple):
        return type(part), *map(_kinds, part)
    if isinstance(part, dict):
        return tuple((name, _kinds(value)) for name, value in part.items())
    known = part.meta["val"] if isinstance(part, fx.Node) else part
    if isinstance(known, torch.Tensor):
        form = (known.dtype, known.layout, known.device, known.ndim, type(known))
        return *form, known.requires_grad, any(type(n) is int and n == 0 for n in known.shape)
    return known if isinstance(known, torch.dtype | torch.memory_format) else type(known)


def _is_in_place(target: Any) -> bool:
    """Whether a function of torch or of `operator` writes to its first argument, by its name."""
    name = operator_name(target)
    if name.endswith("__") or getattr(target, "__module__", None) == "_operator":
        return name.removeprefix("__").startswith("i")
    return name.endswith("_")


def _raised_by_eager(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the operator raises of zeros in place of its tensors; None: nothing; `Unlike`: unknown.
    Of tensors of open sizes, what has no number in it: that is raised of their kind."""
    call: Any = getattr(torch.Tensor, target, None) if isinstance(target, str) else target
    if call is None:
        return Unlike()
    if getattr(call, "__module__", "torch").partition(".")[0] not in _OWN:
        return Unlike()  # a function of the program's does more than to compute
    if torch.is_autocast_enabled("cpu") or compat.library_operator(call) is not None:
        return Unlike()
    grad, left = torch.is_grad_enabled(), [_MOST]
    are_open: list[Any] = []

    def value(part: Any) -> Any:
        if isinstance(part, list | tuple):  # a graph's own lists have another name in messages
            items = [value(item) for item in part]
            return items if isinstance(part, list) else tuple(items)
        if isinstance(part, dict):
            return {key: value(item) for key, item in part.items()}
        known = part.meta["val"] if isinstance(part, fx.Node) else part
        if isinstance(known, _SYMBOLIC):
            if compat.own_data_symbols(known):
                raise Unlike
            are_open.append(known)
            return compat.hint(known)
        are_open.extend(_open_sizes(known))
        return _zeros(known, left) if isinstance(known, torch.Tensor) else known

    def run() -> Any:
        drawn = torch.get_rng_state()
        try:
            with torch.set_grad_enabled(grad):
                call(*given[0], **given[1])
        except Exception as raised:
            of_sizes = are_open and re.search(r"\b\d", re.sub(r"'[^']*'", "", str(raised)))
            return Unlike() if of_sizes else raised.with_traceback(None)
        finally:
            torch.set_rng_state(drawn)
        return None

    def make() -> Any:
        with torch.set_grad_enabled(grad):
            return value(args), value(kwargs)

    try:
        given = compat.in_plain_state(make)
    except Unlike as unlike:
        return unlike
    return compat.in_plain_state(run)


_OWN = frozenset({"torch", "_operator", "operator"})
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class Unlike(Exception):
    """No tensor of zeros can stand for another."""


def _present(size: int | torch.SymInt) -> int:
    return int(compat.hint(size)) if isinstance(size, torch.SymInt) else size


def _open_sizes(value: Any) -> list[Any]:
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return []
    return [size for size in (*value.shape, *value.stride()) if not isinstance(size, int)]


def _zeros(fake: torch.Tensor, left: list[int]) -> torch.Tensor:
    """A tensor of the same form; `left`: how many elements may be made still."""
    known = fake.layout == torch.strided and not compat.flattens(fake)
    odd = fake.is_inference() or fake.is_conj() or fake.is_neg() or fake.is_quantized
    if not known or odd or fake.device.type != "cpu":
        raise Unlike
    if any(compat.own_data_symbols(size) for size in _open_sizes(fake)):
        raise Unlike
    shape, strides = ([*map(_present, sizes)] for sizes in (fake.shape, fake.stride()))
    reach = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    left[0] -= max(reach, 0)
    if left[0] < 0:
        raise Unlike
    made = zeros(shape, strides, fake)
    if not fake.requires_grad:
        return made
    made.requires_grad_()
    try:
        is_leaf = fake.is_leaf
    except RuntimeError as error:  # a view whose base was written to without it being recorded
        raise Unlike from error
    return made if is_leaf else made.view_as(made)


def zeros(sizes: Sequence[int], strides: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    """A tensor of zeros of this layout, with the dtype and the device of another."""
    return torch.empty_strided(sizes, strides, dtype=like.dtype, device=like.device).zero_()


def _as_break(target: Any, error: Exception) -> Break:
    """The break where an operator fails on fake tensors."""
    name = operator_name(target)
    own = compat.without_fake(target)
    if own is not None:
        return Break("FB0030", f"call_function {name}", named=own)
    causes = [error, error.__cause__, error.__context__]
    for cause in causes:
        if isinstance(cause, compat.fake_errors("data")):
            return Break("FB0002", f"call_function {name}")
        if isinstance(cause, compat.fake_errors("shape")):
            return Break("FB0004", f"call_function {name}")
        if isinstance(cause, compat.fake_errors("rule")):
            return Break("FB0011", f"{name} has no rule for fake tensors")
    text = re.sub(r"\s+", " ", str(error)).strip()
    what = f"call_function {name}: {type(error).__name__}: {text[:300]}"
    faked = compat.with_fake(target)
    return Break("FB0011", what) if faked is None else Break("FB0031", what, named=faked)


#: pools whose functions in Python give the largest alone, and those in C its index, too
_POOLS = tuple(f"adaptive_max_pool{dims}d" for dims in (1, 2, 3))


def operator_name(target: Any) -> str:
    """What a target of the graph is called, and another name where two share theirs."""
    if target is torch.nn.functional.unfold:
        return "im2col"
    name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    in_c = name in _POOLS and not isinstance(target, types.FunctionType)
    return f"{name}_with_indices" if in_c else name
