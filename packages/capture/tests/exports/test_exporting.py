"""Whole functions as graphs: what comes in and out, and what cannot be had."""

from __future__ import annotations

import copy
import itertools
import re
from dataclasses import dataclass
from typing import Any

import flambeau_capture as fc
import pytest
import torch
from torch.utils import _pytree as pytree

SCALE = torch.tensor([2.0, 3.0])
SEEN: list[int] = []


def test_pytrees_go_in_and_come_out() -> None:
    def f(pair: tuple[Any, Any], *, table: dict[str, Any], flag: bool = True) -> dict[str, Any]:
        a, b = pair
        total = a + b if flag else a - b
        return {"total": total, "rest": [table["c"] * 2, 7, None, a]}

    def call(fn: Any, seed: int) -> tuple[Any, Any]:
        torch.manual_seed(seed)
        a, b, c = torch.randn(3), torch.randn(3), torch.randn(2, 2)
        return (a, b, c), fn((a, b), table={"c": c}, flag=True)

    torch.manual_seed(0)
    a, b, c = torch.randn(3), torch.randn(3), torch.randn(2, 2)
    exported = fc.export(f, (a, b), table={"c": c}, flag=True)
    _, expected = call(f, 1)
    (x, *_), got = call(exported, 1)
    assert pytree.tree_structure(got) == pytree.tree_structure(expected)
    torch.testing.assert_close(got, expected)
    assert got["rest"][3] is x
    assert exported.guards and "def forward" in str(exported)


def test_parameters_and_tensors_of_the_program_are_attributes() -> None:
    module = torch.nn.Linear(2, 2)

    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return module(x) * SCALE, SCALE

    exported = fc.export(f, torch.randn(4, 2))
    assert len(list(exported.graph_module.parameters())) == 2
    x = torch.randn(4, 2, requires_grad=True)
    out, scale = exported(x)
    assert scale is SCALE
    expected = f(x)[0]
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(
        torch.autograd.grad(out.sum(), x), torch.autograd.grad(expected.sum(), x)
    )


def test_a_module_exports() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Dropout(0.5))
    exported = fc.export(module.eval(), torch.randn(2, 3))
    x = torch.randn(2, 3)
    torch.testing.assert_close(exported(x), module(x))


def test_writes_to_an_argument_stay() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    exported = fc.export(f, torch.zeros(3))
    x = torch.zeros(3)
    torch.testing.assert_close(exported(x), torch.full((3,), 2.0))
    torch.testing.assert_close(x, torch.ones(3))


LAID: dict[str, Any] = {
    "contiguous": lambda x: x.contiguous(),
    "transposed": lambda x: x.mT.contiguous().mT,
    "first outermost": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "with gaps": lambda x: torch.cat([x, x], -1)[..., : x.shape[-1]],
}
BY_LAYOUT: dict[str, Any] = {
    "in place": lambda x: x.contiguous().add_(1),
    "asked": lambda x: x * 2 if x.is_contiguous() else x * 3,
    "a stride": lambda x: x + x.stride(0),
    "reshaped": lambda x: x.reshape(-1).add_(1),
}


@pytest.mark.parametrize("name", BY_LAYOUT)
def test_an_argument_that_lies_otherwise_has_eagers_answer_or_is_refused(name: str) -> None:
    fn, x = BY_LAYOUT[name], torch.arange(24.0).reshape(2, 3, 4)
    for example, dynamic in itertools.product([*LAID][:-1], (None, {0: fc.Dim("n", max=9)})):
        exported = fc.export(fn, LAID[example](x.clone()), dynamic_shapes=dynamic and (dynamic,))
        for given in LAID:
            one, other = (LAID[given](x.clone()) for _ in range(2))
            if given != example:
                with pytest.raises(ValueError, match=r"strides .* without gaps"):
                    exported(one)
                continue
            assert torch.equal(exported(one), fn(other)) and torch.equal(one, other)


