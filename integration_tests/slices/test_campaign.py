"""The campaign of random programs: a fixed slice of it, and whether it finds what is planted."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch

from integration_tests.campaign import serving, verdicts
from integration_tests.campaign.judging import Judge
from integration_tests.campaign.observing import Setting, played
from integration_tests.campaign.program import Call, Program, from_json, script
from integration_tests.campaign.shrinking import shrink
from integration_tests.campaign.verdicts import BAD

ROOT = Path(__file__).parents[2]
SLICE = {
    "operators": range(4), "writes": range(10), "autograd": range(6), "customops": range(7),
    "state": range(5, 13), "language": range(10), "modules": range(3), "library": range(8),
    "classes": range(8), "hooks": range(6), "transforms": range(1, 5), "promotion": range(1, 7),
    "reference": range(8), "sizes": range(8),
}  # fmt: skip


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", "integration_tests.campaign", *arguments]


def run(out: Path, *arguments: str) -> list[dict[str, object]]:
    """The rows of a campaign in a process of its own."""
    asked = command("--out", str(out), "--no-shrink", *arguments)
    path = os.pathsep.join([str(ROOT), *sys.path])
    # said here: a process that is forked once torch is loaded sets its threads too late
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(asked, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr[-2000:]
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


@pytest.mark.sweep
def test_a_slice_of_every_family(tmp_path):
    """Every second of its programs, all with FLAMBEAU_SWEEPS=1 (`nox -s sweeps`); more on request:
    `nox -s campaign -- --minutes 10 --seed 1`."""
    step = 1 if os.environ.get("FLAMBEAU_SWEEPS") == "1" else 2
    names = [f"{family}:{seed}" for family, seeds in SLICE.items() for seed in seeds[::step]]
    first = run(tmp_path, "--only", ",".join(names[-3:]), "--processes", "1")
    rows = run(tmp_path, "--only", ",".join(names), "--processes", "2", "--limit", "120")
    assert rows[:3] == first  # it went on where the first stopped, with other processes
    assert len(rows) == len(names)
    assert {row["program"] for row in rows} == set(names)
    wrong = [(row["program"], row.get("text")) for row in rows if row["verdict"] in BAD]
    assert not wrong
    assert sum(row["verdict"] == "not drawn" for row in rows) < len(rows) / 20
    assert sum(row["verdict"] == "same" for row in rows) > len(rows) / 2


def program(*body: str, results: tuple[str, ...] = ("v",), steps: bool = False, **more) -> Program:
    x = "make((3, 4), torch.float32, 1, 'whole')"
    calls = more.pop("calls", (Call({"x": x}),))
    return Program("planted", 0, body, results, calls, steps=steps, **more)


GRADIENT = Call(
    {"x": "leaf(make((3, 4), torch.float32, 1, 'whole'))"}, (), ("out[0].sum().backward()",)
)
AS_IT_IS = {
    "value": program("v = x * 2"),
    "stride": program("v = x + 1"),
    "alias": program("v = x[:2]"),
    "identity": program("v = x"),
    "structure": program("LOG.append('effect')", "v = x + 1"),
    "printed": program("print('effect')", "v = x + 1"),
    "plain": program("STATE['n'] += 1", "v = x + 1", setup=("STATE = {'n': 0}",)),
    "outcome": program("v = x.view(5)"),
    "requires_grad": program("v = x * 2", calls=(GRADIENT,)),
    "dtype": program("v = x > 0"),
    "grad mode": program("v = x + 1"),
}
PLANTED = {
    "value": lambda x: (x * 2 + 1e-4,),
    "stride": lambda x: ((x + 1).t().contiguous().t(),),
    "alias": lambda x: (x[:2].clone(),),
    "identity": lambda x: (x.view(3, 4),),
    "structure": lambda x: (x + 1,),
    "printed": lambda x: (x + 1,),
    "plain": lambda x: (x + 1,),
    "outcome": lambda x: (x.clone(),),
    "requires_grad": lambda x: (x.detach() * 2 + 0 * x.sum().item() + x.new_zeros(()),),
    "dtype": lambda x: ((x > 0).to(torch.uint8),),
    "grad mode": lambda x: (torch.set_grad_enabled(False), x + 1)[1:],
}


@pytest.mark.parametrize("kind", AS_IT_IS)
def test_the_judge_finds_what_is_planted(kind):
    whole = AS_IT_IS[kind]
    eager = played(whole, lambda f: f)
    judge = Judge(whole, Setting())
    assert not judge.differences(eager, played(whole, lambda f: f))
    found = judge.differences(eager, played(whole, lambda f: PLANTED[kind]))
    expected = {"grad mode": "plain", "requires_grad": "outcome"}.get(kind, kind)
    assert expected in [difference.kind for difference in found]


#: objects of the programs below, alive so that no other is where one was
KEPT: list[object] = []
ADDRESSED = program(
    "from integration_tests.slices.test_campaign import KEPT",
    "o = object(); KEPT.append(o)",
    "v = [x + 1, id(o), id(o), hash(o), 1234567890123, {id(o): [x * 2]}, str(o)]",
)


def addressed(x, change=lambda numbers: numbers):
    o = object()
    KEPT.append(o)
    numbers = [id(o), id(o), hash(o), 1234567890123, id(o)]
    *plain, key = change(numbers)
    return ([x + 1, *plain, {key: [x * 2]}, str(o)],)


def test_where_objects_are_is_no_difference():
    eager = played(ADDRESSED, lambda f: f)
    assert not Judge(ADDRESSED, Setting()).differences(
        eager, played(ADDRESSED, lambda f: addressed)
    )


def hashed(x):
    KEPT.append(object())
    return ([x, hash(KEPT[-1])],)


def test_where_an_object_is_may_be_the_one_long_number():
    alone = program(*ADDRESSED.body[:2], "v = [x, hash(o)]")
    eager = played(alone, lambda f: f)
    assert not Judge(alone, Setting()).differences(eager, played(alone, lambda f: hashed))


CHANGED_NUMBERS = {
    "no address": lambda n: [5, *n[1:]],
    "two for one": lambda n: [n[0] + 16, *n[1:]],
    "what eager gives again": lambda n: [*n[:3], n[3] + 1, n[4]],
    "another key": lambda n: [*n[:4], n[4] + 16],
    "an answer too few": lambda n: n[1:],
}


@pytest.mark.parametrize("what", CHANGED_NUMBERS)
def test_what_is_wrong_beside_addresses_is_found(what):
    eager = played(ADDRESSED, lambda f: f)
    wrong = played(ADDRESSED, lambda f: lambda x: addressed(x, CHANGED_NUMBERS[what]))
    assert Judge(ADDRESSED, Setting()).differences(eager, wrong)


def test_a_lost_hook_and_a_lost_gradient_are_found():
    hooked = program("v = x * 2", "v.register_hook(lambda g: g * 3)", calls=(GRADIENT,))
    eager = played(hooked, lambda f: f)
    found = Judge(hooked, Setting()).differences(
        eager, played(hooked, lambda f: lambda x: (x * 2,))
    )
    assert [(d.kind, "x.grad" in d.place) for d in found] == [("value", True)]


def planted_sine(whole: Program) -> list[str]:
    def wrap(function):
        def call(*args):
            with wrong_sine():
                return function(*args)

        return call

    found = Judge(whole, Setting()).differences(played(whole, lambda f: f), played(whole, wrap))
    return [d.guilty for d in found]


@contextlib.contextmanager
def wrong_sine():
    """Compiled code that computes a sine a little off."""
    right = torch.sin
    with mock.patch.object(torch, "sin", lambda x: right(x) + 1e-4):
        yield


LONG = (
    "v0 = x * 2", "v1 = v0.t()", "v2 = torch.cos(v1)", "v3 = torch.sin(v2)", "v4 = v3 + v1",
    "v5 = v4 > 0.5", "v6 = v4.sum(0)", "v7 = torch.where(v5, v4, v1)",
)  # fmt: skip


def test_the_statement_that_is_wrong_is_named():
    whole = program(*LONG, results=tuple(f"v{n}" for n in range(8)), steps=True)
    assert planted_sine(whole) == ["v3 = torch.sin(v2)"]


def test_a_planted_fault_is_made_short():
    whole = program(*LONG, results=tuple(f"v{n}" for n in range(8)), steps=True)
    search = shrink(whole)
    candidate = next(search)
    try:
        while True:
            try:
                shows = any("torch.sin" in guilty for guilty in planted_sine(candidate))
            except Exception:
                shows = False
            candidate = search.send(shows)
    except StopIteration as end:
        short = end.value
    assert len(short.body) == 1
    assert "torch.sin" in short.body[0]
    assert from_json(json.loads(json.dumps(short.to_json()))) == short


DEATHS = """
from integration_tests.campaign.__main__ import warm
from integration_tests.campaign.program import Call, Program
from integration_tests.campaign.serving import Conditions, answered
import json
warm(["language"])
compiled = "import os, signal, time, torch\\nif torch.compiler.is_compiling():\\n    "
died = "os.kill(os.getpid(), signal.SIGSEGV)"
bodies = (compiled + died, compiled + "time.sleep(1000)", "import os, signal\\n" + died, "v = 1")
tasks = [
    {"label": str(n), "program": Program("deaths", n, (b,), (), (Call({}),)).to_json()}
    for n, b in enumerate(bodies)
]
for task, row in answered(iter(tasks), 1, Conditions(limit=2.0)):
    print(json.dumps([row["program"], row["verdict"], bool(row.get("source"))]))
