"""Positions that are looked at before they are used: once each, by whoever reads them first."""

from __future__ import annotations

from collections.abc import Callable

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor.ir.evaluate import run_program
from flambeau_inductor.ir.loops import Check
from flambeau_inductor.ir.program import CheckIndex, Extern, Program, RunLoop
from torch import Tensor, fx

from tests.evaluated import scheduled

P = torch.ops.flambeau_prims
ASKED = (7, "RuntimeError", "{index} is none of {size}")
GOOD, BAD = torch.tensor([6, 0, 3]), torch.tensor([6, -1, 3])


def looks(program: Program) -> list[CheckIndex]:
    return [step for step in program.steps if isinstance(step, CheckIndex)]


def loops(program: Program) -> list[RunLoop]:
    return [step for step in program.steps if isinstance(step, RunLoop)]


USES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "itself": lambda x, i: P.bounds_checked(i, *ASKED),
    "computed with": lambda x, i: P.bounds_checked(i, *ASKED) * 2,
    "read by": lambda x, i: P.index(x, [P.bounds_checked(i, *ASKED)]),
    "written by": lambda x, i: P.index_put(
        x, [P.bounds_checked(i, *ASKED)], x.narrow(0, 0, 3), False
    ),
    "seen otherwise": lambda x, i: P.index(
        x, [P.reshape(P.bounds_checked(i.unsqueeze(0), *ASKED), [3, 1])]
    ),
    "part of another": lambda x, i: P.index(
        x, [P.bounds_checked(torch.stack([i, i]).select(0, 1), *ASKED)]
    ),
    "used by the library": lambda x, i: torch.complex(x, x).index_put(
        (P.bounds_checked(i, *ASKED),),
        torch.complex(x.narrow(0, 0, 3), x.narrow(0, 0, 3)),
        accumulate=True,
    ),
}


@pytest.mark.parametrize("name", USES)
def test_raises_what_it_was_asked_to(name: str) -> None:
    x = torch.randn(7, 5)
    of = USES[name]
    low = flambeau_prims.lower(fx.symbolic_trace(of), [x, GOOD])
    done = flambeau_inductor.compile(low, [x, GOOD])
    torch.testing.assert_close(done([x, GOOD])[0], of(x, GOOD))
    with pytest.raises(RuntimeError, match=r"^-1 is none of 7$"):
        done([x, BAD])


@pytest.mark.parametrize("name", [name for name in USES if name != "used by the library"])
def test_on_a_gpu_by_the_kernel_that_reads(name: str) -> None:
    x = torch.randn(7, 5)
    program = scheduled(USES[name], (x, GOOD), "cuda")
    assert not looks(program)
    inside = [i for step in loops(program) for i in step.loop.body if isinstance(i, Check)]
    assert [i.message for i in inside] == ["of a GPU tensor is none of 7"]
    (got,) = run_program(program, [x, GOOD])
    torch.testing.assert_close(got, USES[name](x, GOOD))
    with pytest.raises(IndexError, match="none of 7"):
        run_program(program, [x, BAD])


def test_positions_that_are_used_at_once_have_no_memory_of_their_own() -> None:
    program = scheduled(USES["read by"], (torch.randn(7, 5), GOOD))
    assert len(loops(program)) == len(looks(program)) == 1
    assert {buffer.name for buffer in program.buffers} == {"in0", "in1", "buf0"}


@pytest.mark.parametrize(
    "of",
    [
        lambda x, i: x.gather(0, i.unsqueeze(1).expand(-1, 5)),
        lambda x, i: x.gather(1, (i % 5).unsqueeze(0).expand(7, -1)),
        lambda x, i: x.scatter_add(0, i.unsqueeze(1).expand(-1, 5), x.narrow(0, 0, 3)),
        lambda x, i: x.index_reduce(0, i, x.narrow(0, 0, 3), "amax"),
    ],
)
def test_what_repeats_itself_is_looked_at_once(of: Callable[..., Tensor]) -> None:
    x = torch.randn(7, 5)
    program = scheduled(of, (x, GOOD))
    layouts = {buffer.name: buffer.layout for buffer in program.buffers}
    for step in looks(program):
        layout = step.ref.layout or layouts[step.ref.buffer]
        assert layout.shape == (3,)
    assert looks(program)
    (got,) = run_program(program, [x, GOOD])
    torch.testing.assert_close(got, of(x, GOOD))


def test_nothing_is_read_by_positions_repeated_no_times() -> None:
    def fn(x: Tensor, i: Tensor) -> Tensor:
        return torch.ops.aten.index(x, [i.unsqueeze(1).expand(-1, 0)])

    x = torch.randn(7, 5)
    low = flambeau_prims.lower(fx.symbolic_trace(fn), [x, BAD - 20])
    done = flambeau_inductor.compile(low, [x, BAD - 20])
    assert done([x, BAD - 20])[0].shape == fn(x, BAD - 20).shape == (3, 0, 5)


def test_the_library_is_given_what_was_looked_at() -> None:
    """A call by which the positions would count from the end."""

    def fn(x: Tensor, i: Tensor) -> Tensor:
        return x.index_copy(0, i, x.narrow(0, 0, 3))

    program = scheduled(fn, (torch.randn(7, 5), GOOD), "cuda", deterministic=True)
    (call,) = [step for step in program.steps if isinstance(step, Extern)]
    assert call.target == "aten.index_put.default"
    x = torch.randn(7, 5)
    torch.testing.assert_close(run_program(program, [x, GOOD])[0], fn(x, GOOD))
    with pytest.raises(IndexError, match="out of bounds for dimension 0 with size 7"):
        run_program(program, [x, BAD])