def test_results_of_inference_mode_are_computed() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.inference_mode():
            y = x.sin()
        return y, y.t(), torch.complex(y, y).conj(), x.cos()

    exported, x = fc.export(f, torch.randn(2, 3)), torch.randn(2, 3)
    for found, expected in zip(exported(x), f(x), strict=True):
        assert torch.equal(found, expected) and found.is_conj() == expected.is_conj()


class Own(torch.Tensor):
    """A tensor that a program makes of another."""


class Pair:
    """An object that a program returns."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda x: x.sin().as_subclass(Own), "Own"),
        (lambda x: torch.nn.Parameter(x.sin()), "Parameter"),
        (lambda x: x.sin().numpy(), "ndarray"),
        (lambda x: Pair(x.sin()), "Pair"),
        (lambda x: iter(x.sin().unbind()), "tuple_iterator"),
    ],
    ids=["subclass", "parameter", "array", "object", "iterator"],
)
def test_a_result_that_is_made_outside_of_the_graph_is_an_error(make: Any, said: str) -> None:
    with pytest.raises(fc.ExportError, match=f"returns an object of {said} that is made outside"):
        fc.export(make, torch.randn(3))


def test_a_result_that_was_there_before_is_itself() -> None:
    here = torch.ones(3)
    exported = fc.export(lambda x: (here, x + here[0], 2.5, torch.float64), torch.randn(3))
    found = exported(torch.randn(3))
    assert found[0] is here and found[2:] == (2.5, torch.float64)


def test_a_check_whose_words_are_not_known_is_an_error_with_the_line() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        if x.sum() < 0:
            raise ValueError(f"the sum is {x.sum()}")
        return x + 1

    with pytest.raises(fc.Unsupported, match=r"x\.sum\(\) < 0"):
        fc.export(fn, torch.ones(3))


def test_a_break_is_an_error_with_the_line() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x - 1

    with pytest.raises(fc.Unsupported, match=r"x \+ 1 if x\.sum\(\) > 0"):
        fc.export(f, torch.randn(3))


def test_a_change_of_an_object_is_an_error_that_names_it() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        SEEN.append(1)
        return x + 1

    with pytest.raises(fc.ExportError, match="SEEN"):
        fc.export(f, torch.randn(3))


class Switch:
    """What a program sets before it calls something, and resets afterwards."""

    def __init__(self) -> None:
        self.on, self.value = False, None


SWITCH = Switch()


@pytest.mark.parametrize("left", [False, True])
def test_what_is_set_and_reset_is_no_change(left: bool) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        SWITCH.on, SWITCH.value = True, {"x": x}
        try:
            return x * 2 if SWITCH.on else x
        finally:
            SWITCH.value = None
            SWITCH.on = left

    try:
        if left:
            with pytest.raises(fc.ExportError, match="SWITCH"):
                fc.export(f, torch.randn(3))
            return
        exported, x = fc.export(f, torch.randn(3)), torch.randn(3)
        torch.testing.assert_close(exported(x), x * 2)
    finally:
        SWITCH.on = False


def test_nothing_captured_is_an_error() -> None:
    with pytest.raises(fc.ExportError, match="0 graphs"):
        fc.export(lambda x: 3, 4)


@dataclass(frozen=True)
class Wrong:
    what: str
    args: tuple[Any, ...]
    error: type[Exception]
    text: str


@pytest.mark.parametrize(
    "case",
    [
        Wrong("structure", (torch.zeros(3),), TypeError, "another structure"),
        Wrong("shape", (torch.zeros(4), 2), ValueError, r"shape \[3\]"),
        Wrong("dtype", (torch.zeros(3, dtype=torch.int64), 2), ValueError, "float32"),
        Wrong("kind", (2, 2), TypeError, "of type int"),
        Wrong("value", (torch.zeros(3), 5), ValueError, "argument 1 \\(n\\): 5, exported for 2"),
    ],
    ids=lambda case: case.what,
)
def test_a_call_of_another_form_is_refused(case: Wrong) -> None:
    exported = fc.export(lambda x, n: x * n, torch.ones(3), 2)
    with pytest.raises(case.error, match=case.text):
        exported(*case.args)


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((), {}, "d is not given"),
        ((3,), {}, r"d is a single value, exported for a dict with the keys ['x', 'y']"),
        (({"x": 1},), {}, "d is a dict with the keys ['x'], exported for a dict with the keys"),
        (({"x": 1, "y": 2},), {}, "d['y'] is a single value, exported for a list of 2"),
        (({"x": 1, "y": [2]},), {}, "d['y'] is a list of 1, exported for a list of 2"),
        (({"x": 1, "y": [2, (3,)]},), {}, "d['y'][1] is a tuple of 1, exported for a single value"),
        (({"x": 1, "y": (2, 3)},), {}, "d['y'] is a tuple of 2, exported for a list of 2"),
        (({"x": 1, "y": [2, 3]},), {}, "m is not given"),
        (({"x": 1, "y": [2, 3]}, 4), {"k": 5}, "2 arguments by place, exported for 1"),
        (({"x": 1, "y": [2, 3]},), {"m": 4}, "k is not given"),
        (({"x": 1, "y": [2, 3]},), {"m": 4, "k": 5, "z": 6}, "z is given, exported for a call"),
        (({"x": 1, "y": [2, 3]},), {"m": [4], "k": 5}, "m is a list of 1, exported for a single"),
        ((), {"d": 3, "m": 4, "k": 5}, "d is given by name, exported for it by place"),
        (({"x": 1, "y": [2, 3]},), {"k": 5, "m": 4}, "k, m by name, exported for the order m, k"),
    ],
)
def test_an_argument_of_another_structure_is_named(args: Any, kwargs: Any, text: str) -> None:
    def program(d: Any, m: int, k: int) -> torch.Tensor:
        return d["x"] * m + d["y"][0] * k + d["y"][1]

    exported = fc.export(program, {"x": torch.ones(3), "y": [2, 3]}, m=4, k=5)
    with pytest.raises(TypeError, match=re.escape(f"another structure: {text}")):
        exported(*args, **kwargs)


class Counts(torch.nn.Module):
    """Writes to a buffer, and to a parameter under no_grad."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.weight = torch.nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        with torch.no_grad():
            self.weight.mul_(0.5)
        return x * self.weight + self.calls


