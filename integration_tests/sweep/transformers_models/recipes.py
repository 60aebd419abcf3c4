"""Configurations and inputs that no cutting by names finds: sizes that have to fit each other.

In: a class's name. Out: a `Recipe`, or None. Invariant: a recipe only says sizes and which inputs
there are; what it builds is judged like any other model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from integration_tests.sweep.cases import Inputs
from integration_tests.sweep.transformers_models.draws import BATCH, LENGTH
from integration_tests.sweep.transformers_models.forms import FORMS, VOCABULARY, changes_of

Make = Callable[[], Any]
IMAGE_TOKEN = VOCABULARY - 2


@dataclass(frozen=True)
class Recipe:
    """`settings` on top of a form (None: of the library's defaults); parts of a configuration are
    mappings in it. `inputs` by name."""

    inputs: Mapping[str, Make]
    settings: Mapping[str, Any] = field(default_factory=dict)
    form: str | None = "small"

    def config(self, config_class: Any) -> Any:
        """The configuration."""
        changes = changes_of(config_class(), FORMS[self.form]) if self.form is not None else {}
        return config_class(**_merged(changes, self.settings))

    def draw(self) -> Inputs:
        """New inputs."""
        return {name: make() for name, make in self.inputs.items()}


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(under)
    for name, value in over.items():
        known = found.get(name)
        both = isinstance(value, Mapping) and isinstance(known, Mapping)
        # a copy: the library takes entries out of what it is given
        found[name] = _merged(known, value) if both else copy.deepcopy(value)  # type: ignore[arg-type]
    return found


def ids(*shape: int, below: int = VOCABULARY - 16) -> Make:
    """Token ids, none of them special."""
    return lambda: torch.randint(8, below, shape or (BATCH, LENGTH))


def ones(*shape: int) -> Make:
    return lambda: torch.ones(shape or (BATCH, LENGTH), dtype=torch.long)


def noise(*shape: int) -> Make:
    return lambda: torch.randn(shape)


def image(size: int, *before: int) -> Make:
    return lambda: torch.rand(BATCH, *before, 3, size, size)


def ids_with_images(count: int) -> Make:
    """A text that begins with the places of an image."""

    def make() -> torch.Tensor:
        text = ids(BATCH, count + 8)()
        text[:, :count] = IMAGE_TOKEN
        return text

    return make


TEXT: dict[str, Make] = {"input_ids": ids(), "attention_mask": ones()}
_MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_chunk_size": 8}
_HYBRID = {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]}
_QFORMER = {"num_query_tokens": 4, "image_token_index": IMAGE_TOKEN}
_SECTIONS = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [3, 3, 2]}
_COMPASS = {"full_attention": _SECTIONS, "sliding_attention": _SECTIONS}
_CODES = {"hidden_size": 16, "num_filters": 4, "downsampling_ratios": [2, 4], "depths": [1, 1, 1]}
_SAM = {
    "vision_config": {"image_size": 128, "patch_size": 16, "hidden_size": 64, "mlp_dim": 128,
                      "num_hidden_layers": 2, "num_attention_heads": 4, "global_attn_indexes": [1],
                      "window_size": 4, "output_channels": 32, "num_pos_feats": 16},
    "prompt_encoder_config": {"image_size": 128, "patch_size": 16, "hidden_size": 32,
                              "image_embedding_size": 8},
    "mask_decoder_config": {"hidden_size": 32, "mlp_dim": 64, "num_hidden_layers": 2,
                            "num_attention_heads": 4, "iou_head_hidden_dim": 32},
}  # fmt: skip
_HIERA = {
    "image_size": [128, 128], "hidden_size": 16, "embed_dim_per_stage": [16, 32, 64, 128],
    "blocks_per_stage": [1, 1, 2, 1], "num_attention_heads_per_stage": [1, 2, 4, 8],
    "global_attention_blocks": [3], "window_size_per_stage": [8, 4, 4, 4],
}  # fmt: skip
_HIERA_VISION = {
    "backbone_config": _HIERA, "backbone_channel_list": [128, 64, 32, 16], "fpn_hidden_size": 32,
    "backbone_feature_sizes": [[32, 32], [16, 16], [8, 8]],
}  # fmt: skip

RECIPES: dict[str, Recipe] = {
    "BambaModel": Recipe(TEXT, {**_MAMBA, "attn_layer_indices": [1]}),
    "FalconH1Model": Recipe(TEXT, {**_MAMBA, "mamba_d_ssm": 128}),
    "NemotronHModel": Recipe(
        TEXT,
        {"mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 1, "ssm_state_size": 16,
         "chunk_size": 8, "moe_shared_expert_intermediate_size": 64},
    ),
    "Zamba2Model": Recipe(
        TEXT,
        {"num_hidden_layers": 3, "mamba_d_state": 16, "n_mamba_heads": 8, "mamba_headdim": 16,
         "chunk_size": 8, "num_mem_blocks": 1, "attention_hidden_size": 128,
         "attention_head_dim": 32, "layers_block_type": ["linear_attention", "hybrid", "hybrid"],
         "hybrid_layer_ids": [1, 2], "num_key_value_heads": 4},
    ),
    "GraniteMoeHybridModel": Recipe(TEXT, {**_MAMBA, **_HYBRID}),
    "Mamba2Model": Recipe(
        {"input_ids": ids()},
        {"num_heads": 8, "head_dim": 16, "n_groups": 1, "state_size": 16, "chunk_size": 8},
    ),
    "DbrxModel": Recipe(
        TEXT,
        {"d_model": 64, "n_heads": 4, "n_layers": 2, "max_seq_len": 64, "vocab_size": VOCABULARY,
         "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0},
         "ffn_config": {"hidden_size": 64, "ffn_hidden_size": 64, "moe_num_experts": 4,
                        "moe_top_k": 2, "ffn_act_fn": {"name": "silu"}}},
        form=None,
    ),
    "XmodModel": Recipe(TEXT, {"default_language": "en_XX"}),
    "BltModel": Recipe(
        {"input_ids": ids(below=200), "use_cache": lambda: False},
        {"encoder_config": {"hidden_size_global": 64}, "decoder_config": {"hidden_size_global": 64},
         "encoder_hash_byte_group_vocab": 512},
    ),
    "HunYuanVLTextModel": Recipe(
        TEXT,
        {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                             "mrope_section": [2, 2, 2, 2]}, "head_dim": 16},
    ),
    "CohereCompassTextModel": Recipe(
        TEXT,
        {"layer_types": ["sliding_attention", "full_attention"], "rope_parameters": _COMPASS},
    ),
    "ReformerModel": Recipe(
        {"input_ids": ids(BATCH, 64)},
        {"axial_pos_shape": (8, 8), "axial_pos_embds_dim": (16, 48), "hidden_size": 64,
         "attention_head_size": 16, "num_attention_heads": 4, "feed_forward_size": 128,
         "attn_layers": ["local", "lsh"], "local_attn_chunk_length": 16,
         "lsh_attn_chunk_length": 16, "num_buckets": 4},
    ),
    "Blip2Model": Recipe(
        {"pixel_values": image(64), "input_ids": ids_with_images(4)}, _QFORMER
    ),
    "InstructBlipModel": Recipe(
        {"pixel_values": image(64), "qformer_input_ids": ids(BATCH, 8),
         "input_ids": ids_with_images(4)},
        _QFORMER,
    ),
    "InstructBlipVideoModel": Recipe(
        {"pixel_values": image(64, 2), "qformer_input_ids": ids(BATCH, 8),
         "input_ids": ids_with_images(8)},
        {**_QFORMER, "video_token_index": IMAGE_TOKEN},
    ),
    "Kosmos2Model": Recipe(
        {"pixel_values": image(64), "input_ids": ids(),
         "image_embeds_position_mask": lambda: (torch.arange(LENGTH) < 4).repeat(BATCH, 1)},
        {"latent_query_num": 4,
         "text_config": {"embed_dim": 64, "layers": 2, "ffn_dim": 128, "attention_heads": 4}},
    ),
    "IdeficsModel": Recipe(
        {**TEXT, "pixel_values": image(64, 1), "image_attention_mask": ones(BATCH, LENGTH, 1)},
        {"vision_config": {"embed_dim": 64, "patch_size": 16}},
    ),
    "ClvpModelForConditionalGeneration": Recipe(
        {"input_ids": ids(BATCH, 8, below=200), "input_features": noise(BATCH, 80, 64)},
        {"decoder_config": {"feature_size": 80, "vocab_size": 256, "bos_token_id": 254,
                            "eos_token_id": 255},
         "text_config": {"num_attention_heads": 2}, "speech_config": {"num_attention_heads": 2}},
    ),
    "VibeVoiceForConditionalGeneration": Recipe(
        TEXT,
        {"audio_config": _CODES, "semantic_model_config": _CODES,
         "diffusion_head_config": {"latent_size": 16}},
    ),
    "PerceptionLMModel": Recipe(
        TEXT,
        {"vision_config": {"model_type": "timm_wrapper", "architecture": "vit_tiny_patch16_224",
                           "model_args": {"embed_dim": 192, "depth": 2, "img_size": [64, 64]}},
         "image_token_id": IMAGE_TOKEN, "video_token_id": IMAGE_TOKEN + 1},
    ),
    "PPOCRV6SmallDetModel": Recipe(
        {"pixel_values": image(64)},
        {"backbone_config": {"model_type": "pp_lcnet_v4", "out_indices": [1, 2, 3, 4],
                             "block_configs": [
                                 [[3, 96, 96, 1, True]], [[3, 96, 96, 2, False]],
                                 [[3, 96, 192, 2, False]], [[3, 192, 384, 2, False]]]},
         "layer_list_out_channels": [96, 96, 192, 384]},
        form=None,
    ),
    "DiffusionGemmaModel": Recipe(
        {"input_ids": ids(), "decoder_input_ids": ids()},
        {"vision_config": {"model_type": "gemma4_vision", "hidden_size": 64, "head_dim": 16,
                           "num_hidden_layers": 2, "num_attention_heads": 4,
                           "num_key_value_heads": 4, "intermediate_size": 128},
         "text_config": {"num_hidden_layers": 2, "per_layer_config": None, "num_experts": 4,
                         "top_k_experts": 2, "moe_intermediate_size": 32,
                         "layer_types": ["sliding_attention", "full_attention"]}},
    ),
    "MuseGlimmerVisionModel": Recipe(
        {"pixel_values": noise(32, 3 * 2 * 14 * 14),
         "grid_thw": lambda: torch.tensor([[1, 4, 4], [1, 4, 4]])},
        {"num_hidden_layers": 2, "layer_types": ["window_attention", "full_attention"]},
    ),
    "PeAudioModel": Recipe(
        {"input_ids": ids(), "attention_mask": ones(), "input_values": noise(BATCH, 1, 3200)}
    ),
    "DiaModel": Recipe(
        {"input_ids": ids(below=200), "decoder_input_ids": ids(BATCH, 8, 9)},
        {"decoder_config": {"cross_hidden_size": 64, "cross_num_attention_heads": 4,
                            "cross_num_key_value_heads": 4, "cross_head_dim": 16}},
    ),
    "SpeechT5Model": Recipe(
        {"input_values": noise(BATCH, 12, 64), "decoder_input_values": noise(BATCH, 8, 64)}
    ),
    "PerceiverModel": Recipe(
        {"inputs": noise(BATCH, 24, 64)},
        {"num_latents": 8, "d_latents": 64, "num_self_attends_per_block": 2, "d_model": 64},
    ),
    "FunAsrNanoEncoder": Recipe(
        {"input_features": noise(BATCH, 24, 560), "input_features_mask": ones(BATCH, 24)},
        {"num_timestamp_prediction_layers": 1},
    ),
    "Qwen3ASREncoder": Recipe(
        {"input_features": noise(BATCH, 16, 200), "input_features_mask": ones(BATCH, 200)},
        {"num_mel_bins": 16, "n_window_infer": 100, "output_dim": 64,
         "downsample_hidden_size": 16},
    ),
    "VibeVoiceAcousticTokenizerEncoderModel": Recipe(
        {"hidden_states": noise(BATCH, 1, 3200)},
        _CODES,
    ),
    "VibeVoiceAcousticTokenizerDecoderModel": Recipe(
        {"hidden_states": noise(BATCH, 16, 20)},
        _CODES,
    ),
    "EfficientNetModel": Recipe(
        {"pixel_values": image(64)},
        {"width_coefficient": 0.5, "depth_coefficient": 0.5, "hidden_dim": 640},
        form=None,
    ),
    "DepthProModel": Recipe(
        {"pixel_values": image(128)},
        {"patch_size": 32, "fusion_hidden_size": 16, "intermediate_hook_ids": [1, 0],
         "intermediate_feature_dims": [8, 8], "scaled_images_feature_dims": [16, 16, 8],
         **{part: {"model_type": "dinov2", "hidden_size": 32, "num_hidden_layers": 2,
                   "num_attention_heads": 2, "image_size": 32, "patch_size": 8}
            for part in ("image_model_config", "patch_model_config", "fov_model_config")}},
        form=None,
    ),
    "TvpModel": Recipe(
        {"pixel_values": lambda: torch.rand(1, 2, 3, 64, 64), "input_ids": ids(1, LENGTH),
         "attention_mask": ones(1, LENGTH)},
        {"max_img_size": 64, "visual_prompt_size": 8, "num_frames": 2,
         "backbone_config": {"model_type": "resnet", "embedding_size": 16, "depths": [1, 1],
                             "hidden_sizes": [32, 64], "layer_type": "basic",
                             "out_features": ["stage2"], "out_indices": [2]}},
    ),
    "SegGptModel": Recipe(
        {"pixel_values": image(64), "prompt_pixel_values": image(64), "prompt_masks": image(64)},
        {"image_size": [128, 64], "patch_size": 16, "pretrain_image_size": 64, "hidden_size": 64,
         "num_hidden_layers": 5, "num_attention_heads": 4, "mlp_dim": 128, "merge_index": 0,
         "intermediate_hidden_state_indices": [1, 2, 3, 4]},
        form=None,
    ),
    "LwDetrModel": Recipe(
        {"pixel_values": image(64)},
        {"backbone_config": {"model_type": "lw_detr_vit", "hidden_size": 48, "image_size": 64,
                             "num_hidden_layers": 4, "num_attention_heads": 4, "patch_size": 16,
                             "pretrain_image_size": 64, "num_windows": 4,
                             "window_block_indices": [0, 2], "out_indices": [2, 4]},
         "d_model": 32, "num_queries": 8, "decoder_ffn_dim": 64, "num_feature_levels": 1,
         "decoder_layers": 2, "decoder_self_attention_heads": 4, "group_detr": 2,
         "decoder_cross_attention_heads": 4, "projector_scale_factors": [1.0]},
        form=None,
    ),
    "RfDetrModel": Recipe(
        {"pixel_values": image(64)},
        {"backbone_config": {"model_type": "rf_detr_dinov2", "hidden_size": 48, "image_size": 64,
                             "num_hidden_layers": 4, "num_attention_heads": 4, "patch_size": 16,
                             "num_windows": 2, "window_block_indexes": [0, 2],
                             "out_indices": [2, 4]},
         "d_model": 32, "num_queries": 8, "decoder_ffn_dim": 64, "decoder_layers": 2,
         "decoder_self_attention_heads": 4, "decoder_cross_attention_heads": 4, "group_detr": 2},
        form=None,
    ),
    "VibeVoiceAcousticTokenizerModel": Recipe({"input_values": noise(BATCH, 1, 3200)}, _CODES),
    "CohereCompassModel": Recipe(
        TEXT,
        {"text_config": {"layer_types": ["sliding_attention", "full_attention"],
                         "rope_parameters": _COMPASS}},
    ),
    "HunYuanVLModel": Recipe(
        TEXT,
        {"text_config": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                                             "mrope_section": [2, 2, 2, 2]}, "head_dim": 16},
         "image_token_id": IMAGE_TOKEN},
    ),
    "Granite4VisionModel": Recipe(
        TEXT,
        {"text_config": {"model_type": "granite", "hidden_size": 64, "num_hidden_layers": 2,
                         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
                         "vocab_size": VOCABULARY, "intermediate_size": 128},
         "image_token_index": IMAGE_TOKEN, "deepstack_layer_map": [(0, 0)],
         "spatial_target_layers": [0, 1, 1, 1], "downsample_rate": "1/2"},
        form=None,
    ),
    "DeepseekOcr2Model": Recipe(
        TEXT,
        {"text_config": {"mlp_layer_types": ["dense", "sparse"], "num_experts_per_tok": 2,
                         "n_routed_experts": 4, "n_shared_experts": 1}},
    ),
    "Qwen4ExpModel": Recipe(
        TEXT,
        {"text_config": {"num_hidden_layers": 2, "linear_num_key_heads": 2,
                         "linear_num_value_heads": 4, "linear_key_head_dim": 16,
                         "linear_value_head_dim": 16,
                         "layer_types": ["linear_attention", "qwen_sparse_attention"],
                         "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 16,
                         "indexer_budget": 8, "indexer_compress_ratio": 2}},
    ),
    "MoonshineStreamingModel": Recipe(
        {"input_values": noise(BATCH, 3200), "decoder_input_ids": ids(BATCH, 8)},
        {"num_key_value_heads": 4, "pad_head_dim_to_multiple_of": None},
    ),
    "UVDocModel": Recipe(
        {"pixel_values": image(128)},
        {"backbone_config": {"model_type": "uvdoc_backbone", "out_indices": [1, 2, 3, 4, 5, 6]}},
        form=None,
    ),
    "VisionTextDualEncoderModel": Recipe(
        {**TEXT, "pixel_values": image(64)},
        {"text_config": {"model_type": "bert", "hidden_size": 64, "num_hidden_layers": 2,
                         "num_attention_heads": 4, "intermediate_size": 128,
                         "vocab_size": VOCABULARY},
         "vision_config": {"model_type": "vit", "hidden_size": 64, "num_hidden_layers": 2,
                           "num_attention_heads": 4, "intermediate_size": 128, "image_size": 64}},
        form=None,
    ),
    "Xcodec2Model": Recipe(
        {"input_values": noise(BATCH, 1, 3200), "input_features": noise(BATCH, 10, 160)},
        {"semantic_model_config": {"feature_projection_input_dim": 160}},
        form="narrow",
    ),
    "Sam3TrackerModel": Recipe(
        {"pixel_values": image(112)},
        {"vision_config": {"backbone_config": {"image_size": 112, "patch_size": 14,
                           "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                           "num_attention_heads": 4, "window_size": 4, "pretrain_image_size": 112,
                           "global_attn_indexes": [1]}, "fpn_hidden_size": 32,
                           "backbone_feature_sizes": [[32, 32], [16, 16], [8, 8]]},
         "prompt_encoder_config": {"hidden_size": 32, "image_size": 112, "patch_size": 14},
         "mask_decoder_config": {"hidden_size": 32, "mlp_dim": 64, "num_attention_heads": 4,
                                 "iou_head_hidden_dim": 32}},
        form=None,
    ),
    "MuseGlimmerAssistantModel": Recipe(
        {"noise_embeds": noise(BATCH, 16, 64), "context_hidden_states": noise(BATCH, 16, 5 * 64)},
    ),
    "T5Gemma2Encoder": Recipe(TEXT, {"dropout_rate": 0.0, "text_config": {"dropout_rate": 0.0}}),
    "NeuCodecModel": Recipe(
        {"input_values": noise(BATCH, 1, 3200), "input_features": noise(BATCH, 10, 160)},
        {"semantic_model_config": {"feature_projection_input_dim": 160}},
        form="narrow",
    ),
    "SamModel": Recipe({"pixel_values": image(128)}, _SAM, form=None),
    "SamHQModel": Recipe(
        {"pixel_values": image(128)},
        {**_SAM, "mask_decoder_config": {**_SAM["mask_decoder_config"], "vit_dim": 64}},
        form=None,
    ),
    "Sam2HieraDetModel": Recipe({"pixel_values": image(128)}, _HIERA, form=None),
    "Sam2VisionModel": Recipe({"pixel_values": image(128)}, _HIERA_VISION, form=None),
    "Sam2Model": Recipe(
        {"pixel_values": image(128)},
        {"vision_config": _HIERA_VISION,
         "prompt_encoder_config": {"image_size": 128, "patch_size": 16, "hidden_size": 32},
         "mask_decoder_config": {"hidden_size": 32, "mlp_dim": 64, "num_attention_heads": 4,
                                 "iou_head_hidden_dim": 32}},
        form=None,
    ),
}  # fmt: skip
