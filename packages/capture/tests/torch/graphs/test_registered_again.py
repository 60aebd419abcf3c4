"""A custom operator that a notebook's cell defines anew: what is compiled runs the newer one."""

import torch
from flambeau_capture.api import compiler_of


def define(factor, fake=True):
    @torch.library.custom_op("flambeau_again::scale", mutates_args=())
    def scale(x: torch.Tensor, by: float) -> torch.Tensor:
        return x * by * factor

    if fake:
        scale.register_fake(lambda x, by: torch.empty_like(x))
    return scale


def by_name(x):
    return torch.ops.flambeau_again.scale(x, 2.0) + 1


def test_what_is_compiled_runs_the_newer_operator(capture, backend):
    x = torch.ones(3)
    compiled = capture(by_name)
    for factor in (1, 3, 5):
        define(factor)
        torch.testing.assert_close(compiled(x), by_name(x))
        torch.testing.assert_close(by_name(x), x * 2 * factor + 1)
        later = capture(by_name)
        backend.clear()
        torch.testing.assert_close(later(x), by_name(x))
        assert len(backend) == 1, "the newer operator is part of the graph"


def test_one_without_a_fake_form_breaks_and_one_with_it_does_not(capture):
    x = torch.ones(3)
    for fake in (False, True):
        define(7, fake)
        compiled = capture(by_name)
        torch.testing.assert_close(compiled(x), x * 14 + 1)
        assert bool(compiler_of(compiled).records.breaks) is not fake