class Replaces(Counts):
    """Gives its buffer another tensor, which the graph writes into the one that is there."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls = self.calls + 1
        return x + self.calls


class Writes(torch.nn.Module):
    """Writes to its argument and draws."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.detach().mul_(2)
        return x + torch.rand(4)


WRITING: list[tuple[torch.nn.Module, tuple[int, ...]]] = [
    (Counts(), (2, 4)),
    (Replaces(), (2, 4)),
    (Writes(), (2, 4)),
    (torch.nn.BatchNorm1d(4), (3, 4)),
    (torch.nn.InstanceNorm1d(4, track_running_stats=True), (2, 4, 5)),
    (torch.nn.Dropout(), (2, 4)),
    (torch.nn.RReLU(), (2, 4)),
]


def state(module: torch.nn.Module, x: torch.Tensor) -> list[Any]:
    """All that a call may write to, with how often it was."""
    tensors = [x, *module.state_dict(keep_vars=True).values()]
    return [*((t, t.detach().clone(), t._version) for t in tensors), torch.get_rng_state()]


@pytest.mark.parametrize(("module", "shape"), WRITING, ids=lambda each: type(each).__name__)
def test_exporting_changes_nothing(module: torch.nn.Module, shape: tuple[int, ...]) -> None:
    x = torch.ones(shape)
    before = state(module, x)
    exported = fc.export(module, x)
    for was, now in zip(before, state(module, x), strict=True):
        if isinstance(was, torch.Tensor):
            assert torch.equal(was, now)
            continue
        assert was[0] is now[0] and was[2] == now[2]
        assert torch.equal(was[1], now[1])
    twin, y = copy.deepcopy(module), x.clone()
    torch.manual_seed(0)
    expected = twin(y)
    torch.manual_seed(0)
    torch.testing.assert_close(exported(x), expected)
    torch.testing.assert_close(x, y)
    torch.testing.assert_close(module.state_dict(), twin.state_dict())
