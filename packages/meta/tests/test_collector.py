"""The collector is held back during imports, and is afterwards what it was."""

import gc
import subprocess
import sys

import pytest

from flambeau import _without_garbage_collection


@pytest.fixture(params=[True, False], ids=["on", "off"])
def was(request):
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


def test_off_inside_and_as_before_behind(was):
    with _without_garbage_collection():
        assert not gc.isenabled()
        with _without_garbage_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled() is was


def test_an_error_inside_changes_nothing_of_that(was):
    with pytest.raises(KeyError), _without_garbage_collection():
        raise KeyError("on purpose")
    assert gc.isenabled() is was


FIRST = """
import gc, torch, flambeau
seen = []
gc.callbacks.append(lambda phase, info: seen.append(info["generation"]))
flambeau.compile
assert not any(seen), seen  # the youngest are looked at when it is on again
assert gc.isenabled()
made = flambeau.compile(lambda x: torch.softmax(x, -1))
torch.testing.assert_close(made(torch.ones(2, 3)), torch.ones(2, 3) / 3)
assert gc.isenabled()
"""


def test_the_first_use_of_a_name_starts_no_collection_of_everything():
    done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
