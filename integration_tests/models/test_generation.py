"""`generate()` with a compiled forward: eager's tokens, few graphs for prompts of any length."""

import pytest

from integration_tests.generation import FAMILIES, MOST, MOST_SLIDING, measured

pytest.importorskip("transformers", reason="transformers is not installed")


@pytest.mark.sweep(8)
@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral", "mixtral"])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_prompts_of_many_lengths(family: str, cache: str) -> None:
    row = measured(family, cache, ((1, 5), (1, 9), (1, 7), (1, 1)), new=10, backend="eager")
    most = MOST_SLIDING if "sliding_window" in FAMILIES[family][1] else MOST
    assert not row.differing, row
    assert row.graphs[-1] <= most[cache], row
    assert row.breaks == 0, row
