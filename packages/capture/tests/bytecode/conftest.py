"""Make the bytecode package importable where capture is not installed (a Python without torch)."""

import importlib.util
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

if importlib.util.find_spec("flambeau_capture") is None:
    sys.path.insert(0, str(HERE.parents[1] / "src"))
sys.path.insert(0, str(HERE))  # for bytecode_meaning, shared by these tests
