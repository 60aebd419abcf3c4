"""One root of all errors, and one namespace."""

import subprocess
import sys

import flambeau_aot
import flambeau_capture
import flambeau_inductor
import pytest
import torch

import flambeau
from flambeau.errors import adopt

ERRORS = [
    name
    for name in flambeau.__all__
    if isinstance(getattr(flambeau, name), type) and issubclass(getattr(flambeau, name), Exception)
    and not issubclass(getattr(flambeau, name), Warning)
]  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_every_public_error_has_the_one_root(name):
    assert issubclass(getattr(flambeau, name), flambeau.FlambeauError)


@pytest.mark.parametrize("package", [flambeau_capture, flambeau_aot, flambeau_inductor])
def test_every_error_of_a_sibling_has_the_one_root(package):
    assert flambeau.FlambeauError
    found = [
        getattr(package, name)
        for name in package.__all__
        if isinstance(getattr(package, name), type)
        and issubclass(getattr(package, name), RuntimeError)
    ]
    assert found and all(issubclass(each, flambeau.FlambeauError) for each in found)


def test_a_graph_break_is_caught_by_the_root():
    @flambeau.compile(fullgraph=True, backend="eager")
    def f(x):
        return 1 if x.sum() > 0 else "no"

    with pytest.raises(flambeau.FlambeauError, match="FB00") as caught:
        f(torch.randn(3))
    assert isinstance(caught.value, flambeau.Unsupported)


def test_siblings_stand_without_the_root():
    code = (
        "import flambeau_aot, flambeau_capture as c, flambeau_inductor as i\n"
        "for one in (flambeau_aot.AotError, c.CaptureError, i.InductorError):\n"
        "    assert one.__mro__[1] is RuntimeError, one.__mro__\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_root_is_adopted_once():
    class Root(RuntimeError):
        pass

    class Child(Root):
        pass

    adopt(Root)
    adopt(Root)
    assert Root.__bases__ == (flambeau.FlambeauError,)
    assert issubclass(Child, flambeau.FlambeauError) and str(Child("x")) == "x"
