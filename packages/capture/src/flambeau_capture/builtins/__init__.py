"""What calling a built-in, a class or a function of torch does under capture.

Importing this package fills the table `values.callables.HANDLERS`.
"""

from flambeau_capture.builtins import (
    construction,
    containers,
    copying,
    introspection,
    iteration,
    logging_and_warnings,
    numbers,
    operator_functions,
    operators,
    stdlib,
)
from flambeau_capture.builtins.autograd import backward, gradients, hooks
from flambeau_capture.builtins.tensors import (
    autocast,
    nested_lists,
    packed_sequences,
    random,
    torch_function_protocol,
    torch_functions,
)
from flambeau_capture.values import weak_references  # each registers what it handles
from flambeau_capture.values.functions import (
    context_variables,  # each registers what it handles
    getters,  # each registers what it handles
)
from flambeau_capture.values.higher_order import (
    autograd_function,  # each registers what it handles
    context_managers,  # each registers what it handles
    control_flow,  # each registers what it handles
    functional_call,  # each registers what it handles
    grad,  # each registers what it handles
    vjp,  # each registers what it handles
)
from flambeau_capture.values.tensors import (
    data_dependent,  # each registers what it handles
    scalars,  # each registers what it handles
)
