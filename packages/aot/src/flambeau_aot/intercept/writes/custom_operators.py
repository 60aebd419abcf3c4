"""Functional forms of custom operators that write to their arguments.

In: an operator whose schema marks arguments as written to: tensors, lists of them, optional ones.
Out: an operator that takes the same arguments and returns, after the operator's own results, the
new value of every tensor that it would have written to. A call of one without a derivative, whether
it writes or not, comes here too: its results get the node that raises (`absent_formulas`).
Invariant: the new operator runs the old one, as it is registered at that call, on clones; tensors
that share memory with one that is written to are views of one clone. Its results are tensors, one
after the other, also where the old one returns a list among them: a graph has no lists in tuples.

The new operator's name has the old one's name and schema: one that is defined again with another
schema has a form of its own, and the form of before is never called with what the new one takes.

Custom operators without a derivative: results that require grad, a backward pass that raises. In:
an operator of `torch.library.custom_op` that has no `register_autograd`, what runs it, and the
tensors it is given. Out: its results, on a node of autograd that raises what torch's raises.
Invariant: a node whose message was taken gives no gradient: whoever took it raises.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from flambeau_aot._torch_compat import (
    copied,
    is_custom_op,
    is_operator,
    is_operator_packet,
    lacks_formula,
    operator_named,
)
from flambeau_aot.inputs.memory_overlap import Layouts, StorageLayout, near, overlaps_itself
from flambeau_aot.intercept.registry import Call
from flambeau_aot.joint.nested import map_tensors, tensors_in
from flambeau_aot.refusals import refusal


class WithoutFormula(torch.autograd.Function):
    """Results of an operator that has no derivative."""

    message: str

    @staticmethod
    def forward(ctx: Any, run: Callable[[], Sequence[Any]], *tensors: torch.Tensor) -> Any:
        return tuple(run())

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        if not getattr(ctx, "taken", False):
            raise RuntimeError(type(ctx)._forward_cls.message)
        return (None,) * len(ctx.needs_input_grad)


def without_formula(
    func: Any, run: Callable[[], Sequence[Any]], tensors: Sequence[torch.Tensor]
) -> list[Any]:
    """What `run` gives of these tensors, some of which require grad; it is run without autograd."""
    name = f"GeneratedBackwardFor_{func.namespace}_{func._opname}_{func._overloadname}"
    message = (
        f"Trying to backward through {func} but no autograd formula was registered. "
        f"Please use register_autograd to add one."
    )
    kind: Any = type(name, (WithoutFormula,), {"message": message})
    return list(kind.apply(run, *tensors))


def taken_message(node: Any) -> str | None:
    """What a node of autograd raises for want of a derivative; None for any other."""
    kind = getattr(type(node), "_forward_cls", None)
    if kind is None or not issubclass(kind, WithoutFormula):
        return None
    node.taken = True
    return str(kind.message)


NAMESPACE = "flambeau_aot_functional"
_TORCH_OWN = ("aten", "prims", "prim", "quantized", "mkldnn", "c10d", "_c10d_functional", NAMESPACE)
_ALIAS = re.compile(r"(?<=Tensor)\([^)]*\)|(?<=Tensor\?)\([^)]*\)")


def user_operator(func: Any) -> Any:
    """The overload of a user's operator that writes to arguments or has no derivative, None for
    anything else."""
    if is_operator_packet(func):
        if len(func.overloads()) != 1:
            return None
        func = getattr(func, func.overloads()[0])
    if not is_operator(func) or func.namespace in _TORCH_OWN:
        return None
    kinds = {str(result.type) for result in func._schema.returns}
    raises = lacks_formula(func) and kinds <= {"Tensor", "List[Tensor]"}
    return func if func._schema.is_mutable or raises else None


def call_user_operator(func: Any, call: Call, layouts: Layouts) -> Any:
    """Call such an operator: the functional form of one that writes, whose new values are written
    as ordinary copies then. The results of one without a derivative require grad all the same."""
    signature, mutable = _Signature(func._schema), func._schema.is_mutable
    given = signature.bound(call.args, call.kwargs)
    tensors = signature.recorded(given)
    recorded = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    if recorded and not is_custom_op(func):
        # What `custom_op` makes writes without autograd, as the copies below do.
        raise refusal("AO0088", func=func)
    if not recorded and not mutable:
        return call()
    written = signature.written(given) if mutable else []
    new: list[torch.Tensor] = []

    def run() -> list[torch.Tensor]:
        results = _functional(func, signature, given, written, layouts) if mutable else call()
        found = [*tensors_in(results)]
        new.extend(found[len(found) - len(written) :])
        return found[: len(found) - len(written)]

    if recorded and signature.has_own_results:
        own = without_formula(func, run, tensors)
    else:
        with torch.no_grad():
            own = run()
    with torch.no_grad():
        for target, value in zip(written, new, strict=True):
            target.copy_(value)
    return signature.answer(given, signature.own(own))


def _functional(
    func: Any,
    signature: _Signature,
    given: Mapping[str, Any],
    written: Sequence[torch.Tensor],
    layouts: Layouts,
) -> Any:
    """What the functional form gives: the operator's own results, then the new values."""
    memories, places = _shared_memory(func, signature, given, written, layouts)
    form = functional_form(func, len(written), bool(memories))
    if not memories:
        return form(**given)
    return form(memories, places, **_changed(signature, given, places, lambda place: None))


