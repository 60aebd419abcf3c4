"""Declared shapes: which sizes of an export's arguments stay open, and what they are called.

In: a function, the arguments of a call, a declaration in any form that `torch.export` takes. Out:
for each tensor that it names, a `Size` for each dimension. Invariant: declarations of torch's own
classes are read by their attributes; nothing of torch's export is imported.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from flambeau_capture import _torch_compat as compat
from flambeau_capture.errors import ExportError
from flambeau_capture.frame.sizes.marks import mark_static, marks_kept, maybe_mark_dynamic


@dataclass(frozen=True)
class Dim:
    """A size of an export that is left open: dimensions of one name are equal.

    min, max: bounds, both included. Sizes 0 and 1 are never left open.
    """

    name: str
    min: int | None = None
    max: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"the name of a Dim is text, as 'batch', not {self.name!r}")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"Dim {self.name!r}: min {self.min} is greater than max {self.max}")


@dataclass(frozen=True)
class Size:
    """What is declared of one dimension.

    kept: a constant. must: an error where the program makes a constant of it. dim: its name and
    bounds; None: it has none. of: a size that is another one's is this function of that name's.
    """

    kept: bool = False
    must: bool = False
    dim: Dim | None = None
    of: tuple[str, Callable[[Any], Any]] | None = None


@dataclass(frozen=True)
class Declared:
    """A tensor among the arguments, what it is called in messages, its sizes by dimension."""

    tensor: torch.Tensor
    label: str
    sizes: Mapping[int, Size]


def declared(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], shapes: Any
) -> list[Declared]:
    """Every tensor of the arguments, with what `shapes` says of its sizes: those that it does not
    name are constants. Raises ExportError where the declaration does not fit the arguments."""
    collect = getattr(shapes, "dynamic_shapes", None)  # a collection of torch's, by tensor
    if callable(collect):
        shapes = collect(fn, tuple(args), dict(kwargs))
    found: list[Declared] = []
    named = _by_name(fn, args, kwargs)
    given = _by_argument(named, shapes)
    for name, value in named.items():
        _descend(value, given.get(name), name, found)
    return found


def _by_name(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    signature = _signature(fn)
    if signature is None:
        return {str(place): value for place, value in enumerate(args)} | dict(kwargs)
    return dict(signature.bind(*args, **kwargs).arguments)


def positional_names(fn: Callable[..., Any], count: int) -> tuple[str, ...]:
    """The names of the first `count` arguments; those of `*rest` are numbered."""
    signature = _signature(fn)
    parameters = [] if signature is None else [*signature.parameters.values()]
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "argument")
    return tuple((*names, *(f"{rest}_{number}" for number in range(count)))[:count])


def _signature(fn: Callable[..., Any]) -> inspect.Signature | None:
    """None: a function of C's that has none."""
    try:
        return inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn)
    except ValueError:
        return None


def _by_argument(named: Mapping[str, Any], shapes: Any) -> dict[str, Any]:
    """The part of a declaration that is for each argument of the call, by its name."""
    if shapes is None:
        return {}
    if isinstance(shapes, Mapping):
        given = dict(shapes)
        for name, value in named.items():  # those of **kwargs may be named one by one
            inside = given.keys() & value.keys() if isinstance(value, dict) else set()
            if name not in given and inside:
                given[name] = {key: given.pop(key) for key in inside}
        unknown = [key for key in given if key not in named and given[key] is not None]
        if unknown:
            raise ExportError(
                f"dynamic_shapes names {unknown[0]!r}, which is no argument of the call: "
                f"there are {', '.join(map(repr, named))}"
            )
        return given
    if not isinstance(shapes, list | tuple):
        raise ExportError(
            f"dynamic_shapes is a {type(shapes).__name__}: give a dict by the names of the "
            f"arguments, or a tuple with one entry for each of them"
        )
    if len(shapes) != len(named):
        raise ExportError(
            f"dynamic_shapes has {len(shapes)} entries for {len(named)} arguments: "
            f"{', '.join(map(repr, named))}"
        )
    return dict(zip(named, shapes))


