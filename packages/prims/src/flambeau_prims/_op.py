"""The primitive type, and the registry of primitives.

In: a schema, a shape rule, an eager implementation, tags. Out: a `torch.library` operator
`torch.ops.flambeau_prims.<name>.default` and a `Prim` that describes it.
Invariant: the shape rule is pure Python on `TensorMeta`; for the same arguments it predicts the
metadata of what the eager implementation returns.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import torch

from flambeau_prims._torch_compat import OpOverload, parameters, register_fake, unlogged
from flambeau_prims.shape_rules import Size, TensorMeta

NAMESPACE = "flambeau_prims"

MetaResult: TypeAlias = TensorMeta | tuple[TensorMeta | None, ...]
Rule: TypeAlias = Callable[..., MetaResult]
Cost: TypeAlias = Callable[[tuple[Any, ...], MetaResult], Size]

TAGS = frozenset(
    {
        *("pointwise", "reduction", "scan", "view", "shape", "index", "creation", "random"),
        *("matmul", "library", "mutating", "sort", "complex", "fft", "linalg", "special", "effect"),
        "data_dependent",  # the size of a result depends on elements, not on shapes alone
    }
)

EXACT_TAGS = frozenset({"view", "shape", "index", "sort", "creation"})
"""What primitives of these kinds give are bits that they were given."""

EDGES = (
    *("nan", "infinity", "signed zero", "integers", "complex", "overflow", "domain", "ties"),
    *("duplicates", "empty", "out of range", "note"),
)
"""What an entry of `edge_cases` may be about; a plain text is filed under `note`."""


class PrimError(ValueError):
    """A primitive was called with arguments that its shape rule does not allow."""


unlogged(PrimError)


class NotYetSymbolic(NotImplementedError):
    """A symbolic size where a stage can only take a number."""


@dataclass(frozen=True)
class Prim:
    """One primitive: `overload` is what graphs call, `rule` what it returns on metadata."""

    name: str
    schema: str
    doc: str
    tags: frozenset[str]
    rule: Rule
    eager: Callable[..., Any]
    flop_rule: Cost
    overload: OpOverload
    family: str = ""
    shape: str = ""
    edge_cases: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    differentiable: bool | str | None = None
    dtypes: frozenset[torch.dtype] | None = None
    byte_rule: Cost | None = None
    exact: bool = False
    reason: str = ""

    def is_exact(self, dtype: torch.dtype) -> bool:
        """Whether the bits of a result are decided for operands of a dtype, so that any way to
        compute it gives what eager gives (of NaN: NaN): by IEEE 754 where `exact`, and for
        integers and bools always. Other results are as near to the true ones as eager's."""
        return self.exact or not (dtype.is_floating_point or dtype.is_complex)

    def predicted(self, args: Iterable[Any], kwargs: Mapping[str, Any]) -> MetaResult:
        """What the rule says of a call on tensors."""
        return self.rule(*map(metas_of, args), **{k: metas_of(v) for k, v in kwargs.items()})

    def flops(self, *args: Any, **kwargs: Any) -> Size:
        """Arithmetic operations of a call with `args` (tensors as `TensorMeta`)."""
        return self.flop_rule(args, self.rule(*args, **kwargs))

    def bytes(self, *args: Any, **kwargs: Any) -> Size:
        """Bytes read and written by a call when nothing is fused; a view moves none."""
        if "view" in self.tags:
            return 0
        result = self.rule(*args, **kwargs)
        if self.byte_rule is not None:
            return self.byte_rule(args, result)
        moved: Size = 0
        for meta in tensor_metas((*args, result)):
            moved = moved + meta.nbytes()
        return moved


PRIMS: dict[str, Prim] = {}
"""All primitives by name, in the order of their definition."""

_BY_OVERLOAD: dict[OpOverload, Prim] = {}
_LIBRARY = torch.library.Library(NAMESPACE, "DEF")
_REGISTRARS: dict[Any, dict[str, Any]] = {}
_DONE: set[tuple[str, str]] = set()


