"""Images in another order of memory are seen by nobody: values, strides and shared memory of all
results are those of the graph that was written.

The family: convolutions that ask for channels-last images x who reads what they give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from flambeau_inductor.pre_grad.image_layout import channels_last
from torch import Tensor, fx
from torch._subclasses import FakeTensorMode
from torch.nn import functional as F

aten = torch.ops.aten


@pytest.fixture(scope="module", autouse=True)
def raw() -> Iterator[None]:
    """An operator of somebody else's that reads by addresses."""
    with torch.library._scoped_library("flambeau_readers", "FRAGMENT") as library:
        library.define("raw(Tensor x) -> Tensor")
        first = lambda x: x.as_strided((8,), (1,)).clone()  # noqa: E731
        library.impl("raw", first, "CompositeExplicitAutograd")
        torch.library.register_fake("flambeau_readers::raw", lambda x: x.new_empty(8), lib=library)
        yield


def _both(one: Any, other: Any) -> Any:
    """The second of two: the first is done for what it writes."""
    return other


def _first(one: Any, other: Any) -> Any:
    """The first of two, which the second writes to if it is the same memory."""
    return one


IMAGES: dict[str, Callable[[Tensor], Tensor]] = {
    "1 x 1": lambda x: F.conv2d(x, torch.ones(12, 8, 1, 1)),
    "depthwise": lambda x: F.conv2d(x, torch.ones(8, 1, 3, 3), padding=1, groups=8),
    "block": lambda x: F.relu(F.conv2d(x, torch.ones(12, 8, 1, 1)) * 2 + 1),
    "slice": lambda x: F.conv2d(x, torch.ones(12, 8, 1, 1))[:, 2:6],
    "turned": lambda x: F.conv2d(x, torch.ones(12, 8, 1, 1)).permute(0, 2, 3, 1),
}

READERS: dict[str, Callable[[Tensor], Any]] = {
    "as_strided": lambda y: torch.as_strided(y, (2, 2), (3, 1)),
    "as_strided method": lambda y: y.as_strided((2, 2), (3, 1)) + 1,
    "as_strided operator": lambda y: aten.as_strided.default(y, [2, 3, 4], [64, 5, 1]) + 1,
    "as_strided_copy": lambda y: torch.as_strided_copy(y, (2, 2), (3, 1)),
    "as_strided_scatter": lambda y: torch.as_strided_scatter(y, torch.ones(2, 2), (2, 2), (3, 1)),
    "as_strided behind": lambda y: aten.as_strided.default(F.gelu(y) * 2, [2, 2], [3, 1]),
    "somebody's": lambda y: torch.ops.flambeau_readers.raw(y),
    "somebody's behind": lambda y: torch.ops.flambeau_readers.raw(F.relu(y) * 2),
    "view operator": lambda y: aten.view.default(y.contiguous(), [-1]),
    "unsafe view": lambda y: aten._unsafe_view.default(y.contiguous(), [-1]),
    "whole": lambda y: y,
    "one": lambda y: y[0],
    "row": lambda y: y[:, :, 0],
    "part": lambda y: F.relu(y)[0] + 1,
    "turned": lambda y: y.permute(0, 2, 3, 1)[0],
    "flat": lambda y: y.flatten(2),
    "sequence": lambda y: y.flatten(2).transpose(1, 2),
    "halves": lambda y: y.chunk(2, 1),
    "pooled": lambda y: y.mean((2, 3), keepdim=True),
    "mean": lambda y: y.mean(1),
    "windows": lambda y: y.unfold(1, 2, 2),
    "like": lambda y: torch.zeros_like(y)[0],
    "sorted": lambda y: y.sort(1)[1][0],
    "random": lambda y: torch.rand_like(y),
    "dropout": lambda y: F.dropout(y, 0.5, True),
    "no dropout": lambda y: F.dropout(y, 0.5, False),
    "both": lambda y: (y, y[0]),
    "both flat": lambda y: (y, y.reshape(-1)),
    "itself": lambda y: (y, y.contiguous()),
    "flat is written": lambda y: _both(y.reshape(-1).mul_(2), y),
    "flat is relu": lambda y: _both(y.flatten(1).relu_(), y + 1),
    "same is written": lambda y: _both(y.contiguous().mul_(2), y),
    "written into": lambda y: _both(torch.mul(y.reshape(-1), 2, out=y.reshape(-1)), y),
    "written behind": lambda y: _first(y.reshape(-1), y.relu_()) * 1,
    "written before": lambda y: _both(F.relu(y, inplace=True), y).flatten(1),
}


def _described(results: Any) -> list[Any]:
    found = list(results) if isinstance(results, tuple | list) else [results]
    storages = [t.untyped_storage()._cdata for t in found]
    return [(t.shape, t.stride(), storages.index(s)) for t, s in zip(found, storages, strict=True)]


def _program(
    image: Callable[[Tensor], Tensor], reader: Callable[[Tensor], Any]
) -> Callable[[Tensor], Any]:
    return lambda x: reader(image(x))


class _Values(fx.Interpreter):
    """Leaves the value of each node behind."""

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n.op != "output":
            n.meta["val"] = value
        return value


@pytest.mark.parametrize("image", IMAGES)
def test_nobody_sees_another_order(image: str) -> None:
    x = torch.randint(-8, 8, (2, 8, 6, 6)).float()
    changed = []
    for name, reader in READERS.items():
        gm = fx.symbolic_trace(_program(IMAGES[image], reader))
        with torch.no_grad():
            torch.manual_seed(3)
            try:
                want = gm(x.clone())
            except RuntimeError:  # this image has no such view
                continue
            with FakeTensorMode(allow_non_fake_inputs=True) as mode:
                _Values(gm).run(mode.from_tensor(x))
            changed.append(channels_last(gm) > 0)
            torch.manual_seed(3)
            got = gm(x.clone())
        assert _described(got) == _described(want), name
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5, msg=name)
    assert sum(changed) > len(changed) // 3
