"""Functions and modules, compiled without a capture in front.

What comes in: a function of tensors, or a module. What goes out: a callable that compiles one
graph for each metadata of the inputs it meets.
Invariant: a graph runs only on inputs of the metadata, grad mode and module flags it was traced
with. What else the Python code reads (globals, closures, attributes) is taken as constant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from flambeau_aot._torch_compat import pytree
from flambeau_aot.compile import Compilers, Partition, compile_program
from flambeau_aot.info import GraphCompiler
from flambeau_aot.joint.tracer import Decompositions
from flambeau_aot.options import Options
from flambeau_aot.partition.mincut import min_cut_partition
from flambeau_aot.program import of_callable, of_module_call
from flambeau_aot.runtime.call import Compiled


def aot_function(
    fn: Callable[..., Any],
    fw_compiler: GraphCompiler,
    bw_compiler: GraphCompiler | None = None,
    inference_compiler: GraphCompiler | None = None,
    decompositions: Decompositions | None = None,
    partition: Partition = min_cut_partition,
    options: Options | None = None,
) -> Callable[..., Any]:
    """A compiled form of a function; arguments and results may be nested containers.

    Tensors reach the function through its arguments only: closing over one that requires grad
    is refused.
    """
    compilers = Compilers(fw_compiler, bw_compiler, inference_compiler)
    chosen = options or Options(name=_name(fn))
    compiled: dict[Any, Compiled] = {}

    def call(*args: Any, **kwargs: Any) -> Any:
        flat, structure = pytree.tree_flatten((args, kwargs))
        key = (structure, _metadata(flat))
        entry = compiled.get(key)
        if entry is None:

            def program(*values: Any) -> Any:
                positional, named = pytree.tree_unflatten(list(values), structure)
                return fn(*positional, **named)

            entry = compile_program(
                of_callable(program, len(flat), chosen.name),
                flat,
                compilers,
                decompositions or {},
                partition,
                chosen,
            )
            compiled[key] = entry
        return entry(*flat)

    call.compiled = compiled  # type: ignore[attr-defined]
    return call


class AotModule(torch.nn.Module):
    """A module whose forward runs compiled; parameters and buffers stay the original's."""

    def __init__(
        self,
        module: torch.nn.Module,
        compilers: Compilers,
        decompositions: Decompositions,
        partition: Partition,
        options: Options,
    ) -> None:
        super().__init__()
        self.module = module
        self.compilers = compilers
        self.decompositions = decompositions
        self.partition = partition
        self.options = options
        self.compiled: dict[Any, Compiled] = {}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph compiled for these inputs and the module's present state."""
        flat, structure = pytree.tree_flatten((args, kwargs))
        static = {
            **dict(self.module.named_parameters(remove_duplicate=False)),
            **dict(self.module.named_buffers(remove_duplicate=False)),
        }
        flags = tuple(item.training for item in self.module.modules())
        identities = tuple(id(tensor) for tensor in static.values())
        key = (structure, _metadata([*static.values(), *flat]), flags, identities)
        entry = self.compiled.get(key)
        if entry is None:
            entry = self._compile(flat, structure, static)
            self.compiled[key] = entry
        return entry(*flat)

    def _compile(
        self, flat: list[Any], structure: Any, static: dict[str, torch.Tensor]
    ) -> Compiled:
        module = self.module

        def program(values: dict[str, torch.Tensor], *inputs: Any) -> Any:
            positional, named = pytree.tree_unflatten(list(inputs), structure)
            return torch.func.functional_call(module, values, positional, named)

        distinct = {id(tensor): name for name, tensor in reversed(static.items())}
        own = {name: static[name] for name in static if distinct[id(static[name])] == name}
        tied = {name: distinct[id(tensor)] for name, tensor in static.items()}

        def with_tied(values: dict[str, torch.Tensor], *inputs: Any) -> Any:
            return program({name: values[source] for name, source in tied.items()}, *inputs)

        return compile_program(
            of_module_call(with_tied, own, len(flat), self.options.name),
            flat,
            self.compilers,
            self.decompositions,
            self.partition,
            self.options,
        )


def aot_module(
    module: torch.nn.Module,
    fw_compiler: GraphCompiler,
    bw_compiler: GraphCompiler | None = None,
    inference_compiler: GraphCompiler | None = None,
    decompositions: Decompositions | None = None,
    partition: Partition = min_cut_partition,
    options: Options | None = None,
) -> AotModule:
    """A compiled form of a module, parameters and buffers being inputs of its graphs."""
    return AotModule(
        module,
        Compilers(fw_compiler, bw_compiler, inference_compiler),
        decompositions or {},
        partition,
        options or Options(name=_name(module)),
    )


def _name(source: Any) -> str:
    name = getattr(source, "__name__", type(source).__name__)
    return "".join(char if char.isalnum() else "_" for char in name).lower() or "graph"


def _metadata(values: list[Any]) -> tuple[Any, ...]:
    """What a trace depends on of these values, grad mode included."""
    first: dict[int, int] = {}
    parts: list[Any] = [torch.is_grad_enabled(), torch.is_inference_mode_enabled()]
    for place, value in enumerate(values):
        if isinstance(value, torch.Tensor):
            same = first.setdefault(id(value), place)
            parts.append(
                (
                    same,
                    type(value),
                    tuple(value.shape),
                    tuple(value.stride()),
                    value.dtype,
                    value.device,
                    value.requires_grad,
                    value.is_leaf,
                )
            )
        else:
            parts.append((type(value), value))
    return tuple(parts)
