"""Compatibility layer: every private or moving torch interface that capture uses.

In: nothing. Out: functions and names with one meaning on every torch tried: 2.11, 2.13 and 2.14.
Invariant: no other module of this package imports a name of torch that begins with an underscore.
"""

from flambeau_capture._torch_compat.dispatching import *  # noqa: F403
from flambeau_capture._torch_compat.distributed.collectives import *  # noqa: F403
from flambeau_capture._torch_compat.distributed.distributed_tensors import *  # noqa: F403
from flambeau_capture._torch_compat.distributed.fully_sharded import *  # noqa: F403
from flambeau_capture._torch_compat.distributed.messages import *  # noqa: F403
from flambeau_capture._torch_compat.fakes import *  # noqa: F403
from flambeau_capture._torch_compat.foreign import *  # noqa: F403
from flambeau_capture._torch_compat.modules import *  # noqa: F403
from flambeau_capture._torch_compat.operators import *  # noqa: F403
from flambeau_capture._torch_compat.sizes.shape_environments import *  # noqa: F403
from flambeau_capture._torch_compat.sizes.special_sizes import *  # noqa: F403
from flambeau_capture._torch_compat.sizes.symbols import *  # noqa: F403
from flambeau_capture._torch_compat.sizes.unbacked_symbols import *  # noqa: F403
from flambeau_capture._torch_compat.state import *  # noqa: F403
from flambeau_capture._torch_compat.warned import *  # noqa: F403
