"""Shapes, dtypes, strides and offsets of what programs of one operator give, for arguments in
several orders of memory: torch's database of operators, lowered, scheduled and run by the meaning
of its loops, against eager on a CPU.

A slice; all operators with FLAMBEAU_SWEEPS=1 (`nox -s sweeps`). Calls that eager refuses are left
out, and those that write to an argument or give a view of one, which are aot's.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable
from typing import Any

import flambeau_prims
import pytest
import torch
from flambeau_inductor.passes.primitive_passes import rewrite
from flambeau_prims.dialect import DialectError
from flambeau_prims.sweep import database
from tests.evaluated import compiled
from torch import Tensor, fx
from torch.utils import _pytree

WHOLE = os.environ.get("FLAMBEAU_SWEEPS") == "1"
NAMES = sorted(database.by_name())[0 if WHOLE else 3 :: 1 if WHOLE else 90]
PARTS = 64 if WHOLE else 1
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64)
NEVER_WRITTEN = {"empty_strided", "new_empty_strided"}
"""Whose results eager lays out as it is told, and whose elements are nobody's."""
Facts = list[tuple[Any, ...]]


def reversed_(x: Tensor) -> Tensor:
    order = [*range(x.ndim)][::-1]
    return x.permute(order).contiguous().permute(order)


def channels_last(x: Tensor) -> Tensor:
    return x.movedim(1, -1).contiguous().movedim(-1, 1) if x.ndim > 2 else x


def repeated(x: Tensor) -> Tensor:
    return x[..., :1].clone().expand(x.shape) if x.shape[-1] else x


def with_offset(x: Tensor) -> Tensor:
    return torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape) if x.numel() else x


def odd_ones(x: Tensor) -> Tensor:
    """One row, of memory in which the last dimension is the slowest: no step of its dimension is
    that of row-major order."""
    return reversed_(x)[:1] if x.shape[0] else x


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "dense": lambda x: x.contiguous(),
    "transposed": reversed_,
    "channels last": channels_last,
    "every other": lambda x: torch.stack([x, x], -1).flatten(-2)[..., ::2],
    "repeated": repeated,
    "offset": with_offset,
    "odd ones": odd_ones,
    "one image": lambda x: channels_last(x)[:1],
    "nothing": lambda x: x[:0],
}


def facts(results: list[Tensor]) -> Facts:
    return [(tuple(x.shape), x.dtype, x.storage_offset(), x.stride()) for x in results]


def of_tensors(entry: Any, tree: Any) -> tuple[Callable[..., list[Tensor]], list[Tensor]]:
    """A call of the operator as a function of its tensors, and those."""
    leaves, spec = _pytree.tree_flatten(tree)
    places = [k for k, x in enumerate(leaves) if isinstance(x, Tensor)]

    def call(*tensors: Tensor) -> list[Tensor]:
        given = dict(zip(places, tensors, strict=True))
        args, kwargs = _pytree.tree_unflatten([given.get(k, x) for k, x in enumerate(leaves)], spec)
        return [x for x in _pytree.tree_leaves(entry(*args, **kwargs)) if isinstance(x, Tensor)]

    return call, [leaves[k] for k in places]


def program(call: Callable[..., list[Tensor]], given: list[Tensor], count: int) -> fx.GraphModule:
    graph = fx.Graph()
    made = graph.call_function(call, tuple(graph.placeholder(f"x{k}") for k in range(len(given))))
    graph.output(tuple(graph.call_function(operator.getitem, (made, k)) for k in range(count)))
    gm = fx.GraphModule(torch.nn.Module(), graph)
    return rewrite(flambeau_prims.lower(gm, given))


def compared(name: str, dtype: torch.dtype, layout: str) -> str | None:
    """What differs of an operator's first call; "" where nothing does, None where nobody knows."""

    def laid(x: Any) -> Any:
        plain = isinstance(x, Tensor) and x.layout == torch.strided and x.ndim > 0
        return LAYOUTS[layout](x.detach()) if plain else x

    entry = database.by_name()[name]
    for sample in database.calls(entry, dtype, 1, False):
        tree = _pytree.tree_map(laid, (sample.args, sample.kwargs))
        call, given = of_tensors(entry, tree)
        try:
            expected = call(*given)
        except Exception:  # whatever eager has against the layout
            return None
        memory = {x.untyped_storage().data_ptr() for x in given if x.layout == torch.strided}
        if any(
            x.layout != torch.strided or x.untyped_storage().data_ptr() in memory for x in expected
        ):
            return None
        try:
            found = compiled(program(call, given, len(expected)), given).results
        except DialectError:
            return None
        if facts(list(found)) != facts(expected):
            return f"{name} {dtype} {layout}: {facts(list(found))} for {facts(expected)}"
        return ""
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
def test_as_eager(part: int) -> None:
    answers = [
        compared(name, dtype, layout)
        for name in NAMES[part::PARTS]
        if name not in NEVER_WRITTEN
        for dtype in DTYPES
        if database.takes(database.by_name()[name], dtype)
        for layout in LAYOUTS
    ]
    known = [text for text in answers if text is not None]
    assert [text for text in known if text] == []
    assert len(known) > len(answers) / 4 > 5


def test_another_layout_is_seen() -> None:
    x = torch.randn(3, 4)
    assert facts([x]) != facts([x.t().contiguous().t()]) and facts([x]) == facts([x.clone()])
    assert facts([x]) != facts([with_offset(x)])
