"""Coverage of ATen: each overload decomposed, inert, or a leaf with its reason.

In: an overload of `torch.ops.aten`, or its name, as `aten.add.Tensor`. Out: a `Covered` with a
kind and, for a leaf, its reason.
Invariant: the kinds are tried in a fixed order; an operation that fits none is `rest`, an error of
coverage, never passed over.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from flambeau_prims._op import PRIMS
from flambeau_prims._torch_compat import OpOverload, aten_overloads, has_dispatch, is_composite
from flambeau_prims.decomposition_choice import decompositions
from flambeau_prims.decomposition_table import Decomposition
from flambeau_prims.functional_variants import functional_form


@dataclass(frozen=True)
class Leaves:
    """A family of leaves: `names` are whole names of operations, without namespace or overload."""

    family: str
    reason: str
    names: str

    @functools.cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(f"(?:{name})" for name in self.names.split()))


# Questions about a tensor, whose answers are Python values (a graph ends at those that read an
# element), and marks and changes of shape in place, which compute nothing.
_INERT = re.compile(
    r"""
    size|stride|numel|dim|len|layout|device|storage_offset|element_size|get_device|data_ptr
    |sym_(size|stride|numel|storage_offset|is_contiguous|constrain_range(_for_size)?)
    |_functional_sym_constrain_range(_for_size)?
    |is_(contiguous|strides_like_format|non_overlapping_and_dense|same_size|set_to|pinned|leaf
        |complex|floating_point|signed|inference|neg|conj|coalesced|nonzero|distributed)
    |_is_zerotensor|(sparse|dense)_dim|_dim[IV]|_version|output_nr|_nnz|result_type|can_cast
    |promote_types|_has_(compatible_shallow_copy_type|same_storage_numel)|_debug_has_internal_overlap
    |_fused_sdp_choice|_use_(cudnn|miopen)_ctc_loss|_use_cudnn_rnn_flatten_weight
    |cudnn_is_acceptable|_cufft_.*|requires_grad_|retain_grad|retains_grad|record_stream
    |_backward|set_data|_make_dep_token|_print|_assert_tensor_metadata
    |_linalg_check_errors|_validate_.*|_nested_get_(ragged_idx|m(ax|in)_seqlen)
    |_assert_(scalar|async)|_functional_assert_(scalar|async)
    |(unsqueeze|squeeze|transpose|swapaxes|swapdims|t|as_strided|detach|resize)_
    |is_nonzero|equal|item|_local_scalar_dense|allclose|_is_(all|any)_true
    """,
    re.VERBOSE,
)
LEAVES: tuple[Leaves, ...] = (
    Leaves(
        "exponents",
        "powers of two: eager's dtype and steps of rounding differ with the kinds of both operands",
        r"ldexp_?",
    ),
    Leaves(
        "sparse",
        "sparse layouts: a prim's operands are strided",
        r".*sparse.* .*_csr.* .*coo.* _coalesced?_? coalesce _?indices(_copy)? _?values(_copy)?"
        r" c?c?r?o[wl]_indices(_copy)? ccol_indices(_copy)? crow_indices(_copy)? hspmm _spdiags"
        r" _spsolve smm sspaddmm _cslt_.* _to_dense to_dense.* _dimI _dimV _indices _values"
        r" native_norm _to_sparse.*",
    ),
    Leaves(
        "nested",
        "nested tensors: sizes differ along a dimension",
        r".*nested.* .*jagged.* to_padded_tensor _padded_dense.*",
    ),
    Leaves(
        "quantized",
        "quantized tensors and weights packed for one machine",
        r".*quantize.* q_.* qscheme int_repr _int_repr .*int[48]pack.* .*_qparams.* fbgemm_.*"
        r" .*moving_avg_obs.* fused_moving.* _dyn_quant.* quantized_.* _choose_qparams.*"
        r" choose_qparams.* _saturate.* _weight_int8pack_mm _mixed_dtypes_linear",
    ),
    Leaves(
        "other devices",
        "a library of one kind of device (oneDNN, cuDNN, MIOpen, Metal, NNPACK, XNNPACK)",
        r"_?mkldnn_.* to_mkldnn.* _?cudnn_.* miopen_.* .*_mps.* mps_.* _nnpack.* lstm_mps_backward"
        r" _mkldnn.* _reshape_from_tensor _triton_.* _cudnn.*",
    ),
    Leaves(
        "fused attention of CUDA",
        "flash and cuDNN attention: kernels whose saved state only their own backward reads",
        r"_flash_attention.* _efficient_attention.* _scaled_dot_product_(flash|cudnn|fused).*"
        r" _cudnn_attention.* _fill_mem_eff_dropout_mask_",
    ),
    Leaves(
        "8-bit and grouped products",
        "matrix products whose scales and groups only their own kernels know",
        r"_scaled_mm(_v2)? _scaled_grouped_mm(_v2)? _grouped_mm",
    ),
    Leaves(
        "inference fast paths",
        "whole layers for inference, entered only with autograd off and never by a tracer",
        r"_native_multi_head_attention _transformer_encoder_layer_fwd _transform_bias_rescale_qkv",
    ),
    Leaves(
        "random",
        "drawn by torch's own generator: other numbers would be another program"
        ' (`random="philox"` lowers what has a closed form)',
        r"bernoulli rand(_like)? randn(_like)? randint(_like)? randperm normal(_functional)?"
        r" uniform random exponential cauchy geometric log_normal poisson binomial multinomial"
        r" _standard_gamma _sample_dirichlet native_dropout _fused_dropout"
        r" rrelu_with_noise(_functional)? rrelu alpha_dropout feature_.*dropout.* dropout_?"
        r" alpha_dropout_ _sobol_engine.* _cudnn_init_dropout_state _philox_.*",
    ),
    Leaves(
        "data-dependent sizes",
        "the size of a result depends on elements",
        r"nonzero(_static)? masked_select _?unique.* bincount histogram repeat_interleave"
        r" segment_reduce _segment_reduce_backward argwhere _pack_padded_sequence _pad_packed.*"
        r" _ctc_loss _ctc_loss_backward histc? _histogramdd.*",
    ),
    Leaves(
        "parts of kernels",
        "steps inside an eager kernel, called by no program; what calls them is decomposed",
        r"_cum(max|min)_helper _compute_linear_combination _slow_conv2d_backward"
        r" adaptive_avg_pool3d_backward",
    ),
    Leaves(
        "not yet written",
        "computes values by a formula that no decomposition states yet; ATen's kernel runs",
        r"embedding_renorm hash_tensor matmul_backward _masked_scale _amp_update_scale_?"
        r" batch_norm_gather_stats(_with_counts)? batch_norm_update_stats",
    ),
    Leaves(
        "named dimensions",
        "dimensions with names, which torch 2.13 no longer has",
        r"aten\.\w+\.names(_out)?",
    ),
    Leaves(
        "other namespaces",
        "operators outside of `aten`, which bring their own kernels",
        r"(?!aten\.)\w+\..*",
    ),
    Leaves(
        "storage and identity",
        "changes or makes a storage, not values: below any graph of values",
        r"set_? set_data resize(_as)?_? _resize_output_? _copy_from(_and_resize)? from_file"
        r" pin_memory _pin_memory _lazy_clone _new_zeros_with_same_feature_meta _foobar"
        r" _make_dual.* _fw_primal.* _unpack_dual swap_ _propagate_xla_data"
        r" lift _test_.* empty_strided new_empty_strided slice_inverse",
    ),
)


@functools.cache
def _bare(op: str) -> str:
    """`add` of `aten.add.Tensor`."""
    return op.split(".")[1] if op.startswith("aten.") else op


@functools.cache
def is_inert(op: str) -> bool:
    """Whether `op` computes no tensor: a question about one, or a mark."""
    return _INERT.fullmatch(_bare(op)) is not None


@functools.cache
def leaf(op: str) -> Leaves | None:
    """The family of leaves that `op` is declared in; an in-place form by its plain name as well."""
    names = (_bare(op), _bare(op).removesuffix("_"), op)
    return next((f for f in LEAVES for n in names if f.pattern.fullmatch(n)), None)


def leaf_reason(op: str) -> str | None:
    """Why `op` stays as it is; None if it is not declared."""
    family = leaf(op)
    return None if family is None else family.reason


Kind = Literal[
    "prim twin", "decomposed", "through functional form", "composite", "inert", "leaf",
    "scripting only", "rest",
]  # fmt: skip

KINDS: dict[Kind, str] = {
    "prim twin": "a decomposition to the primitive of the same name",
    "decomposed": "a decomposition to several primitives, or to one of another name",
    "through functional form": "in-place or `out=`: computed by its functional form, then written",
    "composite": "torch itself replaces it by other operations before any backend sees it",
    "inert": "asks about a tensor or marks it, and computes no tensor",
    "leaf": "stays as it is, for a declared reason",
    "scripting only": "numbers, strings, lists: for TorchScript's interpreter, not dispatched",
    "rest": "none of these",
}
"""The kinds, and what each means."""


@dataclass(frozen=True)
class Covered:
    """One overload: `note` is the functional form, the family of a leaf, or empty."""

    op: str
    kind: Kind
    note: str = ""


def classify(op: OpOverload, table: Mapping[OpOverload, Decomposition]) -> Covered:
    """The kind of `op`, given all decompositions there are."""
    name = str(op)
    if not has_dispatch(op):
        return Covered(name, "scripting only")
    if op in table:
        bare = name.split(".")[1]
        return Covered(name, "prim twin" if bare in PRIMS else "decomposed")
    if is_inert(name):
        return Covered(name, "inert")
    if (variant := functional_form(op)) is not None:
        inner = classify(variant.functional, table)
        if inner.kind in ("leaf", "rest"):
            return Covered(name, inner.kind, inner.note)
        if inner.kind != "composite" or not is_composite(op):
            return Covered(name, "through functional form", str(variant.functional))
    if is_composite(op):
        return Covered(name, "composite")
    if (family := leaf(name)) is not None:
        return Covered(name, "leaf", family.family)
    return Covered(name, "rest")


def survey() -> list[Covered]:
    """Every overload of ATen that this torch has, classified."""
    table = decompositions(random="philox")
    return [classify(op, table) for op in aten_overloads()]
