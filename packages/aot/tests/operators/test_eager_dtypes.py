"""What eager says of dtypes is asked once for numbers of one kind, and not remembered for ever."""

from __future__ import annotations

import itertools
from typing import Any

import flambeau_aot
import pytest
import torch
from flambeau_aot.intercept import eager_dtypes
from flambeau_aot.intercept.eager_dtypes import refusal_by_eager
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

DTYPES = (torch.uint8, torch.int8, torch.int64, torch.bool, torch.float16, torch.float32)
CALLS = (torch.add, torch.mul, torch.pow, torch.clamp, torch.fmod, torch.bitwise_and, torch.div)
NUMBERS = (0, 1, -1, 2, 9, 127, 128, -128, -129, 255, 256, 2**31, 2**40, 0.5, 3.0, 70000.0, 1e300)


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> dict[object, str]:
    answers: dict[object, str] = {}
    monkeypatch.setattr(eager_dtypes, "_ASKED", answers)
    return answers


@pytest.mark.parametrize("func", CALLS, ids=lambda func: func.__name__)
def test_numbers_of_one_kind_have_one_answer(func: object, remembered: dict[object, str]) -> None:
    for dtype, number in itertools.product(DTYPES, NUMBERS):
        x = torch.ones(3, dtype=dtype)
        known = refusal_by_eager(func, (x, number), {})
        for near in (number, number + 1 if abs(number) > 9 else number):
            remembered.clear()
            if eager_dtypes._kind(near) == eager_dtypes._kind(number):
                assert refusal_by_eager(func, (x, near), {}) == known


def test_ever_new_numbers_are_one_question(remembered: dict[object, str]) -> None:
    x = torch.ones(3)
    for number in range(1 << 20, (1 << 20) + 500):
        refusal_by_eager(torch.add, (x, number), {})
        refusal_by_eager(torch.add, (x, number + 0.25), {"alpha": number / 3})
    assert len(remembered) < 8


