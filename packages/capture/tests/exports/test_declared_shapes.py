"""`export(dynamic_shapes=)`: every form of a declaration means what it says, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_capture as fc
import pytest
import torch
from torch.export import Dim as TorchDim  # what programs that come from torch hand over

BATCH = TorchDim("batch", min=2, max=64)
ROWS = {
    "dim": {0: fc.Dim("batch", 2, 64)},
    "torch's dim": {0: BATCH},
    "name": {0: "batch"},
    "tuple": ("batch", None),
    "list": [BATCH, 6],
    "negative": {-2: "batch"},
    "dynamic": {0: TorchDim.DYNAMIC},
    "automatic": {0: TorchDim.AUTO, 1: TorchDim.STATIC},
    "bounded": {0: TorchDim.DYNAMIC(min=3, max=64)},
}


def pair(x: torch.Tensor, y: torch.Tensor | None = None, *, scale: float = 2.0) -> torch.Tensor:
    return (x * scale + (0 if y is None else y.sum(0))).relu() * x.shape[0]


def variadic(*args: torch.Tensor, **kwargs: torch.Tensor) -> torch.Tensor:
    return args[0] + args[1].sum() + kwargs["z"].mean()


def nested(d: dict[str, Any]) -> torch.Tensor:
    return d["x"] @ d["w"][0] + d["w"][1]


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.cumsum(0)


@pytest.mark.parametrize("form", ROWS)
@pytest.mark.parametrize("by", ["name", "place", "keyword", "default"])
def test_each_form_leaves_the_size_open(form: str, by: str) -> None:
    x, y, rows = torch.randn(4, 6), torch.randn(3, 6), ROWS[form]
    kwargs: dict[str, Any] = {"y": y} if by == "keyword" else {}
    args = (x, y) if by in ("name", "place") else (x,)
    shapes: Any = (rows, None) if by == "place" else {"x": rows}
    if by == "default":
        shapes["scale"] = None  # a parameter that the call leaves to its default
    exported = fc.export(pair, *args, dynamic_shapes=shapes, **kwargs)
    assert isinstance(exported.examples[0].shape[0], str)
    assert exported.examples[0].shape[1] == 6
    for n in (3, 17, 64):
        again = torch.randn(n, 6)
        given = (again, *args[1:])
        torch.testing.assert_close(exported(*given, **kwargs), pair(*given, **kwargs))
    with pytest.raises(ValueError, match="exported for"):
        exported(torch.randn(4, 5), *args[1:], **kwargs)


@pytest.mark.parametrize("rows", [ROWS["dim"], ROWS["torch's dim"], ROWS["bounded"]])
def test_bounds_are_conditions(rows: Any) -> None:
    exported = fc.export(pair, torch.randn(4, 6), dynamic_shapes={"x": rows})
    for n in (1, 65):
        with pytest.raises(ValueError, match="exported for sizes with"):
            exported(torch.randn(n, 6))


@pytest.mark.parametrize(
    ("fn", "args", "kwargs", "shapes"),
    [
        (variadic, "ab", "z", {"args": ({0: "n"}, None), "kwargs": {"z": {0: "m"}}}),
        (variadic, "ab", "z", {"args": ({0: "n"}, None), "z": {0: "m"}}),
        (nested, "d", "", {"d": {"x": {0: "n"}}}),
        (nested, "d", "", ({"x": ("n", None), "w": [None, None]},)),
        (Net(), "a", "", {"x": {0: "n"}}),
        (Net(), "a", "", ({0: "n"},)),
        (Net().forward, "a", "", ({0: "n"},)),
    ],
)
def test_declarations_are_nested_as_arguments_are(
    fn: Callable[..., Any], args: str, kwargs: str, shapes: Any
) -> None:
    def made(n: int) -> dict[str, Any]:
        d = {"x": torch.randn(n, 3), "w": [torch.randn(3, 2), torch.randn(2)]}
        return {"a": torch.randn(n, 3), "b": torch.randn(2), "z": torch.randn(n + 1), "d": d}

    def given(n: int) -> tuple[list[Any], dict[str, Any]]:
        values = made(n)
        return [values[name] for name in args], {name: values[name] for name in kwargs}

    positional, keywords = given(4)
    exported = fc.export(fn, *positional, dynamic_shapes=shapes, **keywords)
    for n in (2, 9):
        positional, keywords = given(n)
        found = exported(*positional, **keywords)
        torch.testing.assert_close(found, fn(*positional, **keywords))


def test_sizes_of_one_name_are_equal() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sum() + y.sum()  # nothing of the program compares them

    x = torch.randn(4, 2)
    exported = fc.export(f, x, x + 1, dynamic_shapes=({0: "n"}, {0: "n"}))
    exported(torch.randn(7, 2), torch.randn(7, 2))
    with pytest.raises(ValueError, match="n"):
        exported(torch.randn(7, 2), torch.randn(8, 2))
    with pytest.raises(fc.ExportError, match="declared equal, and are 4 and 5"):
        fc.export(f, x, torch.randn(5, 2), dynamic_shapes=({0: "n"}, {0: "n"}))


def test_a_size_that_is_another_ones() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.repeat(2, 1)[1:] + y[: 2 * x.shape[0] - 1]

    batch = TorchDim("batch", max=64)
    shapes = ({0: batch}, {0: 2 * batch})
    exported = fc.export(f, torch.randn(4, 2), torch.randn(8, 2), dynamic_shapes=shapes)
    x, y = torch.randn(5, 2), torch.randn(10, 2)
    torch.testing.assert_close(exported(x, y), f(x, y))
    with pytest.raises(ValueError, match="exported for"):
        exported(x, torch.randn(11, 2))


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({"z": {0: "n"}}, "'z', which is no argument of the call"),
        (({0: "n"},), "1 entries for 2 arguments"),
        ({"x": {2: "n"}}, "there is none 2"),
        ({"x": ("n",)}, "a tensor of 2 dimensions"),
        ({"x": {0: 5}}, "is 4, and is declared to be 5"),
        ({"x": {0: fc.Dim("n", 5, 9)}}, "outside of the bounds"),
        ({"x": {0: 2.5}}, "give a name or a flambeau.Dim"),
        ({"scale": "n"}, "a constant of an export"),
        ({"x": {1: "one"}}, "never left open"),
        ("n", "is a str"),
    ],
)
def test_a_declaration_that_does_not_fit_says_why(shapes: Any, said: str) -> None:
    with pytest.raises(fc.ExportError, match=said):
        fc.export(pair, torch.randn(4, 1), scale=3.0, dynamic_shapes=shapes)


@pytest.mark.parametrize("given", ["n", BATCH, TorchDim.DYNAMIC])
def test_a_constant_where_a_size_is_declared_open_is_an_error(given: Any) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x @ torch.ones(4, 2)

    x = torch.randn(6, 4)
    with pytest.raises(fc.ExportError, match=r"dimension 1 of x is declared open.* 4 only"):
        fc.export(f, x, dynamic_shapes={"x": {1: given}})
    automatic = fc.export(f, x, dynamic_shapes={"x": {1: TorchDim.AUTO}})
    assert automatic.examples[0].shape == (6, 4)


def test_two_names_for_what_has_to_be_one_size() -> None:
    x = torch.randn(4, 2)
    with pytest.raises(fc.ExportError, match="'n' and 'm' have to be equal"):
        fc.export(torch.add, x, x + 1, dynamic_shapes=({0: "n"}, {0: "m"}))


def test_marks_are_as_they_were() -> None:
    x = torch.randn(4, 6)
    fc.mark_dynamic(x, 1, min=3)
    before = dict(vars(x))
    exported = fc.export(pair, x, dynamic_shapes={"x": {0: "n"}})
    assert vars(x) == before
    assert exported.examples[0].shape == ("n", 6)


def test_an_argument_that_is_not_read_may_have_any_declared_size() -> None:
    exported = fc.export(
        lambda x, y: x + 1, torch.randn(4), torch.randn(4, 3), dynamic_shapes=(None, {0: "n"})
    )
    exported(torch.randn(4), torch.randn(9, 3))
    with pytest.raises(ValueError, match="exported for"):
        exported(torch.randn(4), torch.randn(9, 2))


WRONG = {
    "not a tensor": (lambda: fc.mark_dynamic(3, 0), TypeError, "a tensor is marked, not int"),
    "not a number": (
        lambda: fc.mark_dynamic(torch.ones(2), "a"), TypeError, "is a number, not 'a'",
    ),
    "no dimension": (lambda: fc.mark_static(torch.ones(2), 5), IndexError, "dimension 5"),
    "bounds": (lambda: fc.Dim("a", min=5, max=2), ValueError, "min 5 is greater than max 2"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_marks_are_refused_where_they_are_made(name):
    call, kind, words = WRONG[name]
    with pytest.raises(kind, match=words):
        call()


def test_a_size_has_a_name_that_errors_can_say():
    with pytest.raises(TypeError, match="the name of a Dim is text"):
        fc.Dim(3)
