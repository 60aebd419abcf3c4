"""Marks of sizes beside the policy of the compile: eager's answers in every call, as few graphs as
the mark says, and an error that names the line by which a marked size is made a constant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_capture
import pytest
import torch
import torch._dynamo as theirs
from torch import Tensor
from torch._dynamo.decorators import mark_unbacked

SIZES = (4, 5, 6, 1, 4, 8, 2)

#: a program, and whether it makes a constant of its first size of this number
PROGRAMS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[int], bool]]] = {
    "any": (lambda x: x.sin() * x.shape[0], lambda n: False),
    "a bound": (lambda x: x + 1 if x.shape[0] > 4 else x - 1, lambda n: False),
    "one of them": (lambda x: x + 1 if x.shape[0] == 4 else x - 1, lambda n: n == 4),
    "a view": (lambda x: x.reshape(4, -1).sum(1), lambda n: n == 4),
    "an operand": (lambda x: x + torch.ones(4, 3), lambda n: n == 4),
    "a loop": (lambda x: sum((x[i] * i for i in range(x.shape[0])), x[0]), lambda n: n > 1),
}

Mark = Callable[[Tensor], Any]

REQUIRED: dict[str, Mark] = {
    "dynamic": lambda x: flambeau_capture.mark_dynamic(x, 0),
    "torch's dynamic": lambda x: theirs.mark_dynamic(x, 0),
    "static, then dynamic": lambda x: (
        flambeau_capture.mark_static(x),
        flambeau_capture.mark_dynamic(x, 0),
    ),
}
ALLOWED: dict[str, Mark] = {
    "maybe": lambda x: flambeau_capture.maybe_mark_dynamic(x, 0),
    "torch's maybe": lambda x: theirs.maybe_mark_dynamic(x, 0),
    "unbacked": lambda x: mark_unbacked(x, 0),
}
FIXED: dict[str, Mark] = {
    "static": lambda x: flambeau_capture.mark_static(x, 0),
    "torch's static": lambda x: theirs.mark_static(x, 0),
    "all static": lambda x: flambeau_capture.mark_static(x),
    "dynamic, then static": lambda x: (
        flambeau_capture.mark_dynamic(x, 0),
        flambeau_capture.mark_static(x, 0),
    ),
}
MARKS: dict[str, Mark] = {"none": lambda x: None, **REQUIRED, **ALLOWED, **FIXED}


def _outcome(run: Callable[[Tensor], Tensor], x: Tensor) -> Any:
    try:
        return run(x)
    except flambeau_capture.ConstraintViolation as error:
        return error
    except RuntimeError as error:
        return type(error)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_marks_of_sizes(name: str, mark: str, dynamic: bool | None) -> None:
    program, makes_constant = PROGRAMS[name]
    graphs: list[torch.fx.GraphModule] = []

    def backend(gm: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
        graphs.append(gm)
        return gm

    compiled = flambeau_capture.compile(program, backend=backend, dynamic=dynamic)
    seen: set[int] = set()
    for size in SIZES:
        x = torch.arange(size * 3.0).reshape(size, 3)
        MARKS[mark](x)
        want, before = _outcome(program, x), len(graphs)
        got = _outcome(compiled, x)
        if mark in REQUIRED and makes_constant(size) and not isinstance(want, type):
            assert isinstance(got, flambeau_capture.ConstraintViolation)
            assert __file__ in str(got)
            assert "dimension 0 of L['x']" in str(got)
        elif isinstance(want, type):
            assert got is want
        else:
            torch.testing.assert_close(got, want, rtol=0, atol=0)
            fixed = mark in FIXED or (mark == "none" and dynamic is False)
            if fixed:
                assert (len(graphs) > before) == (size not in seen)
        seen.add(size)
    if name == "any" and mark in REQUIRED | ALLOWED:
        assert len(graphs) == 2  # one is for the size 1


def test_the_line_is_that_of_the_function_which_makes_the_constant() -> None:
    def inner(x: Tensor) -> Tensor:
        return x.reshape(4, -1)

    def program(x: Tensor) -> Tensor:
        y = x * 2
        return inner(y)

    compiled = flambeau_capture.compile(program)
    x = torch.ones(4, 3)
    flambeau_capture.mark_dynamic(x, 0)
    with pytest.raises(flambeau_capture.ConstraintViolation, match=r"in inner\n *return x.resh"):
        compiled(x)
    flambeau_capture.mark_static(x, 0)
    torch.testing.assert_close(compiled(x), program(x))


def test_a_backend_may_make_constants() -> None:
    def backend(gm: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
        (placeholder, *_) = gm.graph.find_nodes(op="placeholder")
        assert int(placeholder.meta["val"].shape[0]) == len(inputs[0])
        return gm

    compiled = flambeau_capture.compile(lambda x: x * 2, backend=backend)
    for size in (4, 5):
        x = torch.ones(size, 3)
        flambeau_capture.mark_dynamic(x, 0)
        torch.testing.assert_close(compiled(x), x * 2)
