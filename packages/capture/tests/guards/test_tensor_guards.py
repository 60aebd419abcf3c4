"""Guards on tensors and on the state of torch: fields, probes and Python give one answer."""

from __future__ import annotations

import builtins
import contextlib
import threading
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from flambeau_capture import _torch_compat as compat  # noqa: E402
from flambeau_capture._native import Entry, FrameCache, TensorLayout, TensorPattern, compiled  # noqa: E402
from flambeau_capture.guards import GlobalState, GuardSet, NotYetSymbolic, TensorSpec  # noqa: E402
from flambeau_capture.guards import _state_probes as probes  # noqa: E402
from flambeau_capture.guards import _tensor_layout as layouts  # noqa: E402
from flambeau_capture.guards.state import readers  # noqa: E402
from flambeau_capture.source import Local, Scope  # noqa: E402


def frame(x, y=None):
    return x


def scope_of(x, y=None):
    return Scope({"x": x, "y": y}, {}, {}, vars(builtins))


def tensor_guards(tensor, **options):
    guards = GuardSet(frame.__code__)
    guards.add_tensor(Local("x"), tensor, **options)
    return guards.finish()


def agree(guards, value) -> bool:
    native = guards.native.check((value, None), None, {}, vars(builtins))
    assert native == guards.check(scope_of(value))
    assert (guards.explain(scope_of(value)) is None) == native
    return native


class Sub(torch.Tensor):
    pass


DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool]
floating = [torch.float32, torch.float64, torch.bfloat16]


@st.composite
def tensors(draw):
    """A tensor in some state: views, strides, devices, dtypes, autograd."""
    sizes = draw(st.lists(st.integers(0, 3), max_size=7))
    dtype = draw(st.sampled_from(DTYPES))
    device = draw(st.sampled_from(["cpu", "cpu", "cpu", "meta"]))
    with torch.inference_mode() if draw(st.integers(0, 9)) == 0 else contextlib.nullcontext():
        t = torch.empty(sizes, dtype=dtype, device=device)
    change = draw(st.sampled_from(sorted(CHANGES)))
    return CHANGES[change](t, draw)


def _grad(t, draw):
    return t.requires_grad_() if t.dtype in floating and not t.is_inference() else t


CHANGES = {
    "none": lambda t, draw: t,
    "grad": _grad,
    "graph": lambda t, draw: _grad(t, draw) * 1,
    "detached": lambda t, draw: (_grad(t, draw) * 1).detach(),
    "view": lambda t, draw: _grad(t, draw)[:1] if t.dim() else t,
    "permuted": lambda t, draw: t.permute(tuple(reversed(range(t.dim())))),
    "expanded": lambda t, draw: t.unsqueeze(0).expand(3, *t.shape),
    "parameter": lambda t, draw: (
        torch.nn.Parameter(t) if t.dtype in floating and not t.is_inference() else t
    ),
    "frozen": lambda t, draw: torch.nn.Parameter(t, requires_grad=False),
    "subclass": lambda t, draw: t.as_subclass(Sub),
    "conj": lambda t, draw: t.to(torch.complex64).conj(),
    "sparse": lambda t, draw: torch.empty(3, 4, layout=torch.sparse_coo),
    "off": lambda t, draw: _grad(t, draw).detach_() if not t._is_view() else t,
}


@settings(max_examples=400, deadline=None)
@given(one=tensors(), other=tensors())
def test_native_and_python_agree_on_tensors(one, other):
    guards = tensor_guards(one)
    assert agree(guards, one)
    agree(guards, other)
    for wrong in (None, 3, [one], one.shape):
        assert not agree(guards, wrong)


@settings(max_examples=100, deadline=None)
@given(one=tensors(), other=tensors(), data=st.data())
def test_open_dimensions(one, other, data):
    if one.layout is not torch.strided:
        return
    dims = tuple(data.draw(st.sets(st.integers(0, one.dim() - 1)))) if one.dim() else ()
    guards = tensor_guards(one, dynamic_dims=dims)
    assert agree(guards, one)
    agree(guards, other)


def test_open_batch_dimension_and_its_strides():
    guards = tensor_guards(torch.empty(4, 3, 5), dynamic_dims=(1,))
    assert agree(guards, torch.empty(4, 9, 5))
    assert not agree(guards, torch.empty(5, 9, 5))
    assert not agree(guards, torch.empty(4, 9, 6))
    assert not agree(guards, torch.empty(4, 5, 9).transpose(1, 2))


def test_each_property_is_looked_at():
    base = torch.empty(3, 4)
    guards = tensor_guards(base)
    assert agree(guards, torch.empty(3, 4))
    wrong = {
        "class": torch.empty(3, 4).as_subclass(Sub),
        "parameter": torch.nn.Parameter(torch.empty(3, 4), requires_grad=False),
        "dtype": base.double(),
        "device": base.to("meta"),
        "requires_grad": torch.empty(3, 4, requires_grad=True),
        "dimensions": base[None],
        "sizes": torch.empty(3, 5),
        "strides": torch.empty(4, 3).t(),
        "dispatch keys": base.to(torch.complex64).conj(),
    }
    for name, value in wrong.items():
        assert not agree(guards, value), name
    failure = str(guards.explain(scope_of(wrong["sizes"])))
    assert failure == (
        "local 'x' TENSOR_MATCH: expected Tensor, torch.float32, cpu, sizes (3, 4), "
        "strides (4, 1), got sizes (3, 5)"
    )


