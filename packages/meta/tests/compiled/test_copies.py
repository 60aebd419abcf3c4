"""What is compiled stays what it was: copied, pickled, saved, moved, hooked, subclassed."""

import copy
import functools
import inspect
import io
import pickle

import pytest
import torch

import flambeau


class Net(torch.nn.Module):
    """A net."""

    kind = "net"

    def __init__(self):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(torch.relu(self.linear(x)))


class Holder(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.last = inner, torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.last(self.inner(x))


def scaled(x: torch.Tensor, y: int = 2) -> torch.Tensor:
    """Scales."""
    return torch.sin(x) * y


@flambeau.compile
def decorated(x):
    return torch.cos(x) + 1


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def x():
    return torch.randn(8, 4)


def compiles(fn):
    return flambeau.report(fn).graphs


def test_a_compiled_module_is_still_what_it_was(x):
    net = Net()
    compiled = flambeau.compile(net)
    compiled(x)
    assert isinstance(compiled, Net) and type(compiled).__name__ == "Net"
    assert list(compiled.state_dict()) == list(net.state_dict()) and repr(compiled) == repr(net)
    assert compiled.kind == "net" and type(compiled).__doc__ == "A net."
    compiled.extra = torch.nn.Linear(2, 2)
    assert "extra.weight" in net.state_dict()
    del compiled.extra
    assert "extra.weight" not in compiled.state_dict()


def test_modes_and_dtypes_reach_it(x):
    net = Net()
    compiled = flambeau.compile(net)
    compiled(x)
    assert compiled.eval() is compiled and not net.training and not net.norm.training
    torch.testing.assert_close(compiled(x), net(x))
    assert compiled.to(torch.float64) is compiled
    torch.testing.assert_close(compiled(x.double()), net(x.double()))
    assert compiled.train() is compiled and net.training


def test_hooks_run(x):
    compiled, seen = flambeau.compile(Net()), []
    before = compiled.register_forward_pre_hook(lambda module, given: seen.append("before"))
    after = compiled.register_forward_hook(lambda module, given, out: seen.append("after"))
    compiled(x)
    before.remove(), after.remove()
    compiled(x)
    assert seen == ["before", "after"]


def test_hooks_of_the_backward_pass_and_of_copies_run(x):
    compiled, seen = flambeau.compile(Net()), []
    compiled.register_full_backward_hook(lambda module, given, out: seen.append("whole"))
    compiled.linear.register_forward_hook(lambda module, given, out: seen.append("part"))
    compiled.linear.weight.register_hook(lambda grad: seen.append("weight"))
    for net, expected in ((compiled, ["part", "weight", "whole"]),
                          (copy.deepcopy(compiled), ["part", "whole"])):  # fmt: skip
        seen.clear()
        net(x.requires_grad_()).sum().backward()
        assert sorted(seen) == expected
    state = {}
    compiled.register_state_dict_post_hook(lambda module, d, prefix, meta: state.update(d))
    assert list(compiled.state_dict()) == list(state)


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "torch.save"])
@pytest.mark.parametrize("inside", [False, True])
def test_copies_compile_and_share_nothing(x, way, inside):
    compiled = flambeau.compile(Net().eval())
    whole = Holder(compiled).eval() if inside else compiled
    expected = whole(x)
    if way == "deepcopy":
        again = copy.deepcopy(whole)
    elif way == "pickle":
        again = pickle.loads(pickle.dumps(whole))
    else:
        written = io.BytesIO()
        torch.save(whole, written)
        written.seek(0)
        again = torch.load(written, weights_only=False)
    torch.testing.assert_close(again(x), expected)
    inner = again.inner if inside else again
    assert isinstance(inner, Net) and compiles(inner) == 1
    assert [record.from_disk for record in flambeau.report(inner).records] == [True]
    with torch.no_grad():
        inner.linear.weight.zero_()
    torch.testing.assert_close(whole(x), expected)
    assert not torch.allclose(again(x), expected)


def test_the_choices_are_copied(x):
    compiled = flambeau.compile(Net().eval(), backend="eager", fullgraph=True)
    again = copy.deepcopy(compiled)
    again(x)
    (record,) = flambeau.report(again).records
    assert record.kind == "eager"


def test_one_module_in_two_places_stays_one(x):
    compiled = flambeau.compile(Net())
    first, second = copy.deepcopy([compiled, compiled])
    assert first is second is not compiled


def test_state_dicts_and_optimizers(x):
    compiled = flambeau.compile(Net())
    written = io.BytesIO()
    torch.save(compiled.state_dict(), written)
    written.seek(0)
    fresh = Net()
    fresh.load_state_dict(torch.load(written))
    optimizer = torch.optim.SGD(compiled.parameters(), 0.1)
    compiled(x).square().sum().backward()
    optimizer.step()
    assert not torch.equal(fresh.linear.weight, compiled.linear.weight)


def test_in_containers_and_data_parallel(x):
    compiled = flambeau.compile(Net().eval())
    sequence = torch.nn.Sequential(compiled, torch.nn.Linear(4, 1)).eval()
    assert len(list(sequence.named_parameters())) == 6
    torch.testing.assert_close(sequence(x), sequence[1](Net.forward(compiled, x)))
    parallel = torch.nn.DataParallel(compiled)
    torch.testing.assert_close(parallel(x), compiled(x))


def test_a_compiled_function_says_what_it_is(x):
    compiled = flambeau.compile(scaled)
    for name in functools.WRAPPER_ASSIGNMENTS:
        if hasattr(scaled, name):
            assert getattr(compiled, name) == getattr(scaled, name)
    assert compiled.__wrapped__ is scaled
    assert inspect.signature(compiled) == inspect.signature(scaled)


def test_a_decorated_function_is_pickled_by_its_name():
    data = pickle.dumps(decorated)
    assert pickle.loads(data) is decorated and b"compiled_again" not in data
    assert copy.deepcopy(decorated) is decorated and copy.copy(decorated) is decorated


def test_another_is_pickled_with_how_it_was_made(x):
    compiled = flambeau.compile(scaled, backend="eager")
    again = pickle.loads(pickle.dumps(compiled))
    torch.testing.assert_close(again(x, 3), scaled(x, 3))
    assert compiles(again) == 1 and again.__wrapped__ is scaled


def test_what_cannot_be_pickled_says_so():
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(flambeau.compile(lambda x: x + 1))


def test_a_bound_method_follows_its_copied_object(x):
    net = Net().eval()
    net.fast = flambeau.compile(net.forward)
    net.fast(x)
    again = copy.deepcopy(net)
    with torch.no_grad():
        again.linear.weight.zero_()
    torch.testing.assert_close(again.fast(x), again(x))
    assert not torch.allclose(again.fast(x), net.fast(x))


def test_the_report_of_a_module_outlives_that_of_its_copy():
    net = Net()
    compiled, x = flambeau.compile(net, backend="eager"), torch.rand(2, 4)
    compiled(x)
    of_copy = copy.copy(compiled)
    of_copy(x)
    assert flambeau.report(net) is not None
    del of_copy
    assert flambeau.report(compiled).graphs == 1
