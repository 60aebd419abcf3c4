"""Modes of torch inside captured functions: gradients, inference, autocast, devices, labels."""

import contextlib

import pytest
import torch
from flambeau_capture import graph_break, optimize
from flambeau_capture.api import compiler_of
from torch import nn
from torch.utils import _pytree as pytree


def x(grad=False):
    return torch.randn(3, 4, requires_grad=grad)


def test_grad_modes(agree):
    def run(a):
        with torch.no_grad():
            first = a * 2
            with torch.enable_grad():
                second = a * 3
        torch.set_grad_enabled(False)
        third = a.sin()
        torch.set_grad_enabled(True)
        with torch.set_grad_enabled(a.shape[0] > 5):
            fourth = a.cos()
        return first, second, third, fourth, a * first

    agree(run, x(True))


def test_grad_mode_decorators(agree):
    @torch.no_grad()
    def frozen(a):
        return a * 2

    agree(lambda a: frozen(a) + a, x(True))


def test_inference_mode_inside(agree):
    def run(a, b):
        with torch.inference_mode():
            c = a * 2
            flag = c.is_inference(), torch.is_inference_mode_enabled()
        with torch.inference_mode(False):
            d = b * 3
        return flag, d

    agree(run, x(), x(True))


def test_a_break_inside_inference_mode(agree):
    def run(a):
        with torch.inference_mode():
            b = a * 2
            print(end="")
            c = b + 1
        return c.is_inference(), a + 1

    agree(run, x(), graphs=None)


def test_the_grad_mode_after_a_break_inside_inference_mode(capture):
    def run(a):
        with torch.no_grad():
            with torch.inference_mode():
                b = a * 2
                print(end="")
            inside = torch.is_grad_enabled()
        return b, inside, a * 2

    given = x(True)
    _, inside, last = capture(run)(given)
    assert not inside and last.requires_grad and torch.is_grad_enabled()


def test_autocast_inside_and_nested(agree):
    def run(m, a):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            first = m(a)
            with torch.autocast("cpu", enabled=False):
                second = m(a)
        return first, second, m(a)

    agree(run, nn.Linear(4, 4), x())


def test_default_device(agree):
    def run(a):
        with torch.device("meta"):
            shape = torch.zeros(3, 4)
            where = torch.get_default_device()
        with torch.device("cpu"):
            other = torch.ones(3, 4)
        return a + other, shape.device, where, torch.zeros(2).device

    agree(run, x())


def test_a_break_inside_a_device(agree):
    def run(a):
        with torch.device("meta"):
            graph_break()
            made = torch.empty(2)
        return a + 1, made.device

    agree(run, x(), graphs=2)  # the device is left for real, between what is made and the sum


def test_profiler_labels_are_passed_over(agree):
    def run(a):
        with torch.profiler.record_function("part"):
            b = a * 2
            with torch.autograd.profiler.record_function("inner", "args"):
                b = b + 1
        return b

    agree(run, x())


PART = torch.profiler.record_function("whole program")


@torch.profiler.record_function("function")
def labelled(a):
    return a * 2


def test_labels_that_outlive_the_call_are_passed_over(agree):
    def run(a):
        with PART:
            b = labelled(a) + 1
        with PART:
            return b * 3

    agree(run, x())


def test_a_label_that_outlives_the_call_is_left_after_a_break(agree):
    def run(a):
        with PART as part:
            b = labelled(a)
            print(end="")
            b = b + 1
        return b * 3, part is PART

    agree(run, x(), graphs=2)


def test_questions_about_compiling(capture):
    def run(a):
        asked = torch.compiler.is_compiling(), torch.jit.is_scripting(), torch.jit.is_tracing()
        return a + 1, asked

    assert capture(run)(x())[1] == (True, False, False)


ASKED_OF_TYPES = (
    torch.Tensor, int, (int, torch.Tensor), list[int], list[torch.Tensor], torch.Tensor | None,
    tuple[int, str], dict[str, torch.Tensor], list[int] | torch.Tensor,
)  # fmt: skip


@pytest.mark.parametrize("kind", ASKED_OF_TYPES, ids=str)
def test_questions_about_types(agree, kind):
    values = [None, 3, [1, 2], [1, "a"], (1, "a"), {"a": 1}, {"a": torch.ones(1)}]

    def run(a):
        found = [torch.jit.isinstance(value, kind) for value in [*values, a, [a], {"a": a}]]
        return a + 1, found

    agree(run, x())


transformed = torch._C._are_functorch_transforms_active


def test_questions_about_transforms(agree):
    agree(lambda a: a * 2 if transformed() else a + 1, x())


@pytest.mark.parametrize("transform", [torch.vmap, torch.func.grad], ids=lambda f: f.__name__)
def test_questions_about_transforms_inside_of_one(agree, transform):
    def of_one(a):
        return a.sum() * 2 if transformed() else a.sum() * 3

    def run(a):
        return transform(of_one)(a) + 1, transformed()

    agree(run, x(), graphs=None)


def test_state_of_modes_after_an_exception(agree):
    def run(a):
        try:
            with torch.no_grad():
                b = a * 2
                raise ValueError("inside")
        except ValueError:
            return b, a * 2, torch.is_grad_enabled()

    agree(run, x(True))


