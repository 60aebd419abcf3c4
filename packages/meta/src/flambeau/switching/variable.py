"""The variable of the environment by which programs are switched over.

In and out: nothing. Invariant: nothing is imported here: torch reads it while it is imported.
"""

from __future__ import annotations

INSTALL = "FLAMBEAU_INSTALL"
"""Programs that call torch.compile are compiled here."""
