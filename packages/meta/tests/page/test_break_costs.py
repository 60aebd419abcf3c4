"""What breaks cost, from events that are written by hand."""

from flambeau.page.reading import with_costs


def at(kind, **fields):
    return {"kind": kind, "owner": 0, "thread": 1, **fields}


def run(graph, started, seconds=1.0, inputs=(), outputs=()):
    fields = {"inputs": [list(item) for item in inputs], "outputs": [list(o) for o in outputs]}
    return at("run", graph=graph, started=started, seconds=seconds, **fields)


def frame(ended, seconds, stopped, backend_seconds=0.0):
    fields = {"ended": ended, "seconds": seconds, "backend_seconds": backend_seconds}
    return at("frame", stopped=stopped, **fields)


ENTRY = [at("graph", graph="first", installed="one"), at("entry", graphs=["one"])]
FIRST_CALL = [
    *ENTRY,
    at("break", id="FB0001"),
    frame(10.0, 4.0, True, backend_seconds=3.0),
    run("first", 10.0, outputs=[(7, 400), (8, 800)]),
    frame(16.0, 3.0, False, backend_seconds=1.0),
    run("second", 17.0, inputs=[(7, 400)]),
]


def test_a_break_costs_python_capture_and_memory():
    (found,) = with_costs(FIRST_CALL)
    assert found["run_ms"] == 3000.0  # from 11 to 17, without the three seconds of a conversion
    assert found["capture_ms"] == 1000.0 + 2000.0  # what the backend took is not the break's
    assert (found["bytes"], found["calls"]) == (400, 1)


def test_later_calls_count_too():
    calls = [*FIRST_CALL, run("first", 100.0), run("second", 102.0)]
    calls += [run("first", 200.0), run("second", 202.0)]
    (found,) = with_costs(calls)
    assert (found["run_ms"], found["calls"]) == (1000.0, 3)


def test_the_time_between_two_calls_is_not_the_break():
    """Nothing comes after the break: the next graph is that of another call."""
    alone = [*FIRST_CALL[:-2], run("first", 100.0)]
    (found,) = with_costs(alone)
    assert found["run_ms"] is None and found["bytes"] == 0
    another = [*FIRST_CALL[:-2], at("recompile", t=60.0), run("first again", 100.0)]
    (found,) = with_costs(another)
    assert found["run_ms"] is None


def test_two_breaks_with_no_graph_between_share_the_time():
    events = [
        *ENTRY,
        at("break", id="FB0001"),
        frame(10.0, 1.0, True),
        run("first", 10.0),
        at("break", id="FB0005"),
        frame(14.0, 1.0, True),
        frame(19.0, 1.0, False),
        run("second", 20.0),
    ]
    found = {each["id"]: each["run_ms"] for each in with_costs(events)}
    assert found == {"FB0001": 2000.0, "FB0005": 5000.0}


def test_the_most_expensive_comes_first_and_threads_do_not_mix():
    other = [{**event, "thread": 2} for event in FIRST_CALL[:-1]]
    late = [{**event, "owner": 1} for event in FIRST_CALL[:-1]] + [
        {**run("second", 40.0), "owner": 1}
    ]
    found = with_costs([*other, *FIRST_CALL, *late])
    assert [(each["owner"], each["thread"]) for each in found] == [(1, 1), (0, 1), (0, 2)]
    assert found[2]["run_ms"] is None


def test_a_trace_without_runs_has_no_figures_that_mean_nothing():
    events = [event for event in FIRST_CALL if event["kind"] != "run"]
    (found,) = with_costs(events)
    assert found["run_ms"] is None and found["bytes"] is None
