"""What a program says to torch's compiler of sizes, and asks of it, holds for this one too."""

from pathlib import Path

import flambeau_capture
import pytest
import torch
import torch._dynamo
import torch._dynamo.decorators
from flambeau_capture.api import compiler_of
from flambeau_capture.frame.sizes.marks import marked_dims

THEIRS = torch._dynamo


def graphs_of(mark, sizes, **choices):
    compiled = flambeau_capture.compile(lambda x: x.sin() * 2, **choices)
    for size in sizes:
        x = torch.ones(size, 3)
        mark(x)
        torch.testing.assert_close(compiled(x), x.sin() * 2)
    return len(compiler_of(compiled).records.graphs)


OPEN = {
    "dynamic": lambda x: THEIRS.mark_dynamic(x, 0),
    "in a list": lambda x: THEIRS.mark_dynamic(x, [0]),
    "maybe": lambda x: THEIRS.maybe_mark_dynamic(x, 0),
    "unbacked": lambda x: torch._dynamo.decorators.mark_unbacked(x, 0),
    "unbacked, strictly": lambda x: torch._dynamo.decorators.mark_unbacked(x, 0, strict=True),
    "dynamic and fixed": lambda x: (THEIRS.mark_static(x, 0), THEIRS.mark_dynamic(x, 0)),
}


@pytest.mark.parametrize("name", OPEN)
def test_a_dimension_that_is_marked_open_is_open_at_once(name):
    assert graphs_of(lambda x: None, (4, 5)) == 2
    assert graphs_of(OPEN[name], (4, 5, 6)) == 1


def marked_once(x):
    if x.shape[0] < 7:
        THEIRS.mark_dynamic(x, 0, min=4, max=6)


def test_a_range_holds():
    assert graphs_of(marked_once, (4, 5, 6, 7)) == 2


@pytest.mark.parametrize("size", [3, 7])
def test_a_range_that_the_size_is_outside_of_is_an_error(size):
    with pytest.raises(flambeau_capture.ConstraintViolation, match=f"is {size}, .* 4 to 6"):
        graphs_of(lambda x: THEIRS.mark_dynamic(x, 0, min=4, max=6), (5, size))


FIXED = {"one": lambda x: THEIRS.mark_static(x, 0), "all": lambda x: THEIRS.mark_static(x)}


@pytest.mark.parametrize("name", FIXED)
def test_a_dimension_that_is_marked_fixed_is_fixed(name):
    assert graphs_of(lambda x: None, (4, 5, 6), dynamic=True) == 1
    assert graphs_of(FIXED[name], (4, 5, 6), dynamic=True) == 3


def test_our_marks_count_for_more():
    def both(x):
        THEIRS.mark_dynamic(x, 0)
        flambeau_capture.mark_static(x, 0)

    assert graphs_of(both, (4, 5, 6)) == 3


def test_its_question_is_answered():
    def fn(x):
        return x + THEIRS.is_compiling() + 2 * torch.compiler.is_compiling()

    compiled = flambeau_capture.compile(fn, fullgraph=True)
    assert compiled(torch.zeros(2)).tolist() == [3, 3]


def test_a_region_to_compile_once_is_captured():
    region = torch.compiler.nested_compile_region(lambda x: x.cos() + 1)

    def fn(x):
        return region(region(x))

    compiled = flambeau_capture.compile(fn, fullgraph=True)
    x = torch.ones(3)
    torch.testing.assert_close(compiled(x), (x.cos() + 1).cos() + 1)


def scaled(x):
    return (x * 3).sin()


class Scaled(torch.nn.Module):
    def forward(self, x):
        return scaled(x)


@pytest.mark.parametrize("target", [scaled, Scaled()], ids=["function", "module"])
def test_what_torch_compiled_goes_on_as_torch_compiled_it(target):
    seen = []

    def backend(gm, example_inputs):
        seen.append(gm)
        return gm.forward

    inner = torch.compile(target, backend=backend)

    def fn(x):
        return inner(x.cos()) + 1

    compiled = flambeau_capture.compile(fn)
    x = torch.ones(3)
    torch.testing.assert_close(compiled(x), (x.cos() * 3).sin() + 1)
    assert len(seen) == 1
    (broken,) = compiler_of(compiled).records.breaks
    assert broken.reason.id == "FB0006"


def test_a_tensor_with_our_marks_is_loaded_as_it_is_by_default(tmp_path: Path) -> None:
    x = torch.randn(3, 4)
    flambeau_capture.mark_dynamic(x, 0, min=2)
    flambeau_capture.mark_static(x, 1)
    torch.save(x, tmp_path / "x.pt")
    back = torch.load(tmp_path / "x.pt")
    assert marked_dims(back) == marked_dims(x) == ({0: (2, None)}, frozenset({1}))