def is_begun_anew(key: object) -> bool:
    """Whether the module that registers `key` now has done so before, in an import that was
    interrupted: Python forgets such a module, whose registrations stay."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    here = frame.f_globals
    before = _REGISTRARS.get(key, here)
    _REGISTRARS[key] = here
    return before is not here and before["__name__"] == here["__name__"]


def _once(name: str, step: str, register: Callable[..., object], *given: Any) -> None:
    """A step of a registration with torch, unless it was done before an interruption."""
    if (name, step) not in _DONE:
        register(*given)
        _DONE.add((name, step))


def prim_of(target: object) -> Prim | None:
    """The primitive that a graph node's target calls, or None."""
    return _BY_OVERLOAD.get(target) if isinstance(target, OpOverload) else None


def define(
    schema: str,
    *,
    rule: Rule,
    eager: Callable[..., Any],
    tags: Sequence[str],
    doc: str,
    flops: Cost | None = None,
    meta: Callable[..., Any] | None = None,
    fake: Callable[..., Any] | None = None,
    family: str | None = None,
    shape: str = "",
    edge_cases: str | Mapping[str, str] = "",
    source: str = "",
    differentiable: bool | str | None = None,
    dtypes: frozenset[torch.dtype] | None = None,
    bytes_moved: Cost | None = None,
    exact: bool | None = None,
    reason: str = "",
) -> OpOverload:
    """Register a primitive and return its overload.

    `schema` is without namespace. `meta` replaces the kernel for meta tensors that is made from
    `rule` (a primitive that returns its own argument needs it). `fake` is a kernel for meta and
    fake tensors alike, needed where the device of the result is not that of the operands.

    For the catalogue and for backends:
    - `doc`: the mathematical definition; `shape`: the shape rule in words;
    - `edge_cases`: what happens where a reader would have to guess, by the names in `EDGES`;
    - `source`: the paper, standard or manual that the definition follows;
    - `differentiable`: False if the result is constant wherever it is defined, or through which
      formula if that needs saying; None: as the dtypes of operands and results say;
    - `dtypes`: dtypes that the first tensor operand may have (None: found by asking the rule);
    - `exact`: whether IEEE 754 decides every bit of the result (None: as the tags say);
    - `family`: the heading it is listed under; None is the module of the rule;
    - `flops`, `bytes_moved`: cost rules;
    - `reason`: why a library computes it, where no kernel does.
    """
    declared = _declared(schema)
    name = declared.name
    edges = {"note": edge_cases} if isinstance(edge_cases, str) else dict(edge_cases)
    unknown = (set(tags) - TAGS) | (edges.keys() - set(EDGES))
    if is_begun_anew(name) and name in PRIMS:
        return PRIMS[name].overload
    if name in PRIMS:
        raise ValueError(f"{name}: defined twice")
    if unknown:
        raise ValueError(f"{name}: unknown tags or edge cases: {', '.join(sorted(unknown))}")
    family = family or (rule.__module__ or "").rpartition(".")[2]
    rule = _named(name, schema, _selecting(declared, rule), dtypes)
    impl = _LIBRARY.impl
    _once(name, "schema", _LIBRARY.define, schema)
    _once(name, "eager", impl, name, eager, "CompositeExplicitAutograd")
    if fake is not None:
        _once(name, "fake", register_fake, _LIBRARY, f"{NAMESPACE}::{name}", fake)
    else:
        _once(name, "meta", impl, name, meta or _meta_kernel(rule), "Meta")
    # A primitive has no derivative of its own: what runs below sees the inputs as they are.
    _once(name, "grad", impl, name, torch.library.fallthrough_kernel, "Autograd")
    overload: OpOverload = getattr(getattr(torch.ops, NAMESPACE), name).default
    prim = Prim(
        name=name,
        schema=schema,
        doc=doc,
        tags=frozenset(tags),
        rule=rule,
        eager=eager,
        flop_rule=flops or _no_flops,
        overload=overload,
        family=family,
        shape=shape,
        edge_cases={about: text for about, text in edges.items() if text},
        source=source,
        differentiable=differentiable,
        dtypes=dtypes,
        byte_rule=bytes_moved,
        exact=bool(EXACT_TAGS & set(tags)) if exact is None else exact,
        reason=reason,
    )
    PRIMS[name] = prim
    _BY_OVERLOAD[overload] = prim
    return overload


