"""Collectives of torch.distributed as operators of the graph.

In: calls that name a group of processes, or nothing for all of them. Out: torch's functional
collectives, each followed by its wait, and copies to the tensors that the call writes to.
Invariant: groups are known by identity, which is guarded, so that rank, size and name are
constants; what eager would refuse, or autograd would not see, is a break.

A handle of `async_op=True` has nothing left to wait for: in eager nobody may look at the tensors
before its `wait()`, so that an earlier write is one of the orders that eager has. When to wait is
the graph compiler's to decide, which knows the first reader.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.source import ConstantSource, Source
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value, needing, objects_of
from flambeau_capture.values.constant import LITERALS, Constant, evaluate
from flambeau_capture.values.containers.lists import ListValue
from flambeau_capture.values.functions.call_rules import (
    NAMES,
    Action,
    CallRule,
    breaks,
    describe_call,
    handles,
)
from flambeau_capture.values.objects.opaque import FrozenValue
from flambeau_capture.values.registry import wrap_known, wraps_if
from flambeau_capture.values.tensors.graph_calls import graph_call
from flambeau_capture.values.tensors.tensor import TensorValue

REASON = "FB0029"

# --- groups ---------------------------------------------------------------------------------------


class GroupValue(FrozenValue):
    """A group of processes, or a mesh whose axes are groups."""

    questions = frozenset(
        {
            "rank", "size", "name", "group_name", "group_desc", "get_group", "get_local_rank",
            "get_rank", "get_coordinate", "get_all_groups", "ndim", "shape", "mesh_dim_names",
            "device_type",
        }
    )  # fmt: skip

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name not in self.questions:
            raise Break(REASON, f"attribute {name!r} of {self.describe()}")
        return super().get_attr(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name not in self.questions:
            raise Break(REASON, f"call_method {name} of {self.describe()}")
        return _answered(tx, getattr(self.real, name), args, kwargs)


@wraps_if(lambda obj: issubclass(type(obj), compat.GROUPS) or compat.in_mesh(obj), 45)
def wrap_group(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "ID_MATCH", obj)
    return tx.heap.value_of(obj, lambda: GroupValue(obj, ConstantSource(obj, "group")))


@wraps_if(lambda obj: issubclass(type(obj), compat.REDUCTIONS), 45)
def wrap_reduction(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "ID_MATCH", obj)
    return FrozenValue(obj, ConstantSource(obj, "reduction"))


def _answered(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> Value:
    """What a query of groups that are known answers."""
    with needing(REASON, lambda what: f"{describe_call(fn, args)}: {what} is not known"):
        plain, named = objects_of(args, kwargs)
    found = evaluate(tx, fn, *plain, **named)
    together = isinstance(found, list | tuple) and not any(map(_is_group, found))
    return tx.wrap_new(found) if together or type(found) in LITERALS else wrap_known(tx, found, "")


def _is_group(value: Any) -> bool:
    return issubclass(type(value), compat.GROUPS)


def _world(tx: Tracer) -> Any:
    """The group of all processes, guarded."""
    found = compat.world()
    tx.guard(ConstantSource(compat.world, "torch.distributed.group.WORLD"), "ANSWER", found)
    return found


@handles(*compat.world_questions())
def _of_world(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return wrap_known(tx, _world(tx), "WORLD")


def _question(fn: Any) -> None:
    """A query that is about all processes where it is given no group."""

    @handles(fn)
    def handler(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if not any(isinstance(each, GroupValue) for each in (*args, *kwargs.values())):
            _world(tx)
        return _answered(tx, fn, args, kwargs)


for _fn in compat.group_questions():
    _question(_fn)


def _group_name(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """The name of a group, given in one of the ways of the functional collectives."""
    with needing(REASON, lambda what: f"a group of processes: {what} is not known"):
        (given, *tag), named = objects_of(args, kwargs)
    find = partial(compat.group_of, given, *tag, **named)
    found = evaluate(tx, find)
    if not _is_group(given):
        tx.guard(ConstantSource(find, "group"), "ANSWER", found)
    return Constant(compat.name_of_group(found))


def wait_for(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return graph_call(tx, "call_function", compat.functional("wait_tensor"), args, kwargs)


_ROW = f"module {compat.FUNCTIONAL}"
for _name in compat.GROUP_FINDERS:
    NAMES[compat.FUNCTIONAL, _name] = CallRule(Action.ANSWER, _ROW, _group_name)
NAMES[compat.FUNCTIONAL, compat.WAITS_LATER] = CallRule(Action.ANSWER, _ROW, wait_for)

# --- collectives that write -----------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """How a call that writes is an operator that does not.

    read, written: the arguments that are tensors or lists of them. takes: what the operator is
    given after the tensor, by the names of `_ARGUMENTS`. flat: it is given elements in a row, and
    gives them so. at: the argument that names the only rank which is written to.
    """

    operator: str
    read: str
    written: str
    takes: tuple[str, ...]
    flat: bool = False
    at: str = ""


_GATHER = ("all_gather_into_tensor", ("size", "group"))
_SCATTER = ("reduce_scatter_tensor", ("op", "size", "group"))

FORMS: dict[str, Form] = {
    "all_reduce": Form("all_reduce", "tensor", "tensor", ("op", "group")),
    "broadcast": Form("broadcast", "tensor", "tensor", ("src", "group")),
    "reduce": Form("all_reduce", "tensor", "tensor", ("op", "group"), at="dst"),
    "all_gather": Form(_GATHER[0], "tensor", "tensor_list", _GATHER[1], flat=True),
    "reduce_scatter": Form(_SCATTER[0], "input_list", "output", _SCATTER[1], flat=True),
    **dict.fromkeys(
        ("all_gather_into_tensor", "all_gather_single", "_all_gather_base"),
        Form(_GATHER[0], "input_tensor", "output_tensor", _GATHER[1], flat=True),
    ),
    **dict.fromkeys(
        ("reduce_scatter_tensor", "reduce_scatter_single", "_reduce_scatter_base"),
        Form(_SCATTER[0], "input", "output", _SCATTER[1], flat=True),
    ),
    "all_to_all_single": Form(
        "all_to_all_single", "input", "output", ("output_splits", "input_splits", "group")
    ),
}


class CollectiveCall:
    """A call of a collective, its arguments by name."""

    def __init__(self, tx: Tracer, fn: Any, form: Form, args: Args, kwargs: Kwargs) -> None:
        self.tx, self.fn, self.form = tx, fn, form
        parameters = inspect.signature(fn)
        try:
            bound = parameters.bind(*args, **kwargs).arguments
        except TypeError as error:
            tx.raise_error(TypeError, str(error))
        self.given: dict[str, Value] = {
            name: bound.get(name) or tx.wrap_new(each.default)
            for name, each in parameters.parameters.items()
        }
        self.group: Any = self._group()

    def refuse(self, why: str) -> Break:
        return Break(REASON, f"{self.fn.__name__}: {why}")

    def _group(self) -> Any:
        given = self.given["group"]
        if given.cls is type(None):
            found = _world(self.tx)
        else:
            found = given.real if isinstance(given, GroupValue) else None
        if not _is_group(found):
            raise self.refuse(f"{given.describe()} is no group that this process is in")
        return found

    def ask(self, name: str, *more: Any) -> Any:
        """A query of torch.distributed about the group."""
        fn = compat.collectives(name)[name]
        return evaluate(self.tx, fn, self.group, *more)

    def tensors(self, name: str) -> list[TensorValue]:
        """The tensors of an argument, which communication can take as they lie in memory."""
        value = self.given[name]
        several = issubclass(value.cls, list | tuple) and hasattr(value, "parts")
        found: list[Any] = value.parts() if several else [value]  # type: ignore[attr-defined]
        for each in found:
            if not isinstance(each, TensorValue):
                raise self.refuse(f"{each.describe()} in the place of a tensor")
            fake = each.fake
            if each.python_class not in (torch.Tensor, torch.nn.Parameter):
                raise self.refuse(f"a tensor of {each.python_class.__name__}")
            if fake.layout is not torch.strided or not fake.is_contiguous():
                raise self.refuse("a tensor that is not contiguous")
            if fake.dtype.is_complex:
                raise self.refuse("a complex tensor")
        return found

    def root(self, name: str) -> int:
        """The rank in the group that an argument names, in the group or among all processes."""
        among_all, own = self.given[name], self.given[f"group_{name}"]
        with needing(REASON, lambda what: f"{self.fn.__name__}: {what} is not known"):
            chosen, within = among_all.as_python(), own.as_python()
        if (chosen is None) is (within is None):
            raise self.refuse(f"one of {name} and group_{name} is wanted")
        return int(self.ask("get_group_rank", chosen) if within is None else within)

    def among_all(self, rank: int) -> int:
        """The rank among all processes of one in the group."""
        return int(self.ask("get_global_rank", rank))

    def refuse_written(self, written: Sequence[TensorValue]) -> None:
        """Refuse to write to what autograd would have to see."""
        if torch.is_grad_enabled() and any(each.fake.requires_grad for each in written):
            raise self.refuse(
                "it writes to a tensor that requires grad, which autograd does not see"
            )

    def plain(self, tensor: TensorValue) -> Value:
        """A tensor without its history, which does not go with it."""
        recorded = torch.is_grad_enabled() and tensor.fake.requires_grad
        return tensor.call_method(self.tx, "detach", [], {}) if recorded else tensor

    def reduction(self) -> str:
        with needing(REASON, lambda what: f"{self.fn.__name__}: {what} is not known"):
            found = compat.reduction_name(self.given["op"].as_python())
        if found is None:
            raise self.refuse(f"{self.given['op'].describe()} as the reduction")
        return found

    def splits(self, of: str) -> Value:
        """How much of the first dimension goes to each, or comes from it."""
        given = self.given[f"{of}_split_sizes"]
        if given.cls is type(None) or given.length(self.tx) == 0:
            count = self.ask("get_world_size")
            size = self.given[of].call_method(self.tx, "size", [Constant(0)], {})
            if int(size.as_python()) % count:
                raise self.refuse("a tensor that does not divide by the size of the group")
            given = ListValue([Constant(int(size.as_python()) // count)] * count)
        return given


_ARGUMENTS: dict[str, Callable[[CollectiveCall], Value]] = {
    "op": lambda call: Constant(call.reduction()),
    "src": lambda call: Constant(call.root("src")),
    "size": lambda call: Constant(call.ask("get_world_size")),
    "group": lambda call: Constant(compat.name_of_group(call.group)),
    "input_splits": lambda call: call.splits("input"),
    "output_splits": lambda call: call.splits("output"),
}


def _communicate(tx: Tracer, call: CollectiveCall) -> Sequence[TensorValue]:
    """Record the operator, its wait and the copies; what was written to."""
    form = call.form
    read, written = call.tensors(form.read), call.tensors(form.written)
    call.refuse_written(written)
    if len({each.fake.dtype for each in (*read, *written)}) > 1:
        raise call.refuse("tensors of several dtypes")
    given = [call.plain(each) for each in read]
    if form.flat:
        given = [each.call_method(tx, "reshape", [Constant(-1)], {}) for each in given]
    whole = given[0]
    if len(given) > 1:
        whole = graph_call(tx, "call_function", torch.cat, [ListValue(given)], {})
    more = [_ARGUMENTS[name](call) for name in form.takes]
    target = compat.functional(form.operator)
    result = wait_for(tx, [graph_call(tx, "call_function", target, [whole, *more], {})], {})
    if form.at and call.ask("get_rank") != call.root(form.at):
        return written
    parts = [result]
    if len(written) > 1:
        parts = result.call_method(tx, "chunk", [Constant(len(written))], {}).parts()  # type: ignore[attr-defined]
    if len(parts) != len(written):
        raise call.refuse("other sizes than those of the group")
    for each, part in zip(written, parts, strict=True):
        each.call_method(tx, "copy_", [part.call_method(tx, "view_as", [each], {})], {})
    return written


class FinishedValue(Value):
    """The handle of a collective whose wait is in the graph."""

    cls: type = compat.FinishedWork
    answers = {"wait": True, "is_completed": True, "is_success": True, "synchronize": None}

    def __init__(self, tensors: Sequence[Value]) -> None:
        self.tensors = [*tensors]

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name in self.answers:
            return tx.bound_method(self, name)
        raise Break(REASON, f"{name!r} of the handle of a collective")

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name in self.answers:
            return Constant(self.answers[name])
        raise Break(REASON, f"{name!r} of the handle of a collective")

    def reconstruct(self, writer: Any) -> None:
        with writer.building(self):
            writer.call(compat.FinishedWork, self.tensors)


def _collective(fn: Any, form: Form) -> None:
    @handles(fn)
    def handler(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        call = CollectiveCall(tx, fn, form, args, kwargs)
        later = call.given["async_op"].truth(tx)
        written = _communicate(tx, call)
        return FinishedValue(written) if later else Constant(None)


for _name, _fn in compat.collectives(*FORMS).items():
    _collective(_fn, FORMS[_name])

breaks(
    REASON,
    *compat.collectives(
        "barrier", "monitored_barrier", "gather", "scatter", "all_to_all", "all_gather_object",
        "gather_object", "scatter_object_list", "broadcast_object_list", "send_object_list",
        "recv_object_list", "all_reduce_coalesced", "all_gather_coalesced", "new_group",
        "new_subgroups", "split_group", "init_process_group", "destroy_process_group",
    ).values(),
)  # fmt: skip
