"""FSDP2 in a graph: what `fully_shard` gathers before a module's forward, and scatters after it.

In: a call of a module that was given to `fully_shard`. Out: one call of the graph that gathers its
parameters, whose derivative scatters their gradients; in the forward they are found where the
module has its own. Invariant: hooks and forward are in one graph or all in Python, so that nobody
sees a module with parameters that are in the graph alone; what the state of the hooks says is
guarded, has to be what it is between two steps, and is examined again by a backward pass. torch's
hooks know nothing of such a call.

Whole parameters that eager frees after the forward are computed again in the backward pass, which
is the partition's to place (Zhao et al., PyTorch FSDP, VLDB 2023, section 4.3).
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from functools import partial
from typing import Any

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.builtins.autograd.gradients import no_hooks
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant, is_none
from flambeau_capture.values.containers.sequences import SequenceValue, TupleValue
from flambeau_capture.values.functions.call_rules import INLINE, NAMES, Action, CallRule, handles
from flambeau_capture.values.objects.nn_modules import ModuleValue, call_together
from flambeau_capture.values.registry import wrap_known
from flambeau_capture.values.tensors.graph_calls import graph_call
from flambeau_capture.values.tensors.tensor import TensorValue

_REASON = "FB0029"
_ROW = f"module {compat.FULLY_SHARDED}"


def _refused(why: str) -> Break:
    return Break(_REASON, f"a module under fully_shard {why}: its hooks run in Python")


@handles(call_together)
def _call(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """A module's hooks and forward. A break in them is one of the call: the frames in between are
    not resumed."""
    module = args[0]
    if not isinstance(module, ModuleValue):
        raise _refused("that is called by other hooks than its own")
    if not tx.options.gather_parameters:
        raise _refused("without the option `gather_parameters`, which all ranks must keep to")
    if tx.graph is not tx.graph.outermost:
        raise _refused("in a function that torch maps or runs again")
    if module.gathered is not None:
        raise _refused("that calls itself")
    again, step = tx.graph.examined_again, tx.step()
    module.gathered, before = [], len(again)
    try:
        return tx.call(wrap_known(tx, compat.MODULE_CALLS[-1], "_call_impl"), [*args], kwargs)
    finally:
        _given_back(module)
        module.gathered = None
        again[before:] = [(examine, step) for examine, _ in again[before:]]


def _given_back(module: ModuleValue) -> None:
    for owner, name, _ in module.gathered or ():
        owner.swapped.pop(name, None)


def _pre_forward(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    state, module, given, named = args
    if not isinstance(module, ModuleValue) or module.gathered is None:
        raise _refused("that is called by other hooks than its own")
    real = state.real  # type: ignore[attr-defined]
    if not compat.is_called_alone(real):
        raise _refused("with others, or in several groups")
    compat.begin_sharding(real)
    _assume(tx, state, compat.PLAIN_STATE)
    policy = tx.get_attr(state, "_mp_policy")
    if any(each.fake.device.type != real._device.type for each in _tensors(given)):
        raise _refused("that is given tensors of another device")
    if not is_none(tx.get_attr(policy, "param_dtype")):
        cast = tx.call(_method(tx, state, "_cast_forward_inputs"), [given, named], {})
        given, named = cast.parts()  # type: ignore[attr-defined]
    for name, place, group in compat.groups_of(real):
        found = tx.get_attr(state, name)
        own = found if place is None else found.get_item(tx, Constant(place))
        _gather(tx, module, own, group)
    return TupleValue([given, named])


def _method(tx: Tracer, state: Value, name: str) -> Value:
    if not hasattr(state.real, name):  # type: ignore[attr-defined]
        raise _refused("with dtypes of its own, which this torch casts to in its hooks")
    return tx.get_attr(state, name)


def _assume(tx: Tracer, value: Value, wanted: dict[str, Any]) -> None:
    """Attributes that are guarded; one that is otherwise ends the graph before the call."""
    for name, plain in wanted.items():
        if not hasattr(value.real, name):  # type: ignore[attr-defined]
            continue  # this torch has no such choice
        found = tx.get_attr(value, name)
        real = found.real if hasattr(found, "real") else found.as_python()
        if isinstance(real, enum.Enum):
            real = real.name
        if real != plain:
            raise _refused(f"whose {name} is {found.describe()}")


def _tensors(value: Value) -> Iterator[TensorValue]:
    if isinstance(value, TensorValue):
        yield value
    elif isinstance(value, SequenceValue):
        for each in value.parts():
            yield from _tensors(each)


def _gather(tx: Tracer, module: ModuleValue, group: Value, real: Any) -> None:
    """One operation that gathers a group's parameters, and where they are found from then on."""
    _as_it_is(tx, group, real)
    why = compat.left_to_eager(real)
    if why:
        raise _refused(f"with {why}")
    listed = tx.get_attr(group, "fsdp_params")
    parameters: list[Value] = []
    places = list(compat.places_of(module.real, real))
    for at, paths in enumerate(places):
        spread = listed.get_item(tx, Constant(at))
        _assume(tx, spread, compat.PLAIN_PARAMETER)
        _ask(tx, spread, real.fsdp_params[at])
        owner, name = _owner(tx, module, paths[0][0]), paths[0][1]
        parameter = owner.get_attr(tx, name)
        if not isinstance(parameter, TensorValue) or parameter.real is None:
            raise _refused(f"whose {name} is {parameter.describe()}")
        if parameter.real is not real.fsdp_params[at].sharded_param:
            raise _refused(f"whose {name} is not what was sharded")
        no_hooks(tx, parameter)
        parameters.append(parameter)
    if not parameters:
        return
    plan = compat.Gather(real)
    tx.graph.examined_again.append((partial(_as_it_is, tx, group, real), tx.step()))
    result = graph_call(tx, "call_function", plan, parameters, {})
    whole = result.parts()  # type: ignore[attr-defined]
    if plan.again:
        node = whole[0].node.args[0]
        node.meta.update(recompute="must_recompute", gathered=node.name)
    assert module.gathered is not None
    for paths, value, spread in zip(places, whole, real.fsdp_params, strict=True):
        made = compat.also_distributed(spread)
        if made is not None:
            value = graph_call(tx, "call_function", made, [value], {})
        for path, name in paths:
            owner = _owner(tx, module, path)
            owner.swapped[name] = value
            module.gathered.append((owner, name, value))