def primitive(
    schema: str, eager: Callable[..., Any], **notes: Any
) -> Callable[[Rule], Callable[..., Any]]:
    """Define the primitive of which the decorated function is the shape rule, and its docstring the
    definition; `notes` are those of `define`.

    The rule takes those of the schema's arguments that the result's metadata depends on, by their
    names. What is returned is the registered rule, which takes all of them.
    """
    name = _declared(schema).name

    def register(rule: Rule) -> Rule:
        doc = " ".join((rule.__doc__ or "").split())
        define(schema, rule=rule, eager=eager, **{"doc": doc, **notes})
        return PRIMS[name].rule

    return register


class _Declared(NamedTuple):
    """A primitive's name and its arguments: how many may be given by position, how many must."""

    name: str
    arguments: list[str]
    positional: int
    required: int


def _declared(schema: str) -> _Declared:
    start = schema.index("(")
    parts = schema[start + 1 : schema.rindex(") ->")].split(",")
    words = [part.split()[-1] for part in parts if part.strip()]
    positional = words.index("*") if "*" in words else len(words)
    names = [word.partition("=")[0] for word in words if word != "*"]
    required = len(names) - sum("=" in word for word in words)
    return _Declared(schema[:start], names, positional, required)


def _selecting(declared: _Declared, rule: Rule) -> Rule:
    """`rule`, called with those of the declared arguments that it takes."""
    names = declared.arguments
    code = getattr(rule, "__code__", None)
    if code is None or code.co_flags & inspect.CO_VARARGS:
        return rule
    own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    read = [place for place, name in enumerate(names) if name in own]
    if len(read) == len(names) or [names[place] for place in read] != list(own):
        return rule

    @functools.wraps(rule)
    def selecting(*args: Any, **kwargs: Any) -> MetaResult:
        known = len(args) <= declared.positional and kwargs.keys() <= set(names[len(args) :])
        if not known or len(args) + len(kwargs) < declared.required:
            raise TypeError(f"{len(args)} arguments and {', '.join(kwargs)}")
        chosen = [args[place] for place in read if place < len(args)]
        return rule(*chosen, **{key: value for key, value in kwargs.items() if key in own})

    return selecting


def _named(name: str, schema: str, rule: Rule, dtypes: frozenset[torch.dtype] | None) -> Rule:
    """`rule`, with errors that begin with the primitive's name whatever it trips over; tensors of
    other dtypes than `dtypes` are refused."""

    @functools.wraps(rule)
    def named(*args: Any, **kwargs: Any) -> MetaResult:
        try:
            if dtypes is not None and args:
                require(args[0].dtype in dtypes, f"not defined on {args[0].dtype}")
            return rule(*args, **kwargs)
        except PrimError as error:
            if str(error).startswith(f"{name}:"):
                raise
            raise type(error)(f"{name}: {error}") from None
        except (TypeError, IndexError, AttributeError) as error:
            raise PrimError(f"{name}: {_misfit(name, args, kwargs) or error}; {schema}") from error

    return named


