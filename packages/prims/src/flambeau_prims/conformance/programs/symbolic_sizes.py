"""Programs with symbolic sizes, compiled once and run on several.

In: sample calls of a primitive. Out: a program with symbolic metas and inputs of two sizes, or None
where the primitive's arguments state sizes as numbers, or its rule pins a symbol to a number.
Invariant: the second inputs differ from the first in every size but 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx

from flambeau_prims._op import NotYetSymbolic, Prim, PrimError
from flambeau_prims._torch_compat import is_settled, parameters, symbolic_mode
from flambeau_prims.conformance.compare import judge_of
from flambeau_prims.conformance.programs.programs import KitProgram, rule_result
from flambeau_prims.conformance.samples.cases import Case, cases_of
from flambeau_prims.conformance.samples.tensors import CPU
from flambeau_prims.layout import TensorMeta
from flambeau_prims.values import GraphRecorder, TracedValue

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
        program = _program(case.on(device))
        if program is not None:
            yield program


def _plain(x: Tensor) -> bool:
    return x.is_contiguous() and x.storage_offset() == 0 and x.numel() > 0


def _program(case: Case) -> KitProgram | None:
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
        return [entered(x) for x in item] if isinstance(item, (list, tuple)) else item

    args = tuple(entered(a) for a in case.args)
    kwargs = {key: entered(value) for key, value in case.kwargs.items()}
    try:
        rule_result(larger)
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


def grown(item: Any) -> Any:
    """Tensors with every size above 1 one larger, their elements repeated."""
    if isinstance(item, Tensor):
        for dim, size in enumerate(item.shape):
            if size > 1:
                item = item.index_select(dim, torch.arange(size + 1, device=item.device) % size)
        return item
    if isinstance(item, dict):
        return {key: grown(value) for key, value in item.items()}
    return type(item)(map(grown, item)) if isinstance(item, (list, tuple)) else item
