"""The passes on a captured graph, in order, before autograd is traced.

In: an FX graph of torch functions with fake values. Out: the same graph module, rewritten in place.
Invariant: each pass leaves a graph that runs as it is.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import fx

from flambeau_inductor.driver import Pass, PassContext, run_passes
from flambeau_inductor.options import Options, settled
from flambeau_inductor.pre_grad.attention import drop_constant_masks, fuse_attention
from flambeau_inductor.pre_grad.convolutions import fold_batch_norms, separate_convolution_biases
from flambeau_inductor.pre_grad.encoder_layer import open_encoder_layers
from flambeau_inductor.pre_grad.image_layout import channels_last
from flambeau_inductor.pre_grad.lstm import keep_recurrent

DEFAULT = Options()

InPlace = Callable[[PassContext, fx.GraphModule], tuple[fx.GraphModule, int]]


def _rewriting(rewrite: Callable[..., int]) -> InPlace:
    return lambda context, gm: (gm, rewrite(gm, ledger=context.ledger))


def _channels_last(context: PassContext, gm: fx.GraphModule) -> tuple[fx.GraphModule, int]:
    return gm, channels_last(gm, packed=context.options.freezing)


CAPTURED_PASSES: tuple[Pass[PassContext, fx.GraphModule], ...] = (
    Pass("keep_recurrent", _rewriting(keep_recurrent)),
    Pass("open_encoder_layers", _rewriting(open_encoder_layers)),
    Pass("drop_constant_masks", _rewriting(drop_constant_masks), lambda o: not o.deterministic),
    Pass("fuse_attention", _rewriting(fuse_attention), lambda o: not o.deterministic),
    Pass("fold_batch_norms", _rewriting(fold_batch_norms), lambda o: o.freezing),
    Pass("channels_last", _channels_last, lambda o: o.channels_last),
    Pass("separate_convolution_biases", _rewriting(separate_convolution_biases)),
)


def prepare(gm: fx.GraphModule, options: Options = DEFAULT) -> dict[str, int]:
    """Rewrite `gm` in place; how often each pass that ran did something."""
    context = PassContext(options=settled(options))
    run_passes(context, "captured", CAPTURED_PASSES, gm, lambda gm: gm.graph.lint())
    return context.changed
