"""The autograd function: what eager's engine promises holds around compiled graphs."""

import gc
import weakref

import flambeau_aot as aot
import pytest
import torch


def compiled_sin(**options):
    return aot.aot_function(lambda x, w: (x @ w).sin().exp(), aot.run_as_is, **options)


def test_backward_twice_raises_as_eager() -> None:
    x, w = torch.randn(3, 3), torch.randn(3, 3, requires_grad=True)
    result = compiled_sin()(x, w).sum()
    result.backward()
    with pytest.raises(RuntimeError, match="second time"):
        result.backward()


def test_retained_graph_runs_again() -> None:
    x, w = torch.randn(3, 3), torch.randn(3, 3, requires_grad=True)
    reusable = []

    def overwriting(gm, inputs, info):
        call = aot.boxed(gm)
        reusable.append(info.reusable_inputs)

        def run(args):
            held = list(args)
            result = [item.clone() for item in call(args)]
            for index in info.reusable_inputs:
                held[index].fill_(float("nan"))
            return result

        return run

    result = compiled_sin(bw_compiler=overwriting)(x, w).sum()
    (first,) = torch.autograd.grad(result, w, retain_graph=True)
    (second,) = torch.autograd.grad(result, w)
    assert torch.equal(first, second)
    assert not first.isnan().any()
    assert reusable == [(0,)] or any(reusable[0]), "nothing was offered for reuse"


def test_writing_to_a_saved_input_raises_as_eager() -> None:
    x, w = torch.randn(3, 3), torch.randn(3, 3, requires_grad=True)
    result = compiled_sin()(x, w)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_second_derivative_is_refused_where_it_was_switched_off() -> None:
    x, w = torch.randn(3, 3), torch.randn(3, 3, requires_grad=True)
    result = compiled_sin(options=aot.Options(higher_order=False))(x, w).sum()
    with pytest.raises(aot.DoubleBackwardError, match="create_graph=True"):
        torch.autograd.grad(result, w, create_graph=True)


def test_undefined_cotangents() -> None:
    fn = lambda a, b: (a.sin(), b.cos() * a, b.detach())  # noqa: E731
    compiled = aot.aot_function(fn, aot.run_as_is)
    a, b = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    one = torch.autograd.grad(compiled(a, b)[0].sum(), (a, b), allow_unused=True)
    torch.testing.assert_close(one[0], a.cos())
    assert one[1] is None
    two = torch.autograd.grad(compiled(a, b)[1].sum(), (a, b), allow_unused=True)
    torch.testing.assert_close(two[0], b.cos())


def test_cotangents_of_other_strides_and_kinds() -> None:
    seen = []

    def recording(gm, inputs, info):
        call = aot.boxed(gm)

        def run(args):
            seen.append(tuple(args[-1].stride()))
            return call(args)

        return run

    w = torch.randn(3, 4, requires_grad=True)
    compiled = aot.aot_function(lambda a: a.exp(), aot.run_as_is, bw_compiler=recording)
    for cotangent in (
        torch.randn(4, 3).t(),
        torch.ones(()).expand(3, 4),
        torch.randn(3, 8)[:, ::2],
        torch.randn(3, 4, dtype=torch.complex64).imag,
    ):
        (grad,) = torch.autograd.grad(compiled(w), w, cotangent)
        torch.testing.assert_close(grad, w.exp() * cotangent)
    assert set(seen) == {(4, 1)}


def test_saved_memory_is_freed_by_the_backward_pass() -> None:
    x, w = torch.randn(3, 3), torch.randn(3, 3, requires_grad=True)
    held = []

    def watching(gm, inputs, info):
        call = aot.boxed(gm)

        def run(args):
            held.extend(weakref.ref(args[index]) for index in info.reusable_inputs)
            return call(args)

        return run

    result = compiled_sin(bw_compiler=watching)(x, w).sum()
    result.backward()
    gc.collect()
    assert held
    assert all(item() is None for item in held)


def test_lazy_backward_is_compiled_at_its_first_use() -> None:
    kinds = []

    def counting(gm, inputs, info):
        kinds.append(info.kind)
        return aot.boxed(gm)

    compiled = aot.aot_function(
        lambda w: w.sin(), counting, options=aot.Options(compile_backward="lazy")
    )
    w = torch.randn(3, requires_grad=True)
    result = compiled(w).sum()
    assert kinds == ["forward"]
    result.backward()
    assert kinds == ["forward", "backward"]
    torch.testing.assert_close(w.grad, w.cos())


def test_inference_makes_no_autograd_object() -> None:
    compiled = aot.aot_function(lambda x: x.sin() * 2, aot.run_as_is)
    with torch.no_grad():
        assert compiled(torch.randn(3, requires_grad=True)).grad_fn is None
    (entry,) = compiled.compiled.values()
    assert entry.report.kind == "inference"
    assert entry.backward is None


def test_inference_mode(same_as_eager) -> None:
    def fn(x):
        x.add_(1)
        return x.t(), (x * 2).relu()

    with torch.inference_mode():
        same_as_eager(fn, torch.randn(3, 4))


def test_grad_enabled_after_compiling_without_is_refused() -> None:
    w = torch.nn.Parameter(torch.randn(3))
    gm = torch.fx.symbolic_trace(lambda x: (x.sin(),))
    with torch.no_grad():
        compiled = aot.aot_eager(gm, [w])
        compiled(w)
    with pytest.raises(aot.AotError, match="grad disabled"):
        compiled(w)


def test_gradients_do_not_alias_what_is_saved() -> None:
    def fn(x, w):
        return (x * w).sum()

    x, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    aot.aot_function(fn, aot.run_as_is)(x, w).backward()
    x.grad.zero_()
    assert not torch.equal(w.detach(), torch.zeros(3))


def over_the_same_memory(gm, inputs, info):
    """A compiler whose outputs hide from autograd that they share memory."""
    call = aot.boxed(gm)

    def hidden(value):
        other = torch.empty(0, dtype=value.dtype)
        return other.set_(
            value.untyped_storage(), value.storage_offset(), value.shape, value.stride()
        )

    return lambda args: [hidden(value) for value in call(args)]


@pytest.mark.parametrize("compiler", [aot.run_as_is, over_the_same_memory])
@pytest.mark.parametrize("partition", [aot.min_cut_partition, aot.save_all])
@pytest.mark.parametrize("write", ["result", "input"])
def test_a_write_to_shared_memory_is_an_error_or_harmless(compiler, partition, write) -> None:
    def fn(x, w):
        h = (x @ w.t()).exp()
        return h.t(), (h @ w).sum()

    results = []
    for run in (fn, aot.aot_function(fn, compiler, partition=partition)):
        x, w = torch.linspace(-1, 1, 9).view(3, 3), torch.eye(3, requires_grad=True)
        view, total = run(x, w)
        with torch.no_grad():
            (view if write == "result" else w).add_(100)
        try:
            (grad,) = torch.autograd.grad(total, w)
        except RuntimeError as error:
            assert "modified" in str(error)
            grad = None
        results.append(grad)
    assert results[0] is None  # eager refuses
    untouched_x, untouched_w = torch.linspace(-1, 1, 9).view(3, 3), torch.eye(3).requires_grad_()
    (right,) = torch.autograd.grad(fn(untouched_x, untouched_w)[1], untouched_w)
    assert results[1] is None or torch.allclose(results[1], right)
