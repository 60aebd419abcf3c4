"""`plan` of a mesh: memory of each rank, and seconds of a step, before a process is started.

In: a model, a mesh, the batch of one replica. Out: a `ParallelPlan`: parameters, gradients,
optimizer and live values of the forward and backward graphs, as they would lie on each rank;
seconds of computation by the rates of the device, and of collectives by the links.
Invariant: the model runs once, on the device that it is on (`torch.device("meta")` does); no
process group is needed. Liveness is that of the graphs operator by operator, as ahead-of-time
autograd cuts them: fused kernels need less.

Tensor parallelism is by columns and rows in turn (Shoeybi et al., Megatron-LM, 2019): a product of
a value that lies whole with a weight is by columns, one of a value that lies in parts is by rows,
and gives a sum over ranks. Shards of parameters are gathered unit by unit, as `fully_shard` on each
block does (Zhao et al., PyTorch FSDP, VLDB 2023).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import flambeau_aot
import flambeau_capture
import torch
from flambeau_inductor.tuning import MEASURED
from flambeau_inductor.tuning.machine import NETWORK, Link, link_of
from torch import fx
from torch.utils.flop_counter import flop_registry

from flambeau._torch_compat import is_overload, pytree
from flambeau.shown import Shown, as_table

MOST_RANKS = 4096


@dataclass(frozen=True)
class Mesh:
    """Ranks by what they do: replicas of the model (DDP), shards of its parameters (FSDP2), parts
    of its products (tensor parallelism); the last are nearest to each other.

    per_host: ranks that share a host's links. optimizer_states: tensors of a parameter's size that
    the optimizer keeps for each; 2 for Adam.
    """

    replicate: int = 1
    shard: int = 1
    tensor: int = 1
    per_host: int = 8
    optimizer_states: int = 2

    def __post_init__(self) -> None:
        sizes = (self.replicate, self.shard, self.tensor, self.per_host)
        if min(sizes) < 1 or self.ranks > MOST_RANKS:
            raise ValueError(f"a mesh has from 1 to {MOST_RANKS} ranks: {self}")

    @property
    def ranks(self) -> int:
        """Of the whole mesh."""
        return self.replicate * self.shard * self.tensor


@dataclass(frozen=True)
class RankMemory:
    """Bytes of one rank. activations: the most of what forward keeps for backward, and works with.
    communication: whole parameters or gradients of a sharded unit, buckets of a replica. peak: of
    all that is there at once, which is less than the sum where gradients come as values go."""

    parameters: int
    gradients: int
    optimizer: int
    batch: int
    activations: int
    communication: int
    peak: int


@dataclass(frozen=True)
class StepTime:
    """Seconds of one rank: of computation; of collectives by what they are for; of these, what no
    computation is there to hide."""

    computation: float
    replicas: float
    shards: float
    tensor: float
    exposed: float

    @property
    def step(self) -> float:
        """Of a forward and a backward pass."""
        return self.computation + self.exposed


@dataclass(frozen=True, repr=False)
class ParallelPlan(Shown):
    """What training a model on a mesh would come to."""

    mesh: Mesh
    device: str
    memory: RankMemory
    time: StepTime

    def __str__(self) -> str:
        memory, seconds, mesh = self.memory, self.time, self.mesh
        rows = [
            ("parameters", _size(memory.parameters)),
            ("gradients", _size(memory.gradients)),
            ("optimizer", _size(memory.optimizer)),
            ("batch", _size(memory.batch)),
            ("activations", _size(memory.activations)),
            ("communication", _size(memory.communication)),
            ("at most at once", _size(memory.peak)),
        ]
        times = [
            ("computation", _time(seconds.computation)),
            ("collectives of replicas", _time(seconds.replicas)),
            ("of shards", _time(seconds.shards)),
            ("of tensor parallelism", _time(seconds.tensor)),
            ("not overlapped", _time(seconds.exposed)),
            ("a step", _time(seconds.step)),
        ]
        return (
            f"{mesh.ranks} ranks: {mesh.replicate} replicas x {mesh.shard} shards x "
            f"{mesh.tensor} tensor-parallel, {self.device}\n"
            f"memory of each rank\n{_indented(rows)}\ntime\n{_indented(times)}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "mesh": vars(self.mesh), "device": self.device, "memory": vars(self.memory),
            "time": {**vars(self.time), "step": self.time.step},
        }  # fmt: skip


def _indented(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"  {line}" for line in as_table(rows).splitlines())


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def _time(seconds: float) -> str:
    return f"{1e3 * seconds:.3f} ms"


# --- the graphs -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Half:
    """A forward or backward graph; `parameters`: names of the inputs that are, here or in the
    forward graph; `saved`: of what the forward graph makes for the backward graph."""

    graph: fx.Graph
    parameters: frozenset[str]
    saved: frozenset[str]


def _halves(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], gathered: bool
) -> list[list[_Half]]:
    """The graphs of a call in order, each with its backward graph; gathered: parameters are whole
    where they are read alone."""
    found: list[list[_Half]] = []
    units = {id(each) for unit in _units(model) for each in unit.parameters()}

    def backend(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        own: list[_Half] = []
        if gathered:
            _gather(gm, units)

        def compiler(half: fx.GraphModule, given: list[Any], info: flambeau_aot.GraphInfo) -> Any:
            if own:
                own.append(_Half(half.graph, own[0].parameters, own[0].saved))
            else:
                inputs = half.graph.find_nodes(op="placeholder")
                parameters = frozenset(inputs[place].name for place in info.static_inputs)
                results = _results(half.graph)
                saved = {results[place].name for place in info.saved_outputs}
                made = saved - {node.name for node in inputs}
                own.append(_Half(half.graph, parameters, frozenset(made)))
            return flambeau_aot.run_as_is(half, given, info)

        compiled = flambeau_aot.compile(gm, inputs, compiler)
        found.append(own)
        return compiled

    flambeau_capture.optimize(backend)(model)(*args, **kwargs)
    return found


def _gather(gm: fx.GraphModule, units: set[int]) -> None:
    """Read a copy of each parameter; of one in a unit another in the backward graph."""
    for node in gm.graph.find_nodes(op="get_attr"):
        value = attrgetter(str(node.target))(gm)
        if not isinstance(value, torch.nn.Parameter) or not node.users:
            continue
        with gm.graph.inserting_before(next(each for each in gm.graph.nodes if each in node.users)):
            whole = gm.graph.call_function(torch.clone, (node,))
        node.replace_all_uses_with(whole, lambda user, own=whole: user is not own)
        whole.meta.update(node.meta)
        if id(value) in units:
            whole.meta["recompute"] = "must_recompute"


def _results(graph: fx.Graph) -> Sequence[Any]:
    (output,) = graph.find_nodes(op="output")
    results: Any = output.args[0]
    return results if isinstance(results, list | tuple) else (results,)


def _tensors(node: fx.Node) -> list[torch.Tensor]:
    value = node.meta.get("val")
    values = value if isinstance(value, list | tuple) else (value,)
    return [item for item in values if isinstance(item, torch.Tensor)]


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(int(item.numel()) * item.element_size() for item in tensors)


def _is_view(node: fx.Node) -> bool:
    if node.op != "call_function" or not node.all_input_nodes:
        return False
    target: Any = node.target
    if not is_overload(target):
        return True  # one of several results
    return any(each.alias_info is not None for each in target._schema.returns)


PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "linear", "convolution"})


def _is_product(node: fx.Node) -> bool:
    return is_overload(node.target) and str(node.target).split(".")[1] in PRODUCTS


@dataclass
class _Rank:
    """What one rank of `tensor` has and does, added up over graphs.

    rates: operations and bytes of memory a second. sums: bytes of what is summed over these ranks.
    weights: bytes of the parameters that something is multiplied by. parts: whether a rank has but
    a part of a value, by name.
    """

    tensor: int
    rates: tuple[float, float]
    seconds: float = 0.0
    sums: list[int] = field(default_factory=list)
    weights: dict[str, int] = field(default_factory=dict)
    parts: dict[str, bool] = field(default_factory=dict)

    def share(self, node: fx.Node) -> int:
        """Bytes of a value on the rank."""
        size = _bytes(_tensors(node))
        return size // self.tensor if self.parts.get(node.name) else size

    def run(self, half: _Half) -> None:
        """Find which values lie in parts, and count what each operator takes."""
        weight_of: dict[fx.Node, fx.Node] = {}
        for node in half.graph.nodes:
            sources = node.all_input_nodes
            if node.op == "placeholder" and node.name in half.parameters:
                weight_of[node] = node
            elif _is_view(node) and sources[0] in weight_of:
                weight_of[node] = weight_of[sources[0]]
            if node.op != "call_function":
                continue
            in_parts = any(self.parts.get(each.name) for each in sources)
            weights = [each for each in sources if each in weight_of and _tensors(each)[0].ndim > 1]
            by_weight = _is_product(node) and bool(weights)
            if by_weight:
                for each in weights:
                    self.weights[weight_of[each].name] = _bytes(_tensors(weight_of[each]))
                if in_parts and self.tensor > 1:
                    self.sums.append(_bytes(_tensors(node)))
            self.parts[node.name] = self.tensor > 1 and in_parts is not by_weight
            if not _is_view(node):
                self.seconds += self._seconds(node) / (self.tensor if by_weight or in_parts else 1)

    def _seconds(self, node: fx.Node) -> float:
        operations = 0.0
        formula = flop_registry.get(getattr(node.target, "overloadpacket", None))
        if formula is not None:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda each: each.meta["val"])
            operations = float(formula(*args, **kwargs, out_val=node.meta["val"]))
        moved = _bytes(item for each in (node, *node.all_input_nodes) for item in _tensors(each))
        return max(operations / self.rates[0], moved / self.rates[1])


@dataclass
class _Live:
    """Bytes of values at each operator so far, and of gradients with them; `now`: at the end."""

    rank: _Rank
    shard: int
    now: int = 0
    gradients: int = 0
    values: int = 0
    most: int = 0

    def run(self, half: _Half, backward: bool) -> None:
        """Go through a graph. Its inputs count where the forward graph made them; results of a
        backward graph are gradients, of which a rank keeps its shard."""
        nodes = list(half.graph.nodes)
        root: dict[fx.Node, fx.Node] = {}
        last: dict[fx.Node, int] = {}
        for place, node in enumerate(nodes):
            root[node] = root[node.all_input_nodes[0]] if _is_view(node) else node
            for source in node.all_input_nodes:
                last[root[source]] = place
        results = {root[each] for each in _results(half.graph) if isinstance(each, fx.Node)}
        for place, node in enumerate(nodes):
            if node.op == "call_function" and root[node] is node:
                size = self.rank.share(node)
                if backward and node in results:
                    self.gradients += -(-size // self.shard)
                else:
                    self.now += size
                    if node not in last:
                        last[node] = place
            self.values = max(self.values, self.now)
            self.most = max(self.most, self.now + self.gradients)
            for source in dict.fromkeys((*map(root.__getitem__, node.all_input_nodes), node)):
                made = source.op == "call_function" or (backward and source.name in half.saved)
                if made and last.get(source) == place and source not in results:
                    self.now -= self.rank.share(source)


# --- the plan -------------------------------------------------------------------------------------


def plan_parallel(
    model: Callable[..., Any], mesh: Mesh, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> ParallelPlan:
    """What training a module on a mesh would come to. args, kwargs: of one replica's call."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError("a mesh is planned for a module, whose parameters are known")
    given = [each for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
    trained = [each for each in model.parameters() if each.requires_grad]
    constant = [each for each in model.parameters() if not each.requires_grad]
    kind = next((each.device.type for each in (*trained, *given)), "cpu")
    rank = _Rank(mesh.tensor, _rates(kind))
    live = _Live(rank, mesh.shard)
    pairs = _halves(model, args, kwargs, mesh.shard > 1)
    backward: list[_Half] = []
    for forward, *others in pairs:
        rank.run(forward)
        live.run(forward, backward=False)
        backward += others
    for half in reversed(backward):
        rank.run(half)
        live.run(half, backward=True)
    whole = _bytes(trained)
    in_parts = sum(rank.weights.values()) if mesh.tensor > 1 else 0
    own = whole - in_parts + in_parts // mesh.tensor
    sharded = -(-own // mesh.shard)
    largest_unit = max((_bytes(each.parameters()) for each in _units(model)), default=whole)
    unit = own * largest_unit // max(whole, 1) if mesh.shard > 1 else 0
    communication = 2 * unit if mesh.shard > 1 else own if mesh.replicate > 1 else 0
    still = _bytes((*constant, *model.buffers()))
    states, batch = mesh.optimizer_states * sharded, _bytes(given)
    buckets = communication if mesh.shard == 1 else 0  # which replicas keep between two steps
    held = sharded + still + states + batch + buckets
    spread = dict.fromkeys(rank.weights.values(), mesh.tensor)
    sizes = (_bytes([each]) for each in trained)
    largest = max((size // spread.get(size, 1) for size in sizes), default=0) // mesh.shard
    stepping = sharded + min(mesh.optimizer_states, 2) * largest  # two temporaries, of Adam
    memory = RankMemory(
        parameters=sharded + still,
        gradients=sharded,
        optimizer=states,
        batch=batch,
        activations=live.values,
        communication=communication,
        peak=held + max(live.most + communication - buckets, stepping),
    )
    return ParallelPlan(mesh, kind, memory, _times(mesh, kind, rank, own, len(trained)))


def _units(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """What is gathered at once: the blocks of lists of blocks."""
    for module in model.modules():
        if isinstance(module, torch.nn.ModuleList | torch.nn.Sequential):
            yield from module


def _times(mesh: Mesh, kind: str, rank: _Rank, parameters: int, count: int) -> StepTime:
    """Rings (Patarasu and Yuan, 2009): a sum takes each rank's data twice around, a gather or a
    scatter once."""
    within = _link(mesh.tensor, mesh, kind)
    shards = _link(mesh.tensor * mesh.shard, mesh, kind)
    replicas = _link(mesh.ranks, mesh, kind)
    tensor = sum(_sum_seconds(within, size, mesh.tensor) for size in rank.sums)
    calls = max(1, min(count, -(-parameters // max(shards.most_bytes, 1))))
    around = parameters * (mesh.shard - 1) // mesh.shard
    gathers = 3 * (calls * shards.latency + around / shards.rate) if mesh.shard > 1 else 0.0
    sums = _sum_seconds(replicas, parameters // mesh.shard, mesh.replicate)
    exposed = tensor + max(0.0, gathers + sums - rank.seconds)
    return StepTime(rank.seconds, sums, gathers, tensor, exposed)


def _sum_seconds(link: Link, size: int, ranks: int) -> float:
    return link.seconds(2 * size * (ranks - 1) // ranks) if ranks > 1 else 0.0


def _link(reach: int, mesh: Mesh, kind: str) -> Link:
    """The link over which ranks communicate that are so far from each other."""
    return link_of(kind if reach <= mesh.per_host else NETWORK)


SIDE, REPEATS = 384, 3


def _rates(kind: str) -> tuple[float, float]:
    """Operations and bytes of memory a second: of a CPU by measuring it, of others as of the GPU
    that was measured."""
    if kind != "cpu":
        machine = MEASURED.machine
        return MEASURED.tensor_operations * machine.multiprocessors, MEASURED.memory_rate
    a, b = torch.randn(SIDE, SIDE), torch.empty(4 << 20, dtype=torch.uint8)
    product = min(_timed(lambda: a @ a) for _ in range(REPEATS))
    copy = min(_timed(b.clone) for _ in range(REPEATS))
    return 2.0 * SIDE**3 / product, 2.0 * b.numel() / copy


def _timed(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
