"""Every code object of the standard library survives decode and assemble.

By default: every ninth file, and of the files under a `test` folder every 45th. With
FLAMBEAU_SWEEPS=1 (`nox -s sweeps`): all of them.
"""

import os
import sys
import warnings
from pathlib import Path

import pytest
from bytecode_meaning import fields, meaning, nested
from flambeau_capture.bytecode import assemble, decode, listing
from flambeau_capture.bytecode.flow import reachable, successors

ROOT = Path(os.__file__).parent
WHOLE = os.environ.get("FLAMBEAU_SWEEPS") == "1"
TESTS = ("test", "tests", "idle_test")
PARTS = 18 if WHOLE else 2


def files() -> list[Path]:
    found = sorted(p for p in ROOT.rglob("*.py") if "site-packages" not in p.parts)
    tests = [p for p in found if set(p.relative_to(ROOT).parts) & set(TESTS)]
    others = sorted(set(found) - set(tests))
    return found if WHOLE else others[::9] + tests[::45]


def compiled(path: Path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError):  # the compiler's own bad examples
            return None


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(PARTS))
def test_every_code_object(part):
    count, uncompiled, chosen = 0, 0, files()[part::PARTS]
    for path in chosen:
        module = compiled(path)
        if module is None:
            uncompiled += 1
            continue
        for code in nested(module):
            where = f"{path}:{code.co_firstlineno} {code.co_qualname}"
            body = decode(code)
            again = assemble(body)
            assert meaning(decode(again)) == meaning(body), where
            assert fields(again) == fields(code), where
            assert again.co_consts[:1] == code.co_consts[:1], where
            assert again.co_stacksize <= code.co_stacksize, where
            if again.co_stacksize < code.co_stacksize:
                # CPython counts the handlers of a try-block that it then optimises away (a body of
                # `pass`): they stay in the code, where nothing leads to them.
                assert len(reachable(body)) < len(body.instructions), where
            count += 1
    print(f"Python {sys.version.split()[0]}: {count} code objects of {len(chosen)} files")
    assert count > 1000
    assert uncompiled < len(chosen) / 10


def test_every_line_of_a_listing_is_an_instruction():
    module = compiled(ROOT / "textwrap.py")
    for code in nested(module):
        body = decode(code)
        lines = listing(code).splitlines()
        extra = 1 + len(body.regions) if body.regions else 0
        assert len(lines) == len(body.instructions) + extra
        assert listing(body) == listing(code)
        assert " at 0x" not in listing(code)


def test_the_compiler_leaves_little_dead_code():
    """So that what the analyses call unreachable is checked against a compiler that removes it."""
    total, dead = 0, 0
    for path in sorted(ROOT.glob("*.py"))[:60]:
        module = compiled(path)
        for code in nested(module) if module is not None else ():
            body = decode(code)
            assert set(successors(body)) == set(body.instructions)
            total += len(body.instructions)
            dead += len(body.instructions) - len(reachable(body))
    assert total > 10_000
    assert dead < total / 1000
