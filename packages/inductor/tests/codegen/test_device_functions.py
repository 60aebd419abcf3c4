"""Device functions: one body, in C++ and in Triton, as near to what float64 gives as eager is.

Each is held against eager in float64, beside which the primitive's declaration says how far that is
off itself, on special values and random ones, over the dtypes that the primitive takes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from flambeau_inductor.codegen import device_functions
from flambeau_inductor.ir.evaluate import PARTS
from flambeau_inductor.ir.loops import Instr, Load, Loop, Point, Store
from flambeau_prims.conformance.samples.special_values import Extreme, extremes, special
from flambeau_prims.ops.pointwise import POINTWISE

from tests import uninterpreted
from tests.codegen import loops
from tests.codegen.cpp.run import run_loop as run_compiled
from tests.codegen.triton.run import run_loop as run_interpreted
from tests.poison import poisoned

REAL = (torch.float32, torch.float64, torch.bfloat16)
ALLOWED = {torch.float32: 2.5e-7, torch.bfloat16: 8e-3, torch.float64: 1e-13}
"""How far results may be off together, beside twice what eager is."""
INTERPRETED = {torch.float64: 2e-6}
"""Under the interpreter there is no library: arc cosines and powers of float64 are float32's."""
Buffers = dict[str, torch.Tensor]


def cases(dtype: torch.dtype, every: int = 1) -> list[Extreme]:
    """Operands of all device functions that take a dtype."""
    found = [case for case in extremes(dtype) if device_functions.module_of(case.name)]
    values = special(dtype, 300)
    of = {"trigamma": values[values > 0]}  # below, eager's is a sine's of rounded angles
    found += [Extreme(name, part, (of.get(name, values),), False) for name, part in PARTS.items()]
    return [Extreme(c.name, c.function, tuple(o[::every].contiguous() for o in c.operands), c.exact)
            for c in found]  # fmt: skip


def loops_of(some: list[Extreme]) -> list[tuple[Loop, list[Extreme], Buffers]]:
    """Loops of the cases that share operands, and their buffers, the results poisoned."""
    shared: dict[bytes, list[Extreme]] = {}
    for case in some:
        bits = b"|".join(o.view(torch.uint8).numpy().tobytes() for o in case.operands)
        shared.setdefault(bits, []).append(case)
    made = []
    for number, group in enumerate(shared.values()):
        arity, size = len(group[0].operands), group[0].operands[0].numel()
        dtype = group[0].operands[0].dtype
        body: list[Instr] = [Load(f"in{i}", loops.x(), dtype) for i in range(arity)]
        buffers = {f"in{i}": operand for i, operand in enumerate(group[0].operands)}
        for position, case in enumerate(group):
            result = case.function(*(o[:1] for o in case.operands)).dtype
            body.append(Point(case.name, tuple(range(arity)), result))
            body.append(Store(f"out{position}", loops.x(), len(body) - 1))
            buffers[f"out{position}"] = poisoned(size, dtype=result)
        made.append((loops.loop(f"functions{number}", (size,), (), body), group, buffers))
    return made


def wrong(case: Extreme, given: torch.Tensor, slack: float = 0.0) -> str | None:
    """What is not as in eager where numbers are not finite, or further off than eager together."""
    expected = case.function(*case.operands)
    if case.exact or not expected.is_floating_point():
        off = given != expected
    else:
        true = case.function(*(o.double() for o in case.operands))
        finite = true.isfinite() & expected.isfinite() & given.isfinite()
        row = POINTWISE.get(case.name)
        waves = row is not None and row.domain is not None and row.domain[0] < 0
        least = 1.0 if waves else torch.finfo(expected.dtype).smallest_normal
        size = true.abs().clamp(min=least)  # of functions with zeros beside 1
        error = 1e-9 if row is None else row.error
        free = size.clamp(min=1.0) * max(error, slack) / size
        mine, eager = (((r.double() - true).abs() / size)[finite] for r in (given, expected))
        mine = (mine - free[finite]).clamp(min=0.0)
        allowed = 2 * rms(eager) + ALLOWED[expected.dtype]
        if rms(mine) > allowed:
            return f"{case.name} is off by {rms(mine):.1e}, {allowed:.1e} allowed"
        right = (given == expected) | (given.isnan() & expected.isnan())
        off = ~(finite | right | (given == true.to(given.dtype)))
    if not bool(off.any()):
        return None
    at = int(off.nonzero()[0])
    read = [o[at].item() for o in case.operands]
    return f"{case.name}{read}: {expected[at].item()}, given {given[at].item()} ({int(off.sum())})"


