"""A graph may be made to stop before any instruction: where a later one turns out to need a value
that generated code cannot make, capture starts again and stops where that value came to be.
Generated: every step of a program of calls, by position, by name and of methods, in and out of
functions that it calls; what is left of the frame goes on as eager does.
"""

import collections
import os

import pytest
import torch
from flambeau_capture import optimize
from flambeau_capture.api import compiler_of
from flambeau_capture.breaks import REASONS, BreakReport
from flambeau_capture.frame import conversion

LOG = []


class Noted:
    def __enter__(self):
        LOG.append("enter")
        return self

    def __exit__(self, *raised):
        LOG.append("leave")


def scaled(t, by, *, plus=0):
    return torch.add(t * by, plus, alpha=2)


def calls(t, xs):
    it = iter(xs)
    t = scaled(t, next(it), plus=next(it, 5)) + max(xs, key=lambda x: -x)
    with Noted():
        u = torch.cat([t, t], dim=0).sum(dim=-1, keepdim=True)
    kept = collections.deque(xs, maxlen=2)
    kept.append(len(xs))
    try:
        raise KeyError(next(it))
    except KeyError as error:
        LOG.append(str(error))
        u = scaled(by=u, t=u)
    return t, u, [*kept], f"{len(LOG)}"


def turns(t, xs):
    total, step = t, 0

    def add(x):
        nonlocal step
        step += 1
        return x + step

    for k, x in enumerate(xs):
        if k == 1:
            LOG.append(k)
            continue
        total = total + add(x)
        try:
            if x > 2:
                raise ValueError(x)
        except ValueError as error:
            LOG.append(error.args)
        else:
            total *= 2
        finally:
            LOG.append("turn")
    while step < 4:
        step += 1
        if step == 3:
            break
    (first, *rest), other = xs, {f"k{k}": total * k for k in xs if k != 2}
    del first
    return total, sum(each for each in other.values()), rest, [*map(add, xs)]


def run(function):
    LOG.clear()
    result = function(torch.ones(3), [1, 2, 3])
    return [x.tolist() if isinstance(x, torch.Tensor) else x for x in result], [*LOG]


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("program", [calls, turns])
def test_what_is_left_goes_on(program, part, monkeypatch):
    """Every fortieth step of a part; each of them with FLAMBEAU_SWEEPS=1 (`nox -s sweeps`)."""
    apart = 4 if os.environ.get("FLAMBEAU_SWEEPS") == "1" else 40
    expected, attempt = run(program), conversion.FrameConversion._attempt
    report = BreakReport(REASONS["FB0009"], "a stop that the test asks for", ())
    stopped = 0
    for step in range(1 + part, 400, apart):
        asked = []

        def once(self, stop_at, reason, step=step, asked=asked):
            if stop_at is None and not asked:
                asked.append(step)
                stop_at, reason = step, report
            return attempt(self, stop_at, reason)

        monkeypatch.setattr(conversion.FrameConversion, "_attempt", once)
        compiled = optimize("eager", raise_internal_errors=True)(program)
        assert run(compiled) == expected == run(compiled), step
        records = compiler_of(compiled).records
        assert not records.faults
        if not records.breaks and step > 8:
            break
        stopped += bool(records.breaks)
    assert stopped > 2
