import pytest
import torch

import flambeau
from flambeau.backends import registry
from flambeau.errors import UnknownBackend


@pytest.fixture
def names(monkeypatch):
    """Names registered in a test are gone after it."""
    monkeypatch.setattr(registry, "_registered", {})


def test_an_unknown_name_lists_the_known_and_the_close(names):
    with pytest.raises(UnknownBackend) as caught:
        flambeau.compile(torch.cos, backend="inducter")
    text = str(caught.value)
    assert "did you mean 'inductor'?" in text
    assert all(name in text for name in registry.TABLE)


def test_register_by_decorator_and_by_name(names):
    @flambeau.register_backend
    def mine(gm, example_inputs):
        return gm.forward

    flambeau.register_backend(mine, name="other")
    assert {"mine", "other"} <= set(flambeau.list_backends())
    x = torch.randn(3)
    assert torch.equal(flambeau.compile(lambda x: x * 2, backend="other")(x), x * 2)


def test_a_built_in_name_stays_what_it_is(names):
    with pytest.raises(ValueError, match="'inductor' is a built-in backend"):
        flambeau.register_backend(lambda gm, inputs: gm, name="inductor")


def test_a_lambda_needs_a_name(names):
    with pytest.raises(ValueError, match="name="):
        flambeau.register_backend(lambda gm, inputs: gm)


class Entry:
    """An entry point of an installed package, as importlib.metadata gives it."""

    name = "theirs"

    @staticmethod
    def load():
        def backend(gm, example_inputs):
            return lambda *inputs: [out * 10 for out in gm(*inputs)]

        return backend


@pytest.mark.parametrize("group", registry.GROUPS)
def test_backends_of_installed_packages(monkeypatch, names, group):
    found = {group: [Entry]}
    monkeypatch.setattr(registry, "entry_points", lambda group: found.get(group, []))
    assert "theirs" in flambeau.list_backends()
    x = torch.randn(3)
    assert torch.equal(flambeau.compile(lambda x: x + 1, backend="theirs")(x), (x + 1) * 10)


def test_options_go_to_a_backend_that_takes_them(names):
    seen = {}

    def backend(gm, example_inputs, *, options):
        seen.update(options)
        return gm.forward

    fn = flambeau.compile(
        lambda x: x + 1, backend=backend, options={"level": 3, "capture.cache_size_limit": 2}
    )
    fn(torch.randn(3))
    assert seen == {"level": 3}


def test_options_for_a_backend_that_takes_none_are_refused(names):
    def backend(gm, example_inputs):
        return gm.forward

    with pytest.raises(TypeError, match="takes no options, but was given level"):
        flambeau.compile(torch.cos, backend=backend, options={"level": 3})


def test_what_cannot_be_called_is_no_backend(names):
    with pytest.raises(TypeError, match="a name or a callable, not int"):
        flambeau.compile(torch.cos, backend=3)