def test_metadata_changed_in_place_is_seen():
    value = torch.empty(2, 3)
    guards = tensor_guards(value)
    assert agree(guards, value)
    value.resize_(3, 2)
    assert not agree(guards, value)
    value.resize_(2, 3)
    assert agree(guards, value)
    value.requires_grad_()
    assert not agree(guards, value)
    value.requires_grad_(False)
    assert agree(guards, value)
    value.data = torch.empty(2, 3, dtype=torch.float64)
    assert not agree(guards, value)


def test_requires_grad_of_a_leaf_that_becomes_inner():
    value = torch.empty(3)
    guards = tensor_guards(value)
    value.mul_(torch.ones(3, requires_grad=True))
    assert value.requires_grad
    assert not agree(guards, value)
    view = torch.empty(4)[:3]
    assert agree(guards, view)
    view.mul_(torch.ones(3, requires_grad=True))
    assert not agree(guards, view)


def test_layout_is_found_and_reads_what_torch_says():
    layout = layouts.tensor_layout()
    assert isinstance(layout, TensorLayout), "this torch's tensors are laid out in a new way"
    t = torch.empty_strided((2, 3, 4, 5, 6, 7), (9, 8, 7, 6, 5, 4), dtype=torch.int32)
    read = layout.read(t)
    assert (read["sizes"], read["strides"]) == ((2, 3, 4, 5, 6, 7), (9, 8, 7, 6, 5, 4))
    assert (read["dtype"], read["device"] & 0xFF, read["requires_grad"]) == (3, 0, False)


def test_a_layout_that_does_not_explain_the_samples_is_given_up(monkeypatch):
    monkeypatch.setattr(layouts, "dispatch_keys", lambda tensor: 12345)
    layouts.tensor_layout.cache_clear()
    try:
        assert layouts.tensor_layout() is None
        guards = tensor_guards(torch.empty(2))
        assert agree(guards, torch.empty(2))
        assert not agree(guards, torch.empty(3))
    finally:
        layouts.tensor_layout.cache_clear()


def test_wrapped_and_odd_tensors_are_asked_through_torch():
    assert TensorSpec.of(torch.empty(2)).pattern().native
    assert TensorSpec.of(torch.nn.Parameter(torch.empty(2))).pattern().native
    assert not TensorSpec.of(torch.empty(2).as_subclass(Sub)).pattern().native
    assert not TensorSpec.of(torch.empty(2, 2).to_sparse()).pattern().native
    seen = []

    def batched(t):
        seen.append(TensorSpec.of(t).pattern().native)
        return t

    torch.func.vmap(batched)(torch.empty(2, 3))
    assert seen == [False]


def test_pattern_never_reads_fields_of_another_class():
    pattern = TensorSpec.of(torch.empty(2)).pattern()
    for value in (None, 1, object(), [], "x", torch.Size([2]), Sub, torch.Tensor):
        assert not pattern.check(value)
    with pytest.raises(TypeError):
        TensorPattern(torch.Tensor, bool, "layout")


def test_symbolic_sizes_are_refused():
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    fake = FakeTensorMode(shape_env=ShapeEnv()).from_tensor(torch.empty(4, 5))
    with pytest.raises(NotYetSymbolic):
        TensorSpec.of(fake)


# --- the state of torch --------------------------------------------------------------------------


def state_guards(state=None):
    guards = GuardSet(frame.__code__)
    guards.add_global_state(state)
    return guards.finish()


