"""Code that the running Python's table does not know."""

import opcode

import pytest
from flambeau_capture.bytecode import decode
from flambeau_capture.bytecode.decode import UnknownOpcode
from flambeau_capture.bytecode.opcodes import RUNNING


def test_code_of_a_newer_python_is_refused_by_name(monkeypatch):
    monkeypatch.delitem(RUNNING.names, opcode.opmap["BINARY_OP"])
    with pytest.raises(UnknownOpcode, match=f"number {opcode.opmap['BINARY_OP']}"):
        decode((lambda a: a + 1).__code__)
