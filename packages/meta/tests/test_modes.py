import pytest

from flambeau.choices import MODES, available, options_of
from flambeau.errors import UnknownMode


def test_default_sets_nothing():
    assert options_of(None, ()) == options_of("default", ()) == {}


def test_a_mode_whose_options_exist():
    assert options_of("max-autotune", {"max_autotune"}) == MODES["max-autotune"]
    assert available({"cuda_graphs"}) == ["default", "reduce-overhead", "never-slower"]


def test_a_mode_whose_options_do_not_exist_says_which():
    with pytest.raises(UnknownMode, match="sets cuda_graphs, which no installed package has"):
        options_of("reduce-overhead", {"threads"})


def test_an_unknown_mode_lists_the_known_ones():
    with pytest.raises(UnknownMode, match=r"unknown mode 'fast'.*known: default"):
        options_of("fast", ())
