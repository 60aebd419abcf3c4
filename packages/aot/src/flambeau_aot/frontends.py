"""Front ends without capture: functions, modules, and ready-made backends.

In: a function of tensors, a module, or a captured graph. Out: a callable that compiles one graph
for each metadata of the inputs it is given.
Invariant: a graph runs only on inputs of the metadata, grad mode and module flags it was traced
with. What else the Python code reads (globals, closures, attributes) is taken as constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from flambeau_aot._torch_compat import flattens, pytree
from flambeau_aot.compile import Partition, Pipeline
from flambeau_aot.compile import compile as compile_graph
from flambeau_aot.inputs.binding import plain_tensors, spec_of
from flambeau_aot.interface import Boxed, GraphCompiler, GraphInfo, Options
from flambeau_aot.joint.dispatch_mode import Decompositions
from flambeau_aot.joint.program import InputProgram, of_callable, of_graph_module, of_module_call
from flambeau_aot.partition.budget import min_cut_partition
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime.call import Compiled
from flambeau_aot.runtime.codegen import boxed, defined

Predicate = Callable[[tuple[Any, ...]], bool]
_MOST = 8


def like(values: Sequence[Any]) -> Predicate | None:
    """A predicate on argument tuples; None unless the call is of a few distinct tensors."""
    tensors = all(isinstance(value, torch.Tensor) for value in values)
    if not values or len(values) > _MOST or not tensors:
        return None
    if len({id(value) for value in values}) != len(values):
        return None
    scope: dict[str, Any] = {
        "grad": torch.is_grad_enabled,
        "inference": torch.is_inference_mode_enabled,
    }
    tests = [
        f"grad() is {torch.is_grad_enabled()}",
        f"inference() is {torch.is_inference_mode_enabled()}",
    ]
    for place, value in enumerate(values):
        scope[f"type{place}"], scope[f"shape{place}"] = type(value), value.shape
        scope[f"stride{place}"], scope[f"dtype{place}"] = value.stride(), value.dtype
        scope[f"device{place}"] = value.device
        name = f"a{place}"
        tests += [
            f"type({name}) is type{place}",
            f"{name}.shape == shape{place}",
            f"{name}.dtype is dtype{place}",
            f"{name}.requires_grad is {value.requires_grad}",
            f"{name}.is_leaf is {value.is_leaf}",
            f"{name}.stride() == stride{place}",
            f"{name}.device == device{place}",
        ]
        tests += [f"{name} is not a{other}" for other in range(place)]
    names = ", ".join(f"a{place}" for place in range(len(values)))
    lines = [
        "def like(args):",
        f"    if len(args) != {len(values)}:",
        "        return False",
        f"    {names}{',' if len(values) == 1 else ''} = args",
        f"    return {' and '.join(tests)}",
    ]
    return defined("like", lines, scope)


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

    Tensors reach the function through its arguments only: closing over one that requires grad is
    refused. A module goes to `aot_module`.
    """
    if isinstance(fn, torch.nn.Module):
        return aot_module(
            fn, fw_compiler, bw_compiler, inference_compiler, decompositions, partition, options
        )
    chosen = options or Options(name=name_of(fn))
    compilers = fw_compiler, bw_compiler, inference_compiler
    pipeline = Pipeline(*compilers, decompositions or {}, partition, chosen)
    compiled: dict[Any, Compiled] = {}
    predicates: dict[Any, Predicate | None] = {}
    last: tuple[Predicate, Compiled] | None = None

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal last
        if (recent := last) is not None and not kwargs and recent[0](args):
            return recent[1](*args)
        flat, structure = pytree.tree_flatten((args, kwargs))
        key = (structure, metadata_of(flat))
        entry = compiled.get(key)
        if entry is None:
            program = function_program(fn, structure, len(flat), chosen.name)
            entry = compiled[key] = pipeline.compile(program, flat)
        if key not in predicates:
            usual = not kwargs and len(flat) == len(args) and not any(map(flattens, flat))
            predicates[key] = like(args) if usual else None
        predicate = predicates[key]
        last = None if predicate is None else (predicate, entry)
        return entry(*flat)

    call.compiled = compiled  # type: ignore[attr-defined]
    return call


