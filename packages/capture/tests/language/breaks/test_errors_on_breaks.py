"""`torch._dynamo.error_on_graph_break`: whether a break is an error."""

import flambeau_capture
import pytest
import torch
import torch._dynamo
import torch._dynamo.utils
from flambeau_capture import Unsupported, graph_break

switch = torch._dynamo.error_on_graph_break


@switch(True)
def raising(x):
    graph_break()
    return x + 1


@switch(False)
def breaking(x):
    graph_break()
    return x + 1


def in_a_block(x):
    with switch(True):
        graph_break()
        return x + 1


def in_a_decorated_function(x):
    return raising(x) * 2


def in_the_outer_block_after_the_inner(x):
    with switch(True):
        with switch(False):
            graph_break()
        x = x + 1
        graph_break()
    return x


def in_a_second_block(x):
    with switch(True):
        x = x + 1
    graph_break()
    with switch(True):
        graph_break()
    return x


def in_a_called_function(x):
    with switch(True):
        return (lambda y: (graph_break(), y + 1)[1])(x)


def by_data(x):
    with switch(True):
        return x + 1 if x.sum() > 0 else x


def by_data_in_a_decorated_one(x):
    return switch(True)(lambda y: y + 1 if y.sum() > 0 else y)(x)


ERRORS = [
    raising, in_a_block, in_a_decorated_function, in_the_outer_block_after_the_inner,
    in_a_second_block, in_a_called_function, by_data, by_data_in_a_decorated_one,
]  # fmt: skip


@pytest.mark.parametrize("program", ERRORS, ids=lambda f: f.__name__)
def test_a_break_where_it_is_switched_on_raises_and_leaves_the_switch_as_it_was(program):
    x = torch.ones(20)
    with pytest.raises(Unsupported):
        flambeau_capture.compile(program)(x)
    assert torch._dynamo.utils._get_error_on_graph_break() is False


def inner_off(x):
    with switch(True):
        with switch(False):
            graph_break()
        return x + 1


def decorated_off(x):
    with switch(True):
        y = breaking(x)
    return y * 2


def before_and_after(x):
    graph_break()
    with switch(True):
        x = x + 1
    graph_break()
    return x * 2


@pytest.mark.parametrize(
    "program", [breaking, inner_off, decorated_off, before_and_after], ids=lambda f: f.__name__
)
def test_a_break_where_it_is_switched_off_is_one(program):
    x = torch.ones(3)
    torch.testing.assert_close(flambeau_capture.compile(program)(x), program(x))
    assert torch._dynamo.utils._get_error_on_graph_break() is False
    with pytest.raises(Unsupported):  # one graph counts for more
        flambeau_capture.compile(program, fullgraph=True)(x)


def refused_by_the_program(x):
    with switch(True):
        raise ValueError(x.shape[0])


def test_an_exception_of_the_program_stays_what_it_is():
    with pytest.raises(ValueError, match="3"):
        flambeau_capture.compile(refused_by_the_program)(torch.ones(3))


def test_it_may_be_around_what_is_compiled():
    compiled = flambeau_capture.compile(lambda x: (graph_break(), x + 1)[1])
    with pytest.raises(Unsupported), switch(True):
        compiled(torch.ones(3))
    torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 2.0))
