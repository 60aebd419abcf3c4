"""Names and classes that Python refuses: its error, and nothing said of a fault of capture."""

import warnings

import pytest
import torch


class Plain:
    pass


REFUSED = {
    f"{name} of {kind}": (lambda x, call=call, made=made: call(made(x)))
    for name, call in {
        "getattr": lambda of: getattr(of, 1),
        "getattr with default": lambda of: getattr(of, 1, 2),
        "hasattr": lambda of: hasattr(of, None),
        "setattr": lambda of: setattr(of, 1.5, 2),
        "delattr": lambda of: delattr(of, b"a"),
    }.items()
    for kind, made in {
        "tensor": lambda x: x + 1,
        "input": lambda x: x,
        "object": lambda x: Plain(),
        "number": lambda x: 3,
    }.items()
}
REFUSED["super"] = lambda x: super()
REFUSED["super after work"] = lambda x: (x + 1, super())


@pytest.mark.parametrize("name", REFUSED)
def test_pythons_error_without_a_fault(name, capture):
    def outcome(fn):
        try:
            return fn(torch.ones(2))
        except Exception as error:
            return type(error), str(error)

    fn = REFUSED[name]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert outcome(capture(fn)) == outcome(fn)
    assert not [each for each in told if "fault" in str(each.message)]
