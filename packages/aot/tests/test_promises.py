"""What is said of partitions and of bad input, sentence by sentence, and the test that holds it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).parent

PARTITIONING: dict[str, tuple[str, ...]] = {
    "operators are classified": ("partition/test_classify.py::test_classes",),
    "saving costs bytes": ("partition/test_cost.py::test_saving_costs_the_bytes_of_a_value",),
    "computing again has a price by the class of the operator": (
        "partition/test_cost.py::test_computing_again_costs_by_class",
    ),
    "the cheapest choice is a minimum cut": (
        "partition/test_flow.py::test_minimum_cut_is_minimal",
        "partition/test_mincut.py::test_min_cut_never_saves_more_than_everything",
    ),
    "a cut gives the gradients of saving everything": (
        "partition/test_random_cuts.py::test_gradients_are_those_of_saving_everything",
    ),
    "work done twice stays within its share": (
        "partition/test_budget.py::test_work_done_twice_stays_below_its_share",
    ),
    "random operators run once, unless they are functions of a seed": (
        "partition/test_budget.py::test_random_operators_never_run_twice_under_any_budget",
        "partition/test_cost.py::test_a_random_operator_may_run_twice_only_if_its_seed_is_an_input",
    ),
    "matrix products and library calls run once by default": (
        "partition/test_mincut.py::test_matmul_and_random_operators_run_once",
        "partition/test_budget.py::test_an_operator_of_another_library_never_runs_twice",
    ),
    "views are made again for free": (
        "partition/test_cost.py::test_views_are_made_again_and_never_saved_beside_what_they_view",
    ),
    "cheap chains are computed again": (
        "partition/test_mincut.py::test_a_pointwise_chain_saves_what_it_begins_with_only",
    ),
    "a budget is a part, by a knapsack": (
        "partition/test_budget.py::test_knapsack_is_best",
        "partition/test_budget.py::test_less_budget_saves_less_and_computes_more",
    ),
    "a budget in bytes is kept or refused": (
        "partition/test_budget.py::test_a_budget_in_bytes_is_kept_or_refused",
    ),
    "the curve of memory for work is data": (
        "partition/test_budget.py::test_the_curve_has_no_point_that_another_beats",
        "partition/test_budget.py::test_curve_and_cut_agree",
    ),
    "the curve is a picture": (
        "graphs/test_draw_curve.py::test_points_stand_in_proportion_to_their_numbers",
        "graphs/test_draw_curve.py::test_the_curve_of_a_graph_is_drawn_within_the_picture",
    ),
    "saved bytes and peaks are what is allocated": (
        "partition/test_memory.py::test_estimates_are_what_is_allocated",
        "partition/test_mincut.py::test_bytes_reported_are_the_bytes_autograd_holds",
    ),
    "a dropout that is computed again repeats exactly": (
        "operators/test_random_streams.py::test_what_is_computed_again_draws_the_same",
    ),
}

BAD_INPUT: dict[str, tuple[str, ...]] = {
    "a function whose tracing raises, and a branch on a value": (
        "test_bad_input.py::test_a_program_that_cannot_be_traced",
    ),
    "a compiler that returns the wrong number of outputs, shapes or dtypes": (
        "test_bad_input.py::test_a_compiler_that_breaks_its_contract",
        "test_bad_input.py::test_a_compiler_that_raises_is_named",
    ),
    "a partition that breaks the graph's rules": (
        "test_bad_input.py::test_a_partition_that_breaks_the_rules",
    ),
    "outputs that are not the same every time": (
        "test_bad_input.py::test_a_program_that_does_something_else_every_time",
        "test_bad_input.py::test_a_compiler_whose_outputs_change_between_calls",
    ),
    "an unsupported subclass": ("test_bad_input.py::test_an_unsupported_subclass",),
    "a write to a saved tensor between forward and backward raises as in eager": (
        "test_bad_input.py::test_a_write_to_a_saved_tensor_between_forward_and_backward",
        "partition/test_volatile.py::test_a_write_to_an_input",
    ),
    "an error names the user's line": ("test_tracing.py::test_the_line_of_a_refusal",),
}


@pytest.mark.parametrize("sentence", [*PARTITIONING, *BAD_INPUT])
def test_a_sentence_has_its_test(sentence: str) -> None:
    for named in {**PARTITIONING, **BAD_INPUT}[sentence]:
        path, name = named.split("::")
        tree = ast.parse((HERE / path).read_text())
        found = [each for each in tree.body if isinstance(each, ast.FunctionDef)]
        (test,) = [each for each in found if each.name == name]
        checks = [each for each in ast.walk(test) if isinstance(each, (ast.Assert, ast.With))]
        helped = [each for each in ast.walk(test) if _asserts(each)]
        assert checks or helped, f"{named} asserts nothing"


def _asserts(node: ast.AST) -> bool:
    """Whether a call compares: `assert_close`, or the fixture that runs in eager and compiled."""
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in ("assert_close", "same_as_eager")
