import inspect

import pytest
from flambeau_inductor.pipeline import skippable

import flambeau
from flambeau.choices import MODES, Choices, choose, known_options, of_stage, options_of
from flambeau.errors import BadOption, UnknownMode, UnknownOption


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


class Foreign:
    """Of no kind that an option takes."""

    def __repr__(self):
        return "<foreign>"


@pytest.mark.parametrize("name", sorted(set(known_options().values())))
def test_no_option_takes_what_it_does_not_declare(name):
    for value in (Foreign(), 1j, b"bytes"):
        with pytest.raises(BadOption, match=f"option {name} cannot be"):
            choose(options={name: value})


NUMBERS = [
    full
    for full in set(known_options().values())
    for stage, _, field in [full.partition(".")]
    if isinstance(getattr(getattr(Choices(), stage), field), (int, float))
    and not isinstance(getattr(getattr(Choices(), stage), field), bool)
]


@pytest.mark.parametrize("name", [*sorted(NUMBERS), "inductor.threads", "inductor.kept_memory"])
def test_numbers_are_neither_negative_nor_names(name):
    for value in (-1, "8", True):
        with pytest.raises(BadOption, match=f"option {name} cannot be"):
            choose(options={name: value})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kernels": "cuda"}, "'auto', "),
        ({"compile_backward": "later"}, "'ahead', 'lazy'"),
        ({"recompute_share": 7}, "from 0 to 1"),
        ({"memory_budget": 2.0}, "a float from 0 to 1, or an int"),
        ({"memory_budget": float("nan")}, "a number from 0"),
        ({"threads": 0}, "from 1 on"),
        ({"skip_passes": ("nosuchpass",)}, "fold_constants"),
        ({"skip_passes": ("nosuchrule",)}, "epilogue_silu"),
        ({"skip_passes": "fold_constants"}, "a tuple of str"),
        ({"debug_dir": "/proc/nope"}, "a folder that can be written"),
        ({"limits": 3}, "Limits"),
    ],
)
def test_a_bad_value_says_what_would_do(options, says):
    with pytest.raises(BadOption, match=says):
        choose(options=options)


@pytest.mark.parametrize(
    "argument", [name for name in inspect.signature(flambeau.compile).parameters if name != "fn"]
)
def test_no_argument_of_compile_takes_what_it_does_not_declare(argument):
    for value in (Foreign(), [1], {1: 2}, -1):
        with pytest.raises((ValueError, TypeError), match=argument.rstrip("s")):
            flambeau.compile(lambda x: x, **{argument: value})


@pytest.mark.parametrize("argument", ["nopython", "dynamic"])
def test_arguments_of_compile_are_checked_by_their_names(argument):
    shown = {"nopython": "fullgraph"}.get(argument, argument)
    with pytest.raises(BadOption, match=f"option {shown} cannot be 'yes'"):
        choose(**{argument: "yes"})


def test_a_path_is_text(tmp_path):
    assert choose(options={"debug_dir": tmp_path}).inductor.debug_dir == str(tmp_path)
    assert (tmp_path).is_dir()


def test_every_pass_and_every_rule_can_be_skipped():
    known = skippable()
    assert {"fold_constants", "bias_into_rows_of_product", "epilogue_gelu"} <= known
    for name in known:
        assert choose(options={"skip_passes": (name,)}).inductor.skip_passes == (name,)


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_sets_options_that_exist(mode):
    assert set(options_of(mode)) <= set(known_options())
    assert choose(mode) == choose(None, MODES[mode])


def test_no_mode_and_the_default_one_set_nothing():
    assert options_of(None) == options_of("default") == {}


def test_an_unknown_mode_lists_the_known_ones():
    with pytest.raises(UnknownMode, match=r"unknown mode 'fast'.*known: default"):
        options_of("fast")