@dataclass(frozen=True)
class _Signature:
    """What a schema says of the arguments that are written to, and of the results."""

    schema: Any

    @staticmethod
    def writes(argument: Any) -> bool:
        """Whether the operator writes to an argument."""
        return argument.alias_info is not None and argument.alias_info.is_write

    @property
    def names(self) -> list[str]:
        """The names of the arguments."""
        return [str(argument.name) for argument in self.schema.arguments]

    def bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name, in the order of the schema; some may not be given."""
        known = {**dict(zip(self.names, args, strict=False)), **kwargs}
        return {name: known[name] for name in self.names if name in known}

    def written(self, given: Mapping[str, Any]) -> list[torch.Tensor]:
        """The tensors that are written to, in the order of the arguments."""
        return [
            tensor
            for argument in self.schema.arguments
            if self.writes(argument)
            for tensor in tensors_in(given.get(argument.name))
        ]

    def recorded(self, given: Mapping[str, Any]) -> list[torch.Tensor]:
        """The tensors that autograd looks at: those of arguments that may have no name."""
        plain = [x.name for x in self.schema.arguments if not x.kwarg_only]
        return [*tensors_in([given.get(name) for name in plain])]

    @property
    def has_own_results(self) -> bool:
        """Whether a result is none of the arguments."""
        return any(self.source(result) is None for result in self.results)

    def answer(self, given: Mapping[str, Any], own: Sequence[Any]) -> Any:
        """What the call returns, of which `own` is what is no argument."""
        rest = iter(own)
        sources = [self.source(result) for result in self.results]
        found = [next(rest) if name is None else given[name] for name in sources]
        return found[0] if len(found) == 1 else (tuple(found) if found else None)

    @property
    def lists(self) -> list[int]:
        """Which of the results that are no arguments are lists of tensors."""
        own = [result for result in self.results if self.source(result) is None]
        found = [at for at, result in enumerate(own) if str(result.type) != "Tensor"]
        if found and (len(found) > 1 or str(own[found[0]].type) != "List[Tensor]"):
            raise refusal("AO0089", name=self.schema.name)
        return found

    def own(self, flat: Sequence[Any]) -> list[Any]:
        """The results that are no arguments, which were returned one after the other."""
        found = list(flat)
        for at in self.lists:
            single = sum(self.source(result) is None for result in self.results) - 1
            end = len(found) - (single - at)
            found = [*found[:at], found[at:end], *found[end:]]
        return found

    @property
    def results(self) -> list[Any]:
        """The schema's results; `-> None` is none."""
        return [result for result in self.schema.returns if str(result.type) != "NoneType"]

    def source(self, result: Any) -> str | None:
        """The argument that a result is; None for one of its own."""
        if result.alias_info is None:
            return None
        for argument in self.schema.arguments:
            if self.writes(argument) and str(argument.type) == "Tensor":
                info = argument.alias_info
                if result.alias_info.is_write and info.before_set & result.alias_info.before_set:
                    return str(argument.name)
        raise refusal("AO0090", name=self.schema.name)


