"""Results and gradients of every differentiable operator torch describes, through `aot_function`.

What comes in: torch's own descriptions of operators with samples of their inputs. What goes out:
a verdict for each operator.
Invariant: an operator is "same" only if all its samples that were run agree with eager.

`python -m opinfo`, from this package's `tests` folder, runs all and can write the table.
"""

import sys
import unittest
from types import ModuleType

if "expecttest" not in sys.modules:
    # torch's test tools import it for what is not used here; it need not be installed.
    try:
        import expecttest
    except ModuleNotFoundError:
        stand_in = ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