def _misfit(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """The first argument that is no tensor where the schema has one, or is missing, in words."""
    wanted = parameters(PRIMS[name].overload)
    if len(args) > len(wanted):
        return f"{len(args)} arguments, {len(wanted)} at most"
    given = {**{p.name: a for p, a in zip(wanted, args, strict=False)}, **kwargs}
    for parameter in wanted:
        if parameter.name not in given:
            if parameter.required:
                return f"argument {parameter.name} is missing"
        elif parameter.type == "Tensor" and not isinstance(given[parameter.name], TensorMeta):
            return f"argument {parameter.name} is {spell(given[parameter.name])}, not a tensor"
    spelled = [f"{key}={spell(value)}" for key, value in given.items()]
    return f"({', '.join(spelled)}) does not fit"


def spell(value: Any) -> str:
    """An argument as messages show it: a tensor by dtype and shape."""
    if isinstance(value, TensorMeta):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(spell, value))}]"
    return str(value)


def metas_of(value: Any) -> Any:
    """`value` with each tensor in it (also in a list) replaced by its `TensorMeta`."""
    if isinstance(value, torch.Tensor):
        return TensorMeta.of(value)
    if isinstance(value, (list, tuple)):
        return [TensorMeta.of(v) if isinstance(v, torch.Tensor) else v for v in value]
    return value


def _meta_kernel(rule: Rule) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        result = rule(*map(metas_of, args), **{k: metas_of(v) for k, v in kwargs.items()})
        return (
            _empty(result) if isinstance(result, TensorMeta) else tuple(map(_empty, result)) or None
        )

    return kernel


def empty_as(meta: Any, device: torch.device | str) -> torch.Tensor:
    """Memory of a shape, layout and dtype, on a device of its own."""
    return torch.empty_strided(meta.shape, meta.stride, dtype=meta.dtype, device=device)


def _empty(meta: TensorMeta | None) -> torch.Tensor | None:
    return None if meta is None else empty_as(meta, "meta")


def tensor_metas(args: Sequence[Any]) -> list[TensorMeta]:
    """All `TensorMeta` among `args`, also those inside lists and tuples."""
    found: list[TensorMeta] = []
    for arg in args:
        if isinstance(arg, TensorMeta):
            found.append(arg)
        elif isinstance(arg, (list, tuple)):
            found.extend(item for item in arg if isinstance(item, TensorMeta))
    return found


def _no_flops(args: tuple[Any, ...], result: MetaResult) -> Size:
    return 0


def flops_per_output(weight: int) -> Cost:
    """Cost rule: `weight` operations for each element of the (first) result."""

    def cost(args: tuple[Any, ...], result: MetaResult) -> Size:
        return weight * tensor_metas((result,))[0].numel()

    return cost


def flops_per_input(weight: int) -> Cost:
    """Cost rule: `weight` operations for each element of the first argument."""

    def cost(args: tuple[Any, ...], result: MetaResult) -> Size:
        first: TensorMeta = args[0]
        return weight * first.numel()

    return cost


def in_layout(result: Any, expected: MetaResult) -> Any:
    """`result` of a library call in the strides that the rule promised, copied if elements move.

    A library may choose its own layout; compiled code relies on the one that was predicted.
    """
    if isinstance(expected, TensorMeta):
        if tuple(result.stride()) == tuple(expected.stride):
            return result
        if is_same_layout(result, expected):
            return result.as_strided(result.shape, expected.stride)
        return empty_as(expected, result.device).copy_(result)
    return tuple(
        None if meta is None else in_layout(part, meta)
        for part, meta in zip(result, expected, strict=True)
    )


def is_same_layout(tensor: torch.Tensor, expected: TensorMeta) -> bool:
    """Equal strides wherever a stride matters: not in dimensions of size 1, nor if empty."""
    if tensor.numel() == 0:
        return True
    pairs = zip(tensor.shape, tensor.stride(), expected.stride, strict=True)
    return all(size == 1 or a == b for size, a, b in pairs)


def require(condition: bool, message: str) -> None:
    """Raise `PrimError(message)` unless `condition`; of a rule the primitive's name precedes it."""
    if not condition:
        raise PrimError(message)
