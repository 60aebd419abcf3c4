"""The rewrites of a captured graph, in order, before autograd is traced.

In: an FX graph of torch functions with fake values. Out: the same graph module, rewritten in place.
Invariant: each pass leaves a graph that runs as it is, so that whoever falls back to it gets the
answer too.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import fx

from flambeau_inductor.options import Options
from flambeau_inductor.passes.freezing import fold_batch_norms
from flambeau_inductor.pre_grad.constant_masks import drop_constant_masks
from flambeau_inductor.pre_grad.convolution_bias import add_biases_apart
from flambeau_inductor.pre_grad.encoder_layer import open_encoder_layers
from flambeau_inductor.pre_grad.fused_attention import fuse_attention
from flambeau_inductor.pre_grad.image_layout import channels_last
from flambeau_inductor.pre_grad.lstm import keep_recurrent

DEFAULT = Options()

PREPARATIONS: tuple[tuple[str, Callable[..., int], str | None], ...] = (
    ("keep_recurrent", keep_recurrent, None),
    ("open_encoder_layers", open_encoder_layers, None),
    ("drop_constant_masks", drop_constant_masks, "not deterministic"),
    ("fuse_attention", fuse_attention, "not deterministic"),
    ("fold_batch_norms", fold_batch_norms, "freezing"),
    ("channels_last", channels_last, "channels_last"),
    ("add_biases_apart", add_biases_apart, None),
)
"""Name, function, and the option that asks for it (None: always), or forbids it ("not ...")."""


def prepare(gm: fx.GraphModule, options: Options = DEFAULT) -> dict[str, int]:
    """Rewrite `gm` in place; how often each pass did something."""
    done: dict[str, int] = {}
    for name, rewrite, option in PREPARATIONS:
        asked = option is None or _asked(options, option)
        if asked and name not in options.skip_passes:
            frozen = {"packed": True} if options.freezing and rewrite is channels_last else {}
            done[name] = rewrite(gm, **frozen)
    return done


def _asked(options: Options, option: str) -> bool:
    name = option.removeprefix("not ")
    return bool(getattr(options, name)) == (name == option)
