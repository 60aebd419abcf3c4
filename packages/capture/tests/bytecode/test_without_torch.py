"""The package is pure Python: it imports nothing outside the standard library."""

import subprocess
import sys
from pathlib import Path

PROBE = """
import sys
before = set(sys.modules)
sys.modules["torch"] = None
import flambeau_capture.bytecode
new = {name.partition(".")[0] for name in set(sys.modules) - before} - {"torch"}
print(sorted(new - set(sys.stdlib_module_names)))
"""


def test_it_imports_the_standard_library_alone():
    source = Path(__file__).resolve().parents[2] / "src"
    code = f"import sys\nsys.path.insert(0, {str(source)!r})\n{PROBE}"
    result = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "['flambeau_capture']"
