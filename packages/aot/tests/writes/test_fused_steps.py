"""The fused steps of torch's optimizers, with and without what each may be given: parameters,
gradients and state as eager leaves them."""

import itertools

import flambeau_aot as aot
import flambeau_prims
import pytest
import torch

STEPS = {
    "sgd": (1, {"weight_decay": 0.1, "momentum": 0.9, "dampening": 0.0, "nesterov": True,
                "maximize": False, "is_first_step": False}),
    "sgd, first": (1, {"weight_decay": 0.0, "momentum": 0.9, "dampening": 0.5, "nesterov": False,
                       "maximize": True, "is_first_step": True}),
    "sgd, plain": (0, {"weight_decay": 0.1, "momentum": 0.0, "dampening": 0.0, "nesterov": False,
                       "maximize": False, "is_first_step": False}),
    "adagrad": (1, {"lr_decay": 0.1, "weight_decay": 0.1, "eps": 1e-8, "maximize": False}),
    "adam": (3, {"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8, "amsgrad": True,
                 "maximize": False}),
    "adamw": (3, {"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8, "amsgrad": True,
                  "maximize": True}),
}  # fmt: skip
SHAPES = ((3,), (2, 2))
CASES = list(itertools.product(STEPS, ["number", "tensor"], ["plain", "scaled"]))


def lists(states, counted):
    """Parameters, gradients, lists of state, and how many steps there were of each."""
    made = [[torch.rand(shape) + 0.1 for shape in SHAPES] for _ in range(2 + states)]
    return [*made, [torch.tensor(2.0) for _ in SHAPES]] if counted else made


@pytest.mark.parametrize(("step", "rate", "scale"), CASES)
@pytest.mark.parametrize("table", [None, flambeau_prims.decompositions()], ids=["aten", "prims"])
def test_a_step_is_eagers(step, rate, scale, table):
    states, options = STEPS[step]
    name, _, _ = step.partition(",")
    write = getattr(torch, f"_fused_{name}_")
    numbers = {**options, **({"lr": 0.1} if rate == "number" else {})}
    given = {} if rate == "number" else {"lr": torch.tensor(0.1)}
    if scale == "scaled":
        given |= {"grad_scale": torch.tensor(2.0), "found_inf": torch.tensor(0.0)}
    unused = [[] for _ in range(1 - states if name == "sgd" else 0)]

    def program(rows, given):
        write(*rows, *unused, **numbers, **given)
        return rows[0][0] * 1

    expected = lists(states, name != "sgd")
    found = [[tensor.clone() for tensor in row] for row in expected]
    compiled = aot.aot_function(program, aot.run_as_is, decompositions=table)
    torch.testing.assert_close(compiled(found, given), program(expected, given))
    torch.testing.assert_close(found, expected)
