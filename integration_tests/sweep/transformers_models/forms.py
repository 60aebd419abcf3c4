"""Configurations of transformers cut down to what a sweep can afford.

In: a configuration class and the name of a form. Out: a configuration. Invariant: sizes, depths and
vocabularies are cut down by the name of the setting, never by the name of the model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

VOCABULARY = 320

DEPTH = (
    "num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers", "n_layers",
    "num_encoder_layers", "num_decoder_layers", "decoder_num_hidden_layers", "depth",
    "encoder_num_hidden_layers", "num_blocks", "t2u_encoder_layers", "t2u_decoder_layers",
    "speech_encoder_layers", "num_block_repeats", "text_encoder_layers", "num_hidden_groups",
)  # fmt: skip
WIDTH = (
    "hidden_size", "d_model", "n_embd", "embed_dim", "embedding_size", "emb_dim", "dim",
    "hidden_dim", "projection_dim", "encoder_hidden_size", "decoder_hidden_size",
    "embedding_dim", "cross_attention_hidden_size", "word_embed_proj_dim", "pooler_hidden_size",
)  # fmt: skip
HEADS = (
    "num_attention_heads", "n_head", "num_heads", "encoder_attention_heads", "n_heads",
    "decoder_attention_heads", "decoder_num_attention_heads", "encoder_num_attention_heads",
)  # fmt: skip
KV_HEADS = ("num_key_value_heads", "num_kv_heads")
HEAD_DIM = ("head_dim", "d_kv", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
RANKS = ("kv_lora_rank", "q_lora_rank")
INNER = (
    "intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "ffn_dim", "mlp_dim",
    "moe_intermediate_size", "ffn_hidden_size", "decoder_intermediate_size", "n_inner", "dff",
    "shared_expert_intermediate_size", "dim_feedforward", "inner_dim", "shared_intermediate_size",
)  # fmt: skip
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
#: lists with an entry for each layer, which the class makes itself for another number of layers
PER_LAYER = ("layer_types", "mlp_layer_types", "block_types", "layers_block_type")


@dataclass(frozen=True)
class Form:
    """How much is cut. None: left as it is. `whole`: layers of every kind are kept, and settings
    that are left open are filled."""

    depth: int | None
    inner: int | None
    width: int | None
    heads: int | None
    head_dim: int | None
    whole: bool = False


#: settings that a class leaves open and its layers need: a value, or the setting that has it
OPEN: dict[str, Any] = {
    "vocab_size": VOCABULARY, "prediction_length": 8, "num_key_value_heads": "num_attention_heads",
    "num_experts_per_tok": 2, "n_shared_experts": 1, "n_routed_experts": 4, "num_experts": 4,
    "first_k_dense_replace": 1, "sliding_window": 8, "pad_token_id": 0, "mask_token_id": 1,
    "vocabulary_map": {"<image>": 3}, "backbone": "resnet18", "top_k_experts": 2,
}  # fmt: skip
DEEPEST = 8  # layers, where layers of several kinds need more than a form has


#: the first that a model can be built and run in is taken
FORMS = {
    "small": Form(depth=2, inner=128, width=64, heads=4, head_dim=16),
    "small and whole": Form(depth=2, inner=128, width=64, heads=4, head_dim=16, whole=True),
    "thin": Form(depth=2, inner=128, width=256, heads=2, head_dim=None),
    "equal": Form(depth=2, inner=128, width=64, heads=4, head_dim=None),
    "even and whole": Form(depth=2, inner=128, width=128, heads=2, head_dim=64, whole=True),
    "flat": Form(depth=None, inner=128, width=64, heads=4, head_dim=16),
    "flat and whole": Form(depth=None, inner=128, width=64, heads=4, head_dim=16, whole=True),
    "narrow": Form(depth=2, inner=128, width=None, heads=None, head_dim=None),
    "narrow and whole": Form(2, inner=128, width=None, heads=None, head_dim=None, whole=True),
    "shallow": Form(depth=2, inner=None, width=None, heads=None, head_dim=None),
}


def shrunk(config_class: Any, form: str) -> Any:
    """A configuration cut down to a form."""
    return config_class(**changes_of(config_class(), FORMS[form]))


def changes_of(config: Any, form: Form) -> dict[str, Any]:
    if form.whole:
        form = replace(form, depth=_depth(config, form))
    changes: dict[str, Any] = {}
    for name, value in vars(config).items():
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            changes[name] = {**value.to_dict(), **changes_of(value, form)}
            if set(DEPTH) & set(changes[name]) and form.depth is not None and not form.whole:
                for derived in PER_LAYER:
                    changes[name].pop(derived, None)
    table = _table(config, form)
    for name, small in table.items():
        for spelled in (name, config.attribute_map.get(name)):
            value = _setting(config, spelled) if spelled else None
            if isinstance(getattr(type(config), str(spelled), None), property):
                continue  # computed from other settings
            if isinstance(value, int) and not isinstance(value, bool) and value > small:
                changes[spelled] = small  # type: ignore[index]
    for name, value in vars(config).items():
        special = name.endswith(("_token_id", "_token_index", "_id"))
        if special and isinstance(value, int) and "vocab_size" in changes:
            if value >= VOCABULARY:
                changes[name] = VOCABULARY - 1 - value % 7
        if name == "use_pretrained_backbone":
            changes[name] = False
        if name == "depths" and isinstance(value, list | tuple):
            changes[name] = [min(int(v), 2) for v in value]
        if name == "mask_time_length" and isinstance(value, int):
            changes[name] = min(value, 2)  # of a sequence that is as short as the inputs here
        if name == "vocab_size" and value is None:
            changes[name] = VOCABULARY
        if name == "prediction_length" and value is None:
            changes[name] = 8
        if name == "attn_layer_indices" and value is None and form.depth is not None:
            changes[name] = [form.depth - 1]
    return changes | _filled(config, form, changes) if form.whole else changes


def _setting(config: Any, name: str) -> Any:
    """A setting; None where layers have each their own."""
    try:
        return getattr(config, name, None)
    except Exception as error:  # a class of the library, which says that layers differ
        if "PerLayer" not in type(error).__name__:
            raise
        return None


def _depth(config: Any, form: Form) -> int | None:
    """Enough layers for one of every kind; all of them where layers are asked for by name."""
    features = getattr(config, "out_features", None)
    if form.depth is None or isinstance(features, list | tuple):
        return None
    depth = form.depth
    for name in PER_LAYER:
        kinds = _setting(config, name)
        if isinstance(kinds, list | tuple):
            first = [kinds.index(kind) + 1 for kind in set(kinds)]
            depth = max(depth, *(place for place in first if place <= DEEPEST), 0)
    return depth


def _filled(config: Any, form: Form, changes: dict[str, Any]) -> dict[str, Any]:
    """Settings that a class leaves open, and lists that have an entry for each layer."""
    added: dict[str, Any] = {}
    for name, value in vars(config).items():
        if value is None and name in OPEN:
            given = OPEN[name]
            added[name] = (
                changes.get(given, getattr(config, given, None))
                if isinstance(given, str) and hasattr(config, given)
                else given
            )
    layers = _setting(config, "num_hidden_layers")
    depth = changes.get("num_hidden_layers", layers)
    for name, value in vars(config).items():
        if isinstance(value, list | tuple) and len(value) == layers and depth is not None:
            small = form.inner if name in INNER else None
            cut = [min(v, small) if small else v for v in value[:depth]]
            added[name] = cut
    if isinstance(depth, int) and isinstance(getattr(config, "per_layer_config", None), dict):
        added["per_layer_config"] = {
            key: value for key, value in config.per_layer_config.items() if int(key) < depth
        }
    if "num_kv_shared_layers" in vars(config) and layers != depth:
        added["num_kv_shared_layers"] = 0
    kinds = added.get("layer_types", _setting(config, "layer_types"))
    if getattr(config, "rope_parameters", None) == {} and isinstance(kinds, list):
        rope = {"rope_type": "default", "rope_theta": 10000.0}
        added["rope_parameters"] = {kind: dict(rope) for kind in set(kinds)}
    if "layer_types" in vars(config) and kinds is None and depth is not None:
        added["layer_types"] = ["full_attention"] * depth
    heads = changes.get("num_attention_heads", _setting(config, "num_attention_heads"))
    width = changes.get("hidden_size", _setting(config, "hidden_size"))
    if "head_dim" in vars(config) and config.head_dim is None and heads and width:
        added["head_dim"] = width // heads
    if isinstance(getattr(config, "rotary_dim", None), int) and heads and width:
        added["rotary_dim"] = min(config.rotary_dim, width // heads)
    return added


def _table(config: Any, form: Form) -> dict[str, int]:
    """Settings, and what they are cut down to."""
    table: dict[str, int] = {}

    def cut(names: Iterable[str], size: int | None) -> None:
        if size is not None:
            table.update(dict.fromkeys(names, size))

    cut(DEPTH, form.depth)
    if form.depth is not None:  # where each so many layers are of another kind
        table |= {"attn_layer_period": 2, "attn_layer_offset": 1}
    if form.inner is not None:
        table |= {"vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 16}
        table |= {"text_vocab_size": VOCABULARY, "codebook_size": 256}
        table |= {"vocab_size": VOCABULARY, "max_position_embeddings": 128, "n_positions": 128}
        table |= dict.fromkeys(EXPERTS, 4) | {"num_experts_per_tok": 2, "image_size": 64}
        table |= {"n_group": 1, "topk_group": 1}
        cut(INNER, form.inner)
    lists = any(isinstance(getattr(config, name, None), list | tuple) for name in (*HEADS, *WIDTH))
    if not lists:
        cut(WIDTH, form.width)
        cut(HEADS, form.heads)
        latent = hasattr(config, "kv_lora_rank")  # every head has keys of its own
        cut(KV_HEADS, form.heads if latent else form.heads and 2)
        cut(HEAD_DIM, form.head_dim)
        cut(RANKS, form.width)
        cut(("qk_head_dim",), form.head_dim and 2 * form.head_dim)
    return table
