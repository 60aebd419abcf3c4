"""Saved form of what is around a plain program whose tensors are distributed: data, and again.

In: an `Unwrapped` program. Out: data of JSON's kinds; from these and the graph it is of, the call
around a restored plain program. Invariant: only torch's distributed tensors have a form; meshes are
those of the process that restores, known by what `mesh_text` says of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import fx

from flambeau_aot._torch_compat import (
    distributed_data,
    distributed_from,
    distributed_tensor_class,
    flattens,
    mesh_text,
    meshes_in,
)
from flambeau_aot.inputs.binding import SubclassSpec, spec_of
from flambeau_aot.interface import Boxed
from flambeau_aot.joint.program import InputProgram
from flambeau_aot.runtime.call import Compiled
from flambeau_aot.serialize.saved_program import CannotSave, Stored, decoded, encoded, restore
from flambeau_aot.subclasses import Unwrapped, unwrapped


def with_subclasses(stored: Stored | None, plain: Unwrapped) -> Stored | None:
    """The stored form of a program, given that of its plain one."""
    if stored is None or stored.unsaved:
        return stored
    if stored.around is not None:
        return replace(stored, unsaved="subclasses of subclasses")
    try:
        return replace(stored, around=_around(plain))
    except (CannotSave, LookupError) as error:
        return replace(stored, unsaved=str(error))


def distributed_text(value: Any) -> str:
    """What a key says of a distributed tensor but for its parts, a mesh, or placements. Raises
    CannotSave."""
    try:
        data = _spec_data(spec_of(value)) if flattens(value) else distributed_data(value)
    except LookupError as error:
        raise CannotSave(str(error)) from None
    return json.dumps(data)


def _around(plain: Unwrapped) -> dict[str, Any]:
    if plain.carried:
        raise CannotSave("gradients with other parts than their tensors")
    return {
        "results": [_spec_data(each) for each in plain.results],
        "structure": encoded(plain.structure),
        "written": [[place, recorded] for place, recorded in plain.written],
        "gradients": [[place, _spec_data(each)] for place, each in plain.gradients.items()],
        "tangents": [[place, _spec_data(each)] for place, each in plain.tangents.items()],
    }


def _spec_data(spec: SubclassSpec | int | None) -> Any:
    if not isinstance(spec, SubclassSpec):
        return spec
    if spec.cls is not distributed_tensor_class() or any(spec.parts):
        raise CannotSave(f"a tensor of the class {spec.cls.__name__}")
    return {
        "names": [*spec.names],
        "context": distributed_data(spec.context),
        "size": [*spec.size],
        "stride": [*spec.stride],
        "others": [[name, distributed_data(each)] for name, each in spec.others],
    }


def _spec_from(data: Any, meshes: Mapping[str, Any]) -> Any:
    if not isinstance(data, dict):
        return data
    return SubclassSpec(
        distributed_tensor_class(),
        tuple(data["names"]),
        (None,) * len(data["names"]),
        distributed_from(data["context"], meshes),
        tuple(data["size"]),
        tuple(data["stride"]),
        tuple((name, distributed_from(each, meshes)) for name, each in data["others"]),
    )


def restore_around(
    stored: Stored,
    program: InputProgram,
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    forward: Boxed,
    backward: Boxed | None,
) -> Compiled:
    """A stored program of distributed tensors. Raises LookupError where a mesh is not there."""
    data: Any = stored.around
    meshes = {mesh_text(each): each for each in meshes_in([*program.static, *inputs], gm)}
    gradients = {place: _spec_from(each, meshes) for place, each in data["gradients"]}
    before = Unwrapped(program, (), [], [], gradients=gradients)
    made = unwrapped(replace(program, subclasses=True), inputs, before)
    assert made is not None
    made.results[:] = [_spec_from(each, meshes) for each in data["results"]]
    made.structure = decoded(data["structure"])
    made.written[:] = [(place, recorded) for place, recorded in data["written"]]
    made.gradients = gradients
    made.tangents = {place: _spec_from(each, meshes) for place, each in data["tangents"]}
    inner = restore(replace(stored, around=None), made.program.static, forward, backward)
    made.inputs.clear()
    run = made.around(inner, stored.backward is not None)
    return Compiled(run, inner.report, None, None, None, None, None, stored)
