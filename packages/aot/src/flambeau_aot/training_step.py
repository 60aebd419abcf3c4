"""Whole training steps as one graph: forward, loss, backward, optimizer.

In: a function that trains modules by optimizers, and these. Out: a callable that does the same by
one graph without derivatives, for autograd runs inside the trace.
Invariant: after a call, parameters, buffers, gradients and the optimizers' state are what the
function itself would have left, and are the same objects where it would have kept them.

The first call runs the function as it is, since optimizers make their state then; it is counted in
`eager_calls`. Hyperparameters that are numbers are constants of a graph, and another value is
another graph: a schedule goes in a tensor (`lr=torch.tensor(0.1)`), which is an input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from flambeau_aot._torch_compat import compiling, pytree
from flambeau_aot.compile import Pipeline
from flambeau_aot.frontends import metadata_of, name_of
from flambeau_aot.interface import GraphCompiler, Options
from flambeau_aot.joint.dispatch_mode import Decompositions
from flambeau_aot.joint.program import of_module_call
from flambeau_aot.partition.budget import min_cut_partition
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime.call import Compiled

# Optimizers choose between kernels for one tensor and for many, and between counting steps on
# the host and on the device; inside a graph it is the first and the last.
_IN_A_GRAPH: dict[str, Any] = {"foreach": False, "fused": False, "capturable": True}


StateSlot = tuple[dict[str, Any], str]
"""Where a part of the training state lives: a table, and the key in it."""


@dataclass
class TrainingState:
    """The tensors a step reads and writes besides its arguments."""

    modules: Sequence[torch.nn.Module]
    optimizers: Sequence[torch.optim.Optimizer]

    def parameters(self) -> list[torch.nn.Parameter]:
        """Every parameter of the modules and the optimizers, once."""
        found = [p for module in self.modules for p in module.parameters()]
        found += [p for group in self._groups() for p in group["params"]]
        return list({id(item): item for item in found}.values())

    def buffers(self) -> list[torch.Tensor]:
        """Every buffer, once."""
        found = [item for module in self.modules for item in module.buffers()]
        return list({id(item): item for item in found}.values())

    def places(self, parameters: Sequence[torch.Tensor] | None = None) -> list[StateSlot]:
        """The tensors of the optimizers: hyperparameters, and the state of each parameter (or of
        what stands in their places, in the same order)."""
        found = [(group, key) for group in self._groups() for key in sorted(group)]
        found += self._state(self.parameters() if parameters is None else parameters)
        return [(store, key) for store, key in found if isinstance(store[key], torch.Tensor)]

    def constants(self) -> tuple[Any, ...]:
        """What a graph takes as constant: flags of modules, numbers of optimizers."""
        flags = [item.training for module in self.modules for item in module.modules()]
        parameters = self.parameters()
        found = [(group, key) for group in self._groups() for key in sorted(group)]
        found = [(group, key) for group, key in found if key != "params"]
        found += self._state(parameters)
        numbers = tuple((key, _hashable(store[key])) for store, key in found)
        return (tuple(flags), numbers, tuple(map(id, parameters)))

    def _groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    def _state(self, parameters: Sequence[torch.Tensor]) -> list[StateSlot]:
        """What the optimizers keep of these parameters."""
        states = (each.state.get(p, {}) for each in self.optimizers for p in parameters)
        return [(state, key) for state in states for key in sorted(state)]

    @contextmanager
    def replaced(self, leaf_of: dict[int, torch.Tensor]) -> Iterator[None]:
        """Modules and optimizers that hold other tensors for their parameters and buffers."""
        with ExitStack() as stack:
            for module in self.modules:
                for part in module.modules():
                    for table in (part._parameters, part._buffers):
                        stack.callback(_refill, table, dict(table))
                        for name, tensor in table.items():
                            if tensor is not None:
                                table[name] = leaf_of[id(tensor)]  # type: ignore[assignment]
            for optimizer in self.optimizers:
                state = dict(optimizer.state)
                stack.callback(_refill, optimizer.state, state)
                optimizer.state.clear()
                for parameter, values in state.items():
                    optimizer.state[leaf_of[id(parameter)]] = dict(values)
                for group in optimizer.param_groups:
                    stack.callback(_refill, group, dict(group))
                    group["params"] = [leaf_of[id(item)] for item in group["params"]]
                    group.update({key: _IN_A_GRAPH[key] for key in group if key in _IN_A_GRAPH})
            yield


def _refill(table: Any, content: dict[Any, Any]) -> None:
    table.clear()
    table.update(content)


def _hashable(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return "a tensor"
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


@dataclass
class AotStep:
    """A compiled training step; call it as the function it was made from."""

    fn: Callable[..., Any]
    state: TrainingState
    pipeline: Pipeline
    compiled: dict[Any, Compiled] = field(default_factory=dict)
    eager_calls: int = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.eager_calls == 0:
            self.eager_calls += 1
            return self.fn(*args, **kwargs)
        flat, structure = pytree.tree_flatten((args, kwargs))
        parameters = self.state.parameters()
        grads = {place: p.grad for place, p in enumerate(parameters) if p.grad is not None}
        places = self.state.places()
        tensors = [store[name] for store, name in places]
        inputs = [*grads.values(), *tensors, *flat]
        key = (structure, metadata_of(inputs), tuple(grads), self.state.constants())
        entry = self.compiled.get(key)
        if entry is None:
            program = self._program(structure, tuple(grads), len(places), len(inputs))
            with torch.no_grad():
                entry = self.pipeline.compile(program, inputs)
            self.compiled[key] = entry
        with torch.no_grad():
            result, new_grads, new_tensors = entry(*inputs)
        for parameter, grad in zip(parameters, new_grads, strict=True):
            if grad is not parameter.grad:
                parameter.grad = grad
        for (store, name), tensor in zip(places, new_tensors, strict=True):
            store[name] = tensor
        return result

    def _program(self, structure: Any, with_grad: Sequence[int], placed: int, count: int) -> Any:
        state, fn = self.state, self.fn
        parameters, buffers = state.parameters(), state.buffers()
        static = _named(state, [*parameters, *buffers])

        def run(values: dict[str, torch.Tensor], *inputs: Any) -> Any:
            given = list(values.values())
            leaves = [
                value.detach().requires_grad_(parameter.requires_grad)
                for value, parameter in zip(given, parameters, strict=False)
            ]
            stand_ins = [*leaves, *given[len(leaves) :]]
            leaf_of = dict(zip(map(id, [*parameters, *buffers]), stand_ins, strict=True))
            for place, index in enumerate(with_grad):
                leaves[index].grad = inputs[place]
            first = len(with_grad) + placed
            positional, named = pytree.tree_unflatten(list(inputs[first:]), structure)
            with state.replaced(leaf_of), compiling(), torch.enable_grad():
                own = TrainingState((), state.optimizers)
                places = own.places(leaves)
                if len(places) != placed:
                    raise refusal("AO0025")
                for (store, key), value in zip(places, inputs[len(with_grad) : first], strict=True):
                    store[key] = value
                numbers = own.constants()[1]
                result = fn(*positional, **named)
                after = own.places(leaves)
                if len(after) != placed or own.constants()[1] != numbers:
                    raise refusal("AO0025")
                new_tensors = [store[key] for store, key in after]
                return result, [leaf.grad for leaf in leaves], new_tensors

        return of_module_call(run, static, count, self.pipeline.options.name)


def _named(state: TrainingState, tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors by their names, without history."""
    known: dict[int, str] = {}
    for place, module in enumerate(state.modules):
        prefix = f"module_{place}." if len(state.modules) > 1 else ""
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            known.setdefault(id(tensor), prefix + name)
    named = enumerate(tensors)
    return {known.get(id(x), f"parameter_{place}"): x.detach() for place, x in named}


def aot_step(
    fn: Callable[..., Any],
    modules: Sequence[torch.nn.Module],
    optimizers: Sequence[torch.optim.Optimizer],
    compiler: GraphCompiler,
    decompositions: Decompositions | None = None,
    options: Options | None = None,
) -> AotStep:
    """A training step as one graph; `fn` may call `backward()`, `zero_grad()` and `step()`.

    Its results are without gradient. Raises `AotError` as `compile` does, and `Unsupported` where
    an optimizer keeps numbers that change (LBFGS, a count of steps that is no tensor).
    """
    chosen = options or Options(name=name_of(fn))
    table = decompositions or {}
    pipeline = Pipeline(compiler, None, None, table, min_cut_partition, chosen)
    return AotStep(fn, TrainingState(tuple(modules), tuple(optimizers)), pipeline)
