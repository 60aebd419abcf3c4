"""Simplification: what goes, and what must stay."""

from dataclasses import replace

import flambeau_aot as aot
import pytest
import torch
from flambeau_aot.simplify import simplify

aten = torch.ops.aten
LIBRARY = torch.library.Library("flambeau_simplify_test", "DEF")
LIBRARY.define("reshape(Tensor(a) x, SymInt[] shape) -> Tensor(a)")
LIBRARY.impl("reshape", lambda x, shape: x.reshape(shape), "CompositeExplicitAutograd")
reshape = torch.ops.flambeau_simplify_test.reshape.default  # a view where there is one


def operators(entry: aot.Compiled) -> list:
    return [node.target for node in entry.joint.graph.nodes if node.op == "call_function"]


def test_repeated_operators_run_once(same_as_eager) -> None:
    entry = same_as_eager(lambda x: (x.sin() + 1) * (x.sin() + 1), torch.randn(3))
    assert operators(entry).count(aten.sin.default) == 1
    assert entry.report.removed["repeated"] == 2


def test_equal_results_stay_apart(same_as_eager) -> None:
    entry = same_as_eager(lambda x: (x.sin(), x.sin(), x.sin()[1:]), torch.randn(3))
    assert operators(entry).count(aten.sin.default) == 3


def test_random_operators_are_neither_merged_nor_removed(same_as_eager) -> None:
    def fn(x):
        torch.rand(2)
        return torch.rand(3) - torch.rand(3) + x

    entry = same_as_eager(fn, torch.randn(3))
    assert operators(entry).count(aten.rand.default) == 3


def test_zeros_of_either_sign_are_two_constants(same_as_eager) -> None:
    def fn(x):
        return torch.copysign(x, torch.full((3,), 0.0)), torch.copysign(x, torch.full((3,), -0.0))

    same_as_eager(fn, torch.randn(3))


def test_round_trips_of_views_go(same_as_eager) -> None:
    def fn(x, w):
        return ((x.t().t() * 2).unsqueeze(1).squeeze(1) @ w.transpose(0, 1).permute(1, 0)).sum()

    entry = same_as_eager(
        fn, torch.randn(3, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    )
    names = [str(target) for target in operators(entry)]
    assert not {name for name in names if "permute" in name or "squeeze" in name}


SHUFFLES = {
    "all stay": ((2, 3, 4), (0, 1, 2), True),
    "sizes of one": ((1, 2, 12), (1, 0, 2), True),
    "groups": ((2, 3, 4), (1, 0, 2), False),
    "places": ((4, 3, 2), (0, 2, 1), False),
    "reversed": ((2, 3, 4), (2, 1, 0), False),
}


@pytest.mark.parametrize("name", SHUFFLES)
def test_a_round_trip_by_a_copy_stays(name: str) -> None:
    """A reshape back to the sizes and strides at the start is of a copy, unless nothing moved."""
    split, order, goes = SHUFFLES[name]

    def shuffled(x: torch.Tensor, groups: int) -> torch.Tensor:
        del groups
        return reshape(reshape(x, split).permute(order), x.shape)

    compiled = aot.aot_function(
        lambda x: aten.channel_shuffle(x, 2) + 1,
        aot.run_as_is,
        decompositions={aten.channel_shuffle.default: shuffled},
    )
    x = torch.arange(24.0).reshape(1, 4, 6)
    with torch.no_grad():
        torch.testing.assert_close(
            compiled(x), x.reshape(split).permute(order).reshape(x.shape) + 1
        )
    (entry,) = compiled.compiled.values()
    assert (reshape not in operators(entry)) is goes


def test_copies_inside_go_and_results_stay(same_as_eager) -> None:
    entry = same_as_eager(lambda x: (x.clone().sin(), x.clone()), torch.randn(3, 4))
    assert operators(entry).count(aten.clone.default) == 1


def test_off_by_option() -> None:
    options = aot.Options(simplify=False)
    compiled = aot.aot_function(lambda x: x.sin() * x.sin(), aot.run_as_is, options=options)
    x = torch.randn(3)
    torch.testing.assert_close(compiled(x), x.sin() * x.sin())
    (entry,) = compiled.compiled.values()
    assert operators(entry).count(aten.sin.default) == 2


def test_a_marked_operator_is_not_merged_with_one_that_is_not() -> None:
    joint = aot.export_joint(lambda x: x.sin() * x.cos().sin(), [torch.randn(3)]).joint
    cos = next(node for node in joint.graph.nodes if node.target is aten.cos.default)
    with joint.graph.inserting_after(cos):
        again = joint.graph.call_function(aten.cos.default, cos.args)
    again.meta = {**cos.meta, "recompute": "must_recompute"}
    cos.replace_all_uses_with(again)
    with joint.graph.inserting_after(again):
        both = joint.graph.call_function(aten.add.Tensor, (cos, again))
    both.meta = dict(cos.meta)
    joint = replace(joint, outputs=(both,))
    assert simplify(joint)[1]["repeated"] == 0
    again.meta.pop("recompute")
    assert simplify(joint)[1]["repeated"] == 1


def test_a_copy_of_which_a_part_is_returned_stays() -> None:
    def fn(x):
        return x.clone().chunk(2, 0)[0]

    graphs = []

    def compiler(gm, inputs, info):
        graphs.append(gm)
        return aot.run_as_is(gm, inputs, info)

    x = torch.randn(4, 3)
    part = aot.aot_function(fn, compiler)(x)
    assert torch.ops.aten.clone.default in {node.target for node in graphs[0].graph.nodes}
    assert part.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
