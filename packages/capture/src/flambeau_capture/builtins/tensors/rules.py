"""The rules of operations on tensors, in one table.

In: the rules. Out: `TENSOR_RULES`, which every tracer holds. Invariant: of two rewrites of one
operator, the first in the table is tried first.
"""

from __future__ import annotations

from flambeau_capture import _torch_compat as compat
from flambeau_capture.builtins.autograd import backward, gradients
from flambeau_capture.builtins.tensors import nested_lists, random, torch_function_protocol
from flambeau_capture.polyfills import sized
from flambeau_capture.values.numpy import subscripts
from flambeau_capture.values.tensors import methods, scalars, shape_changes, sparse_products
from flambeau_capture.values.tensors.data import constant_data, data_assignment, sized_by_data
from flambeau_capture.values.tensors.data.data_by_sizes import truth_by_sizes
from flambeau_capture.values.tensors.data.read_layouts import check_layout
from flambeau_capture.values.tensors.graph_calls import in_general
from flambeau_capture.values.tensors.numbers import data_numbers, open_choices
from flambeau_capture.values.tensors.numbers.early_numbers import number_for_python
from flambeau_capture.values.tensors.subclasses import wrapper_subclasses
from flambeau_capture.values.tensors.tensor import Rewrite, TensorRules

_REWRITES: tuple[tuple[Rewrite, tuple[str, ...]], ...] = (
    (nested_lists.scalars_as_one, tuple(compat.WITH_SCALARS)),
    (nested_lists.made, ("tensor", "as_tensor", "new_tensor")),
    (nested_lists.of_scalars, ("tensor", "as_tensor")),
    (nested_lists.shape_as_tensor, ("_shape_as_tensor",)),
    (random.draw, (*random.FUNCTIONS, *random.FILLED)),
    (subscripts.by_arrays, ("getitem", "setitem")),
    (constant_data.number_as_key, ("getitem", "setitem")),
    (constant_data.write, ("setitem",)),
    (scalars.within_size, ("getitem", "setitem")),
    (open_choices.cut_off, ("getitem",)),
    (scalars.as_many_as_selected, ("setitem", "index_put", "index_put_")),
    (scalars.as_many_as_places, (*scalars.SCATTERS, *(f"{name}_" for name in scalars.SCATTERS))),
    (scalars.select, ("getitem",)),
    (scalars.assign, ("setitem",)),
    (sized_by_data.sizes, (*sized_by_data.OF_SIZES, *sized_by_data.SIZES_AFTER)),
    (data_numbers.read_again, ("item",)),
    (sized_by_data.one_hot, ("one_hot",)),
    (sized_by_data.bincount, ("bincount",)),
    (sized_by_data.pad, ("pad", "constant_pad_nd")),
    (sized_by_data.interpolate, ("interpolate",)),
    (sized_by_data.pad_sequence, ("pad_sequence",)),
    (sized_by_data.tensor_split, ("tensor_split",)),
    (sized_by_data.narrow, ("narrow",)),
    (sized_by_data.cdist, ("cdist",)),
    (sparse_products.product, sparse_products.PRODUCTS + sparse_products.SUMS),
    (sized_by_data.whole_pool, tuple(sized_by_data.POOLS)),
    (sized_by_data.pool, tuple(sized_by_data.POOLS)),
    (sized_by_data.group_norm, ("group_norm",)),
    (sized_by_data.of_open_numbers, tuple(sized.FORMS)),
    (sized_by_data.moved, tuple(sized_by_data.MOVES)),
    (sized_by_data.adaptive_max, sized_by_data.ADAPTIVE_MAX),
    (sized_by_data.covariance, ("cov", "corrcoef")),
    (sized_by_data.pack, ("_pack_padded_sequence",)),
    (sized_by_data.pad_packed, ("_pad_packed_sequence",)),
    (scalars.scaled_add, ("add", "add_", "sub", "sub_")),
    (scalars.filled, scalars.FILLED),
    (scalars.pointwise_pair, ("addcdiv", "addcdiv_", "addcmul", "addcmul_")),
    (scalars.running_average, scalars.NORMS),
    (scalars.foreach_pair, ("_foreach_addcdiv_", "_foreach_addcmul_")),
)


def _by_name() -> dict[str, tuple[Rewrite, ...]]:
    found: dict[str, tuple[Rewrite, ...]] = {}
    for rewrite, names in _REWRITES:
        for name in names:
            found[name] = (*found.get(name, ()), rewrite)
    return found


TENSOR_RULES = TensorRules(
    override=torch_function_protocol.overridden,
    rewrites=_by_name(),
    by_data=constant_data.answer,
    known_number=constant_data.known_number,
    known_data=constant_data.known_data,
    truth_by_sizes=truth_by_sizes,
    number_for_python=number_for_python,
    in_general=in_general,
    check_layout=check_layout,
    rows=data_numbers.rows,
    set_data=data_assignment.set_data,
    new_leaf=gradients.own_leaf,
    methods={
        "backward": backward.method,
        "register_hook": backward.register,
        "retain_grad": gradients.keep_grad,
        "requires_grad_": gradients.begin,
        "set_": data_assignment.set_tensor,
        **shape_changes.CHANGES,
    },
    wrapper=wrapper_subclasses.existing_wrapper,
    made_wrapper=wrapper_subclasses.made_wrapper,
    attribute=methods.tensor_attribute,
    method=methods.tensor_method,
)