def rms(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt()) if values.numel() else 0.0


def check(run: Callable[[Loop, Buffers], None], some: list[Extreme], slack: float = 0.0) -> None:
    found = []
    for loop, group, buffers in loops_of(some):
        run(loop, buffers)
        each = (wrong(case, buffers[f"out{k}"], slack) for k, case in enumerate(group))
        found += [text for text in each if text]
    assert found == []


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_compiled_as_cpp(dtype: torch.dtype, tmp_path: Path) -> None:
    check(lambda loop, buffers: run_compiled(loop, buffers, tmp_path), cases(dtype))


# the interpreter computes what is not chosen too
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64), ids=str)
def test_interpreted_as_triton(dtype: torch.dtype, tmp_path: Path) -> None:
    slack = INTERPRETED.get(dtype, 0.0)
    check(lambda loop, buffers: run_interpreted(loop, buffers, tmp_path), cases(dtype, 5), slack)


PSI_ZEROS = (1.4616321449683623, -0.5040830082644554, -1.5734984731623904, -2.6107208684441447)
NEAR = {
    "digamma": (*PSI_ZEROS, *(float(n) for n in range(-5, 12))),
    **{f"{shifted}chebyshev_{k}": (-1.0, 0.0, 0.5, 1.0)
       for k in "tuvw" for shifted in ("", "shifted_")},
}  # fmt: skip
"""Where terms cancel, or a closed form has no digits left, by function."""


def neighbours(name: str, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Operands within few units of what is in `NEAR`, and a little farther."""
    eps = torch.finfo(dtype).eps
    steps = torch.cat((torch.arange(-12, 13) * eps / 4, torch.logspace(-7, -2, 12)))
    x = (torch.tensor(NEAR[name], dtype=torch.float64)[:, None] + steps.double()).flatten()
    if name == "digamma":
        return (x.to(dtype),)
    degrees = torch.tensor([5, 6, 7, 10, 33], dtype=dtype)
    x, n = torch.cartesian_prod(x.to(dtype), degrees).T.contiguous()
    return x.contiguous(), n.contiguous()


def cancelling(dtype: torch.dtype) -> list[Extreme]:
    """The functions of `NEAR` and their operands."""

    def function(name: str) -> Callable[..., torch.Tensor]:
        long = name.replace("chebyshev_", "chebyshev_polynomial_")
        return torch.digamma if name == "digamma" else getattr(torch.special, long)

    return [Extreme(name, function(name), neighbours(name, dtype), False) for name in NEAR]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_where_terms_cancel(dtype: torch.dtype, tmp_path: Path) -> None:
    """The branches are eager's; so is the order in which psi's terms are added, which leaves of the
    bits of float64 what a logarithm rounds otherwise."""
    close = 1e-10 if dtype == torch.float64 else 2e-3
    for loop, group, buffers in loops_of(cancelling(dtype)):
        run_compiled(loop, buffers, tmp_path)
        for k, case in enumerate(group):
            given, expected = buffers[f"out{k}"], case.function(*case.operands)
            torch.testing.assert_close(given, expected, rtol=close, atol=close, equal_nan=True)
            if case.name == "digamma" and dtype == torch.float64:
                other = (given != expected) & ~expected.isnan()
                assert other.double().mean() < 0.03


def test_every_one_is_a_primitive_or_a_part_of_one() -> None:
    named = set(device_functions.names())
    assert named - POINTWISE.keys() == PARTS.keys() and len(named) > 30


def length(name: str) -> int:
    """Lines of a function."""
    body = device_functions.function(name)
    return (body.end_lineno or 0) - body.lineno


FILES = {device_functions.module_of(name) for name in device_functions.names()}
LONGEST = [
    max((n for n in device_functions.names() if device_functions.module_of(n) == file), key=length)
    for file in sorted(map(str, FILES))
]
"""Of each file; `compile_functions` with no names compiles all of them."""


def test_the_longest_compile_for_a_gpu_that_is_not_there() -> None:
    said = uninterpreted.run("-m", "tests.codegen.triton.offline.compile_functions", "90", *LONGEST)
    assert json.loads(said) == LONGEST
