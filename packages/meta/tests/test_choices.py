import pytest

from flambeau.choices import Choices, choose, known_options, of_stage
from flambeau.errors import UnknownOption


def test_nothing_chosen_is_the_default():
    assert choose() == Choices()


def test_an_option_reaches_its_stage_by_either_name():
    short = choose(options={"cache_size_limit": 3})
    full = choose(options={"capture.cache_size_limit": 3})
    assert short == full
    assert short.capture.cache_size_limit == 3
    assert short.inductor == Choices().inductor


def test_arguments_of_compile_are_not_options():
    assert choose(nopython=True).capture.nopython is True
    with pytest.raises(UnknownOption):
        choose(options={"nopython": True})


def test_an_unknown_option_is_never_dropped():
    with pytest.raises(UnknownOption, match="did you mean 'cache_size_limit'"):
        choose(options={"cache_size_limits": 3})


def test_every_known_option_can_be_given():
    for name, full in known_options().items():
        stage, _, field = full.partition(".")
        value = getattr(getattr(Choices(), stage), field)
        assert choose(options={name: value}) == Choices()


def test_of_stage_takes_full_spellings_only():
    given = {"capture.debug": True, "debug": False, "inductor.threads": 1}
    assert of_stage(given, "capture") == {"capture.debug": True}