"""


def test_crashes_and_hangs_are_rows():
    path = os.pathsep.join([str(ROOT), *sys.path])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DEATHS], cwd=ROOT, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [verdict for _, verdict, _ in rows] == [
        "crash", "hang", "not drawn", "same",
    ], done.stderr[-1000:]  # fmt: skip
    assert all(known for _, _, known in rows[:3])


def test_a_script_stands_alone(tmp_path):
    """It plays the program both ways with nothing but torch and the product."""
    file = tmp_path / "alone.py"
    file.write_text(script(AS_IT_IS["plain"], "shown"))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(file)], cwd=tmp_path, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("call 0:") == 2


@pytest.mark.parametrize(("fails_at", "verdict"), [(1, "raises"), (2, "crash")])
def test_who_broke_the_device_is_told(
    fails_at: int, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel asserts late: after the program as it is, or after it was compiled."""
    calls: list[str] = []

    def synchronized(device: str) -> None:
        calls.append(device)
        if len(calls) == fails_at:
            raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(verdicts, "synchronized", synchronized)
    rows = io.StringIO()
    tasks = io.StringIO(json.dumps({"name": "operators:3", "backend": "eager"}) + "\n")
    serving.serve(tasks, rows, serving.Conditions(limit=8.0))
    row = json.loads(rows.getvalue().splitlines()[-1])
    assert row["verdict"] == verdict and row["ends"]
    assert any("synchronized" in frame for frame in row["frames"])