def _leaves(signature: _Signature, given: Mapping[str, Any]) -> list[tuple[int, int, Any]]:
    """The tensors of a call, each with the place of its argument and its place in a list."""
    found: list[tuple[int, int, Any]] = []
    for at, name in enumerate(signature.names):
        value = given.get(name)
        if isinstance(value, torch.Tensor):
            found.append((at, -1, value))
        elif isinstance(value, (list, tuple)):
            found += [(at, n, x) for n, x in enumerate(value) if isinstance(x, torch.Tensor)]
    return found


def _shared_memory(
    func: Any,
    signature: _Signature,
    given: Mapping[str, Any],
    written: Sequence[torch.Tensor],
    found: Layouts,
) -> tuple[list[torch.Tensor], list[Any]]:
    """Memory that a tensor that is written to shares with another argument.

    Out: a flat tensor for each such memory; and of each tensor in one, the places of its argument,
    the memory it is in, its number of dimensions, sizes, strides and offset there.
    """
    leaves = _leaves(signature, given)
    layouts = [found.of(tensor) for _, _, tensor in leaves]
    for (_, _, tensor), layout in zip(leaves, layouts, strict=True):
        if any(tensor is x for x in written) and overlaps_itself(layout):
            raise refusal("AO0091", func=func)
    memories: list[torch.Tensor] = []
    places: list[Any] = []
    for group in _near_each_other(layouts):
        members = [(leaves[index], layouts[index]) for index in group]
        if len(group) == 1 or not any(x[2] is y for x, _ in members for y in written):
            continue
        if len({(layout.dtype, layout.root) for _, layout in members}) > 1:
            raise refusal("AO0092", func=func)
        begin = min(layout.offset for _, layout in members)
        memory = members[0][0][2].new_zeros([max(x.stop for _, x in members) - begin])
        for (at, item, tensor), layout in members:
            where = layout.shape, layout.stride, layout.offset - begin
            if not layout.empty and not overlaps_itself(layout):
                memory = torch.as_strided_scatter(memory, tensor, *where)
            elif not layout.empty:
                raise refusal("AO0093", func=func)
            places += [at, item, len(memories), len(where[0]), *where[0], *where[1], where[2]]
        memories.append(memory)
    return memories, places


def _near_each_other(layouts: Sequence[StorageLayout]) -> list[list[int]]:
    """Tensors put together where their memory, from first to last element, overlaps."""
    groups: list[list[int]] = []
    for index, layout in enumerate(layouts):
        beside = [group for group in groups if any(near(layout, layouts[at]) for at in group)]
        groups = [group for group in groups if group not in beside]
        groups.append([*(at for group in beside for at in group), index])
    return groups


def _placed(places: Sequence[Any]) -> dict[tuple[int, int], tuple[Any, ...]]:
    """By the places of an argument, its memory, sizes, strides and offset."""
    found: dict[tuple[int, int], tuple[Any, ...]] = {}
    at = 0
    while at < len(places):
        argument, item, memory, dims = places[at : at + 4]
        at += 4
        size, stride = list(places[at : at + dims]), list(places[at + dims : at + 2 * dims])
        found[int(argument), int(item)] = int(memory), size, stride, places[at + 2 * dims]
        at += 2 * dims + 1
    return found


