"""The lists of passes: what runs is in them, what is left out changes no answer."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import Fuel, Limits, Options, pipeline
from flambeau_inductor.driver import Pass, PassContext, run_passes
from flambeau_inductor.passes.epilogues import FUNCTIONS, rule_of
from flambeau_inductor.passes.primitive_passes import rewrite
from torch import Tensor, fx

from tests.schedule.pairs import norm_backward

PACKAGE = Path(flambeau_inductor.__file__).parent
LIMITS = Limits(
    recompute_on=("cpu",), split_on=("cpu",), split_programs=8, across_bytes=0, least_across=4
)


def copied_rows(x: Tensor, at: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    table = (x * 2).index_copy(0, at, w.exp()).sigmoid()
    return table, (table @ w.t()).softmax(-1), x.var(0), (x - 0).t().contiguous() + 1


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], list[Tensor]]]] = {
    "rows and columns": (
        norm_backward,
        lambda: [torch.randn(48, 20), torch.randn(48, 20), torch.randn(20)],
    ),
    "positions": (
        copied_rows,
        lambda: [torch.randn(48, 20), torch.randperm(48)[:6], torch.randn(6, 20)],
    ),
}


def same(program: str, options: Options) -> flambeau_inductor.CompiledGraph:
    of, make = PROGRAMS[program]
    torch.manual_seed(0)
    inputs = make()
    gm = flambeau_prims.lower(fx.symbolic_trace(of), inputs)
    compiled = flambeau_inductor.compile(gm, inputs, options=options)
    torch.testing.assert_close(compiled(list(inputs)), of(*inputs), rtol=1e-4, atol=1e-4)
    return compiled


@pytest.mark.sweep(2)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", pipeline.OPTIONAL)
def test_any_pass_can_be_left_out(name: str, program: str) -> None:
    built = name == "inline_bounds_checks" and program == "positions"
    fuel = Fuel(kernels=None if built else 0)  # loops are run by their meaning
    without = Options(limits=LIMITS, verify=True, skip_passes=(name,), fuel=fuel)
    assert name not in same(program, without).report.passes


def test_every_rule_can_be_left_out_by_its_name() -> None:
    known = {*pipeline.CAPTURED, *pipeline.OPTIONAL, *pipeline.RULES}
    rules = 0
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Rule":
                rules += 1
                name = node.args[0]
                if isinstance(name, ast.Constant):
                    assert name.value in known, f"{path.name}: {name.value}"
                else:
                    assert ast.unparse(name) == "rule_of(function)"
    assert rules > 8 and {rule_of(name) for name in FUNCTIONS} <= known


def several_rules(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return (x * 1) @ w + b, (torch.zeros_like(x) * 2 + x).permute(0, 1) * 1 + 3


def test_fuel_counts_what_rules_replace() -> None:
    inputs = [torch.randn(4, 4), torch.randn(4, 4), torch.randn(4)]
    gm = flambeau_prims.lower(fx.symbolic_trace(several_rules), inputs)

    def replaced(options: Options) -> list[str]:
        context = PassContext(options=options)
        made = rewrite(gm, context)
        torch.testing.assert_close(made(*inputs), gm(*inputs))
        return context.ledger.done

    whole = replaced(Options())
    assert len({*whole}) > 2
    for rewrites in range(len(whole) + 1):
        assert replaced(Options(fuel=Fuel(rewrites=rewrites))) == whole[:rewrites]
    for name in whole:
        assert name not in replaced(Options(skip_passes=(name,)))


@pytest.mark.parametrize("passes", [0, 5, 9, 12, 15])
def test_fuel_counts_passes_in_the_order_of_the_lists(passes: int) -> None:
    options = Options(limits=LIMITS, verify=True, fuel=Fuel(passes=passes, kernels=0))
    report = same("positions", options).report
    ran = [name for name in report.passes if name in pipeline.OPTIONAL]
    assert set(ran) <= set(pipeline.OPTIONAL[:passes])
    assert ran == [name for name in pipeline.OPTIONAL if name in ran]


def test_a_pass_that_breaks_a_rule_is_named() -> None:
    def grow(context: PassContext, count: int) -> tuple[int, int]:
        return count + 1, 1

    def verify(count: int) -> None:
        if count > 1:
            raise ValueError(f"{count} is too much")

    context = PassContext(options=Options(verify=True))
    passes = [Pass("begin", grow), Pass("grow", grow)]
    with pytest.raises(AssertionError, match="after grow: 2 is too much"):
        run_passes(context, "numbers", passes, 0, verify)
    assert context.changed == {"begin": 1, "grow": 1}
    assert run_passes(PassContext(), "numbers", passes, 0, verify) == 2


def test_names_are_unique_but_for_what_runs_twice() -> None:
    names = [each.name for _, some in pipeline.LISTS.values() for each in some]
    assert {n for n in names if names.count(n) > 1} == {"materialize", "fuse"}


def test_no_pass_is_called_from_inside_another() -> None:
    functions = {
        each.run.__name__
        for _, some in pipeline.LISTS.values()
        for each in some
        if not each.run.__name__.startswith(("_", "run"))
    } | {
        "fuse_epilogues",
        "select_templates",
        "add_rows_sorted",
        "join_launches",
        "select_variants",
    }
    assert {"fuse", "split_reductions", "plan_lifetimes"} <= functions
    called = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                if node.func.id in functions and path.name != "pipeline.py":
                    called.add(f"{path.name}: {node.func.id}")
    assert not called


def test_the_readme_shows_the_lists() -> None:
    assert pipeline.page() in (Path(__file__).parents[1] / "README.md").read_text()