class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Dispatch(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def deterministic(warn_only):
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


STATES = {
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast half": lambda: torch.autocast("cpu", torch.float16),
    "autocast without cache": lambda: torch.autocast("cpu", cache_enabled=False),
    "default dtype": lambda: default_dtype(torch.float64),
    "default device": lambda: torch.device("meta"),
    "function mode": Mode,
    "dispatch mode": Dispatch,
    "no function": torch._C.DisableTorchFunction,
    "no subclass function": torch._C.DisableTorchFunctionSubclass,
    "forward-mode differentiation": torch.autograd.forward_ad.dual_level,
    "deterministic": lambda: deterministic(False),
    "deterministic warning": lambda: deterministic(True),
}


@pytest.mark.parametrize("name", [None, *STATES])
def test_each_state_is_told_from_all_others(name):
    enter = STATES.get(name, contextlib.nullcontext)
    with enter() as entered:
        guards = state_guards()
        assert agree(guards, None)
    assert agree(guards, None) == (name is None)
    for other, change in STATES.items():
        with change():
            # a mode is an object: another of the same class is another state
            expected = other == name and other not in ("function mode",)
            assert agree(guards, None) == expected, other
    if name == "function mode":
        with entered:
            assert agree(guards, None)
    assert agree(guards, None) == (name is None)


def test_two_default_devices_are_two_states():
    with torch.device("meta"):
        guards = state_guards()
    with torch.device("meta"):
        assert agree(guards, None)
    with torch.device("cpu"):
        assert not agree(guards, None)


def test_state_is_the_threads_own():
    guards = state_guards()
    answers = []

    def worker():
        answers.append(agree(guards, None))
        with torch.no_grad():
            answers.append(agree(guards, None))

    with torch.inference_mode():
        thread = threading.Thread(target=worker)
        thread.start()
        thread.join()
        answers.append(agree(guards, None))
    assert answers == [True, False, False]


def test_state_taken_before_capture_enters_its_own_modes():
    state = GlobalState.now()
    with torch.no_grad(), Dispatch():
        guards = state_guards(state)
        tree = guards.native
        assert not agree(guards, None)
    assert agree(guards, None)
    assert tree is guards.native


def test_probes_pass_their_trials_here():
    assert set(probes._probes()) == {
        "grad_mode",
        "inference_mode",
        "torch_function",
        "torch_function_modes",
        "default_dtype",
        "deterministic",
        "autocast_cache",
        "autocast_cpu",
        "autocast_cuda",
    }
    assert probes._key_sets_address_works()
    assert sorted(probes._torch_function_numbers()) == [0, 1, 2]


def test_nothing_is_asked_of_python_in_the_usual_state(monkeypatch):
    def refuse():
        raise AssertionError("a reader was called")

    state = GlobalState.now()
    table = dict.fromkeys(readers(), refuse)
    monkeypatch.setattr(probes, "readers", lambda: table)
    assert state.pattern().check()
    with torch.no_grad():
        assert not state.pattern().check()


def test_trials_run_whatever_modes_are_on():
    caches = (
        layouts.tensor_layout,
        probes._probes,
        probes._key_sets_address_works,
        probes._torch_function_numbers,
    )
    for name, change in STATES.items():
        for cache in caches:
            cache.cache_clear()
        with change():
            assert layouts.tensor_layout() is not None, name
            assert len(probes._probes()) == 9, name
            assert probes._key_sets_address_works(), name


def test_missing_symbols_leave_the_question_to_python(monkeypatch):
    missing = {name: (library, "_no_such") for name, (library, _) in compat.STATE_SYMBOLS.items()}
    monkeypatch.setattr(compat, "STATE_SYMBOLS", missing)
    monkeypatch.setattr(compat, "KEY_SETS_VARIABLE", ("c10", "_no_such"))
    caches = (probes._probes, probes._key_sets_address_works, probes._torch_function_numbers)
    for cache in caches:
        cache.cache_clear()
    try:
        assert probes._probes() == {}
        guards = state_guards()
        assert agree(guards, None)
        for name, change in STATES.items():
            with change():
                assert not agree(guards, None), name
    finally:
        for cache in caches:
            cache.cache_clear()


# --- the whole: hook, guards, tensors ------------------------------------------------------------


def test_hook_picks_the_entry_by_tensor():
    converted = []

    def f(a, b):
        return a.dim() + 1000

    def convert(code, func, locals, free, cache):
        guards = GuardSet(code)
        guards.add_tensor(Local("a"), locals["a"])
        guards.add_tensor(Local("b"), locals["b"])
        guards.add_no_alias((Local("a"), Local("b")))
        guards.add_global_state()
        converted.append(tuple(locals["a"].shape))
        new = code.replace(co_consts=tuple(2000 if c == 1000 else c for c in code.co_consts))
        return Entry(new, guards.finish().native)

    cache = FrameCache(convert)
    g = compiled(f, cache)
    a, b = torch.ones(3), torch.ones(4)
    for _ in range(3):
        assert g(a, b) == 2001
    assert g(torch.ones(2, 2), b) == 2002
    assert g(torch.ones(3), b) == 2001
    with torch.no_grad():
        assert g(a, b) == 2001
    assert converted == [(3,), (2, 2), (3,)]
    assert cache.counters()["hits"] == 3
    assert cache.counters()["stillborn"] == 0


def test_guards_keep_no_tensor_alive():
    value = torch.empty(3)
    alive = weakref.ref(value)
    guards = tensor_guards(value)
    assert agree(guards, value)
    del value
    assert alive() is None


def test_a_view_made_without_derivatives_requires_grad_as_its_base_does():
    leaf, plain = torch.randn(2, 6, requires_grad=True), torch.randn(2, 6)
    with torch.no_grad():
        tracked, untracked, result = leaf[:1], plain[:1], (leaf * 2)[:1]
    assert tracked.requires_grad and not untracked.requires_grad
    for known in (untracked, plain[:1], torch.randn(1, 6)):
        guards = tensor_guards(known)
        assert agree(guards, known) and agree(guards, untracked)
        assert not agree(guards, tracked) and agree(guards, result) is not result.requires_grad
    guards = tensor_guards(tracked)
    assert agree(guards, tracked) and not agree(guards, untracked)
