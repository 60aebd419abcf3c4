"""The tables of opcodes by version, against the running Python."""

import opcode
import sys

import pytest
from flambeau_capture.bytecode import decode
from flambeau_capture.bytecode.decode import UnknownOpcode
from flambeau_capture.bytecode.opcodes import OPCODES


def test_the_running_version_has_these_opcodes():
    real = {name for name, code in opcode.opmap.items() if code <= 255}
    assert OPCODES[sys.version_info[:2]] == real


def test_code_of_a_newer_python_is_refused_by_name(monkeypatch):
    from flambeau_capture.bytecode import decode as package_level

    module = sys.modules[package_level.__module__]
    without = {n: name for n, name in module.NAMES.items() if name != "BINARY_OP"}
    monkeypatch.setattr(module, "NAMES", without)
    with pytest.raises(UnknownOpcode, match=f"number {opcode.opmap['BINARY_OP']}"):
        decode((lambda a: a + 1).__code__)
