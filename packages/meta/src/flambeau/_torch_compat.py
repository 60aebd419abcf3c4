"""Private and moving interfaces of torch (tried on torch 2.11 and 2.13)."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils import _pytree

pytree = _pytree
MODULE_CALL = torch.nn.Module._call_impl.__qualname__


def is_view(tensor: torch.Tensor) -> bool:
    """Whether autograd knows a tensor as a view of another."""
    return bool(tensor._is_view())


def is_overload(target: object) -> bool:
    """Whether something is an operator overload (`torch.ops.aten.mm.default`)."""
    return isinstance(target, torch._ops.OpOverload)


def compiled_form(target: Any) -> Any:
    """What runs compiled: of a module after `Module.compile()` its call, else the same."""
    call = target._compiled_call_impl if isinstance(target, torch.nn.Module) else None
    return target if call is None else call


def modes_of_math() -> dict[str, str]:
    """Switches of the process that decide which kernels torch takes."""
    cuda = torch.backends.cuda
    found: dict[str, Any] = {
        "deterministic": (
            torch.are_deterministic_algorithms_enabled(),
            torch._C._get_deterministic_fill_uninitialized_memory(),
        ),
        # torch.get_float32_matmul_precision() raises where precisions were set by these names
        "float32 precision": (
            cuda.matmul.fp32_precision,
            torch.backends.cudnn.conv.fp32_precision,  # type: ignore[attr-defined]
            torch.backends.mkldnn.matmul.fp32_precision,  # type: ignore[attr-defined]
        ),
        "cudnn": (
            torch.backends.cudnn.enabled,
            torch.backends.cudnn.benchmark,
            torch.backends.cudnn.deterministic,
        ),
        "attention": (
            cuda.flash_sdp_enabled(),
            cuda.mem_efficient_sdp_enabled(),
            cuda.math_sdp_enabled(),
        ),
        "mkldnn": torch.backends.mkldnn.enabled,  # type: ignore[attr-defined]
    }
    return {name: repr(value) for name, value in found.items()}


def cache_info(artifacts: dict[str, list[str]]) -> Any:
    """What `torch.compiler.save_cache_artifacts` says of the artifacts."""
    from torch.compiler._cache import CacheInfo  # few programs carry caches

    info = CacheInfo()
    info.artifacts.update(artifacts)
    return info


# --- processes that train together ----------------------------------------------------------------

set_grad_enabled = torch._C._set_grad_enabled
#: a context in which autocast sees no operator, unless it is entered inside
without_autocast = torch._C._DisableAutocast
#: what stands for tensors where torch's own stack traces a program: it has no address
TRACED = (FakeTensor, FunctionalTensor)
#: what a captured graph calls to enter a mode, and to leave it
MODE_ENTRIES = (
    torch.amp.autocast_mode._enter_autocast,
    torch.autograd.grad_mode._enter_inference_mode,
)
MODE_EXITS = (torch.amp.autocast_mode._exit_autocast, torch.autograd.grad_mode._exit_inference_mode)


def active_ddp() -> DistributedDataParallel | None:
    """The wrapped module whose forward this thread is in."""
    found: DistributedDataParallel | None = DistributedDataParallel._get_active_ddp_module()
    return found


def first_bucket_bytes() -> int:
    """What the bucket that is sent first takes, unless the user set a size for all."""
    return int(getattr(torch.distributed, "_DEFAULT_FIRST_BUCKET_BYTES", 1 << 20))


def default_store() -> Any:
    """The key-value store of the default process group."""
    return torch.distributed.distributed_c10d._get_default_store()


def ranks_of_group(name: str) -> list[int]:
    """The processes in a group, by their ranks among all."""
    own: Any = torch.distributed.distributed_c10d
    return list(own.get_process_group_ranks(own._resolve_process_group(name)))


def group_of_collective(node: torch.fx.Node) -> str | None:
    """The name of the group in which a node communicates; None for any other node."""
    target: Any = node.target
    own = getattr(target, "communicates_in", None)
    if isinstance(own, str):
        return own
    if isinstance(target, torch._ops.OpOverloadPacket) and "default" in target.overloads():
        target = target.default
    if not isinstance(target, torch._ops.OpOverload):
        return None
    if not target.namespace.startswith("_c10d_functional"):
        return None
    names = [each.name for each in target._schema.arguments]
    if "group_name" not in names:
        return None
    return str(dict(zip(names, node.args, strict=False), **node.kwargs)["group_name"])


def local_part(tensor: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """What of a tensor lies on this rank, and whether the others are to have the same."""
    module = sys.modules.get("torch.distributed.tensor")
    if module is None or not isinstance(tensor, module.DTensor):
        return tensor, True
    return tensor._local_tensor, all(each.is_replicate() for each in tensor.placements)  # type: ignore[attr-defined]


def rules_of_distributed() -> tuple[list[tuple[str, Any]], bool]:
    """What computes operators of distributed tensors and what decides their placements, each with
    its operator; whether plain operands are copies."""
    dispatcher: Any = sys.modules["torch.distributed.tensor"].DTensor._op_dispatcher
    tables = ("op_to_rules", "op_strategy_funcs", "op_single_dim_strategy_funcs")
    rules = [vars(dispatcher.sharding_propagator).get(table, {}) for table in tables]
    found = [
        (str(op), each.func if type(each).__module__.startswith("torch.") else each)
        for table in (dispatcher._custom_op_handlers, *rules)
        for op, each in table.items()
    ]
    return found, bool(dispatcher._allow_implicit_replication)


# --- symbolic sizes -------------------------------------------------------------------------------


def expression_of(number: Any) -> Any:
    """The sympy expression of a symbolic number, with what its environment has learnt since."""
    return number.node.expr


def value_of(number: Any) -> Any:
    """The value of a symbolic number in this call, which is not assumed; anything else as it is."""
    return number.node.hint if isinstance(number, torch.SymInt | torch.SymFloat) else number


def environment_of(number: Any) -> Any:
    """The shape environment that a symbolic number belongs to."""
    return number.node.shape_env


def values_of(environment: Any) -> Any:
    """The values of symbols in this call; 2.13 has another name for them than 2.11."""
    name = "backed_var_to_val" if hasattr(environment, "backed_var_to_val") else "var_to_val"
    return getattr(environment, name)


BOUNDS = {"GreaterThan": "lower", "LessThan": "upper"}
#: the name of a relation, and its two sides; "" with None: a condition
Fact = tuple[str, Any, Any]


def facts_of(environment: Any) -> list[Fact]:
    """What an environment has assumed: its conditions in their order, symbols that were found equal
    to expressions, the least and the most of each symbol (None where that is no integer). What is
    assumed of symbols that depend on data is left out: the graph checks it, at every call."""
    facts: list[Fact] = [("", guard.expr, None) for guard in environment.guards]
    facts += [("Equality", *pair) for pair in environment.replacements.items()]
    for symbol, own in environment.var_to_range.items():
        ends = ((relation, getattr(own, end)) for relation, end in BOUNDS.items())
        facts += [(name, symbol, end if end.is_Integer else None) for name, end in ends]
    return [fact for fact in facts if not any(map(by_data, fact[1:]))]


def by_data(expression: Any) -> bool:
    """Whether a symbol of an expression depends on data."""
    if not getattr(expression, "free_symbols", None):
        return False
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return bool(free_unbacked_symbols(expression))


def range_of(environment: Any, symbol: Any) -> str:
    """The range of a symbol as text."""
    bounds = environment.var_to_range.get(symbol)
    return "any" if bounds is None else f"{bounds.lower} to {bounds.upper}"


def assume(environment: Any, condition: Any) -> bool:
    """Let an environment decide a condition, which it assumes from there on; what it decided."""
    return bool(environment.create_symboolnode(condition))


def symbolic(name: str) -> Any:
    """The class of expressions, or the constant, that torch or sympy calls by this name."""
    # it brings sympy, which loaded programs do without
    from torch.utils._sympy import functions

    module: Any = functions
    found = getattr(module, name, None)
    return getattr(module.sympy, name) if found is None else found


def size_expression(size: Any) -> Any:
    """A size as an expression of symbols; a number where it is one."""
    expression = size.node.expr if isinstance(size, torch.SymInt) else size
    return int(expression) if getattr(expression, "is_Integer", False) else expression


def size_hint(size: Any) -> int:
    """A size in the call that a graph is compiled for."""
    return int(size.node.hint) if isinstance(size, torch.SymInt) else int(size)


def fake_of_size(fake: Any, sizes: Mapping[int, int], order: Sequence[int]) -> Any:
    """A fake tensor like another with these sizes of dimensions, dense in an order of them."""
    with fake.fake_mode:
        shape = [sizes.get(dim, fake.shape[dim]) for dim in order]
        made = torch.empty(shape, dtype=fake.dtype, device=fake.device)
        made = made.permute(sorted(range(len(shape)), key=list(order).__getitem__)).detach()
        return made.requires_grad_(fake.requires_grad)


def propagate(gm: fx.GraphModule) -> None:
    """Compute what the nodes of a graph are anew, of its placeholders' values."""
    fakes = [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]
    mode = next(each.fake_mode for each in fakes if hasattr(each, "fake_mode"))
    grad = torch.is_grad_enabled()
    try:
        with mode:
            for node in gm.graph.nodes:
                if not node.op.startswith("call_"):
                    continue
                args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
                method = node.op == "call_method"
                call = getattr(args[0], node.target) if method else node.target
                node.meta["val"] = call(*args[method:], **kwargs)
    finally:
        torch.set_grad_enabled(grad)
