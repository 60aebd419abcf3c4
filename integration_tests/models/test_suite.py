"""The suite's dashboard: what its rows come to, and what a run does when something fails."""

import csv
import json
import sys

import pytest

from benchmarks import suite, suite_page

RIGHT = {"ms": 5.0, "error": 1e-7, "peak_device_mib": 20.0}


def row(name="lib/one", flambeau=None, incumbent=None, **more):
    systems = {"eager": {"ms": 10.0, "error": 1e-7, "peak_device_mib": 40.0}}
    systems |= {"flambeau": flambeau or RIGHT, "incumbent": incumbent or RIGHT}
    steady = {"systems": systems, "report": {"breaks": ["b"], "graphs": 2, "fallbacks": []}}
    return {"name": name, "mode": "inference", "steady": steady, **more}


FAILED = {"failed": "KeyError: planted <b>"}
WRONG = {"ms": 1.0, "error": 0.5}


def test_failures_and_wrong_answers_count_as_one():
    rows = [row(), row("lib/two", FAILED), row("lib/three", WRONG)]
    line = suite_page.summary(rows, "cpu")["flambeau"]
    assert line["speedup (geometric mean)"] == pytest.approx(2.0 ** (1 / 3))
    assert (line["right"], line["failed or wrong (speedup 1.0)"]) == (1, 2)
    assert line["pass rate"] == pytest.approx(1 / 3)
    assert line["memory ratio (eager over it)"] == 2.0
    assert line["share slower than eager"] == 0.0
    other = suite_page.summary(rows, "cpu")["incumbent"]
    assert other["speedup (geometric mean)"] == 2.0 and other["right"] == 3


def test_what_cannot_be_compared_is_neither_right_nor_wrong():
    unknown = {"ms": 5.0, "error": None}
    line = suite_page.summary([row(flambeau=unknown)], "cpu")["flambeau"]
    assert line["pass rate"] is None and line["speedup (geometric mean)"] == 2.0
    assert line["not compared (random, or no float64)"] == 1


def test_first_calls_have_a_median_and_a_ninety_fifth_percentile():
    rows = [
        {
            "name": f"lib/{n}",
            "mode": "training",
            "first": {"flambeau cold": {"seconds": n}, "flambeau warm": {"failed": "gone"}},
        }
        for n in range(1, 21)
    ]
    lines = suite_page.summary(rows, "cpu")
    assert list(lines) == ["flambeau"]  # nobody asked for the other
    assert lines["flambeau"]["first call cold, s: median"] == 10.5
    assert lines["flambeau"]["first call cold, s: p95"] == 20
    assert lines["flambeau"]["first call warm, s: median"] is None
    assert lines["flambeau"]["speedup (geometric mean)"] is None
    assert list(suite_page.failures(rows[0], "flambeau", "cpu")) == ["first call, warm: gone"]


def test_csv_and_page_name_the_failures(tmp_path):
    rows = [row(), row("lib/two", FAILED), row("lib/three", WRONG)]
    result = {"suite": "lib", "command": "x", "versions": {"python": "3"}, "rows": rows}
    result["not built"] = {"lib/four": "NotBuilt: no weights"}
    suite_page.publish(tmp_path / "lib-cpu.json", result, "cpu")
    with (tmp_path / "lib-cpu.csv").open() as file:
        lines = {line["name"]: line for line in csv.DictReader(file)}
    assert lines["lib/two"]["flambeau failure"] == FAILED["failed"]
    assert lines["lib/three"]["flambeau failure"].startswith("wrong: error 0.5")
    assert lines["lib/one"]["flambeau speedup"] == "2.0"
    page = (tmp_path / "lib-cpu.html").read_text()
    assert "planted &lt;b&gt;" in page and "planted <b>" not in page
    assert "lib/four" in page and page.count("<rect") == 6 + 4  # speedups, and memory where known
    assert "http" not in page.replace("http-equiv", "")


@pytest.fixture
def runs(monkeypatch, tmp_path):
    """The suite without its processes: what each would have given, and what was asked for."""
    asked = []

    def run_case(arguments, caches, timeout):
        asked.append(arguments)
        systems = arguments[arguments.index("--systems") + 1 :] if "--systems" in arguments else []
        if "lib/absent" in arguments:
            return {"failed": "exit 1: NotBuilt: it needs the network"}
        if "lib/crash" in arguments and "flambeau" in systems:
            return {"failed": "exit -11: no message"}
        if arguments[0] == "first":
            return {"seconds": 1.0}
        found = row()["steady"]
        return {**found, "systems": {s: found["systems"][s] for s in systems}}

    monkeypatch.setattr(suite, "run_case", run_case)
    monkeypatch.setattr(
        suite.library, "names", lambda name, every: ["lib/good", "lib/absent", "lib/crash"]
    )

    def run(*arguments):
        asked.clear()
        given = ["suite.py", "--suite", "timm", "--out", str(tmp_path), *arguments]
        monkeypatch.setattr(sys, "argv", given)
        assert suite.main() == 0
        return json.loads((tmp_path / "timm-cpu.json").read_text())

    run.asked = asked
    return run


def test_a_crash_is_laid_to_the_system_that_did_it(runs, capsys):
    found = runs("--speedup", "--modes", "inference")
    good, crash = found["rows"]
    assert good["name"] == "lib/good" and crash["name"] == "lib/crash"
    assert crash["steady"]["systems"]["flambeau"] == {"failed": "exit -11: no message"}
    assert crash["steady"]["systems"]["incumbent"] == RIGHT
    assert list(found["not built"]) == ["lib/absent"]
    told = capsys.readouterr().out
    assert "left out, it needs the network" in told
    assert "[2/3, " in told and "s left]" in told and "FAILED exit -11" in told


def test_a_later_run_does_only_what_is_missing(runs):
    runs("--speedup", "--modes", "inference")
    found = runs("--speedup", "--first", "--modes", "inference", "--resume")
    assert {arguments[0] for arguments in runs.asked} == {"first"}
    assert len(runs.asked) == 2 * 4 and "lib/absent" not in str(runs.asked)
    assert all("steady" in row and "first" in row for row in found["rows"])
    again = runs("--speedup", "--first", "--modes", "inference", "--resume")
    assert runs.asked == [] and again["rows"] == found["rows"]


def test_without_resume_a_run_begins_anew(runs):
    runs("--speedup", "--modes", "inference")
    runs("--speedup", "--modes", "inference", "--systems", "flambeau")
    steady = [arguments for arguments in runs.asked if "lib/good" in arguments]
    assert len(steady) == 1 and steady[0][-2:] == ["eager", "flambeau"]
