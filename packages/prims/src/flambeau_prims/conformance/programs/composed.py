"""Composed graphs and graphs with symbolic sizes.

In: a seed. Out: programs, made by lowering Torch code with the table of decompositions, or of one
primitive whose sizes are symbols.
Invariant: everything in them is a primitive; what a decomposition leaves to ATen is not used here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, fx

from flambeau_prims._op import NotYetSymbolic, Prim, PrimError, prim_of
from flambeau_prims._torch_compat import is_settled, parameters, symbolic_mode
from flambeau_prims.canonicalize import lower
from flambeau_prims.conformance.compare import judge_of
from flambeau_prims.conformance.programs.programs import KitProgram
from flambeau_prims.conformance.samples.cases import cases_of
from flambeau_prims.conformance.samples.registry import Case
from flambeau_prims.conformance.samples.tensors import (
    BF16,
    BOOL,
    CPU,
    F32,
    I64,
    moved,
    positions,
    signed,
)
from flambeau_prims.dialect import verify
from flambeau_prims.graph_recorder import GraphRecorder, TracedValue, map_values
from flambeau_prims.shape_rules import TensorMeta

Composition = tuple[Callable[..., Any], list[Tensor]]
Build = Callable[[Generator], Composition]

COMPOSED: dict[str, Build] = {}
"""Torch code by name."""


def _composition(name: str) -> Callable[[Build], Build]:
    return lambda build: COMPOSED.setdefault(name, build)


@_composition("perceptron")
def _perceptron(g: Generator) -> Composition:
    def f(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor) -> Any:
        return (F.gelu(F.linear(x, w1, b1)) @ w2,)

    return f, [signed(s, F32, g) for s in ((5, 8), (16, 8), (16,), (16, 3))]


@_composition("normalization and softmax")
def _normalized(g: Generator) -> Composition:
    def f(x: Tensor, w: Tensor, b: Tensor) -> Any:
        y = F.layer_norm(x, (9,), w, b)
        return (y, y.softmax(-1), y.log_softmax(1))

    return f, [signed((2, 7, 9), F32, g), signed((9,), F32, g), signed((9,), F32, g)]


@_composition("half precision")
def _half(g: Generator) -> Composition:
    def f(x: Tensor, w: Tensor) -> Any:
        return (F.layer_norm(F.silu(x) * w, (33,)),)

    return f, [signed((6, 33), BF16, g), signed((33,), BF16, g)]


@_composition("masked attention")
def _attended(g: Generator) -> Composition:
    def f(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Any:
        scores = (q @ k.transpose(-1, -2)) * 0.3
        return (torch.where(mask, scores, float("-inf")).softmax(-1) @ v,)

    mask = torch.ones(6, 6, dtype=BOOL).tril()
    return f, [*(signed((2, 3, 6, 4), F32, g) for _ in range(3)), mask]


@_composition("convolution, batch norm and pooling")
def _image(g: Generator) -> Composition:
    def f(x: Tensor, w: Tensor, scale: Tensor, mean: Tensor, var: Tensor) -> Any:
        y = F.batch_norm(F.conv2d(x, w, padding=1), mean, var, scale, mean)
        return (F.max_pool2d(F.relu(y), 2).mean((2, 3)),)

    shapes: list[tuple[int, ...]] = [(2, 3, 8, 8), (5, 3, 3, 3), (5,), (5,)]
    return f, [*(signed(s, F32, g) for s in shapes), signed((5,), F32, g).abs() + 0.5]


@_composition("embedding and cross entropy")
def _loss(g: Generator) -> Composition:
    def f(table: Tensor, at: Tensor, w: Tensor, target: Tensor) -> Any:
        logits = F.embedding(at, table) @ w
        return (F.cross_entropy(logits.reshape(-1, 11), target.reshape(-1)),)

    sizes = [signed((13, 6), F32, g), positions((3, 4), 13, g), signed((6, 11), F32, g)]
    return f, [*sizes, positions((3, 4), 11, g)]


@_composition("optimizer step")
def _optimizer(g: Generator) -> Composition:
    def f(p: Tensor, grad: Tensor, m: Tensor, v: Tensor) -> Any:
        m = torch.lerp(m, grad, 0.1)
        v = v * 0.999 + 0.001 * grad * grad
        return (p - 0.01 * m / (v.sqrt() + 1e-8), m, v)

    return f, [*(signed((5, 7), F32, g) for _ in range(3)), signed((5, 7), F32, g).abs()]


@_composition("shuffling")
def _shuffled(g: Generator) -> Composition:
    def f(x: Tensor, i: Tensor) -> Any:
        y = torch.cat([x[:, ::2], x.flip(1)[:, 1:3]], 1).t()
        top = y.topk(2, 0)
        counts = (i[None] == torch.arange(5, device=i.device)[:, None]).sum(1)
        return (F.pad(y, (1, 0, 0, 2), value=-1.0), top.values, counts, x[i].cumsum(0))

    return f, [signed((5, 8), F32, g), positions((9,), 5, g).to(I64)]


WITH_SYMBOLS = ("perceptron", "masked attention", "optimizer step")
"""Those that say nothing of sizes in numbers, so that they can be lowered for any."""


def composed(
    seed: int = 0, only: str | None = None, device: torch.device = CPU
) -> Iterator[KitProgram]:
    """The programs of `COMPOSED` (or the one named `only`), lowered."""
    for name in COMPOSED if only is None else (only,):
        function, inputs = _built(name, seed, device)
        yield _program(name, "graphs", lower(fx.symbolic_trace(function), inputs), inputs)


def composed_with_symbols(seed: int = 0, device: torch.device = CPU) -> Iterator[KitProgram]:
    """The programs of `WITH_SYMBOLS`, lowered once and with inputs of two sizes; without those in
    which this version of torch has made numbers of the symbols."""
    for name in WITH_SYMBOLS:
        function, inputs = _built(name, seed, device)
        mode = symbolic_mode()
        fakes = [mode.from_tensor(x) for x in inputs]
        gm = lower(fx.symbolic_trace(function), fakes)
        if any(is_settled(size) for fake in fakes for size in fake.shape if size != 1):
            continue
        program = _program(f"{name} with symbols", "symbols", gm, inputs)
        yield replace(program, others=(tuple(grown(inputs)),))


def _built(name: str, seed: int, device: torch.device) -> Composition:
    number = list(COMPOSED).index(name)
    function, inputs = COMPOSED[name](torch.Generator().manual_seed(seed * 101 + number))
    return function, moved(inputs, device)


def _program(name: str, family: str, gm: fx.GraphModule, inputs: Sequence[Tensor]) -> KitProgram:
    verify(gm, leaves=False)
    outputs = next(n for n in gm.graph.nodes if n.op == "output").args[0]
    return KitProgram(
        name=name,
        family=family,
        gm=gm,
        inputs=tuple(inputs),
        judges=("close",) * len(outputs),
        dtypes=frozenset(n.meta["val"].dtype for n in gm.graph.nodes if _is_tensor(n)),
        prims=_prims_in(gm),
    )


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), Tensor)


def _prims_in(gm: fx.GraphModule) -> frozenset[str]:
    found = (prim_of(node.target) for node in gm.graph.nodes)
    return frozenset(prim.name for prim in found if prim is not None)


# A list that states sizes in numbers; dims and flags may stay.
_STATES_SIZES = frozenset({"int[]", "int"})
_NOT_SIZES = frozenset({"dims", "dim", "dim1", "dim2", "offset", "order", "n", "spatial", "mode"})
_SKIPPED_TAGS = frozenset({"data_dependent", "mutating", "creation", "random", "effect", "linalg"})
_SKIPPED = frozenset({"searchsorted"})  # like factorizations: a repeated row is no valid operand


def symbolic(prim: Prim, seed: int = 0, device: torch.device = CPU) -> KitProgram | None:
    """The first of the primitive's sample calls that can be made symbolic."""
    if (
        prim.tags & _SKIPPED_TAGS
        or prim.name in _SKIPPED
        or any(
            p.type in _STATES_SIZES and p.name not in _NOT_SIZES for p in parameters(prim.overload)
        )
    ):
        return None
    return next(_programs(prim, seed, device), None)


