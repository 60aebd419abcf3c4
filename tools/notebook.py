"""A page of the documentation as a notebook: its text and its blocks of Python, cell by cell.

In: a page in Markdown. Out: the same as a Jupyter notebook (format 4), without outputs. Invariant:
a notebook is the page, so that neither says what the other does not.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([\w./-]+)\.md")


def notebook(page: Path) -> str:
    """The notebook of a page."""
    text = LINK.sub(r"](\1.html", page.read_text(encoding="utf-8"))
    cells: list[dict[str, Any]] = []
    for number, piece in enumerate(BLOCK.split(text)):
        if not piece.strip():
            continue
        kind = ("markdown", "code")[number % 2]
        cell = {"cell_type": kind, "id": f"cell-{len(cells)}", "metadata": {}}
        cell["source"] = piece.strip().splitlines(keepends=True)
        cells.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    made = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"
