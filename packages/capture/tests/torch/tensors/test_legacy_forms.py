"""Older forms of torch's interface in one graph: legacy constructors, result types made by hand,
deprecated queries of autocast; and modes as decorators of functions made in the program."""

import warnings

import pytest
import torch
from flambeau_capture.api import compiler_of

FORMS = {
    "sizes": lambda x: x.new(2, 3).fill_(1) + x,
    "no size": lambda x: x.new().shape,
    "a size": lambda x: x.new(x.size()).zero_() + x,
    "numbers": lambda x: x.new([1, 2]) * 2,
    "nested numbers": lambda x: x.new([[1.5], [2.0]]),
    "double": lambda x: x.type(torch.DoubleTensor),
    "by name": lambda x: x.type("torch.LongTensor"),
    "by dtype": lambda x: x.type(torch.float16),
    "half": lambda x: x.type(torch.HalfTensor).type(),
    "tensor": lambda x: torch.Tensor([1, 2]) + torch.FloatTensor([3, 4]),
    "long": lambda x: x[torch.LongTensor([1, 0])],
    "type_as": lambda x: x.type_as(torch.ones(1, dtype=torch.int)),
    "isinstance": lambda x: (isinstance(x, torch.FloatTensor), isinstance(x, torch.LongTensor)),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_a_legacy_form(agree, form, grad):
    x = torch.randn(2, 3).requires_grad_(grad)
    compiled = agree(lambda x: (FORMS[form](x), x * 2), x)
    assert not compiler_of(compiled).records.breaks


RESULTS = {
    "max": lambda x: torch.return_types.max((x.sin(), x.cos())),
    "of a list": lambda x: torch.return_types.sort([x, x * 2]).indices,
    "mapped": lambda x: torch.utils._pytree.tree_map(lambda t: t * 2, x.max(1)),
    "taken apart": lambda x: (lambda r: (r[0] + r.values, len(r), isinstance(r, tuple)))(x.topk(1)),
    "asked": lambda x: isinstance(x.sort(), torch.return_types.sort),
    "rebuilt": lambda x: type(x.min(0))(tuple(x.min(0))),
}


@pytest.mark.parametrize("form", RESULTS)
def test_a_result_type(agree, form):
    compiled = agree(lambda x: (RESULTS[form](x), x * 2), torch.randn(2, 3))
    assert not compiler_of(compiled).records.breaks


def test_result_types_of_other_lengths_raise_as_in_eager(capture):
    fn = lambda x: torch.return_types.max((x, x, x))  # noqa: E731
    with pytest.raises(TypeError) as wanted:
        fn(torch.ones(2))
    with pytest.raises(TypeError) as raised:
        capture(fn)(torch.ones(2))
    assert str(raised.value) == str(wanted.value)


QUERIES = ["is_autocast_cpu_enabled", "get_autocast_gpu_dtype", "get_autocast_cpu_dtype"]


@pytest.mark.parametrize("query", QUERIES)
def test_a_deprecated_query(capture, backend, query):
    asked = getattr(torch, query)

    def fn(x):
        return x + 1, asked()

    compiled = capture(fn, nopython=True)
    for enabled in (False, True, False):
        for dtype in (torch.bfloat16, torch.float16):
            with torch.autocast("cpu", dtype, enabled):
                seen = []
                for call in (fn, compiled):
                    with warnings.catch_warnings(record=True) as said:
                        warnings.simplefilter("always")
                        answer = call(torch.ones(2))[1]
                    seen.append((answer, [(str(w.message)[:60], w.category) for w in said]))
                assert seen[0] == seen[1]
    assert len(backend) >= 1


DECORATORS = {
    "inference": torch.inference_mode,
    "not inference": lambda: torch.inference_mode(False),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "no grad": torch.no_grad,
    "grad": lambda: torch.set_grad_enabled(True),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", DECORATORS)
def test_a_mode_as_a_decorator(agree, name, grad):
    def fn(x):
        @DECORATORS[name]()
        def inner(y, k=1):
            """Words."""
            return y @ y.T + k, torch.is_grad_enabled(), torch.is_inference_mode_enabled()

        (first, *flags), (second, *_) = inner(x), inner(x, k=2)
        return first.is_inference(), first + 0, second * 1, flags, inner.__name__, inner.__doc__

    compiled = agree(fn, torch.randn(2, 3).requires_grad_(grad), backward=name != "inference")
    assert not compiler_of(compiled).records.breaks


def test_a_generator_decorated_runs_as_it_is(agree):
    def fn(x):
        @torch.inference_mode()
        def inner():
            yield torch.is_inference_mode_enabled()

        return x * 2, list(inner())

    agree(fn, torch.randn(2), graphs=None)
