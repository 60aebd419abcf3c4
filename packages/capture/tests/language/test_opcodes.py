"""Every opcode is interpreted or breaks cleanly, and the documentation says which."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from flambeau_capture import CaptureWarning, disable
from flambeau_capture.bytecode.opcodes import RUNNING, SUPPORTED
from flambeau_capture.interp.opcodes import coverage, registry


def test_every_opcode_has_a_handler_or_a_reason():
    version = sys.version_info[:2]
    place = SUPPORTED.index(version)
    for row in coverage.table():
        state = row.states[place]
        known = RUNNING.canonical.get(row.opname, row.opname) in registry._HANDLERS
        if state == coverage.INTERPRETED:
            assert known, row
        if state == coverage.BREAKS:
            assert row.remark, f"{row.opname} breaks and nobody says what it is for"


def test_the_page_is_up_to_date():
    docs = Path(__file__).parents[4] / "docs" / "opcodes.md"
    if not docs.exists():
        pytest.skip("the documentation is not beside the tests of an installed wheel")
    assert docs.read_text() == coverage.page(), (
        "run: python -m flambeau_capture.interp.opcodes.coverage docs/opcodes.md"
    )


def test_page_is_written_by_the_command(tmp_path):
    target = tmp_path / "opcodes.md"
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "flambeau_capture.interp.opcodes.coverage",
            str(target),
        ],
        capture_output=True,
    )
    assert done.returncode == 0 and target.read_text() == coverage.page()


def test_code_of_a_newer_python_runs_eagerly_with_one_note(monkeypatch, capture, backend):
    monkeypatch.delitem(RUNNING.names, RUNNING.spec("UNARY_INVERT").code)

    def fn(t, n):
        return t + ~n

    compiled = capture(fn)
    with pytest.warns(CaptureWarning, match="fn runs eagerly: instruction number"):
        assert torch.equal(compiled(torch.ones(2), 3), torch.ones(2) - 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(compiled(torch.ones(2), 4), torch.ones(2) - 5)
    assert len(backend) == 0


def test_exception_groups(check):
    @disable
    def fails():
        raise ExceptionGroup("many", [ValueError("a"), KeyError("b")])

    def fn(t, log):
        t = t + 1
        try:
            fails()
        except* ValueError as group:
            log.append([str(e) for e in group.exceptions])
        except* KeyError:
            log.append("key")
        return t * 2

    check(fn, torch.ones(3), [], graphs=None)


def test_coroutines_are_left_alone(capture, backend):
    import asyncio

    async def work(t):
        await asyncio.sleep(0)
        return t + 1

    async def numbers(t):
        for i in range(2):
            yield t + i

    async def main(t):
        total = await work(t)
        async for item in numbers(t):
            total = total + item
        return total

    def fn(t):
        return asyncio.run(main(t * 2)) + 1

    t = torch.ones(2)
    assert torch.equal(capture(fn)(t), fn(t))
    assert torch.equal(asyncio.run(capture(main)(t)), asyncio.run(main(t)))
