"""Inputs that a compiler writes where they are."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import flambeau_aot as aot
import pytest
import torch
from flambeau_aot import GraphInfo
from flambeau_aot.errors import AliasingChanged
from flambeau_aot.serialize.saved_program import restore, stored_from
from torch import Tensor, fx

Pairs = tuple[tuple[int, int], ...]


class InPlace:
    """A compiler that runs the graph and writes what it may where the inputs are."""

    def __init__(self) -> None:
        self.updates: list[Pairs] = []
        self.returned: list[Any] = []

    def __call__(self, gm: fx.GraphModule, inputs: list[Any], info: GraphInfo) -> Any:
        self.updates.append(info.updates)

        def run(args: list[Any]) -> list[Any]:
            given = list(args)
            args.clear()
            outputs = list(gm(*given))
            for output, place in info.updates:
                given[place].data.copy_(outputs[output])
                outputs[output] = given[place]
            self.returned = outputs
            return outputs

        return run


def step(p: Tensor, m: Tensor, g: Tensor) -> Tensor:
    m.mul_(0.9).add_(g)
    p.sub_(m * 0.1)
    return m.sum()


def given() -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(3, 4) for _ in range(3)]


def test_the_compiler_is_told_and_nothing_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = InPlace()
    eager, own = given(), given()
    with torch.no_grad():
        compiled = aot.aot_function(step, compiler)
        compiled(*own)
        monkeypatch.setattr(torch, "_foreach_copy_", None)  # not called any more
        versions = [t._version for t in own]
        result = compiled(*own)
    step(*eager)
    before = [t._version for t in eager]
    expected = step(*eager)
    assert compiler.updates == [((0, 1), (1, 0))] or compiler.updates == [((0, 0), (1, 1))]
    for a, b in zip([*own, result], [*eager, expected], strict=True):
        torch.testing.assert_close(a, b)
    written = [t._version - v for t, v in zip(own, versions, strict=True)]
    assert written == [t._version - v for t, v in zip(eager, before, strict=True)]


def returned_besides(p: Tensor, q: Tensor) -> Tensor:
    value = q + 1
    p.copy_(value)
    return value


def written_to_two(p: Tensor, q: Tensor) -> None:
    value = p + q
    p.copy_(value)
    q.copy_(value)


@pytest.mark.parametrize("program", [returned_besides, written_to_two])
def test_a_value_that_is_something_else_as_well_stays_what_it_was(program: Any) -> None:
    compiler = InPlace()
    own, eager = [torch.ones(3), torch.ones(3) * 2], [torch.ones(3), torch.ones(3) * 2]
    with torch.no_grad():
        result = aot.aot_function(program, compiler)(*own)
    expected = program(*eager)
    torch.testing.assert_close(own, eager)
    if expected is not None:
        torch.testing.assert_close(result, expected)
        assert result.data_ptr() not in {t.data_ptr() for t in own}


def test_an_update_that_autograd_is_told_of_is_not_offered() -> None:
    def program(x: Tensor, p: Tensor) -> Tensor:
        p.mul_(x)
        return p.sum()

    compiler = InPlace()
    aot.aot_function(program, compiler)(torch.ones(3, requires_grad=True), torch.ones(3))
    assert all(pairs == () for pairs in compiler.updates)


def test_inputs_that_share_memory_are_found_before_anything_is_written() -> None:
    compiler = InPlace()
    compiled = aot.aot_function(step, compiler)
    with torch.no_grad():
        compiled(*given())
        both = torch.arange(24.0)
        own = [both[:12].view(3, 4), both[6:18].view(3, 4), torch.ones(3, 4)]
        other = torch.arange(24.0)
        eager = [other[:12].view(3, 4), other[6:18].view(3, 4), torch.ones(3, 4)]
        result, expected = compiled(*own), step(*eager)
    torch.testing.assert_close(both, other)
    torch.testing.assert_close(result, expected)


def test_a_restored_program_takes_what_was_written_where_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Any] = []

    def compiler(gm: fx.GraphModule, inputs: list[Any], info: GraphInfo) -> Any:
        made.append(InPlace()(gm, inputs, info))
        return made[-1]

    own, eager = given(), given()
    with torch.no_grad():
        compiled = aot.compile(fx.symbolic_trace(step), own, compiler)
        stored = compiled.stored
        assert stored is not None and len(stored.forward.updates) == 2
        again = restore(stored_from(stored.data(), stored.constants), (), *made)
        monkeypatch.setattr(torch, "_foreach_copy_", None)
        result = again(*own)
    torch.testing.assert_close(result, step(*eager))
    torch.testing.assert_close(own, eager)


def test_overlap_is_looked_for_where_inputs_are_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    from flambeau_aot.runtime import prologue

    asked: list[int] = []
    original = prologue._no_overlap

    def counted(written: Any, primals: Any, others: Any = None) -> None:
        asked.append(len(primals if others is None else others))
        original(written, primals, others)

    monkeypatch.setattr(prologue, "_no_overlap", counted)
    own, other = given(), given()
    with torch.no_grad():
        compiled = aot.compile(fx.symbolic_trace(step), own, InPlace())
        for tensors in (own, own, other, own):
            compiled(*tensors)
    assert len(asked) == 3


@pytest.mark.parametrize("places", itertools.product((0, 4, 8), repeat=3), ids=str)
def test_overlap_is_found_whatever_moved(places: tuple[int, ...]) -> None:
    from flambeau_aot.runtime.prologue import _no_overlap, _once_a_place

    check, written = _once_a_place((1,), sizes_vary=False), (1,)
    apart = [torch.zeros(4) for _ in range(3)]
    shared = torch.zeros(12)
    for moved in itertools.product((False, True), repeat=3):
        parts = [shared[place : place + 4] for place in places]
        tensors = [parts[k] if moved[k] else apart[k] for k in range(3)]
        check((), apart)
        with contextlib.ExitStack() as stack:
            if sum(moved) > 1 and moved[1]:
                stack.enter_context(pytest.raises(AliasingChanged, match="input 1 is written"))
            check((), tensors)
        with contextlib.ExitStack() as stack:
            if sum(moved) > 1 and moved[1]:
                stack.enter_context(pytest.raises(AliasingChanged, match="input 1 is written"))
            _no_overlap(written, tensors)


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))
        self.register_buffer("other", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(x)  # type: ignore[operator]
        return self.seen * 2 + self.other  # type: ignore[operator]


def test_a_buffer_is_written_where_it_is_unless_it_is_an_argument_as_well() -> None:
    compiler, eager, module = InPlace(), Counting(), Counting()
    with torch.no_grad():
        compiled = aot.aot_module(module, compiler)
        for _ in range(3):
            torch.testing.assert_close(compiled(torch.ones(4)), eager(torch.ones(4)))
        assert [len(pairs) for pairs in compiler.updates] == [1]
        torch.testing.assert_close(module.seen, eager.seen)
        torch.testing.assert_close(compiled(module.seen), eager(eager.seen))  # type: ignore[arg-type]
        torch.testing.assert_close(module.seen, eager.seen)
