"""Choices, and what the environment fills in."""

from __future__ import annotations

from flambeau_inductor.options import Options, settled


def test_the_environment_fills_what_is_left_open():
    env = {"FLAMBEAU_CACHE_DIR": "/c", "FLAMBEAU_DEBUG_DIR": "/d", "FLAMBEAU_VERIFY": "1"}
    options = settled(Options(), env)
    assert (options.cache_dir, options.debug_dir, options.verify) == ("/c", "/d", True)


def test_a_choice_wins_over_the_environment():
    env = {"FLAMBEAU_CACHE_DIR": "/c", "FLAMBEAU_DEBUG_DIR": "/d", "FLAMBEAU_VERIFY": "1"}
    options = settled(Options(cache_dir="/mine", debug_dir="/too", verify=False), env)
    assert (options.cache_dir, options.debug_dir, options.verify) == ("/mine", "/too", False)


def test_nothing_said_is_off():
    options = settled(Options(), {"FLAMBEAU_VERIFY": "0"})
    assert (options.cache_dir, options.debug_dir, options.verify) == (None, None, False)
