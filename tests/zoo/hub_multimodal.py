"""Backbones of keras_hub with inputs of several kinds, or of sound or video, from small configurations."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from .hub import FEW, WORDS, part, with_sizes
from .hub_images import VAE_BLOCKS
from .registry import ids

listed = partial(with_sizes, "hub_multimodal")


def encoders(folder: str, name: str) -> dict[str, Any]:
    """Return the two encoders of CLIP or one of its successors."""
    vision, text = (f"{folder}_{kind.lower()}_encoder.{name}{kind}Encoder" for kind in ("Vision", "Text"))
    return {
        "vision_encoder": part(vision, image_shape=(32, 32, 3)),
        "text_encoder": part(text, max_sequence_length=8),
    }


listed("clip", "Radford et al., 2021: CLIP", "CLIPBackbone", **encoders("clip.clip", "CLIP"))
PAIRS = encoders("metaclip_2.metaclip_2", "MetaCLIP2")
listed("meta_clip2", "Chuang et al., 2025: MetaCLIP 2", "MetaCLIP2Backbone", **PAIRS)
PAIRS = {**encoders("siglip.siglip", "SigLIP"), "fixed": {"token_ids": (None, 8)}}
listed("sig_lip", "Zhai et al., 2023: SigLIP, texts of one length", "SigLIPBackbone", **PAIRS)
QUERYING = {
    "vision_encoder": part("blip2.blip2_vision_encoder.BLIP2VisionEncoder"),
    "qformer": part("blip2.blip2_qformer.BLIP2QFormer", cross_attention_frequency=2),
    "language_model": part("blip2.blip2_custom_opt.BLIP2CustomOPT"),
}
listed("blip2", "Li et al., 2023: BLIP-2, a querying transformer and OPT", "BLIP2Backbone", **QUERYING)
listed("pali_gemma", "Beyer et al., 2024: PaliGemma", "PaliGemmaBackbone", vit_intermediate_dim=16, **FEW)


def places() -> dict[str, np.ndarray]:
    """Samples of texts of 12 tokens, of which nine are those of an image."""
    indices = np.arange(1, 10, dtype="int32") + np.arange(3, dtype="int32")[:, None]
    mask = np.zeros((3, 12), "int32")
    np.put_along_axis(mask, indices, 1, axis=1)
    texts = {"token_ids": ids(WORDS, 3, 12), "padding_mask": np.ones((3, 12), "int32")}
    return {**texts, "vision_indices": indices, "vision_mask": mask}


def one_image() -> Mapping[str, np.ndarray]:
    return {**places(), "images": np.random.default_rng(0).uniform(0, 1, (3, 1, 12, 12, 3)).astype("float32")}


def patches() -> Mapping[str, np.ndarray]:
    grid = np.stack(np.meshgrid(range(6), range(6)), -1).reshape(36, 2).astype("int32")
    values = np.random.default_rng(0).uniform(-1, 1, (3, 1, 36, 12)).astype("float32")
    positions = {"position_ids": np.tile(np.arange(12, dtype="int32"), (3, 1))}
    return {**places(), **positions, "pixel_values": values, "pixel_position_ids": np.tile(grid, (3, 1, 1, 1))}


VISION = {"image_size": 12, "patch_size": 2, "pool_size": 2, "num_layers": 1, "hidden_dim": 8, "output_dim": 16}
WINDOWS = {
    "num_layers": 6, "use_sliding_window_attention": True, "sliding_window_size": 6, "use_post_ffw_norm": True, **FEW,
    "vision_encoder": part("gemma3.gemma3_vision_encoder.Gemma3VisionEncoder", **VISION), "image_size": 12,
    "samples": one_image, "fixed": {"images": (None, 1, 12, 12, 3), "vision_indices": (None, 9)}, "nightly": True,
}  # fmt: skip
listed("gemma3", "Gemma Team, 2025: Gemma 3, an image in the text, sliding windows", "Gemma3Backbone", **WINDOWS)
SHARED = {"layer_types": ["sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 2}
SHARED |= {"hidden_size_per_layer_input": 4, "vocab_size_per_layer_input": WORDS, "nightly": True}
EXPERTS = {
    "vision_encoder": part("gemma4.gemma4_vision_encoder.Gemma4VisionEncoder", head_dim=4, **VISION), "num_layers": 4,
    "enable_moe_block": True, "num_experts": 4, "expert_intermediate_dim": 8, "num_experts_per_token": 2,
    "sliding_window_size": 6, "global_head_dim": 16, "samples": patches, **FEW,
    "fixed": {"pixel_values": (None, 1, 36, 12), "pixel_position_ids": (None, 1, 36, 2), "vision_indices": (None, 9)},
}  # fmt: skip
listed("gemma4", "Google, 2026: Gemma 4, an image in the text, experts", "Gemma4Backbone", **EXPERTS, **SHARED)
STREAMS = {
    "num_attention_heads": 4, "num_hidden_layers": 4, "intermediate_size": [32] * 4, "pad_token_id": 0,
    "altup_num_inputs": 2, "laurel_rank": 2, "activation_sparsity_pattern": [0.9, 0.0, 0.0, 0.0], "sliding_window": 6,
    "hidden_activation": "gelu_approximate",
}  # fmt: skip
listed("gemma3n", "Gemma Team, 2025: Gemma 3n, text, streams of residuals", "Gemma3nBackbone", **SHARED, **STREAMS)
SOUND = "Jeffries et al., 2024: Moonshine, Speech Recognition for Live Transcription, from samples of sound"
listed("moonshine", SOUND, "MoonshineBackbone", filter_dim=16, nightly=True)
VIDEO = {f"num_{kind}_layers": 1 for kind in ("spatial", "temporal", "auxiliary", "text")}
VIDEO |= {"num_frames": 4, "vocabulary_size": WORDS, "attention_logit_soft_cap": 50.0, "image_shape": (16, 16, 3)}
listed("video_prism", "Zhao et al., 2024: VideoPrism, videos and texts", "VideoPrismBackbone", **VIDEO)
SHAPES = {"image": (4, 8), "text": (6, 12), "image_ids": (4, 3), "text_ids": (6, 3), "y": (10,)}
FLOW = {f"{name}_shape": shape for name, shape in SHAPES.items()} | {"input_channels": 8, "hidden_size": 32}
FLOW |= {"depth": 1, "depth_single_blocks": 1, "axes_dim": [4, 6, 6], "guidance_embed": True}
listed("flux", "Black Forest Labs, 2024: FLUX.1, a transformer for rectified flow", "FluxBackbone", **FLOW)
BLOCKS = {f"{side}_num_{name}": size for side in ("encoder", "decoder") for name, size in VAE_BLOCKS.items()}
TEXT = partial(part, "clip.clip_text_encoder.CLIPTextEncoder", max_sequence_length=8, intermediate_output_index=-2)
STEP = {"clip_l": TEXT(name="clip_l"), "clip_g": TEXT(name="clip_g"), "mmdit_hidden_dim": 32, "mmdit_patch_size": 2}
STEP |= {"vae": part("vae.vae_backbone.VAEBackbone", sampler_method="mode", **BLOCKS), "image_shape": (32, 32, 3)}
STEP |= {"mmdit_qk_norm": "rms_norm", "mmdit_dual_attention_indices": (0,), "mmdit_position_size": 8, "nightly": True}
STEP |= {"samples": lambda: {"num_steps": np.full(3, 4, "int32")}}
listed("stable_diffusion", "Esser et al., 2024: Stable Diffusion 3, one step", "StableDiffusion3Backbone", **STEP)
SEEN = {"image_shape": (28, 28, 3), "patch_size": 14}
LEVELS = {"fpn_hidden_dim": 16, "fpn_scale_factors": [4.0, 2.0, 1.0, 0.5], "window_size": 2, "global_attn_indexes": [1]}
PARTS: dict[str, Any] = {
    "vision_encoder": {**LEVELS, **SEEN}, "text_encoder": {"max_sequence_length": 8}, "detr_encoder": {},
    "geometry_encoder": {"roi_size": 7}, "detr_decoder": {"num_queries": 8, **SEEN},
    "mask_decoder": {"num_upsampling_stages": 3},
}  # fmt: skip
CONCEPTS = {
    **{kind: part(f"sam3.sam3_{kind}.SAM3{kind.title().replace('_', '')}", **sizes) for kind, sizes in PARTS.items()},
    # keras_hub's mask of boxes has no axis of queries, so that it fits one image only
    "fixed": {"pixel_values": (1, 28, 28, 3), "boxes": (1, 2, 5), "box_labels": (1, 2)}
    | dict.fromkeys(["token_ids", "padding_mask"], (1, 8)),
    "samples": lambda: {"boxes": np.array([[[0, 0.5, 0.5, 0.4, 0.6], [0, 0.3, 0.4, 0.2, 0.5]]], "float32")},
}
SAM3 = "Carion et al., 2025: SAM 3, Segment Anything with Concepts, an image and two boxes"
listed("segment_concepts", SAM3, "SAM3PromptableConceptBackbone", nightly=True, **CONCEPTS)
