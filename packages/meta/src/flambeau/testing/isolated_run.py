"""Isolated run of a program on copies of its inputs, graph and state.

In: a callable, arguments, the modules whose state it may change. Out: `Observed`: results,
gradients, what was written to the arguments. Invariant: the caller's tensors, modules and random
state are afterwards as they were before.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx

from flambeau._torch_compat import pytree
from flambeau.testing.comparison import Observed, difference, named

SEED = 20221202


def observe(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any] | None = None,
    modules: Sequence[torch.nn.Module] = (),
    *,
    backward: bool = True,
    seed: int = SEED,
) -> Observed:
    """Run once on copies of the arguments.

    backward: results that require grad are differentiated, with cotangents that are the same in
    every run, and the gradients of arguments and parameters are observed too. seed: of torch's
    random numbers.
    """
    given, named_given = copied((tuple(args), dict(kwargs or {})))
    leaves = [leaf for leaf in pytree.tree_leaves((given, named_given)) if _tensor(leaf)]
    devices = sorted({leaf.device.index or 0 for leaf in leaves if leaf.is_cuda})
    with kept_state(modules), torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        try:
            result = fn(*given, **named_given)
            values = [(name, _state_of(value)) for name, value in named("output", result)]
            values += [
                (n, _state_of(v)) for n, v in named("argument", (given, named_given)) if _tensor(v)
            ]
            if backward and torch.is_grad_enabled():
                values += _gradients(result, leaves, modules)
            for module in modules:
                values += [(f"buffer {n}", _state_of(b)) for n, b in module.named_buffers()]
        except Exception as error:  # the program's own, or the compiler's: it is what is observed
            return Observed(error=error)
    return Observed(tuple(values))


def draws(
    fn: Callable[..., Any], args: Sequence[Any], modules: Sequence[torch.nn.Module] = ()
) -> bool:
    """Whether a program's results depend on torch's random numbers."""
    one, other = (observe(fn, args, None, modules, backward=False, seed=seed) for seed in (1, 2))
    return difference(one, other) is not None


def in_double(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any] | None = None,
    modules: Sequence[torch.nn.Module] = (),
) -> Observed | None:
    """The same in double precision; None where the program does not run that way."""
    given, named_given = pytree.tree_map(_doubled, (tuple(args), dict(kwargs or {})))
    try:
        if isinstance(fn, torch.nn.Module):
            fn = copy.deepcopy(fn).double()
            found = observe(fn, given, named_given, [fn] if modules else [])
        elif modules and any(True for module in modules for _ in module.parameters()):
            return None  # a function that reaches modules by itself has them in single precision
        else:
            found = observe(fn, given, named_given)
    except Exception:  # it cannot be copied, or has no form in double precision
        return None
    return None if found.error is not None else found


def copied(value: Any) -> Any:
    """Copies of the tensors in a tree of arguments; those that share memory go on sharing it."""
    storages: dict[int, torch.Tensor] = {}
    made: dict[int, torch.Tensor] = {}

    def copy_of(leaf: Any) -> Any:
        if not _tensor(leaf):
            return leaf
        if id(leaf) not in made:
            made[id(leaf)] = _copy(leaf, storages)
        return made[id(leaf)]

    return pytree.tree_map(copy_of, value)


def _copy(leaf: torch.Tensor, storages: dict[int, torch.Tensor]) -> torch.Tensor:
    known = type(leaf) in (torch.Tensor, torch.nn.Parameter) and leaf.layout is torch.strided
    if not known or leaf.is_conj() or leaf.is_neg():
        copy_ = leaf.detach().clone()
    else:
        storage = leaf.untyped_storage()
        key = storage.data_ptr() or id(leaf)
        if key not in storages:
            flat = torch.empty(0, dtype=torch.uint8, device=leaf.device)
            storages[key] = flat.set_(storage.clone())  # type: ignore[call-overload]
        base = torch.empty(0, dtype=leaf.dtype, device=leaf.device)
        where = storages[key].untyped_storage(), leaf.storage_offset(), leaf.shape, leaf.stride()
        copy_ = base.set_(*where)  # type: ignore[call-overload]
    return copy_.requires_grad_(leaf.requires_grad)


@contextmanager
def kept_state(modules: Sequence[torch.nn.Module]) -> Iterator[None]:
    """Parameters, buffers and gradients of modules are put back at the end."""
    tensors = [t for m in modules for t in (*m.parameters(), *m.buffers())]
    values = [t.detach().clone() for t in tensors]
    grads = [t.grad for t in tensors]
    for tensor in tensors:
        tensor.grad = None
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value, grad in zip(tensors, values, grads):
                if not torch.equal(tensor, value):
                    tensor.copy_(value)
                tensor.grad = grad


def modules_of(fn: Any) -> list[torch.nn.Module]:
    """The modules that a callable is, belongs to, or closes over."""
    found = [fn, getattr(fn, "__self__", None)]
    for cell in getattr(fn, "__closure__", None) or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # a variable that has no value yet
            continue
    code, scope = getattr(fn, "__code__", None), getattr(fn, "__globals__", {})
    if code is not None:
        found += [scope.get(name) for name in code.co_names]
    return list({id(m): m for m in found if isinstance(m, torch.nn.Module)}.values())


def _gradients(
    result: Any, leaves: Sequence[torch.Tensor], modules: Sequence[torch.nn.Module]
) -> list[tuple[str, Any]]:
    outputs = [v for v in pytree.tree_leaves(result) if _tensor(v) and v.requires_grad]
    wanted = [(f"gradient of argument {n}", leaf) for n, leaf in enumerate(leaves) if leaf.is_leaf]
    for module in modules:
        wanted += [(f"gradient of {name}", p) for name, p in module.named_parameters()]
    wanted = [(name, tensor) for name, tensor in wanted if tensor.requires_grad]
    if not outputs or not wanted:
        return []
    generator = torch.Generator().manual_seed(SEED)
    cotangents = []
    for output in outputs:
        drawn = torch.randn(output.shape, generator=generator, dtype=torch.float64)
        cotangents.append(drawn.to(output.dtype).to(output.device))
    inputs = [tensor for _, tensor in wanted]
    found = torch.autograd.grad(outputs, inputs, cotangents, allow_unused=True)
    return [(name, grad) for (name, _), grad in zip(wanted, found)]


def _state_of(value: Any) -> Any:
    return value.detach().clone() if _tensor(value) else value


def _doubled(value: Any) -> Any:
    if not _tensor(value) or value.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        return value
    return value.detach().double().requires_grad_(value.requires_grad)


def _tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def copied_graph(gm: fx.GraphModule, where: dict[fx.Node, fx.Node] | None = None) -> fx.GraphModule:
    """A graph module with the same parameters and buffers, and nodes of its own; `where` is given
    the copy of each node."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {} if where is None else where))
    return fx.GraphModule(gm, graph, class_name=type(gm).__name__)
