"""The dialect as it is promised to others: schemas pinned, the page complete.

UPDATE_GOLDEN=1 rewrites the golden file; a changed line there means a changed dialect.
"""

import os
from pathlib import Path

from flambeau_prims import PRIMS, decompositions
from flambeau_prims.catalogue import main, render, schema_lines

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