class AotModule(torch.nn.Module):
    """A module whose forward runs compiled; parameters and buffers stay the original's."""

    def __init__(self, module: torch.nn.Module, pipeline: Pipeline) -> None:
        super().__init__()
        self.module = module
        self.pipeline = pipeline
        self.compiled: dict[Any, Compiled] = {}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph compiled for these inputs and the module's present state."""
        flat, structure = pytree.tree_flatten((args, kwargs))
        static = tensors_of(self.module)
        flags = tuple(item.training for item in self.module.modules())
        identities = tuple(id(tensor) for tensor in static.values())
        key = (structure, metadata_of([*static.values(), *flat]), flags, identities)
        entry = self.compiled.get(key)
        if entry is None:
            name = self.pipeline.options.name
            program = module_program(self.module, structure, len(flat), name)
            entry = self.compiled[key] = self.pipeline.compile(program, flat)
        return entry(*flat)


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
    compilers = fw_compiler, bw_compiler, inference_compiler
    chosen = options or Options(name=name_of(module))
    return AotModule(module, Pipeline(*compilers, decompositions or {}, partition, chosen))


def program_of(
    source: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[InputProgram, Any]:
    """A callable, a module or an FX graph as a program of its flat inputs, and their structure."""
    flat, structure = pytree.tree_flatten((args, kwargs))
    name = name_of(source)
    if isinstance(source, fx.GraphModule) and not kwargs and len(flat) == len(args):
        return of_graph_module(source, name), structure
    if isinstance(source, torch.nn.Module):
        return module_program(source, structure, len(flat), name), structure
    return function_program(source, structure, len(flat), name), structure


def function_program(fn: Callable[..., Any], structure: Any, count: int, name: str) -> InputProgram:
    """A function of nested arguments as a program of `count` flat ones."""

    def flat_call(*values: Any) -> Any:
        positional, named = pytree.tree_unflatten(list(values), structure)
        return fn(*positional, **named)

    return of_callable(flat_call, count, name)


def module_program(module: torch.nn.Module, structure: Any, count: int, name: str) -> InputProgram:
    """A module's call as a program whose static tensors are its parameters and buffers.

    A tensor that the module has under several names is one static tensor.
    """
    tensors = tensors_of(module)
    first = {id(tensor): name for name, tensor in reversed(tensors.items())}
    own = {name: tensor for name, tensor in tensors.items() if first[id(tensor)] == name}
    source = {name: first[id(tensor)] for name, tensor in tensors.items()}

    def flat_call(values: dict[str, torch.Tensor], *inputs: Any) -> Any:
        positional, named = pytree.tree_unflatten(list(inputs), structure)
        every = {name: values[found] for name, found in source.items()}
        return torch.func.functional_call(module, every, positional, named)

    return of_module_call(flat_call, own, count, name)


def tensors_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by all their names."""
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def name_of(source: Any) -> str:
    """An identifier to call the graphs of a function or a module."""
    name = getattr(source, "__name__", type(source).__name__)
    return "".join(char if char.isalnum() else "_" for char in name).lower() or "graph"


def metadata_of(values: list[Any]) -> tuple[Any, ...]:
    """What a trace depends on of these values, grad mode included."""
    first: dict[int, int] = {}
    parts: list[Any] = [torch.is_grad_enabled(), torch.is_inference_mode_enabled()]
    for place, value in enumerate(values):
        if flattens(value):
            parts.append(_metadata_of_subclass(value))
        elif isinstance(value, torch.Tensor):
            if value.layout != torch.strided:
                raise refusal("AO0023", layout=value.layout)
            same = first.setdefault(id(value), place)
            parts.append(
                (
                    same,
                    type(value),
                    value.shape,
                    value.stride(),
                    value.dtype,
                    value.device,
                    value.requires_grad,
                    value.is_leaf,
                )
            )
        elif isinstance(value, slice):
            parts.append((slice, value.start, value.stop, value.step))
        else:
            parts.append((type(value), value))
    return tuple(parts)


def _metadata_of_subclass(value: torch.Tensor) -> tuple[Any, ...]:
    """The same of a tensor that consists of others, by them."""
    spec = spec_of(value)
    try:
        hash(spec)
    except TypeError as error:
        raise refusal("AO0024", cls=spec.cls.__name__) from error
    return spec, value.requires_grad, value.is_leaf, metadata_of(list(plain_tensors(value, spec)))


def run_as_is(gm: fx.GraphModule, example_inputs: list[Any], info: GraphInfo) -> Boxed:
    """A graph compiler that compiles nothing."""
    return boxed(gm)


def aot_eager(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Compiled:
    """Backend: trace forward and backward ahead of time, run them operator by operator."""
    return compile_graph(gm, example_inputs, run_as_is)


aot_nop = aot_eager