def _ask(tx: Tracer, spread: Value, real: Any) -> None:
    question = compat.nothing_accumulated
    source = getattr(spread, "source", None)
    if source is None or not question(real):
        raise _refused("with gradients that wait to be scattered")
    tx.guard(source, "CALL", question, "a parameter without a gradient that waits")


def _as_it_is(tx: Tracer, group: Value, real: Any) -> None:
    """What a group says of communication: guarded, and not what the frame itself has set."""
    _assume(tx, group, compat.PLAIN_GROUP)
    for name in compat.GROUP_CHOICES:
        found, chosen = tx.get_attr(group, name), getattr(real, name)
        _must_be(found, chosen, name)
        source = getattr(found, "source", None)
        if source is not None:
            tx.guard(source, "ID_MATCH", chosen)
        if hasattr(chosen, compat.SCATTERED_IN):
            own = tx.get_attr(found, compat.SCATTERED_IN)  # guarded
            _must_be(own, getattr(chosen, compat.SCATTERED_IN), compat.SCATTERED_IN)


def _must_be(found: Value, chosen: Any, name: str) -> None:
    real = found.real if hasattr(found, "real") else found.as_python()
    if real is not chosen and not (isinstance(real, float) and real == chosen):
        raise _refused(f"whose {name} the same function sets")


def _owner(tx: Tracer, module: ModuleValue, path: str) -> ModuleValue:
    found: Value = module
    for part in path.split(".") if path else ():
        found = tx.get_attr(found, part)
    if not isinstance(found, ModuleValue):
        raise _refused(f"with {found.describe()} at {path}")
    return found


def _post_forward(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    state, module, _, output = args
    if not isinstance(module, ModuleValue) or module.gathered is None:
        raise _refused("that is called by other hooks than its own")
    if any(owner.swapped.get(name) is not value for owner, name, value in module.gathered):
        raise _refused("that replaces a parameter")
    _given_back(module)
    module.gathered.clear()
    if is_none(tx.get_attr(tx.get_attr(state, "_mp_policy"), "output_dtype")):
        return output
    return tx.call(_method(tx, state, "_cast_output_dtype"), [output], {})


for _name, _handler in {compat.GATHERS: _pre_forward, compat.SCATTERS: _post_forward}.items():
    NAMES[compat.FULLY_SHARDED, _name] = CallRule(Action.ANSWER, _ROW, _handler)
#: what casts arguments and results
NAMES.update(dict.fromkeys(compat.CASTS, INLINE))
