"""What a user may do wrong: every error names their line, where there is one, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch
from torch import fx


def square() -> torch.Tensor:
    return torch.randn(3, 3, requires_grad=True)


def good(x: torch.Tensor) -> Any:
    return (x.sin() * x).cos(), x.exp()


def raises_itself(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    if y.dim() == 2:
        raise ValueError("two dimensions")  # the line to name
    return y


def does_not_fit(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    return y @ torch.ones(4, 4)  # the line to name


def branches(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:  # the line to name
        return x
    return -x


def sized_by_value(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].sum()  # the line to name


@pytest.mark.parametrize(
    ("program", "kind", "words"),
    [
        (raises_itself, aot.TraceError, "ValueError: two dimensions"),
        (does_not_fit, aot.TraceError, r"\[3, 3\] X \[4, 4\]"),
        (branches, aot.DataDependent, "needs the value of a tensor"),
        (sized_by_value, aot.DataDependent, "needs the value of a tensor"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_program_that_cannot_be_traced(
    program: Callable[..., Any], kind: type[aot.AotError], words: str
) -> None:
    with pytest.raises(kind, match=words) as caught:
        aot.aot_function(program, aot.run_as_is)(square())
    assert "test_bad_input.py" in caught.value.user_lines
    assert "# the line to name" in caught.value.user_lines
    assert "outside the graph" in str(caught.value) or "out of the compiled region" in str(
        caught.value
    )


def spoilt(spoil: Callable[[list[Any]], Any]) -> Any:
    """A compiler whose callables return something else than they should."""

    def compiler(gm: Any, examples: Any, info: Any) -> Any:
        call = aot.boxed(gm)
        return lambda args: spoil(list(call(args)))

    return compiler


@pytest.mark.parametrize(
    ("spoil", "words", "line"),
    [
        (lambda out: out[:-1], "one for each output of the graph", False),
        (lambda out: None, "has to return a list or tuple of", False),
        (lambda out: [t[:1] for t in out], r"has shape \(1, 3\), not \(3, 3\)", True),
        (lambda out: [t.double() for t in out], "has dtype torch.float64", True),
    ],
    ids=["number", "nothing", "shape", "dtype"],
)
def test_a_compiler_that_breaks_its_contract(spoil: Any, words: str, line: bool) -> None:
    with pytest.raises(aot.CompilerContractError, match=words) as caught:
        aot.aot_function(good, spoilt(spoil))(square())
    assert "good_forward" in str(caught.value)
    assert ("return (x.sin() * x).cos(), x.exp()" in caught.value.user_lines) == line


def test_a_compiler_that_raises_is_named() -> None:
    def compiler(gm: Any, examples: Any, info: Any) -> Any:
        raise KeyError("no kernel")

    with pytest.raises(KeyError, match="no kernel") as caught:
        aot.aot_function(good, compiler)(square())
    assert any("good_forward" in note for note in caught.value.__notes__)


def gradients(joint: Any, options: Any) -> Any:
    return [node for node in joint.grads if node is not None]


@pytest.mark.parametrize(
    ("partition", "words"),
    [
        (lambda joint, options: [], r"leaves out \['arg_0'\]"),
        (lambda joint, options: None, "returned None"),
        (lambda joint, options: ["sin"], "no node of the joint graph"),
        (lambda joint, options: [fx.Graph().placeholder("x")], "no node of the joint graph"),
        (gradients, "only the backward part can compute"),
    ],
    ids=["too little", "nothing", "names", "another graph", "gradients"],
)
def test_a_partition_that_breaks_the_rules(partition: Any, words: str) -> None:
    with pytest.raises(aot.AotError, match=words) as caught:
        aot.aot_function(good, aot.run_as_is, partition=partition)(square())
    assert "a partition returns the nodes of the joint graph" in str(caught.value)


def test_a_program_that_does_something_else_every_time() -> None:
    count = [0]

    def changing(x: torch.Tensor) -> torch.Tensor:
        count[0] += 1
        return x.sin() if count[0] == 1 else x.sin().sum()

    x = square()
    result = aot.aot_function(changing, aot.run_as_is)(x)
    with pytest.raises(aot.DoubleBackwardError, match="must not change between calls"):
        torch.autograd.grad(result.sum(), x, create_graph=True)


def test_a_compiler_whose_outputs_change_between_calls() -> None:
    calls = [0]

    def shrinking(out: list[Any]) -> list[Any]:
        calls[0] += 1
        return out if calls[0] > 1 else [t[:1] for t in out]

    with pytest.raises(aot.CompilerContractError, match="has shape"):
        aot.aot_function(good, spoilt(shrinking))(square())


class Marked(torch.Tensor):
    """A subclass that does not flatten."""


def test_an_unsupported_subclass() -> None:
    with pytest.raises(aot.Unsupported, match="Marked; give it __tensor_flatten__"):
        aot.aot_function(good, aot.run_as_is)(torch.randn(3, 3).as_subclass(Marked))


def test_a_write_to_a_saved_tensor_between_forward_and_backward() -> None:
    messages = []
    for call in (lambda x, w: x @ w, aot.aot_function(lambda x, w: x @ w, aot.run_as_is)):
        x, w = square(), torch.randn(3, 3)
        result = call(x, w)
        w.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation") as caught:
            result.sum().backward()
        messages.append(str(caught.value).split(":")[0])
    assert messages[0] == messages[1]


def test_a_view_of_what_is_detached_in_place() -> None:
    def fn(x):
        y = x * 1
        y.register_hook(lambda g: g * 2)
        part = y[1:]
        y.zero_()
        y.detach_()
        return part[1:]

    fn(torch.randn(3, 3, requires_grad=True))
    with pytest.raises(aot.Unsupported, match=r"use detach\(\)"):
        aot.aot_function(fn, aot.run_as_is)(torch.randn(3, 3, requires_grad=True))


def test_a_write_to_a_part_of_an_input_that_began_to_require_grad() -> None:
    def fn(x):
        part = x.diagonal()
        x.requires_grad_()
        part.fill_(0.25)
        return part.sin()

    fn(torch.randn(2, 3, 3)[0])
    with pytest.raises(aot.Unsupported, match="began to require grad"):
        aot.aot_function(fn, aot.run_as_is)(torch.randn(2, 3, 3)[0])
    for call in (fn, aot.aot_function(fn, aot.run_as_is)):
        with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
            call(torch.randn(3, 3))


def _unrecorded(tensor):
    with torch.no_grad():
        return tensor.view(tensor.shape)


def test_a_view_made_without_grad_of_memory_that_is_written_to() -> None:
    def beside(x, view):
        x.data.mul_(2)
        return view * view.sin()

    def without(x, view):
        with torch.no_grad():
            x.mul_(2)
            return view * 3

    def inside(x, view):
        x.mul_(2)
        with torch.enable_grad():
            return view * 3

    for fn, mode in ((beside, True), (without, True), (inside, False)):
        x = torch.randn(2, 3, requires_grad=True)
        compiled = aot.aot_function(fn, aot.run_as_is)
        with torch.set_grad_enabled(mode):
            other = torch.randn(2, 3, requires_grad=True)
            compiled(x, other)  # apart in memory: no question
            with pytest.raises(aot.Unsupported, match="made with grad disabled"):
                compiled(x, _unrecorded(x))
    x = torch.randn(2, 3, requires_grad=True)
    assert beside(x, _unrecorded(x)).requires_grad

    with torch.no_grad():
        given = aot.aot_function(without, aot.run_as_is)(x, _unrecorded(x))
    assert torch.equal(given, x * 3) and not given.requires_grad


def test_an_input_that_is_a_view_of_one_that_begins_to_require_grad() -> None:
    def used(x, view):
        x.requires_grad_()
        return view * 2

    def reshaped(x, view):
        x.requires_grad_()
        return view.t_()

    x = torch.randn(3, 3)
    assert used(x, x.t()).requires_grad
    with pytest.raises(RuntimeError, match="a view of a leaf Variable"):
        reshaped(x, x.t())
    for fn in (used, reshaped):
        compiled = aot.aot_function(fn, aot.run_as_is)
        x, other = torch.randn(3, 3), torch.randn(3, 3)
        assert not compiled(x, other.t()).requires_grad and x.requires_grad
        x = torch.randn(3, 3)
        with pytest.raises(aot.Unsupported, match="another input is a view of it"):
            compiled(x, x.t())
        assert not x.requires_grad


def test_views_of_one_alias() -> None:
    def fn(x):
        alias = x.data
        return alias.t(), alias[1:]

    with pytest.raises(aot.Unsupported, match="views of one alias by `data`"):
        aot.aot_function(fn, aot.run_as_is)(square())

    def apart(x):
        return x.data.t(), x.data[1:]

    one, other = aot.aot_function(apart, aot.run_as_is)(square())
    one.mul_(2)
    assert (one._version, other._version) == (1, 0)
