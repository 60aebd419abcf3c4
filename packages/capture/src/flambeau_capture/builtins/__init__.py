"""What calling a built-in, a class or a function of torch does under capture.

Importing this package fills the table `values.callables.HANDLERS`.
"""

from flambeau_capture.builtins import (
    autocast,
    backward,
    containers,
    copying,
    creation,
    derivatives,
    draws,
    hooks,
    inspecting,
    iteration,
    lists_of_tensors,
    messages,
    numbers,
    operator_functions,
    operators,
    overriding,
    packed,
    stdlib,
    torch_functions,
)
from flambeau_capture.values import (  # each registers what it handles
    asking,
    autograd_functions,
    contexts,
    contextvariables,
    functional,
    getters,
    pullbacks,
    references,
    regions,
    scalars,
    transforms,
)
