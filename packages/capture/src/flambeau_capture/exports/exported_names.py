"""Names in an export: those of the module for its tensors, of the function for its arguments.

In: a graph with tensors as attributes of a module without structure; the module that was exported.
Out: the graph reading them under the module's names, and what holds them. Invariant: whoever holds
them has the parameters and buffers of the module, used or not, under its names and in its order, so
that a state of the one is a state of the other; what else the graph reads is no state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from flambeau_capture.graph.builder import hold

TABLES = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")
"""Where a module keeps what it holds."""


def named_as_in(source: torch.nn.Module, graph: fx.Graph, root: torch.nn.Module) -> torch.nn.Module:
    """Let a graph over `root` read what `source` has under its names there, and say what holds it
    all."""
    holder = _state_of(source, {})
    names: dict[int, str] = {}
    for name, tensor, _ in named_tensors(holder):
        names.setdefault(id(tensor), name)
    plain = {id(tensor): name for name, tensor in _plain_tensors(source)}
    for node in graph.find_nodes(op="get_attr"):
        value = attrgetter(str(node.target))(root)
        name = names.get(id(value), "")
        if not name:
            name = plain.get(id(value), str(node.target))
            while _taken(holder, name):
                name += "_"
            place(holder, name, value, state=False)
            names[id(value)] = name
        with graph.inserting_before(node):
            read = graph.get_attr(name, node.type)
        read.meta = node.meta
        node.replace_all_uses_with(read)
        graph.erase_node(node)
    return holder


def named_tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor, bool]]:
    """Parameters and buffers under each of their names, in the order of a module's state, and
    whether they are part of that; none of those of graphs inside."""
    for name, each in module.named_modules(remove_duplicate=False):
        if each is not module and isinstance(each, fx.GraphModule):
            continue
        prefix = f"{name}." if name else ""
        for own, tensor in (*each._parameters.items(), *each._buffers.items()):
            if tensor is not None:
                yield prefix + own, tensor, own not in each._non_persistent_buffers_set


def place(
    root: torch.nn.Module, name: str, value: torch.Tensor | torch.nn.Module, state: bool = True
) -> None:
    """Make a tensor, or a graph, an attribute under a name with dots."""
    *path, own = name.split(".")
    for part in path:
        if part not in root._modules:
            root.add_module(part, torch.nn.Module())
        root = root.get_submodule(part)
    hold(root, own, value)
    if not state and own in root._buffers:
        root._non_persistent_buffers_set.add(own)


def argument_names(in_spec: Any, positional: Sequence[str]) -> list[str]:
    """A name for each leaf of `(args, kwargs)`: the argument's, and the way into it."""
    tree = pytree.tree_unflatten([None] * in_spec.num_leaves, in_spec)
    found = []
    leaves, _ = pytree.tree_flatten_with_path(tree, is_leaf=lambda leaf: leaf is None)
    for (side, argument, *way), _ in leaves:
        first = positional[argument.idx] if side.idx == 0 else argument.key  # type: ignore[attr-defined]
        name = re.sub(r"\W+", "_", f"{first}{pytree.keystr(tuple(way))}").strip("_")
        found.append(name if name.isidentifier() and name != "self" else f"arg_{name}")
    return found


def differing_argument(given: Any, wanted: Any, positional: Sequence[str]) -> str:
    """In words, the first argument in which the structure of a call is not that of the export."""
    (args, kwargs), (own_args, own_kwargs) = given.children(), wanted.children()
    for name, one, other in zip(positional, args.children(), own_args.children()):
        if one != other:
            return _differing_part(name, one, other)
    if args.num_children > own_args.num_children:
        return f"{args.num_children} arguments by place, exported for {own_args.num_children}"
    names = [*positional[args.num_children :], *own_kwargs.context]
    for name in names:
        if name not in kwargs.context:
            return f"{name} is not given"
    for name in kwargs.context:
        if name not in names:
            return f"{name} is given, exported for a call without it"
    for name in positional[args.num_children :]:
        return f"{name} is given by name, exported for it by place"
    if kwargs.context != own_kwargs.context:
        ordered = (", ".join(each.context) for each in (kwargs, own_kwargs))
        return "{} by name, exported for the order {}".format(*ordered)
    parts = zip(names, kwargs.children(), own_kwargs.children())
    return next(_differing_part(*each) for each in parts if each[1] != each[2])


def _differing_part(name: str, given: Any, wanted: Any) -> str:
    kinds = (given.type, given.context, given.num_children)
    if kinds == (wanted.type, wanted.context, wanted.num_children):
        keys = given.context if given.type is dict else range(given.num_children)
        for key, one, other in zip(keys, given.children(), wanted.children(), strict=True):
            if one != other:
                return _differing_part(f"{name}[{key!r}]", one, other)
    return f"{name} is {_in_words(given)}, exported for {_in_words(wanted)}"


def _in_words(structure: Any) -> str:
    if structure.is_leaf():
        return "a single value"
    if structure.type is dict:
        return f"a dict with the keys {structure.context}"
    return f"a {structure.type.__name__} of {structure.num_children}"


def _state_of(
    source: torch.nn.Module, made: dict[torch.nn.Module, torch.nn.Module]
) -> torch.nn.Module:
    """A module that holds the same parameters and buffers, and computes nothing."""
    if source not in made:
        mirror = made[source] = torch.nn.Module()
        for table in ("_parameters", "_buffers"):
            vars(mirror)[table].update(getattr(source, table).items())
        mirror._non_persistent_buffers_set.update(source._non_persistent_buffers_set)
        for name, child in source._modules.items():
            mirror._modules[name] = None if child is None else _state_of(child, made)
    return made[source]


def _plain_tensors(source: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors that are attributes and neither parameters nor buffers."""
    for name, module in source.named_modules():
        for own, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                yield (f"{name}.{own}" if name else own), value


def _taken(root: torch.nn.Module, name: str) -> bool:
    try:
        attrgetter(name)(root)
    except AttributeError:
        return False
    return True
