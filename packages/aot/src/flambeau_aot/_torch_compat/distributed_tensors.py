"""Meshes and placements of distributed tensors as data, and again.

In: what a distributed tensor flattens to. Out: data of JSON's kinds, the same in every process, and
that again, given the meshes of a process. Invariant: nothing is imported that the program has not
imported; what is not known in full has no form. Tried on torch 2.11 and 2.13.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import fx

_TENSORS = "torch.distributed.tensor"
_PLACEMENTS = f"{_TENSORS}.placement_types"
_SPECS = f"{_TENSORS}._dtensor_spec"
_DTYPES = {str(each): each for each in vars(torch).values() if isinstance(each, torch.dtype)}
#: what says all of a placement, by the name of its class
_OF_PLACEMENTS: Mapping[str, tuple[str, ...]] = {
    "Shard": ("dim",),
    "_StridedShard": ("dim", "split_factor"),
    "Replicate": (),
    "Partial": ("reduce_op",),
}


def is_mesh(value: object) -> bool:
    """Whether a value is a mesh of devices."""
    module = sys.modules.get("torch.distributed.device_mesh")
    return module is not None and isinstance(value, module.DeviceMesh)


def is_distributed_tensor(value: object) -> bool:
    """Whether a value is a distributed tensor, of torch's own class."""
    return type(value) is distributed_tensor_class()


def distributed_tensor_class() -> Any:
    """Torch's class of distributed tensors; None where the program has not imported it."""
    module = sys.modules.get(_TENSORS)
    return None if module is None else module.DTensor


def laid_out_alike(value: Any, like: Any) -> bool:
    """Whether a distributed tensor lies on the mesh as another one; true of what is plain."""
    return not is_distributed_tensor(value) or value.placements == like.placements


def own_part(value: Any, like: Any = None) -> Any:
    """A distributed tensor's part on this rank, laid out like another one; what is plain, as it
    is."""
    if not is_distributed_tensor(value):
        return value
    return (value if like is None else value.redistribute(placements=like.placements)).to_local()


def spread_like(value: Any, part: Any) -> Any:
    """A distributed tensor of a new part, in the place of one; for what is plain, the part."""
    if not is_distributed_tensor(value):
        return part
    sizes = {"shape": value.shape, "stride": value.stride()}
    return type(value).from_local(part, value.device_mesh, value.placements, **sizes)


def mesh_text(mesh: Any) -> str:
    """A mesh as the graph of one process has it: its ranks, its groups, and the process's place."""
    groups = [mesh.get_group(axis).group_name for axis in range(mesh.ndim)]
    ranks, names = mesh.mesh.tolist(), mesh.mesh_dim_names
    return f"{mesh.device_type} {ranks} {names} {groups} at {mesh.get_coordinate()}"


def meshes_in(values: Iterable[Any], gm: fx.GraphModule) -> Iterator[Any]:
    """The meshes of distributed tensors, and those that the targets of a graph are given."""
    for value in values:
        if is_distributed_tensor(value):
            yield value.device_mesh
    for node in gm.graph.nodes:
        yield from filter(is_mesh, getattr(node.target, "given", {}).values())


def distributed_data(value: Any) -> Any:
    """A part of what a distributed tensor flattens to. Raises LookupError for what has no form."""
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, torch.dtype):
        return {"dtype": str(value)}
    if is_mesh(value):
        return {"mesh": mesh_text(value)}
    kind = type(value)
    if kind.__module__ == _PLACEMENTS and kind.__name__ in _OF_PLACEMENTS:
        given = {name: getattr(value, name) for name in _OF_PLACEMENTS[kind.__name__]}
        return {"placement": [kind.__name__, given]}
    if kind.__module__ in (_SPECS, _PLACEMENTS) and isinstance(value, tuple):
        return {"named": [kind.__module__, kind.__name__, [*map(distributed_data, value)]]}
    if kind.__module__ == _SPECS and is_dataclass(value):
        own = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
        return {"spec": {name: distributed_data(item) for name, item in own.items()}}
    if kind in (tuple, torch.Size):
        return {"tuple": [*map(distributed_data, value)]}
    raise LookupError(f"a {kind.__qualname__} of a distributed tensor: {value!r}")


def distributed_from(data: Any, meshes: Mapping[str, Any]) -> Any:
    """What `distributed_data` was given; meshes: those of this process, by their text. Raises
    LookupError for a mesh that is not there."""
    if not isinstance(data, dict):
        return data
    ((kind, content),) = data.items()
    if kind == "dtype":
        return _DTYPES[content]
    if kind == "mesh":
        return meshes[content]
    if kind == "placement":
        name, given = content
        return getattr(sys.modules[_PLACEMENTS], name)(**given)
    if kind == "named":
        module, name, parts = content
        return getattr(sys.modules[module], name)(*(distributed_from(x, meshes) for x in parts))
    if kind == "spec":
        own = {name: distributed_from(item, meshes) for name, item in content.items()}
        return sys.modules[_SPECS].DTensorSpec(**own)
    return tuple(distributed_from(item, meshes) for item in content)
