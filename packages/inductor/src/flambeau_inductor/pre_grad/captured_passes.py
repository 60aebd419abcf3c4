"""The passes on a captured graph, in order, before autograd is traced.

In: an FX graph of torch functions with fake values. Out: the same graph module, rewritten in place.
Invariant: each pass leaves a graph that runs as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import fx

from flambeau_inductor.driver import Pass, PassContext, run_passes
from flambeau_inductor.options import Options, settled
from flambeau_inductor.passes.rewriter import Rule, rewrite_module
from flambeau_inductor.pre_grad import attention, convolutions
from flambeau_inductor.pre_grad.attention import (
    drop_constant_masks,
    fuse_attention,
    fuse_strided_attention,
)
from flambeau_inductor.pre_grad.image_layout import channels_last
from flambeau_inductor.pre_grad.lstm import keep_recurrent

DEFAULT = Options()

CapturedPass = Pass[PassContext, fx.GraphModule]


def _pass(
    name: str, rewrite: Callable[..., int], when: Callable[[Options], bool] = lambda options: True
) -> CapturedPass:
    return Pass(name, lambda context, gm: (gm, rewrite(gm, ledger=context.ledger)), when)


def _rules(name: str, rules: Sequence[Rule]) -> CapturedPass:
    return _pass(name, lambda gm, ledger: rewrite_module(gm, rules, ledger))


def _channels_last(context: PassContext, gm: fx.GraphModule) -> tuple[fx.GraphModule, int]:
    return gm, channels_last(gm, packed=context.options.freezing)


CAPTURED_PASSES: tuple[CapturedPass, ...] = (
    _pass("keep_recurrent", keep_recurrent),
    _rules("open_encoder_layers", attention.RULES),
    _pass("drop_constant_masks", drop_constant_masks, lambda o: not o.deterministic),
    _pass("fuse_strided_attention", fuse_strided_attention, lambda o: not o.deterministic),
    _pass("fuse_attention", fuse_attention, lambda o: not o.deterministic),
    _pass("fold_batch_norms", convolutions.fold_batch_norms, lambda o: o.freezing),
    Pass("channels_last", _channels_last, lambda o: o.channels_last),
    _rules("separate_convolution_biases", convolutions.RULES),
)


def prepare(gm: fx.GraphModule, options: Options = DEFAULT) -> dict[str, int]:
    """Rewrite `gm` in place; how often each pass that ran did something."""
    context = PassContext(options=settled(options))
    run_passes(context, "captured", CAPTURED_PASSES, gm, lambda gm: gm.graph.lint())
    return context.changed
