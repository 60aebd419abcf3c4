"""Backward hooks of modules: what `nn.Module.__call__` puts around a module's `forward`.

In: a module, its hooks, its arguments and results. Out: the same tensors, by two calls of the graph
between which the hooks get the derivatives; the hooks captured as bodies. Invariant: a hook
computes on derivatives and does nothing else, and each of these is there; otherwise the graph ends
before the module is called, and autograd calls the hooks in Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, NoReturn

import torch
from torch.utils.hooks import BackwardHook

from flambeau_capture.breaks import Break
from flambeau_capture.builtins.autograd.backward import must_only_compute, versions
from flambeau_capture.graph.autograd_functions import hooked_inputs_call, hooked_outputs_call
from flambeau_capture.graph.builder import GraphBuilder
from flambeau_capture.values.base import Args, Kwargs, Tracer, Unreconstructible, Value, unpack
from flambeau_capture.values.constant import Constant, is_none
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.call_rules import handles
from flambeau_capture.values.higher_order.bodies import Captured, capture_body
from flambeau_capture.values.tensors.graph_calls import record_call
from flambeau_capture.values.tensors.tensor import TensorValue

_REASON = "FB0007"
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class ModuleHooks(Value):
    """What `BackwardHook(module, hooks, pre_hooks)` makes; `hooked`: the module's arguments as they
    enter it, once they are known."""

    cls: type = BackwardHook
    made_in_python = _REASON

    def __init__(self, tx: Tracer, module: Value, after: list[Value], before: list[Value]) -> None:
        self.tx, self.module, self.after, self.before = tx, module, after, before
        self.step, self.lines = tx.step(), tx.user_lines()
        self.hooked: list[Value] = []

    def describe(self) -> str:
        return "the backward hooks of a module"

    def reconstruct(self, writer: Any) -> NoReturn:
        raise Unreconstructible(self, f"{self.describe()} that a graph ends in")

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        try:
            if name == "setup_input_hook" and len(args) == 1 and isinstance(args[0], TupleValue):
                return self._enter(args[0].parts())
            if name == "setup_output_hook" and len(args) == 1:
                return self._leave(args[0])
            raise Break(_REASON, f"{name} of {self.describe()}")
        except Break as stopped:
            tx.heap.changed()
            stopped.stop, stopped.lines = self.step, self.lines  # before there is any of them
            raise

    def get_attr(self, tx: Tracer, name: str) -> Value:
        return tx.bound_method(self, name)

    def _enter(self, arguments: Sequence[Value]) -> Value:
        places, tensors = self._tensors(arguments)
        if not (torch.is_grad_enabled() and any(x.fake.requires_grad for x in tensors)):
            return TupleValue([*arguments])
        if self.tx.graph is not self.tx.graph.outermost:
            raise Break(_REASON, f"{self.describe()} in a function that torch maps or runs again")
        head = (len(arguments), tuple(places))
        made = record_call(self.tx, hooked_inputs_call, head, [x.node for x in tensors])
        self.hooked = _put(arguments, places, unpack(self.tx, made))
        return TupleValue(self.hooked)

    def _leave(self, result: Value) -> Value:
        _, tensors = self._tensors(result.parts() if isinstance(result, TupleValue) else [result])
        wanting = torch.is_grad_enabled() and any(x.fake.requires_grad for x in tensors)
        if not self.hooked and not wanting:
            return result  # no derivative comes there
        if isinstance(result, TupleValue) or not (self.hooked and wanting):
            raise Break(_REASON, f"{self.describe()} with several results, or no derivative of one")
        inputs, entered = self._tensors(self.hooked)
        known = zip(inputs, entered, strict=True)
        wanted = [place for place, x in known if x.fake.requires_grad]  # zeros, if nothing else
        inner = [x if place in wanted else None for place, x in enumerate(self.hooked)]
        before = self._body(self.before, [tensors], 0)
        after = self._body(self.after, [inner, tensors], 0)
        end = len(entered) + 1
        lifted = [each.lifted if each else [] for each in (before, after)]
        spec = (len(self.hooked), tuple(wanted), (end, end + len(lifted[0])))
        nodes = [*(x.node for x in (*entered, *tensors)), *lifted[0], *lifted[1]]
        head = (before and before.node, after and after.node, spec)
        return record_call(self.tx, hooked_outputs_call, head, nodes)

    def _tensors(self, values: Sequence[Value]) -> tuple[list[int], list[TensorValue]]:
        found = [(at, x) for at, x in enumerate(values) if isinstance(x, TensorValue)]
        if any(x.cls not in _PLAIN or x.attributes for _, x in found):
            raise Break(_REASON, f"{self.describe()} on tensors that are not plain")
        return [place for place, _ in found], [tensor for _, tensor in found]

    def _body(
        self, hooks: list[Value], given: Sequence[Sequence[Value | None]], changed: int
    ) -> Captured | None:
        """Hooks, one after the other, of tuples of derivatives, None where there is none; each may
        answer another tuple in the place of one."""
        if not hooks:
            return None
        tx, before = self.tx, versions(self.tx)
        like = [x.fake for x in given[changed] if isinstance(x, TensorValue)]

        def run(body: GraphBuilder) -> Value:
            numbers = count()
            derivatives = [TupleValue(_derivatives(body, each, numbers)) for each in given]
            whole = answer = derivatives[changed]
            for hook in hooks:
                derivatives[changed] = answer
                found = tx.call(hook, [self.module, *derivatives], {})
                answer = answer if is_none(found) else TupleValue(unpack(tx, found))
                if len(answer.parts()) != len(whole.parts()):
                    raise Break(_REASON, "a hook that answers another number of derivatives")
            if answer is whole:
                return Constant(None)
            places = [at for at, x in enumerate(given[changed]) if x is not None]
            return TupleValue([answer.parts()[place] for place in places])

        body = capture_body(tx, "a backward hook of a module", run, later=True)
        must_only_compute(tx, body, like, before)
        return body


def _derivatives(
    body: GraphBuilder, like: Sequence[Value | None], numbers: Iterator[int]
) -> list[Value]:
    found: list[Value] = []
    for tensor in like:
        if not isinstance(tensor, TensorValue):
            found.append(Constant(None))
            continue
        with body.fake_mode:
            example = torch.empty_like(tensor.fake, requires_grad=False)
        found.append(TensorValue(body.add_example(f"derivative{next(numbers)}", example)))
    return found


def _put(values: Sequence[Value], places: Sequence[int], new: Sequence[Value]) -> list[Value]:
    known = dict(zip(places, new, strict=True))
    return [known.get(place, value) for place, value in enumerate(values)]


@handles(BackwardHook)
def _hooks(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 3 or kwargs:
        raise Break(_REASON, "call of class BackwardHook")
    return ModuleHooks(tx, args[0], unpack(tx, args[1]), unpack(tx, args[2]))
