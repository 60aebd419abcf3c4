import warnings

import pytest
import torch

import flambeau
from flambeau.testing.verification import WrongAnswer


def program(x):
    y = torch.relu(x)
    z = torch.sin(y) * 2
    return z + 1


@pytest.fixture
def planted(monkeypatch, tmp_path):
    from flambeau_inductor.lowering.registry import RULES, rule_of

    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    monkeypatch.setitem(RULES, "sin", rule_of("cos"))


def test_a_right_graph_is_not_disturbed(recwarn):
    compiled = flambeau.compile(program, verify=True)
    for _ in range(5):
        x = torch.randn(8)
        torch.testing.assert_close(compiled(x), program(x))
    assert flambeau.report(compiled).fallbacks == ()
    assert not [w for w in recwarn if issubclass(w.category, flambeau.FlambeauWarning)]


def test_a_wrong_graph_is_named_with_the_stage_and_the_line_and_runs_eagerly(planted):
    compiled = flambeau.compile(program, verify=True)
    x = torch.randn(8)
    with pytest.warns(WrongAnswer) as told:
        result = compiled(x)
    assert torch.equal(result, program(x))
    text = str(told[0].message)
    assert "wrong after inductor" in text and "torch.sin(y)" in text
    assert torch.equal(compiled(x + 1), program(x + 1))
    (failure,) = flambeau.report(compiled).fallbacks
    assert failure.stage == "inductor" and "torch.sin(y)" in failure.user_lines
    assert str(failure).startswith("inductor got __compiled_fn_0 wrong: output")
    found = flambeau.report(compiled)
    assert (found.graphs, found.kernels) == (1, 0)  # the kernels that were made are not in use


def test_without_it_the_plant_shows(planted):
    x = torch.randn(8)
    assert not torch.allclose(flambeau.compile(program)(x), program(x))


def test_so_many_calls_are_checked(monkeypatch):
    import flambeau.testing.verification as verifying

    seen = []
    real = verifying.compared
    monkeypatch.setattr(verifying, "compared", lambda *a, **k: seen.append(1) or real(*a, **k))
    compiled = flambeau.compile(program, backend="aot_eager", verify=2)
    for _ in range(5):
        compiled(torch.randn(8))
    assert len(seen) == 2


def test_gradients_are_checked(monkeypatch, tmp_path):
    from flambeau_inductor.lowering.registry import RULES, rule_of

    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    monkeypatch.setitem(RULES, "cos", rule_of("sin"))
    x = torch.randn(8, requires_grad=True)
    with pytest.warns(WrongAnswer, match="gradient"):
        flambeau.compile(program, verify=True)(x).sum().backward()
    want = torch.autograd.grad(program(x).sum(), x)[0]
    assert torch.equal(x.grad, want)


def test_a_backend_of_ones_own(tmp_path):
    def wrong(gm, inputs):
        return lambda *given: tuple(value + 1 for value in gm(*given))

    x = torch.randn(8)
    with pytest.warns(WrongAnswer, match="the backend"):
        assert torch.equal(flambeau.compile(program, backend=wrong, verify=True)(x), program(x))


def test_what_a_graph_writes_is_written_once():
    def counts(x, total):
        total.add_(x.sum())
        return total * 2

    total = torch.zeros(())
    compiled = flambeau.compile(counts, verify=True)
    assert float(compiled(torch.ones(3), total)) == 6.0
    assert float(total) == 3.0


def test_random_numbers_go_on_as_without():
    def noisy(x):
        return x + torch.rand_like(x)

    torch.manual_seed(5)
    want = flambeau.compile(noisy)(torch.zeros(4))
    torch.manual_seed(5)
    got = flambeau.compile(noisy, verify=True)(torch.zeros(4))
    assert torch.equal(got, want)


def test_random_numbers_of_ones_own_are_not_called_wrong():
    compiled = flambeau.compile(
        lambda x: torch.nn.functional.dropout(x, 0.5) * 2, verify=True, options={"random": "philox"}
    )
    with pytest.warns(flambeau.FlambeauWarning, match="not checked") as told:
        for _ in range(3):
            compiled(torch.ones(64))
    assert len(told) == 1 and flambeau.report(compiled).fallbacks == ()


def test_what_draws_as_eager_does_is_checked():
    compiled = flambeau.compile(lambda x: torch.nn.functional.dropout(x, 0.5) * 2, verify=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", flambeau.FlambeauWarning)
        compiled(torch.ones(64))
    assert flambeau.report(compiled).fallbacks == ()