def without_switches(module, inputs):
    """A backend that keeps none of a graph's switches of inference mode."""
    for node in reversed(module.graph.nodes):
        if getattr(node.target, "__name__", "") in (
            "_enter_inference_mode", "_exit_inference_mode",
        ):  # fmt: skip
            module.graph.erase_node(node)
    module.recompile()
    return module.forward


MADE_INSIDE = {
    "computed": "a * 2", "new": "torch.ones(3)", "a view of an argument": "a.t()",
    "an argument": "a", "a view": "(a + 1).t()", "complex": "torch.complex(a, a).conj()",
    "sparse": "torch.eye(3).to_sparse() * 2", "several": "(a.sin(), a.cos()[1:])",
}  # fmt: skip


@pytest.mark.parametrize("made", MADE_INSIDE)
@pytest.mark.parametrize("outer", [torch.inference_mode, contextlib.nullcontext])
@pytest.mark.parametrize("inside", [True, False])
def test_results_are_inference_tensors_as_in_eager(made, outer, inside):
    space = {"torch": torch, "inside": inside}
    exec(f"def f(a):\n    with torch.inference_mode(inside):\n        b = {MADE_INSIDE[made]}\n"
         "    return b, a + 1", space)  # fmt: skip
    with outer():
        given = x()
        expected = space["f"](given)
        ours = optimize(without_switches, raise_internal_errors=True)(space["f"])(given)
    for one, other in zip(pytree.tree_leaves(expected), pytree.tree_leaves(ours), strict=True):
        assert one.is_inference() == other.is_inference() and one.is_conj() == other.is_conj()
        assert torch.equal(one.to_dense() if one.is_sparse else one.clone(),
                           other.to_dense() if other.is_sparse else other.clone())  # fmt: skip
        assert one.is_sparse or one.stride() == other.stride()


def test_ranges_are_in_the_profile():
    def run(a):
        with torch.profiler.record_function("outer"):
            b = a * 2
            with torch.autograd.profiler.record_function("inner"):
                b = b.sin()
        return b + 1

    ours = optimize("eager")(run)
    ours(x())
    assert not compiler_of(ours).records.breaks
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        ours(x())
    seen = {event.key for event in profile.key_averages()}
    assert {"outer", "inner"} <= seen
    assert "a range for the profiler" in str(compiler_of(ours).records.breaks[0])
    before = len(compiler_of(ours).records.graphs)
    ours(x())
    assert len(compiler_of(ours).records.graphs) == before


STATE = {  # what sets state of torch, and what sets it back
    "default dtype": (torch.set_default_dtype, (torch.float64,), (torch.float32,)),
    "deterministic": (torch.use_deterministic_algorithms, (True,), (False,)),
    "debug mode": (torch.set_deterministic_debug_mode, ("warn",), (0,)),
    "anomalies": (torch.set_anomaly_enabled, (True,), (False,)),
    "autocast": (torch.set_autocast_enabled, ("cpu", True), ("cpu", False)),
    "autocast's dtype": (torch.set_autocast_dtype, ("cpu", torch.half), ("cpu", torch.bfloat16)),
    "autocast's cache": (torch.set_autocast_cache_enabled, (False,), (True,)),
    "threads": (torch.set_num_threads, (1,), (torch.get_num_threads(),)),
    "precision": (torch.set_float32_matmul_precision, ("high",), ("highest",)),
    "warnings": (torch.set_warn_always, (True,), (False,)),
    "denormals": (torch.set_flush_denormal, (False,), (False,)),
    "seed": (torch.manual_seed, (3,), (4,)),
}


def state_of_torch():
    autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    cache, threads = torch.is_autocast_cache_enabled(), torch.get_num_threads()
    mode = torch.get_deterministic_debug_mode(), torch.is_anomaly_enabled()
    precision = torch.get_float32_matmul_precision(), torch.is_warn_always_enabled()
    return autocast, cache, threads, mode, precision, torch.get_default_dtype()


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("name", STATE)
def test_what_sets_state_of_torch_is_a_break_that_says_so(capture, name, raises):
    set_state, given, back = STATE[name]

    def run(a):
        b = a * 2
        set_state(*given)
        if raises:
            raise ValueError("after")
        return b + torch.rand(3, 4), torch.ones(2) / 3

    def observed(fn):
        torch.manual_seed(0)
        try:
            found = [each.tolist() for each in fn(torch.ones(3, 4))]
        except ValueError as error:
            found = str(error)
        after = state_of_torch(), torch.rand(1).tolist()
        set_state(*back)
        return str(found), after

    ours, expected = capture(run), observed(run)
    assert [observed(ours) for _ in range(2)] == [expected] * 2
    reasons = {report.reason.id for report in compiler_of(ours).records.breaks}
    assert "FB0024" in reasons and reasons <= {"FB0024", "FB0010"}


def test_tensors_that_are_swapped_are_one_break(capture, agree):
    def run(a):
        b, c = torch.ones(2), a * 2
        torch.utils.swap_tensors(b, c)
        return b, c + 1

    agree(run, x(), graphs=None)
    ours = capture(run)
    ours(x())
    assert [report.reason.id for report in compiler_of(ours).records.breaks] == ["FB0016"]