def _changed(
    signature: _Signature,
    given: Mapping[str, Any],
    places: Sequence[Any],
    change: Callable[[tuple[Any, ...]], Any],
) -> dict[str, Any]:
    """The arguments with others for the tensors that are parts of memories."""
    found = dict(given)
    for (argument, item), place in _placed(places).items():
        name = signature.names[argument]
        if item < 0:
            found[name] = change(place)
        else:
            found[name] = list(found[name])
            found[name][item] = change(place)
    return found


def functional_form(func: Any, count: int, in_memories: bool = False) -> Any:
    """The operator that returns what `func` writes to `count` tensors.

    in_memories: whether it takes memories first, and what is where in them, with None in place of
    the tensors that are.
    """
    signature = _Signature(func._schema)
    text, called = str(func._schema), str(func)
    form = "_in_memories" if in_memories else ""
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    name = re.sub(r"\W", "_", f"{called.removesuffix('.default')}_{count}{form}_{digest}")
    if (known := getattr(getattr(torch.ops, NAMESPACE), name, None)) is not None:
        return known.default

    def run(*args: Any, **kwargs: Any) -> Any:
        current = operator_named(called)
        if str(current._schema) != text:
            raise RuntimeError(
                f"{called} was defined again with another schema after this was compiled: "
                f"{current._schema}, and not {text}"
            )
        views: set[int] = set()
        if in_memories:
            memories, places, *args = args  # type: ignore[assignment]
            given = _on_clones(signature, signature.bound(args, kwargs), memories, places, views)
        else:
            given = signature.bound(args, kwargs)
        for argument in signature.schema.arguments:
            if signature.writes(argument) and argument.name in given:
                given[argument.name] = map_tensors(
                    given[argument.name], lambda x: x if id(x) in views else copied(x)
                )
        results = current(**given)
        results = (results,) if len(signature.results) == 1 else results or ()
        pairs = zip(results, signature.results, strict=True)
        own = [value for value, result in pairs if signature.source(result) is None]
        new = [copied(x) if id(x) in views else x for x in signature.written(given)]
        if signature.lists:
            return [*tensors_in(own), *new]
        values = (*own, *new)
        return values if len(values) > 1 else next(iter(values), None)

    qualified = f"{NAMESPACE}::{name}"
    torch.library.define(qualified, _form_schema(signature, text, count, in_memories))
    torch.library.impl(qualified, "CompositeExplicitAutograd", run)
    torch.library.register_fake(qualified, run)
    return getattr(getattr(torch.ops, NAMESPACE), name).default


def _form_schema(signature: _Signature, text: str, count: int, in_memories: bool) -> str:
    """The schema of the functional form of the operator with this one."""
    plain = _ALIAS.sub("", text)
    end = plain.rindex(") -> ")
    arguments = plain[plain.index("(") + 1 : end]
    if in_memories:
        arguments = re.sub(r"\bTensor\b(?!\?)", "Tensor?", arguments)
        arguments = ", ".join(["Tensor[] memories", "SymInt[] places", *filter(None, [arguments])])
    if signature.lists:  # how many it has is in no schema
        return f"({arguments}) -> Tensor[]"
    returns = plain[end + len(") -> ") :].removeprefix("(").removesuffix(")")
    types = [_ALIAS.sub("", part.split(" ")[0]) for part in returns.split(", ") if part]
    kept = [kind for kind, result in zip(types, signature.results) if not signature.source(result)]
    return f"({arguments}) -> ({', '.join([*kept, *['Tensor'] * count])})"


def _on_clones(
    signature: _Signature,
    given: Mapping[str, Any],
    memories: Sequence[torch.Tensor],
    places: Sequence[Any],
    views: set[int],
) -> dict[str, Any]:
    """The arguments with views of clones of the memories; the views are noted in `views`."""
    clones = [memory.clone() for memory in memories]

    def view(place: tuple[Any, ...]) -> torch.Tensor:
        made: torch.Tensor = clones[place[0]].as_strided(*place[1:])
        views.add(id(made))
        return made

    return _changed(signature, given, places, view)
