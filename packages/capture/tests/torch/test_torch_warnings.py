"""Warnings of torch's own Python functions: at each call, at the line that eager names."""

import subprocess
import sys
import textwrap
import threading
import warnings

import flambeau_capture
import pytest
import torch
from flambeau_capture._torch_compat import collected_warnings
from torch.nn import functional as F

X, Y = torch.ones(3, 1), torch.ones(3)
IMAGE = torch.ones(1, 1, 4, 4)
CALLS = {
    **{
        f"{name} of two sizes": lambda name=name: getattr(F, name)(X, Y)
        for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
    },
    **{
        f"{name} without dim": lambda name=name: getattr(F, name)(X)
        for name in ("softmax", "softmin", "log_softmax")
    },
    **{
        f"{name} with size_average": lambda name=name: getattr(F, name)(X, X, size_average=False)
        for name in ("mse_loss", "l1_loss", "binary_cross_entropy", "kl_div", "soft_margin_loss")
    },
    **{
        f"{name} of a matrix": lambda name=name: getattr(F, name)(X, 0.5, False)
        for name in ("dropout2d", "dropout3d")
    },
    "kl_div of a mean": lambda: F.kl_div(X, X, reduction="mean"),
    "upsample": lambda: F.upsample(IMAGE, scale_factor=2),
    "upsample_nearest": lambda: F.upsample_nearest(IMAGE, scale_factor=2),
    "tanh": lambda: F.tanh(X),
    "sigmoid": lambda: F.sigmoid(X),
    "grid_sample": lambda: F.grid_sample(IMAGE, torch.zeros(1, 2, 2, 2)),
}


def seen(called, action, times=3):
    found = []
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter(action)
        for _ in range(times):
            result = called()
            found.append([(str(w.message), w.category, w.filename, w.lineno) for w in given])
            given.clear()
    return found, result


@pytest.mark.parametrize("action", ["always", "default"])
@pytest.mark.parametrize("name", CALLS)
def test_as_eager_warns(name, action):
    call = CALLS[name]
    expected, value = seen(call, action)
    compiled, found = seen(flambeau_capture.compile(call, backend="eager"), action)
    assert compiled == expected
    torch.testing.assert_close(found, value)


def test_some_of_the_calls_warn():
    assert sum(bool(seen(call, "always", 1)[0][0]) for call in CALLS.values()) > 10


def test_as_an_error():
    compiled = flambeau_capture.compile(CALLS["softmax without dim"], backend="eager")
    compiled()
    for call in (CALLS["softmax without dim"], compiled):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(UserWarning, match="Implicit dimension choice"):
                call()


@pytest.mark.parametrize("always", [False, True])
def test_what_torch_says_once_comes_once_at_the_programs_line(always):
    script = """
    import sys, warnings, torch, flambeau_capture
    torch.set_warn_always({always})
    def f(x): return x.T + 1
    for called in [{called}]:
        for _ in range(3):
            with warnings.catch_warnings(record=True) as given:
                warnings.simplefilter("always")
                called(torch.ones(2, 3, 4))
            print([(w.lineno, w.category.__name__, str(w.message)[:40]) for w in given])
    """
    forms = ["f", "flambeau_capture.compile(f)"]
    shown = b""
    for called in [", ".join(forms)] if always else forms:  # once: in a process of its own
        text = textwrap.dedent(script.format(always=always, called=called))
        run = subprocess.run([sys.executable, "-c", text], capture_output=True, check=True)
        shown += run.stdout
    lines = shown.splitlines()
    assert b"UserWarning" in lines[0]
    assert len(lines) == 6 and lines[:3] == lines[3:]


def test_two_threads_collect_apart_and_leave_warnings_as_they_were():
    before = (warnings.warn, warnings._showwarnmsg, list(warnings.filters))
    first_is_in, second_is_out = threading.Event(), threading.Event()
    found = {}

    def first():
        with collected_warnings() as found["first"]:
            first_is_in.set()
            second_is_out.wait(10)
            warnings.warn_explicit("first", UserWarning, "file", 1)

    def second():
        first_is_in.wait(10)
        with collected_warnings() as found["second"]:
            warnings.warn_explicit("second", UserWarning, "file", 1)
        second_is_out.set()

    threads = [threading.Thread(target=target) for target in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"first": [("first", UserWarning)], "second": [("second", UserWarning)]}
    assert (warnings.warn, warnings._showwarnmsg, list(warnings.filters)) == before
