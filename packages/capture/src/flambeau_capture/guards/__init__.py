"""Guards: conditions under which a cache entry is valid.

In: sources and facts about the values there. Out: a `Guards` that answers natively, in plain
Python, and with an explanation. Invariant: importing this needs no torch; tensors and the state of
torch are looked at when the first such guard is added.
"""

from flambeau_capture.guards.guard import *  # noqa: F403
from flambeau_capture.guards.guardset import *  # noqa: F403
from flambeau_capture.guards.kinds import *  # noqa: F403
from flambeau_capture.guards.sizes import *  # noqa: F403
from flambeau_capture.guards.state import *  # noqa: F403
from flambeau_capture.guards.tensor import *  # noqa: F403
