"""Floats that are read of a tensor, used, and kept for the next call: one graph with the number
that the program begins with, one for all others, whatever their size. A factor of a number that
data may make as large as its dtype holds has one more: it is guarded to be no larger than one."""

from __future__ import annotations

from typing import Any

import flambeau_capture
import pytest
import torch

#: of a number that is kept, `kept`, and one that is read, `read`
RULES = {
    "a factor": "kept = kept * read",
    "an average": "kept = 0.9 * kept + 0.1 * read",
    "the largest": "kept = max(kept, read)",
    "a sum": "kept = kept + abs(read)",
    "a quotient": "kept = (kept + 1.0) / (abs(read) + 1.0)",
    "the last": "kept = read",
    "a root": "kept = math.sqrt(abs(read)) + 0.5 * kept",
}


@pytest.mark.parametrize("rule", RULES)
def test_a_number_that_is_fed_back_has_two_graphs(rule: str) -> None:
    text = "\n    ".join([
        "def program(state, x, w):", "kept, read = state['kept'], (x * w).sum().item()",
        RULES[rule], "state['kept'] = kept", "return x - kept * w, read",
    ])  # fmt: skip
    space: dict[str, Any] = {}
    exec("import math\n\n" + text, space)
    graphs = []

    def backend(module: torch.fx.GraphModule, given: list[Any]) -> Any:
        graphs.append(module)
        return module.forward

    compiled = flambeau_capture.compile(space["program"], backend=backend)
    ours, eagers = {"kept": 1e-3}, {"kept": 1e-3}
    torch.manual_seed(0)
    for scale in (1e-3, 0.1, 3.0, 40.0, 1e3, 1e7, 1.0):
        x, w = torch.rand(5, 4) * scale, torch.rand(4)
        got, want = compiled(ours, x, w), space["program"](eagers, x, w)
        torch.testing.assert_close(got, want, rtol=0, atol=0)
        assert ours == eagers
    assert len(graphs) <= (3 if rule == "a factor" else 2)
