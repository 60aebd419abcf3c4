"""The table of what tests cost adds up what each process has kept."""

from __future__ import annotations

from pathlib import Path

from tools import costs


def test_parts_and_families_are_added_up(tmp_path: Path) -> None:
    one = "packages/prims/tests/test_a.py::test_one"
    costs.keep(tmp_path, {costs.BEFORE: 3.0, f"{one}[x]": 1.5, f"{one}[y]": 2.0})
    costs.keep(tmp_path, {costs.BEFORE: 4.0, "integration_tests/test_b.py::test_two": 0.25})
    costs.keep(tmp_path, {costs.BEFORE: 5.0, f"{one}[z]": 1.0})
    lines = costs.table(tmp_path).splitlines()
    assert "| prims | 3 | 8 | 4 |" in lines and "| integration_tests | 1 | 4 | 0 |" in lines
    assert [line for line in lines if "`" in line] == [
        f"| `{one}` | 3 | 4.5 |", "| `integration_tests/test_b.py::test_two` | 1 | 0.2 |",
    ]  # fmt: skip
    assert costs.page(tmp_path).endswith("\n".join(lines) + "\n")


def test_a_process_takes_time() -> None:
    before = costs.seconds()
    assert sum(number * number for number in range(10**6)) > 0
    assert costs.seconds() > before