def _programs(prim: Prim, seed: int, device: torch.device) -> Iterator[KitProgram]:
    for case in cases_of(prim, seed):
        if not case.tensors or any(not _plain(x) for x in case.tensors):
            continue
        if not any(size > 1 for x in case.tensors for size in x.shape):
            continue
        if (program := _program_of_sizes(case.on(device))) is not None:
            yield program


def _plain(x: Tensor) -> bool:
    return x.is_contiguous() and x.storage_offset() == 0 and x.numel() > 0


def _program_of_sizes(case: Case) -> KitProgram | None:
    larger = replace(case, args=grown(case.args), kwargs=grown(case.kwargs))
    mode = symbolic_mode()
    graph = fx.Graph()
    recorder = GraphRecorder(graph, mode)
    fakes: list[Tensor] = []

    def entered(item: Any) -> Any:
        if isinstance(item, Tensor):
            fake = mode.from_tensor(item)
            fakes.append(fake)
            node = graph.placeholder(f"x{len(fakes) - 1}")
            node.meta["val"] = fake
            return TracedValue(TensorMeta.of(fake), node, fake)
        return item

    args, kwargs = map_values(entered, (case.args, case.kwargs))
    try:
        case.prim.predicted(larger.args, larger.kwargs)
        result = recorder.prim(case.prim, args, kwargs)
    except (PrimError, NotYetSymbolic):
        return None  # sizes that go together in numbers do not when they grow
    if any(is_settled(n) for fake in fakes for n in fake.shape if n != 1):
        return None
    results = [r for r in (result if isinstance(result, tuple) else (result,)) if r is not None]
    graph.output(tuple(value.node for value in results))
    return KitProgram(
        name=f"{case.label} with symbols",
        family="symbols",
        gm=fx.GraphModule(torch.nn.Module(), graph),
        inputs=tuple(case.tensors),
        others=(tuple(larger.tensors),),
        judges=tuple(judge_of(case, i) for i in range(len(results))),
        dtypes=case.dtypes,
        prims=frozenset({case.prim.name}),
    )


def grown(tree: Any) -> Any:
    """Tensors with every size above 1 one larger, their elements repeated."""

    def larger(item: Any) -> Any:
        for dim, size in enumerate(item.shape if isinstance(item, Tensor) else ()):
            if size > 1:
                item = item.index_select(dim, torch.arange(size + 1, device=item.device) % size)
        return item

    return map_values(larger, tree)
