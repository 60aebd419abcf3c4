"""Code that the running Python's table does not know."""

import opcode

import pytest
from flambeau_capture.bytecode import decode
from flambeau_capture.bytecode.decode import UnknownOpcode
from flambeau_capture.bytecode.opcodes import RUNNING, SUPPORTED, objection


def test_code_of_a_newer_python_is_refused_by_name(monkeypatch):
    monkeypatch.delitem(RUNNING.names, opcode.opmap["BINARY_OP"])
    with pytest.raises(UnknownOpcode, match=f"number {opcode.opmap['BINARY_OP']}"):
        decode((lambda a: a + 1).__code__)


@pytest.mark.parametrize("version", [*SUPPORTED, (3, 10), (3, 15), (4, 0)])
@pytest.mark.parametrize("abiflags", ["", "d", "t", "td"])
def test_a_python_is_refused_by_its_name_or_its_build(version, abiflags):
    said = objection(version, abiflags)
    if version not in SUPPORTED:
        assert f"this is {version[0]}.{version[1]}." in said and "3.14" in said
    elif "t" in abiflags:
        assert "free-threaded" in said
    else:
        assert said is None