def _descend(value: Any, shapes: Any, label: str, found: list[Declared]) -> None:
    """Pair the tensors in a value with the parts of its declaration."""
    if isinstance(value, torch.Tensor):
        found.append(Declared(value, label, _sizes(value, shapes, label)))
        return
    parts = _parts(value)
    if not parts:
        if shapes is not None and not _size(shapes, label).kept and not _is_automatic(shapes):
            raise ExportError(
                f"{label} is a {type(value).__name__}, which is a constant of an export: pass it "
                f"as a tensor, or declare None for it"
            )
        return
    if isinstance(shapes, Mapping):
        unknown = [key for key in shapes if key not in parts]
        if unknown:
            raise ExportError(f"dynamic_shapes names {label}[{unknown[0]!r}], which is not there")
        given = shapes
    elif shapes is None:
        given = {}
    elif isinstance(shapes, list | tuple) and len(shapes) == len(parts):
        given = dict(zip(parts, shapes))
    else:
        raise ExportError(f"{label} has {len(parts)} parts, dynamic_shapes has {shapes!r} for it")
    for key, part in parts.items():
        _descend(part, given.get(key), f"{label}[{key!r}]", found)


def _parts(value: Any) -> dict[Any, Any]:
    """What a container holds, by key or place; nothing of what is no container."""
    if isinstance(value, Mapping):
        return dict(value)
    children, _ = pytree.tree_flatten(value, is_leaf=lambda each: each is not value)
    return {} if len(children) == 1 and children[0] is value else dict(enumerate(children))


def _sizes(tensor: torch.Tensor, shapes: Any, label: str) -> dict[int, Size]:
    rank = tensor.dim()
    if shapes is None:
        given: dict[int, Any] = {}
    elif isinstance(shapes, Mapping):
        outside = [dim for dim in shapes if not isinstance(dim, int) or not -rank <= dim < rank]
        if outside:
            raise ExportError(f"{label} has {rank} dimensions: there is none {outside[0]!r}")
        given = {dim % rank: each for dim, each in shapes.items()}
    elif isinstance(shapes, list | tuple) and len(shapes) == rank:
        given = dict(enumerate(shapes))
    else:
        raise ExportError(
            f"{label} is a tensor of {rank} dimensions, dynamic_shapes has {shapes!r} for it: give "
            f"a dict by dimension, or a tuple with one entry for each of them"
        )
    found = {}
    for dim, length in enumerate(tensor.shape):
        where = f"dimension {dim} of {label}"
        size = found[dim] = _size(given.get(dim), where)
        if isinstance(given.get(dim), int) and given[dim] != length:
            raise ExportError(f"{where} is {length}, and is declared to be {given[dim]}")
        if size.dim is not None:
            _check_example(size.dim, length, where)
        if size.must and length < 2:
            raise ExportError(
                f"{where} is {length}, and sizes 0 and 1 are never left open: export with an "
                f"example of at least 2"
            )
    return found


def _check_example(dim: Dim, length: int, where: str) -> None:
    if (dim.min is not None and length < dim.min) or (dim.max is not None and length > dim.max):
        raise ExportError(f"{where} is {length}, outside of the bounds of {dim}")


def _is_automatic(shapes: Any) -> bool:
    kind = getattr(getattr(shapes, "type", None), "name", None)
    return kind == "AUTO"


