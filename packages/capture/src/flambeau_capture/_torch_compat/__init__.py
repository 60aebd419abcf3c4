"""Every private or moving piece of torch that capture touches, in one place.

In: nothing. Out: functions and names with one meaning on every torch tried: 2.11, 2.13 and 2.14.
Invariant: no other module of this package imports a name of torch that begins with an underscore.
"""

from flambeau_capture._torch_compat.fakes import (
    asking,
    data_dependent_errors,
    dynamic_shape_errors,
    new_fake_mode,
    to_fake,
    unsupported_fake_errors,
)
from flambeau_capture._torch_compat.foreign import (
    FOREIGN_MARKS,
    TORCH_FOLDER,
    hidden_from_others,
    is_foreign_break,
    is_foreign_mark,
    scripted_from,
)
from flambeau_capture._torch_compat.graphs import forget_source
from flambeau_capture._torch_compat.modules import (
    HOOK_TABLES,
    MODULE_CALL,
    MODULE_CALLS,
    MODULE_GETATTR,
    MODULE_SETATTR,
    global_hook_tables,
)
from flambeau_capture._torch_compat.operators import (
    CHECKED_BY_GRAPH,
    CPU_AUTOCAST,
    GROUP_TENSORS,
    SCRIPTING_QUESTIONS,
    SYMBOLIC_SHAPES,
    TENSOR_BASE,
    associative_scans,
    conditionals,
    device_constructors,
    function_applies,
    index_operator,
    is_all_true,
    labels,
    loops,
    never_under_capture,
    nothing_under_capture,
    operator_namespaces,
    state_questions,
    zero_under_capture,
)
from flambeau_capture._torch_compat.regions import (
    CHOICES,
    SDP_BACKEND,
    enter_choice,
    exit_choice,
    plain_choice,
)
from flambeau_capture._torch_compat.state import (
    KEY_SETS_VARIABLE,
    PLAIN_KEYS,
    STATE_SYMBOLS,
    deterministic_algorithms,
    dispatch_key_sets,
    dispatch_keys,
    enter_autocast,
    enter_inference,
    exit_autocast,
    exit_inference,
    foreign_modes,
    implementation_address,
    in_plain_state,
    is_plain_dense,
    is_plain_strided,
    is_size,
    library_path,
    own_saved_tensors,
    set_grad_enabled,
    torch_function_modes,
    torch_function_set,
    torch_function_state,
)
from flambeau_capture._torch_compat.subclasses import (
    default_torch_function,
    disable_torch_function_subclass,
    disabled_torch_function,
    has_own_dispatch,
    ignores_torch_function,
    make_subclass,
    plain_tensor,
    results_left_plain,
)
from flambeau_capture._torch_compat.symbols import (
    ShapeConditions,
    close_environment,
    expression,
    forget_environments,
    hint,
    reopen_environment,
    same,
    shape_conditions,
    symbolic_integer,
    symbolic_kernels,
    symbolic_number,
    to_symbolic_fake,
)

__all__ = [
    "CHECKED_BY_GRAPH", "CHOICES", "CPU_AUTOCAST", "FOREIGN_MARKS", "GROUP_TENSORS",
    "HOOK_TABLES", "KEY_SETS_VARIABLE", "MODULE_CALL", "MODULE_CALLS", "MODULE_GETATTR",
    "MODULE_SETATTR", "PLAIN_KEYS", "SCRIPTING_QUESTIONS", "SDP_BACKEND", "STATE_SYMBOLS",
    "SYMBOLIC_SHAPES", "ShapeConditions", "TENSOR_BASE", "TORCH_FOLDER", "asking",
    "associative_scans", "close_environment", "conditionals", "data_dependent_errors",
    "default_torch_function", "deterministic_algorithms", "device_constructors",
    "disable_torch_function_subclass", "disabled_torch_function", "dispatch_key_sets",
    "dispatch_keys", "dynamic_shape_errors", "enter_autocast", "enter_choice",
    "enter_inference", "exit_autocast", "exit_choice", "exit_inference", "expression",
    "foreign_modes", "forget_environments", "forget_source", "function_applies",
    "global_hook_tables", "has_own_dispatch", "hidden_from_others", "hint",
    "ignores_torch_function", "implementation_address", "in_plain_state", "index_operator",
    "is_all_true", "is_foreign_break", "is_foreign_mark", "is_plain_dense", "is_plain_strided",
    "is_size", "labels", "library_path", "loops", "make_subclass", "never_under_capture",
    "new_fake_mode", "nothing_under_capture", "operator_namespaces", "own_saved_tensors",
    "plain_choice", "plain_tensor", "reopen_environment", "results_left_plain", "same",
    "scripted_from", "set_grad_enabled", "shape_conditions", "state_questions",
    "symbolic_integer", "symbolic_kernels", "symbolic_number", "to_fake", "to_symbolic_fake",
    "torch_function_modes", "torch_function_set", "torch_function_state",
    "unsupported_fake_errors", "zero_under_capture",
]  # fmt: skip
