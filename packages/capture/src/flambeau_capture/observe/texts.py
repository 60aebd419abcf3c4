"""Texts of errors and of graphs, for logs and records.

In: an error, a graph. Out: one line, a table. Invariant: nothing is evaluated but `str`.
"""

from __future__ import annotations

import re

from torch import fx


def graph_table(module: fx.GraphModule) -> str:
    rows = [("opcode", "name", "target", "args", "kwargs")]
    for node in module.graph.nodes:
        rows.append((node.op, node.name, str(node.target), str(node.args), str(node.kwargs)))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    rows.insert(1, tuple("-" * width for width in widths))  # type: ignore[arg-type]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows
    )


def line_of(error: Exception, width: int = 300) -> str:
    """An error in one line: a backend's text may hold a program, or a traceback."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= width else f"{text[: width - 3]}..."


def words_of(line: str) -> str:
    """What a stage itself says, of an error in one line."""
    found = re.search(r"\b[A-Z]{2}\d{4}: .*", line)
    return (found[0] if found else line).partition(" From your code")[0]
