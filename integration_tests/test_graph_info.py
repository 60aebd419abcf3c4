"""The record that autograd writes is the one that the graph compiler reads."""

from dataclasses import fields, make_dataclass

import flambeau_aot
import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor.info import ALONE, GraphInfo
from torch import fx


def test_both_sides_name_the_same_fields_with_the_same_defaults():
    written = flambeau_aot.GraphInfo(ALONE.kind)
    read = {name for name, member in vars(GraphInfo).items() if isinstance(member, property)}
    assert read == {field.name for field in fields(written)}
    assert {name: getattr(ALONE, name) for name in read} == {n: getattr(written, n) for n in read}


@pytest.mark.parametrize("missing", [field.name for field in fields(flambeau_aot.GraphInfo)])
def test_a_field_that_is_missing_is_an_error(missing):
    known = flambeau_aot.GraphInfo("inference")
    given = {f.name: getattr(known, f.name) for f in fields(known) if f.name != missing}
    misspelt = make_dataclass("Misspelt", [*given, missing + "s"])(**given, **{missing + "s": ()})
    x = torch.randn(4)
    gm = flambeau_prims.lower(fx.symbolic_trace(lambda x: x.sin()), [x])
    options = flambeau_inductor.Options(freezing=True, cuda_graphs=True)
    with pytest.raises(AttributeError, match=missing):
        flambeau_inductor.compile(gm, [x], misspelt, options)
