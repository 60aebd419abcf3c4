"""What capture would do with a call: one rule for any callable, which is what it then does."""

import collections
import functools
import importlib.metadata
import inspect
import logging
import os

import flambeau_capture as fc
import pytest
import torch
from flambeau_capture.frame.skip_rules import LIBRARIES
from flambeau_capture.values.functions.call_rules import CLASSES, RULES, TYPES, Action


class Plain:
    def __init__(self, x):
        self.x = x

    def double(self):
        return self.x * 2


class Failed(ValueError):
    pass


def plain(x):
    return x + 1


@functools.lru_cache
def cached(x):
    return x


Point = collections.namedtuple("Point", "x y")

EXPECTED = [
    (plain, Action.INLINE),
    (Plain, Action.MAKE),
    (Failed, Action.MAKE),
    (Point, Action.MAKE),
    (Plain(1).double, Action.INLINE),
    (torch.nn.Linear(1, 1), Action.ANSWER),
    (torch.sin, Action.GRAPH),
    (torch.ops.aten.sin.default, Action.GRAPH),
    (torch.nn.functional.gelu, Action.GRAPH),
    (torch.nn.functional.layer_norm, Action.GRAPH),
    (os.path.join, Action.EVALUATE),
    (torch.is_grad_enabled, Action.EVALUATE),
    (torch.device, Action.EVALUATE),
    (inspect.Parameter.empty, Action.MAKE),
    (importlib.metadata.version, Action.EVALUATE),
    (functools.reduce, Action.POLYFILL),
    (len, Action.ANSWER),
    (cached, Action.ANSWER),
    (torch.onnx.is_in_onnx_export, Action.CONSTANT),
    (torch.Tensor.sin, Action.METHOD),
    ([].append, Action.METHOD),
    (open, Action.BREAK),
    (fc.graph_break, Action.BREAK),
    (logging.basicConfig, Action.BREAK),
    (torch.distributed.all_reduce, Action.ANSWER),
    (torch.distributed.isend, Action.ANSWER),
    (torch.distributed.gather, Action.BREAK),
]


@pytest.mark.parametrize(
    "fn, action", EXPECTED, ids=lambda given: getattr(given, "__name__", str(given))
)
def test_the_rule_of(fn, action):
    rule = fc.explain_call(fn)
    assert rule.action is action, str(rule)
    assert str(rule).startswith(action)


@pytest.mark.parametrize(
    "module", [name for name, row in LIBRARIES.items() if row.called[:2] == "FB"]
)
def test_a_function_of_a_library_breaks_as_its_module_says(module, capture):
    def of_library(x):
        return x * 2

    of_library.__module__ = f"{module}.inner"
    rule = fc.explain_call(of_library)
    assert rule.action is Action.BREAK and module in str(rule)
    compiled = fc.compile(lambda x: of_library(x + 1))
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 4.0))
    assert rule.reason in str(fc.explain(lambda x: of_library(x + 1), torch.ones(2)).break_reasons)


def test_a_mark_goes_before_what_capture_knows():
    def known(x):
        return x

    fc.assume_constant_result(known)
    assert fc.explain_call(known).action is Action.CONSTANT
    fc.disallow_in_graph(known)
    assert fc.explain_call(known).action is Action.BREAK
    fc.allow_in_graph(known)
    assert fc.explain_call(known).action is Action.GRAPH
    del RULES[known]


def test_every_row_has_what_its_action_needs():
    for rule in [*RULES.values(), *TYPES.values(), *CLASSES.values()]:
        assert rule.reason if rule.action is Action.BREAK else not rule.reason
        if rule.action in (Action.ANSWER, Action.MAKE, Action.POLYFILL):
            assert rule.handler is not None
