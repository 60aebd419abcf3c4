"""Handlers of calls: built-ins, classes, the standard library, torch's functions.

Importing this package fills the table of rules: each module that is named here, or that these
import, registers what it handles.
"""

from flambeau_capture.builtins import awaiting, containers, introspection, iteration, numbers
from flambeau_capture.builtins.autograd import module_hooks, optimizers
from flambeau_capture.builtins.classes import construction, made_objects, making, statements
from flambeau_capture.builtins.distributed import (
    collectives,
    data_parallel,
    distributed_tensors,
    fully_sharded,
    messages,
)
from flambeau_capture.builtins.library import (
    cached_functions,
    frames,
    logging_and_warnings,
    printing,
    queries,
    readings,
    stdlib,
)
from flambeau_capture.builtins.operations import operator_functions, operators
from flambeau_capture.builtins.tensors import rules, torch_functions
from flambeau_capture.values import references
from flambeau_capture.values.higher_order import (
    autograd_function,
    context_managers,
    control_flow,
    scans,
    transforms,
)
