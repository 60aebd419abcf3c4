"""Random numbers from generators: drawn before the graph is called, in the program's order."""

import flambeau_capture
import pytest
import torch
from flambeau_capture import ExportError
from flambeau_capture.api import compiler_of
from torch import nn


def new(seed):
    return torch.Generator().manual_seed(seed)


def compare(capture, backend, same, fn, calls, graphs):
    """calls: lists of arguments; integers among them are seeds of generators, one a seed."""

    def run(decorate):
        torch.manual_seed(0)
        generators = {}
        target, found = decorate(fn), []
        for call in calls:
            given = [
                generators.setdefault(one, new(one)) if isinstance(one, int) else one
                for one in call
            ]
            found.append(target(torch.arange(6.0).reshape(2, 3), *given))
        return found, [g.get_state() for g in generators.values()], torch.get_rng_state()

    backend.clear()
    same(run(capture), run(lambda fn: fn))
    assert len(backend) >= 1 if graphs is None else len(backend) == graphs


def makes(x, g):
    parts = torch.randn(2, 3, generator=g), torch.rand(x.shape, generator=g, dtype=x.dtype)
    whole = torch.randint(0, 9, (2,), generator=g), torch.randperm(4, generator=g)
    return x + parts[0] * parts[1], *whole, torch.normal(0.0, 2.0, (3,), generator=g)


def fills(x, g):
    x = x.clone()
    x.t().normal_(1.0, 2.0, generator=g)
    weight = nn.init.xavier_uniform_(torch.empty(3, 3), generator=g)
    return x.uniform_(-1, 1, generator=g)[:, 0], weight, x.bernoulli_(0.5, generator=g)


def drops(x, g):
    torch.randn(4, generator=g)
    return x * 2


def is_asked(x, g):
    return x + torch.randn(x.shape, generator=g, device=g.device)


def in_modes(x, g):
    with torch.inference_mode():
        ours = torch.randn(3, generator=g)
    with torch.device("cpu"):
        return ours + torch.ones(3), ours.is_inference(), torch.rand(3, generator=g)


def mixed(x, g):
    ours = torch.randn(3), torch.randn(3, generator=g), torch.randn(3)
    return ours, torch.rand(2, generator=g)


@pytest.mark.parametrize("fn", [makes, fills, drops, is_asked, in_modes, mixed])
def test_numbers_and_states_are_those_of_eager(capture, backend, same, fn):
    compare(capture, backend, same, fn, [[1], [1], [2], [3]], graphs=1)


def test_two_generators_keep_their_order_also_where_they_are_one(capture, backend, same):
    def fn(x, b, a):
        return torch.randn(3, generator=a), torch.randn(3, generator=b), torch.rand(3, generator=a)

    compare(capture, backend, same, fn, [[1, 2], [1, 1], [2, 1]], graphs=1)
    compare(capture, backend, same, fn, [[1, 1], [1, 2]], graphs=2)


def test_none_and_the_default_generator_have_graphs_of_their_own(capture, backend, same):
    def fn(x, g):
        return x + torch.randn(2, 3, generator=g), torch.randn(2)

    calls = [[None], [1], [torch.default_generator], [None], [1]]
    compare(capture, backend, same, fn, calls, graphs=3)


def test_the_sizes_may_be_open(capture, backend, same):
    generator = new(3)

    def fn(x, g):
        return x + torch.randn(x.shape, generator=g), torch.rand(x.shape[0] * 2 + 1, generator=g)

    compiled, other = capture(fn, dynamic=True), new(3)
    for rows in (3, 5, 4, 7):
        x = torch.ones(rows, 3)
        same(compiled(x, generator), fn(x, other))
    assert len(backend) == 1


def test_around_breaks_and_in_what_runs_again(capture, backend, same):
    def breaks(x, g):
        y = torch.randn(3, generator=g)
        if y.sum() > 0:
            y = y + torch.randn(3, generator=g)
        g.manual_seed(3)
        return y, torch.randn(3, generator=g)

    def again(x, g):
        def half(y):
            return y * torch.rand(2, 3, generator=g)

        return torch.utils.checkpoint.checkpoint(half, x, use_reentrant=False)

    compare(capture, backend, same, breaks, [[1], [1]], graphs=None)
    compare(capture, backend, same, again, [[1], [1]], graphs=0)


def test_an_export_draws_nothing():
    with pytest.raises(ExportError, match="draws from a generator"):
        flambeau_capture.export(makes, torch.ones(2, 3), new(1))


def seeded_again(x, g):
    first = torch.randn(2, generator=g), g.initial_seed()
    return *first, g.manual_seed(5) is g, torch.randn(2, generator=g), g.initial_seed(), g.device


def left_by_a_break(x, g):
    first = torch.randn(x.shape, generator=g)
    flambeau_capture.graph_break()
    return x + first, torch.randn(2, generator=g)


GRAPHS = {left_by_a_break: 2}


@pytest.mark.parametrize("make", [torch.Generator, lambda: torch.Generator("cpu").manual_seed(-3)])
@pytest.mark.parametrize(
    "fn", [makes, fills, drops, is_asked, in_modes, mixed, seeded_again, left_by_a_break]
)
def test_a_generator_that_the_frame_makes(capture, backend, same, fn, make):
    def run(x):
        g = make()
        found = fn(x, g)
        return found, g

    backend.clear()
    compiled, x = capture(run), torch.arange(6.0).reshape(2, 3)
    for _ in range(2):
        told = []
        for each in (compiled, run):
            torch.manual_seed(0)
            found, g = each(x)
            told.append((found, g.get_state(), g.initial_seed(), torch.get_rng_state()))
        same(*told)
    assert len(backend) == GRAPHS.get(fn, 1)
    reasons = {report.reason.id for report in compiler_of(compiled).records.breaks}
    assert reasons == {makes: {"FB0005"}, left_by_a_break: {"FB0006"}}.get(fn, set())


def test_open_sizes_drawn_from_a_generator_that_the_frame_makes(capture, backend, same):
    def run(x):
        g = torch.Generator().manual_seed(1)
        return [torch.randn(x.shape[0], generator=g) * x, torch.randn(2, x.shape[0], generator=g)]

    compiled = capture(run)
    for size in (3, 5, 4, 8):
        same(compiled(torch.ones(size)), run(torch.ones(size)))
    assert len(backend) == 2  # of one size, of an open one


@pytest.mark.parametrize("way", ["seed", "get_state", "clone_state"])
def test_what_is_asked_of_a_generator_that_the_frame_makes_ends_the_graph(capture, same, way):
    def run(x):
        g = torch.Generator().manual_seed(3)
        drawn = torch.randn(3, generator=g)
        answer = getattr(g, way)()
        return (
            x.sum() + drawn,
            type(answer),
            (drawn + 1, torch.randn(3, generator=g))[way == "seed" : 1],
        )

    x = torch.ones(2)
    same(capture(run)(x), run(x))


@pytest.mark.parametrize("seed", ["a", 1.5, None])
def test_a_seed_that_is_none_is_refused_as_in_eager(capture, seed):
    def run(x):
        return x + torch.randn(2, generator=torch.Generator().manual_seed(seed))

    errors = []
    for fn in (run, capture(run)):
        with pytest.raises(RuntimeError) as raised:
            fn(torch.ones(2))
        errors.append(str(raised.value))
    assert errors[0] == errors[1]