def _size(given: Any, where: str) -> Size:
    """What one entry of a declaration means."""
    if given is None or isinstance(given, int):
        return Size(kept=True)
    if isinstance(given, str):
        return Size(must=True, dim=Dim(given))
    kind = getattr(getattr(given, "type", None), "name", None)
    bounds = (_bound(getattr(given, "min", None)), _bound(getattr(given, "max", None)))
    if kind in ("AUTO", "DYNAMIC", "STATIC"):
        unnamed = None if bounds == (None, None) else Dim("", *bounds)
        return Size(kept=kind == "STATIC", must=kind == "DYNAMIC", dim=unnamed)
    name = given.name if isinstance(given, Dim) else getattr(given, "__name__", None)
    if not isinstance(name, str) or not hasattr(given, "min"):
        raise ExportError(
            f"dynamic_shapes has {given!r} for {where}: give a name or a flambeau.Dim"
        )
    root = getattr(given, "root", None)
    of = None if root is None else (str(root.__name__), given.fn)
    return Size(must=True, dim=Dim(name, *bounds), of=of)


def _bound(given: Any) -> int | None:
    """A bound as a number: torch has an object for no bound at all."""
    return given if isinstance(given, int) else None


@contextlib.contextmanager
def marked(tensors: Sequence[Declared]) -> Iterator[None]:
    """Inside, the tensors have the marks that are declared; after, those that they had."""
    with contextlib.ExitStack() as stack:
        for each in {id(one.tensor): one for one in tensors}.values():
            stack.enter_context(marks_kept(each.tensor))
        for each in tensors:
            for dim, size in each.sizes.items():
                if size.kept:
                    mark_static(each.tensor, dim)
                else:
                    low, high = (None, None) if size.dim is None else (size.dim.min, size.dim.max)
                    maybe_mark_dynamic(each.tensor, dim, low, high)
        yield


def names_of_sizes(
    shapes: Sequence[Declared],
    leaves: Sequence[Any],
    stand_ins: Mapping[int, torch.Tensor],
    read: Container[int],
) -> dict[tuple[int, int], str]:
    """The names of open sizes by argument and dimension; read: the arguments that are computed
    with. Those that are declared equal, or one another's, are assumed to be. Raises ExportError
    where a declaration does not hold."""
    names: dict[tuple[int, int], str] = {}
    first: dict[str, Any] = {}  # by a size's name
    others: list[tuple[Any, str, Callable[[Any], Any]]] = []
    if stand_ins:  # what is declared is assumed now, and the conditions are read below
        compat.reopen_environment(next(iter(stand_ins.values())))
    for each in shapes:
        for at in (at for at, leaf in enumerate(leaves) if leaf is each.tensor):
            for dim, size in each.sizes.items():
                name = "" if size.dim is None else size.dim.name
                if name:
                    names[at, dim] = name
                if not size.must or not (at in stand_ins or at in read):
                    continue
                number = stand_ins.get(at, each.tensor).shape[dim]
                _open(number, f"dimension {dim} of {each.label}")
                if size.of is not None:
                    others.append((number, *size.of))
                elif name:
                    _equal(first.setdefault(name, number), number, f"all sizes {name!r}")
    for number, root, function in others:
        if root not in first:
            raise ExportError(f"a size is declared by {root!r}, which no argument has as a size")
        _equal(function(first[root]), number, f"what is declared by {root!r}")
    by_symbol: dict[Any, str] = {}
    for name, number in first.items():
        _open(number, f"the size {name!r}")
        other = by_symbol.setdefault(compat.decided(number), name)
        if other != name:
            raise ExportError(
                f"{other!r} and {name!r} have to be equal in this program: declare one name"
            )
    return names


def _open(number: Any, where: str) -> None:
    known = compat.decided(number) if isinstance(number, torch.SymInt) else number
    if isinstance(known, int):
        raise ExportError(
            f"{where} is declared open, and this program works for {known} only: declare "
            f"None there, or change the line that needs it (an exported graph has no other branch)"
        )


def _equal(one: Any, other: Any, what: str) -> None:
    """Assume that two sizes are equal, as the program would by comparing them."""
    if not bool(one == other):
        raise ExportError(
            f"{what} are declared equal, and are {compat.hint(one)} and {compat.hint(other)} in "
            f"the example"
        )
