"""Memory that is used again: only what nobody holds, and only what it was."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import Options
from flambeau_inductor.runtime import output_cache
from flambeau_inductor.runtime.output_cache import KeptMemory
from torch import Tensor, fx

SHAPE, STRIDE, KIND = (32, 64), (64, 1), torch.float32
BYTES = 4 * 32 * 64


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_cache, "RETURNED", 1024)


@pytest.fixture
def memory() -> KeptMemory:
    return KeptMemory(10 * BYTES)


def test_the_next_call_gets_what_nobody_holds(memory: KeptMemory) -> None:
    first = memory(SHAPE, STRIDE, KIND)
    address = first.data_ptr()
    assert (first.shape, first.stride(), first.dtype) == (SHAPE, STRIDE, KIND)
    assert first._base is None and not first.requires_grad
    del first
    again = memory((64, 32), (1, 64), torch.int32)  # as many bytes
    assert again.data_ptr() == address and again.stride() == (1, 64)
    assert (memory.reused, memory.held) == (1, BYTES)


HOLDERS: dict[str, Callable[[Tensor], Any]] = {
    "itself": lambda t: t,
    "a view": lambda t: t[3:5],
    "another tensor": lambda t: t.detach().t(),
    "an array": lambda t: t.numpy()[::2],
    "its storage": lambda t: t.untyped_storage(),
    "a capsule": lambda t: torch.utils.dlpack.to_dlpack(t),
    "a graph": lambda t: (t * torch.ones(64, requires_grad=True)).sum(),
    "a parameter": torch.nn.Parameter,
}


@pytest.mark.parametrize("who", HOLDERS)
def test_what_somebody_holds_is_not_handed_out(memory: KeptMemory, who: str) -> None:
    made = memory(SHAPE, STRIDE, KIND).fill_(1.0)
    address = made.data_ptr()
    holder = HOLDERS[who](made)
    del made
    gc.collect()
    others = [memory(SHAPE, STRIDE, KIND) for _ in range(3)]
    assert all(other.data_ptr() != address for other in others)
    del holder, others
    gc.collect()
    assert address in {memory(SHAPE, STRIDE, KIND).data_ptr() for _ in range(4)}


CHANGES: dict[str, Callable[[Tensor], Any]] = {
    "shared": lambda t: t.share_memory_(),
    "emptied": lambda t: t.untyped_storage().resize_(0),
    "grown": lambda t: t.untyped_storage().resize_(2 * BYTES),
}


@pytest.mark.parametrize("how", CHANGES)
def test_what_became_something_else_is_let_go(memory: KeptMemory, how: str) -> None:
    CHANGES[how](memory(SHAPE, STRIDE, KIND))
    again = memory(SHAPE, STRIDE, KIND).fill_(2.0)
    assert memory.reused == 0 and memory.held == BYTES
    assert not again.is_shared() and again.untyped_storage().nbytes() == BYTES


def test_what_is_kept_is_bounded() -> None:
    memory = KeptMemory(2 * BYTES)
    tensors = [memory(SHAPE, STRIDE, KIND) for _ in range(5)]
    assert memory.held == 2 * BYTES
    assert len({t.data_ptr() for t in tensors}) == 5
    assert memory((8, 9), (9, 1), torch.float64).untyped_storage().nbytes() == 8 * 72
    assert memory((3 * 32, 64), STRIDE, KIND).shape == (96, 64)  # more than all of it
    assert memory.held == 2 * BYTES


def test_threads_get_memory_of_their_own(memory: KeptMemory) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(300):
            mine = memory(SHAPE, STRIDE, KIND).fill_(float(number))
            if not bool((mine == number).all()):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and memory.reused > 0


@pytest.mark.parametrize("most", [None, 0])
def test_a_graph(most: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2048, 4100)  # more than the C library keeps for itself
    gm = flambeau_prims.lower(fx.symbolic_trace(lambda x: torch.sin(x) + 1), [x])
    options = Options(cache_dir=str(tmp_path), kept_memory=most)
    compiled = flambeau_inductor.compile(gm, [x], options=options)
    assert ("KeptMemory(None)" in compiled.report.sources["wrapper.py"]) == (most is None)
    (first,) = compiled([x])
    copy = first.clone()
    (second,) = compiled([x + 1])
    assert torch.equal(first, copy) and not torch.equal(first, second)
    addresses = {first.data_ptr(), second.data_ptr()}
    del first, second
    (third,) = compiled([x])
    assert torch.equal(third, copy)
    if most is None:
        assert third.data_ptr() in addresses
