"""The first step of one of torch's optimizers: its state is made before the graph, as eager makes
it, and is not there where eager would not have it."""

import flambeau_capture
import pytest
import torch
from torch import nn


class Frozen(torch.optim.Adam):
    """Steps by the first of its groups alone."""

    @torch.no_grad()
    def step(self):
        parameters, gradients, *lists = [[] for _ in range(6)]
        self._init_group(self.param_groups[0], parameters, gradients, *lists)
        for parameter, gradient, mean, step in zip(parameters, gradients, lists[0], lists[3]):
            step += 1
            parameter.sub_(mean.lerp_(gradient, 0.5))


KINDS = {
    "adamw": (torch.optim.AdamW, {}),
    "adam": (torch.optim.Adam, {"amsgrad": True, "foreach": True}),
    "rmsprop": (torch.optim.RMSprop, {"momentum": 0.9, "centered": True}),
    "rprop": (torch.optim.Rprop, {}),
    "asgd": (torch.optim.ASGD, {}),
    "adafactor": (torch.optim.Adafactor, {}),
    "adadelta": (torch.optim.Adadelta, {}),
    "sgd": (torch.optim.SGD, {"momentum": 0.9, "fused": True}),
    "frozen": (Frozen, {}),
}
#: whose state the first gradients are, or is made in the graph
SETTLES_LATER = ("sgd", "frozen")


class Own(torch.optim.Adam):
    """Its state is its own: nobody else makes it."""

    def _init_group(self, group, *lists):
        self.begun = getattr(self, "begun", 0) + 1
        return super()._init_group(group, *lists)


def plain(model, optimizer, x):
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def asks_before(model, optimizer, x):
    if not optimizer.state:
        x = x * 2
    plain(model, optimizer, x)


def asks_for_one_before(model, optimizer, x):
    if not optimizer.state[model[0].weight]:
        x = x * 2
    plain(model, optimizer, x)


def changes_the_rate(model, optimizer, x):
    optimizer.param_groups[1]["lr"] = 0.25
    plain(model, optimizer, x)


def changes_the_groups(model, optimizer, x):
    del optimizer.param_groups[1]["params"][1:]
    plain(model, optimizer, x)


def gives_data(model, optimizer, x):
    model[0].weight.data = model[0].weight.data.double().float().t().contiguous().t()
    plain(model, optimizer, x)


def steps_twice(model, optimizer, x):
    plain(model, optimizer, x)
    plain(model, optimizer, x * 2)


def lacks_gradients(model, optimizer, x):
    model[0](x).sum().backward()
    optimizer.step()
    model.zero_grad()


def begins_anew(model, optimizer, x):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def begins_the_model_anew(model, optimizer, x):
    model.zero_grad(True)
    model(x).square().mean().backward()
    optimizer.step()


def begins_at_zero(model, optimizer, x):
    optimizer.zero_grad(set_to_none=False)
    model(x).square().mean().backward()
    optimizer.step()


def breaks_before(model, optimizer, x):
    print(end="")
    plain(model, optimizer, x)


def reads_after(model, optimizer, x):
    plain(model, optimizer, x)
    for kept in optimizer.state.values():
        x = x + sum(each.sum() for each in kept.values())
    return x


def refuses_to_begin_anew(model, optimizer, x):
    model(x).square().mean().backward()
    for call in (
        lambda: optimizer.zero_grad(to_none=True), lambda: optimizer.zero_grad(True, True),
        lambda: model.zero_grad(True, set_to_none=True), lambda: type(optimizer).zero_grad(),
    ):  # fmt: skip
        try:
            call()
        except TypeError:
            x = x + 1
    return x, [parameter.grad is None for parameter in model.parameters()]


STEPS = (
    plain, asks_before, asks_for_one_before, changes_the_rate, changes_the_groups, gives_data,
    steps_twice, lacks_gradients, begins_anew, begins_the_model_anew, begins_at_zero,
    breaks_before, reads_after, refuses_to_begin_anew,
)  # fmt: skip


def _made(kind, options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    groups = [{"params": [*each.parameters()]} for each in (model[0], model[2])]
    return model, kind(groups, **options)


def _trained(kind, options, step, wrap, times=3):
    model, optimizer = _made(kind, options)
    names = {one: name for name, one in model.named_parameters()}
    run, keys, values = wrap(step), [], []
    for at in range(times):
        values.append(run(model, optimizer, torch.full((2, 3), 0.5 + at)))
        for one, kept in optimizer.state.items():
            keys += [(names[one], key, value.stride()) for key, value in kept.items()]
            values += [value.clone() for value in kept.values()]
    values += [each.grad for each in model.parameters()]
    return keys, values, [each.detach() for each in model.parameters()]


@pytest.mark.sweep(9)
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
@pytest.mark.parametrize("name", KINDS)
def test_states_are_eagers(name, step, capture):
    keys, *values = _trained(*KINDS[name], step, capture)
    keys_there, *values_there = _trained(*KINDS[name], step, lambda fn: fn)
    assert keys == keys_there
    torch.testing.assert_close(values, values_there, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("step", [plain, begins_anew, begins_the_model_anew])
@pytest.mark.parametrize("name", KINDS)
def test_the_first_step_is_as_every_other(name, step, capture, backend):
    _trained(*KINDS[name], step, capture)
    assert len(backend) == (2 if name in SETTLES_LATER else 1)


def test_what_an_optimizer_does_besides_is_left_to_the_program(capture, backend):
    model, optimizer = _made(Own, {})
    run = capture(plain)
    for at in range(2):
        run(model, optimizer, torch.full((2, 3), 0.5 + at))
    assert optimizer.begun == 4  # two groups, two steps


def _failing(backend):
    """Of a graph that is compiled, and whose calls raise."""

    def compile(module, inputs):
        def run(*given):
            raise RuntimeError("no answer")

        return run

    return compile if backend == "running" else _raising


def _raising(*given):
    raise RuntimeError("no graph")


def indexed(model, optimizer, x, index):
    model(x[index]).square().mean().backward()
    optimizer.step()


@pytest.mark.filterwarnings("ignore::flambeau_capture.errors.CaptureWarning")
@pytest.mark.parametrize("fails", ["compiling", "running", "the program"])
def test_a_state_that_no_step_has_used_is_taken_back(fails, capture, backend):
    backend = backend if fails == "the program" else _failing(fails)
    run = flambeau_capture.optimize(backend)(indexed)
    model, optimizer = _made(torch.optim.AdamW, {})
    x = torch.ones(2, 3)
    if fails == "compiling":  # it runs as it is
        run(model, optimizer, x, torch.tensor([1]))
        assert all(state["step"] == 1 for state in optimizer.state.values())
        return
    with pytest.raises((RuntimeError, IndexError)):
        run(model, optimizer, x, torch.tensor([5 if fails == "the program" else 1]))
    assert not optimizer.state
    if fails == "the program":
        run(model, optimizer, x, torch.tensor([1]))
        assert all(state["step"] == 1 for state in optimizer.state.values())
