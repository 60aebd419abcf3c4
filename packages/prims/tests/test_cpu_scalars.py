"""0-d tensors of the CPU's among operands of a GPU's: taken where eager takes them alone."""

import itertools
import re
from pathlib import Path

import pytest
import torch
import torchgen
from flambeau_prims import decompositions
from flambeau_prims.eager_limits import (
    ANYWHERE,
    NEVER,
    ON_ONE_DEVICE,
    ONLY_LAST,
    REAL_ONLY,
    on_different_devices,
)
from torch._subclasses.fake_tensor import FakeTensorMode

DECLARED = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
PLACES = {"g": ("cuda", (3,)), "s": ("cuda", ()), "c": ("cpu", ()), "v": ("cpu", (3,))}
"""Of an operand: a row or a number of a GPU's, a number or a row of the CPU's."""
TABLE = decompositions()
CHECKED_BY_ITSELF = {"masked_fill.Scalar"}
COMPOSED = {"ldexp.Tensor"}


def tensors_of(op):
    return [a for a in op._schema.arguments if str(a.type) in ("Tensor", "Optional[Tensor]")]


def name_of(op):
    return op.name().removeprefix("aten::")


OPS = [
    op
    for op in TABLE
    if (torch.Tag.pointwise in op.tags or name_of(op) in NEVER) and len(tensors_of(op)) > 1
]


def called(op, operands):
    """The decomposition's answer, other arguments being their defaults or ones."""
    given, args, kwargs = iter(operands), [], {}
    for argument in op._schema.arguments:
        if str(argument.type) in ("Tensor", "Optional[Tensor]"):
            value = next(given)
        elif argument.has_default_value():
            continue
        else:
            value = {"str": "none", "bool": False, "Optional[str]": "trunc"}.get(
                str(argument.type), 1
            )
        if argument.kwarg_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
    return TABLE[op](*args, **kwargs)


def dtype_for(op, place):
    """One that the operation takes."""
    if name_of(op) == "where.self" and place == 0:
        return torch.bool
    whole = ("bitwise", "__", "gcd", "lcm")
    return torch.int64 if name_of(op).startswith(whole) else torch.float32


def test_names_are_those_that_torch_declares():
    text = DECLARED.read_text()
    blocks = dict(re.findall(r"^- func: ([\w.]+)\((.*?)(?=^- func|\Z)", text, re.M | re.S))
    checked = {name_of(op) for op in OPS if "device_check: NoCheck" not in blocks[name_of(op)]}
    assert checked - COMPOSED == ON_ONE_DEVICE - CHECKED_BY_ITSELF
    assert {each.partition(".")[0] for each in ANYWHERE | ONLY_LAST | NEVER} & checked == set()


@pytest.mark.parametrize("op", OPS, ids=name_of)
def test_devices_that_differ_are_computed_or_left(op):
    """No combination is a fault: it is computed on the GPU, or eager refuses it in its words."""
    count = len(tensors_of(op))
    mixed = [
        kinds
        for kinds in itertools.product(PLACES, repeat=count)
        if {"g", "s"} & set(kinds) and {"c", "v"} & set(kinds)
    ]
    for kinds in mixed:
        with FakeTensorMode():
            operands = [
                torch.ones(shape, device=device, dtype=dtype_for(op, place))
                for place, (device, shape) in enumerate(PLACES[kind] for kind in kinds)
            ]
            answer = called(op, operands)
        if on_different_devices(name_of(op), operands):
            assert answer is NotImplemented, kinds
        else:
            assert answer.device.type == "cuda", kinds


def placed(name, kinds, dtype=torch.float32):
    with FakeTensorMode():
        return [
            torch.ones(shape, device=device, dtype=dtype)
            for device, shape in (PLACES[kind] for kind in kinds)
        ]


@pytest.mark.parametrize("name", sorted(ONLY_LAST | NEVER))
def test_which_operand_is_a_number_of_a_cpu_s(name):
    count = next(len(tensors_of(op)) for op in OPS if name_of(op) == name)
    for place in range(count):
        kinds = ["c" if place == i else "g" for i in range(count)]
        taken = name in ONLY_LAST and place == count - 1
        assert on_different_devices(name, placed(name, kinds)) is not taken
        if name in REAL_ONLY:
            assert on_different_devices(name, placed(name, kinds, torch.complex64))


@pytest.mark.parametrize("name", ["linspace", "logspace"])
@pytest.mark.parametrize("home", ["cpu", "cuda"])
def test_ends_of_a_range_may_be_elsewhere(name, home):
    """Of tensors of one element, on any device: the numbers are where they are asked for."""
    with FakeTensorMode():
        ends = [2.0, torch.ones((), device="cuda"), torch.ones(())]
        for dtype in (torch.float32, torch.int64, torch.complex64):
            for start, end in itertools.product(ends, repeat=2):
                kinds = [
                    "Tensor" if isinstance(x, torch.Tensor) else "Scalar" for x in (start, end)
                ]
                label = "default" if kinds == ["Scalar"] * 2 else "_".join(kinds)
                op = getattr(getattr(torch.ops.aten, name), label)
                answer = TABLE[op](start, end, 4, dtype=dtype, device=torch.device(home))
                assert (answer.device.type, answer.dtype) == (home, dtype)