def test_so_many_are_remembered(
    remembered: dict[object, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eager_dtypes, "_MOST", 10)
    for name in map(str, range(30)):
        refusal_by_eager(torch.div, (torch.ones(3), 2), {"rounding_mode": name})
    assert len(remembered) == 10


def test_kernels_of_derivatives_are_not_called() -> None:
    class Called(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            raise AssertionError(func)

    scores, targets = torch.randn(5000, 4, 20), torch.ones(4, 3000, dtype=torch.int64)
    # of two elements each the kernel would read 5,000 steps
    sizes, losses = ([5000] * 4, [2999] * 4), (torch.ones(4), torch.ones(4, 5000, 5999))
    call = torch.ops.aten._ctc_loss_backward.default
    with Called():
        assert not refusal_by_eager(call, (losses[0], scores, targets, *sizes, *losses, 0), {})


BITS, PRODUCTS = torch.ops.aten.bitwise_xor.Tensor, torch.ops.aten.addmm.default


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("func", [BITS, PRODUCTS, torch.ops.aten.angle.default], ids=str)
def test_the_kernels_of_a_gpu_in_use_are_called(
    func: Any, dtype: torch.dtype, remembered: dict[object, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of float32 those for a CPU, which take it if any do."""
    refused = {
        BITS: {torch.float16}, PRODUCTS: {torch.uint8, torch.int8, torch.int64, torch.bool},
    }.get(func, {torch.float16})  # fmt: skip
    with FakeTensorMode():
        x = torch.ones(3, 3, dtype=dtype, device="cuda")
    asked: list[str] = []

    class OnTheGpu(TorchFunctionMode):
        """Kernels of a GPU: of tensors that are created there."""

        def __torch_function__(self, called, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            kwargs = {**(kwargs or {})}
            if called is func:
                if asked and args[0].dtype in refused:
                    raise NotImplementedError(f"\"a_cuda\" not implemented for '{dtype}'")
            elif kwargs.get("device") == "cuda":
                asked.append(kwargs.pop("device"))
            return called(*args, **kwargs)

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(eager_dtypes, "outside_tracing", OnTheGpu)
    args = (x,) * sum(str(a.type) == "Tensor" for a in func._schema.arguments)
    words = refusal_by_eager(func, args, {})
    assert len(asked) == (0 if dtype is torch.float32 else len(args))
    if dtype is torch.float32:
        assert bool(words) == (func is BITS)
    else:
        assert bool(words) == (dtype in refused)


def test_integers_on_a_gpu_are_no_positions_beyond_anything() -> None:
    seen: list[torch.Tensor] = []

    def noted(*given: torch.Tensor) -> None:
        seen.extend(given)

    given = tuple(torch.ones((), dtype=dtype) for dtype in DTYPES)
    assert eager_dtypes._error(noted, given, {}, lambda dtype: dtype, there=True) == ""
    assert [int(x) for x in seen] == [0, 0, 0, 1, 1, 1]


A = torch.ops.aten
STOPPED_BY_ELEMENTS = [
    (A.masked_scatter.default, (torch.int16, torch.bool, torch.int16)),
    (A.lu_unpack.default, (torch.float64, torch.int32)),
    (A.repeat_interleave.self_Tensor, (torch.float64, torch.int64)),
    (A.gather.default, (torch.float16, 0, torch.int64)),
    (A._assert_async.default, (torch.int64,)),
]


@pytest.mark.parametrize(
    ("func", "given", "there"),
    [(func, given, False) for func, given in STOPPED_BY_ELEMENTS]
    + [
        (A.bitwise_xor.Tensor, (torch.int16, torch.int16), True),
        (A.bmm.default, (torch.uint8, torch.uint8), True),
    ],
)
def test_no_kernel_of_a_gpu_is_called_that_an_element_may_stop(
    func: Any,
    given: tuple[Any, ...],
    there: bool,
    remembered: dict[object, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would end the process's use of the GPU: nor is a CPU's refusal taken for its own."""
    with FakeTensorMode():
        args = tuple(
            torch.ones(3, 3, dtype=x, device="cuda") if isinstance(x, torch.dtype) else x
            for x in given
        )
    where: list[bool] = []

    def called(func: Any, args: Any, kwargs: Any, change: Any, there: bool = False) -> str:
        where.append(there)
        return "\"a_kernel\" not implemented for 'Half'"

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(eager_dtypes, "_error", called)
    words = refusal_by_eager(func, args, {})
    assert where == [there]
    assert bool(words) == there  # a kernel for a CPU says nothing of the GPU's


def test_nothing_is_asked_while_a_gpus_work_is_recorded(
    remembered: dict[object, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeTensorMode():
        x = torch.ones(3, 3, dtype=torch.uint8, device="cuda")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(eager_dtypes, "_error", lambda *given: pytest.fail("was called"))
    assert not refusal_by_eager(PRODUCTS, (x, x, x), {})
    assert not remembered


@pytest.mark.parametrize("called", ["overload", "packet"])
def test_the_kernel_of_a_programs_operator_is_not_called(called: str) -> None:
    calls: list[torch.dtype] = []

    @torch.library.custom_op(f"flambeau_dtypes::noted_{called}", mutates_args=())
    def noted(x: torch.Tensor) -> torch.Tensor:
        calls.append(x.dtype)
        return x.clone()

    noted.register_fake(torch.empty_like)
    packet = getattr(torch.ops.flambeau_dtypes, f"noted_{called}")
    func = packet.default if called == "overload" else packet
    graph, x = torch.fx.symbolic_trace(lambda x: (func(x * 2),)), torch.ones(3)
    compiled = flambeau_aot.compile(graph, [x], lambda gm, *facts: lambda args: gm(*args))
    assert calls == []
    torch.testing.assert_close(compiled(x), (x * 2,))
    assert calls == [torch.float32]
