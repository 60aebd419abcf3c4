"""Input facts that functional wrappers do not show.

What comes in: the stand-ins of a trace. What goes out: one `InputFacts`, by `id` of the tensors
that the program is handed.
Invariant: the tensors outlive it, so that an `id` means one of them alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from flambeau_aot.inputs.binding import SyntheticBaseView
from flambeau_aot.inputs.functional_inputs import FunctionalInput
from flambeau_aot.intercept.inplace import has_gaps


@dataclass(frozen=True)
class InputFacts:
    """Inputs by what they are.

    leaves: for each input, whether it is a leaf that requires grad. viewing_leaves: leaves that are
    views, should they begin to require grad. views_of_leaves: views of other leaves. ambiguous:
    views made with grad disabled. is_view: for each input that no other one is a view of, whether
    it is a view. sharing: inputs that share memory which is written to, and require no grad.
    offsets: where inputs begin in their storage. gaps: those with memory between their elements,
    and their values.
    """

    leaves: Mapping[int, bool]
    viewing_leaves: frozenset[int]
    views_of_leaves: frozenset[int]
    ambiguous: frozenset[int]
    is_view: Mapping[int, bool]
    sharing: frozenset[int]
    offsets: Mapping[int, int | torch.SymInt]
    gaps: Sequence[tuple[torch.Tensor, torch.Tensor]]


def known_inputs(
    stand_ins: Sequence[FunctionalInput], parts: Sequence[SyntheticBaseView]
) -> InputFacts:
    """What is known of the inputs of these stand-ins; `parts` are those cut from another one."""
    by_id = {id(item.wrapper): item for item in stand_ins}
    leaves = {key: item.is_leaf and item.leaf is not None for key, item in by_id.items()}
    leaves |= {id(part.wrapper): False for part in parts if not part.member.whole}
    return InputFacts(
        leaves=leaves,
        viewing_leaves=frozenset(k for k, i in by_id.items() if i.is_leaf and not i.cast_once),
        views_of_leaves=frozenset(key for key, item in by_id.items() if item.of_leaf),
        ambiguous=frozenset(key for key, item in by_id.items() if item.ambiguous),
        is_view={key: item.is_view for key, item in by_id.items() if not item.has_views},
        sharing=frozenset(id(part.wrapper) for part in parts if not part.requires_grad),
        offsets={key: item.value.storage_offset() for key, item in by_id.items()},
        gaps=[(item.wrapper, item.value) for item in stand_ins if has_gaps(item.value)],
    )
