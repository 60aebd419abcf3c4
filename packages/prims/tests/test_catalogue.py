"""The dialect as it is promised to others: schemas pinned, the page complete.

UPDATE_GOLDEN=1 rewrites the golden file; a changed line there means a changed dialect.
"""

import json
import os
from pathlib import Path

import torch
from flambeau_prims import PRIMS, decompositions, lower, prim_of
from flambeau_prims.catalogue import (
    data,
    derivative,
    dtypes,
    main,
    prims_used,
    render,
    schema_lines,
)

GOLDEN = Path(__file__).parent / "golden" / "schemas.txt"


def test_schemas_are_as_promised():
    lines = schema_lines()
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text("\n".join(lines) + "\n")
    assert GOLDEN.read_text().splitlines() == lines


def test_page_lists_everything(tmp_path):
    page = render()
    for prim in PRIMS.values():
        assert f"`{prim.schema}`" in page and prim.doc
    for op in decompositions():
        assert f"`{op}`" in page
    target = tmp_path / "ops.md"
    assert main([str(target), "--check"]) == 1
    assert main([str(target)]) == 0 and main([str(target), "--check"]) == 0
    assert target.read_text() == page


def test_data_is_the_page_in_another_form(tmp_path):
    target = tmp_path / "ops.json"
    assert main([str(target), "--json"]) == 0
    stored = json.loads(target.read_text())
    assert stored == data()
    assert {p["name"] for p in stored["primitives"]} == set(PRIMS)
    for primitive in stored["primitives"]:
        assert set(primitive["used_by"]) <= {*stored["decompositions"], *stored["philox"]}


def test_every_primitive_is_described():
    for prim in PRIMS.values():
        assert prim.doc.endswith((".", "`")) or len(prim.doc) > 10, prim.name
        assert prim.family and derivative(prim), prim.name
    assert dtypes(PRIMS["add"]) == "real floats, complex, integers, bool"
    assert derivative(PRIMS["floor"]) == derivative(PRIMS["full"]) == "none"


def test_uses_hold_for_what_lowering_does():
    """Whatever a lowered graph has of an operation, the operation's uses have named."""

    def program(x, w, b, i):
        y = torch.nn.functional.layer_norm(x @ w, (4,), b, b)
        y = torch.nn.functional.gelu(y, approximate="tanh").softmax(-1)
        z = torch.nn.functional.conv1d(y[None], torch.ones(3, 3, 1)).cumsum(-1)
        return y.sort(1).values, z.var(-1), x[i].norm(), torch.addmm(b, x, w), y.sum().sqrt()

    inputs = (torch.randn(3, 5), torch.randn(5, 4), torch.randn(4), torch.tensor([0, 2]))
    gm = lower(torch.fx.symbolic_trace(program), inputs)
    table = {str(op): function for op, function in decompositions().items()}
    checked = 0
    for node in gm.graph.nodes:
        prim, source = prim_of(node.target), node.meta.get("source_op")
        if prim is not None and source in table:
            assert prim.name in prims_used(table[source]), (source, prim.name)
            checked += 1
    assert checked > 30
