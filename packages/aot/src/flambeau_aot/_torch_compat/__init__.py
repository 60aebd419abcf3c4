"""Compatibility layer: every private or moving torch interface that this package uses.

In: nothing. Out: the same few operations under names of our own, on every torch tried: 2.11 and
2.13. Invariant: no other module of this package uses a name of torch that begins with an
underscore, `torch._C` included (`torch.utils._pytree` and `torch.utils._python_dispatch` come from
here).
"""

from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

from flambeau_aot._torch_compat.autograd import *  # noqa: F403
from flambeau_aot._torch_compat.distributed_tensors import *  # noqa: F403
from flambeau_aot._torch_compat.fakes import *  # noqa: F403
from flambeau_aot._torch_compat.hook_order import *  # noqa: F403
from flambeau_aot._torch_compat.modes import *  # noqa: F403
from flambeau_aot._torch_compat.operators import *  # noqa: F403
from flambeau_aot._torch_compat.tensors import *  # noqa: F403

pytree = _pytree
