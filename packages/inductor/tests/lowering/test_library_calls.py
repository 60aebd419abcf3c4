"""Every primitive is computed by a kernel, or is a library call that says why."""

from __future__ import annotations

from flambeau_inductor.codegen import device_functions
from flambeau_inductor.lowering import lower_graph
from flambeau_inductor.lowering.registry import OF_NAMES, library_calls, rule_of
from flambeau_prims import PRIMS
from flambeau_prims.ops.pointwise import POINTWISE


def test_a_primitive_has_a_rule_or_a_reason() -> None:
    assert lower_graph  # registers the rules
    reasons = library_calls()
    silent = [name for name in PRIMS if rule_of(name) is None and name not in reasons]
    both = [name for name in reasons if rule_of(name) is not None and name not in OF_NAMES]
    assert silent == [] and both == [] and len(reasons) > 60


def test_a_pointwise_primitive_is_fused() -> None:
    assert lower_graph
    calls = library_calls().keys()
    assert POINTWISE.keys() & calls == {"gamma_grad"}
    assert device_functions.names() and not calls & set(device_functions.names())
