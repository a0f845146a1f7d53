"""Backbones of keras_hub for images with texts, sound and video, in small configurations."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from .hub import FEW_HEADS, VOCABULARY_SIZE, add_backbone, part
from .hub_images import VAE_BLOCKS
from .registry import draw_ids

add = partial(add_backbone, "hub_multimodal")


def clip_encoders(module: str, name: str) -> dict[str, Any]:
    """Return builders of the encoders of CLIP or of a successor of CLIP."""
    vision, text = (f"{module}_{kind.lower()}_encoder.{name}{kind}Encoder" for kind in ("Vision", "Text"))
    return {
        "vision_encoder": part(vision, image_shape=(32, 32, 3)),
        "text_encoder": part(text, max_sequence_length=8),
    }


add("clip", "Radford et al., 2021: CLIP", "CLIPBackbone", **clip_encoders("clip.clip", "CLIP"))
META_CLIP = clip_encoders("metaclip_2.metaclip_2", "MetaCLIP2")
add("meta_clip2", "Chuang et al., 2025: MetaCLIP 2", "MetaCLIP2Backbone", **META_CLIP)
SIG_LIP = {**clip_encoders("siglip.siglip", "SigLIP"), "fixed": {"token_ids": (None, 8)}}
add("sig_lip", "Zhai et al., 2023: SigLIP, texts of one length", "SigLIPBackbone", **SIG_LIP)
BLIP2 = {
    "vision_encoder": part("blip2.blip2_vision_encoder.BLIP2VisionEncoder"),
    "qformer": part("blip2.blip2_qformer.BLIP2QFormer", cross_attention_frequency=2),
    "language_model": part("blip2.blip2_custom_opt.BLIP2CustomOPT"),
}
add("blip2", "Li et al., 2023: BLIP-2, a querying transformer and OPT", "BLIP2Backbone", **BLIP2)
add("pali_gemma", "Beyer et al., 2024: PaliGemma", "PaliGemmaBackbone", vit_intermediate_dim=16, **FEW_HEADS)


def draw_texts() -> dict[str, np.ndarray]:
    """Return three texts of 12 tokens, of which nine belong to an image."""
    indices = np.arange(1, 10, dtype="int32") + np.arange(3, dtype="int32")[:, None]
    mask = np.zeros((3, 12), "int32")
    np.put_along_axis(mask, indices, 1, axis=1)
    texts = {"token_ids": draw_ids(VOCABULARY_SIZE, 3, 12), "padding_mask": np.ones((3, 12), "int32")}
    return {**texts, "vision_indices": indices, "vision_mask": mask}


def draw_gemma3_inputs() -> Mapping[str, np.ndarray]:
    return {**draw_texts(), "images": np.random.default_rng(0).uniform(0, 1, (3, 1, 12, 12, 3)).astype("float32")}


def draw_gemma4_inputs() -> Mapping[str, np.ndarray]:
    grid = np.stack(np.meshgrid(range(6), range(6)), -1).reshape(36, 2).astype("int32")
    values = np.random.default_rng(0).uniform(-1, 1, (3, 1, 36, 12)).astype("float32")
    positions = {"position_ids": np.tile(np.arange(12, dtype="int32"), (3, 1))}
    return {**draw_texts(), **positions, "pixel_values": values, "pixel_position_ids": np.tile(grid, (3, 1, 1, 1))}


VISION = {"image_size": 12, "patch_size": 2, "pool_size": 2, "num_layers": 1, "hidden_dim": 8, "output_dim": 16}
GEMMA3 = {
    "num_layers": 6, "use_sliding_window_attention": True, "sliding_window_size": 6, "use_post_ffw_norm": True,
    "vision_encoder": part("gemma3.gemma3_vision_encoder.Gemma3VisionEncoder", **VISION), "image_size": 12, **FEW_HEADS,
    "fixed": {"images": (None, 1, 12, 12, 3), "vision_indices": (None, 9)}, "samples": draw_gemma3_inputs,
}  # fmt: skip
SOURCE = "Gemma Team, 2025: Gemma 3, an image in the text, sliding windows"
add("gemma3", SOURCE, "Gemma3Backbone", nightly=True, **GEMMA3)
GEMMA_LAYERS = {"layer_types": ["sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 2}
GEMMA_LAYERS |= {"hidden_size_per_layer_input": 4, "vocab_size_per_layer_input": VOCABULARY_SIZE, "nightly": True}
GEMMA4 = {
    "vision_encoder": part("gemma4.gemma4_vision_encoder.Gemma4VisionEncoder", head_dim=4, **VISION), "num_layers": 4,
    "enable_moe_block": True, "num_experts": 4, "expert_intermediate_dim": 8, "num_experts_per_token": 2,
    "sliding_window_size": 6, "global_head_dim": 16, "samples": draw_gemma4_inputs, **FEW_HEADS,
    "fixed": {"pixel_values": (None, 1, 36, 12), "pixel_position_ids": (None, 1, 36, 2), "vision_indices": (None, 9)},
}  # fmt: skip
add("gemma4", "Google, 2026: Gemma 4, an image in the text, experts", "Gemma4Backbone", **GEMMA4, **GEMMA_LAYERS)
GEMMA3N = {
    "num_attention_heads": 4, "num_hidden_layers": 4, "intermediate_size": [32] * 4, "pad_token_id": 0,
    "altup_num_inputs": 2, "laurel_rank": 2, "activation_sparsity_pattern": [0.9, 0.0, 0.0, 0.0], "sliding_window": 6,
    "hidden_activation": "gelu_approximate",
}  # fmt: skip
add("gemma3n", "Gemma Team, 2025: Gemma 3n, text, streams of residuals", "Gemma3nBackbone", **GEMMA_LAYERS, **GEMMA3N)
MOONSHINE = "Jeffries et al., 2024: Moonshine, Speech Recognition for Live Transcription, from samples of sound"
add("moonshine", MOONSHINE, "MoonshineBackbone", filter_dim=16, nightly=True)
VIDEO = {f"num_{kind}_layers": 1 for kind in ("spatial", "temporal", "auxiliary", "text")} | {"num_frames": 4}
VIDEO |= {"vocabulary_size": VOCABULARY_SIZE, "attention_logit_soft_cap": 50.0, "image_shape": (16, 16, 3)}
add("video_prism", "Zhao et al., 2024: VideoPrism, videos and texts", "VideoPrismBackbone", **VIDEO)
FLUX_SHAPES = {"image": (4, 8), "text": (6, 12), "image_ids": (4, 3), "text_ids": (6, 3), "y": (10,)}
FLUX = {f"{name}_shape": shape for name, shape in FLUX_SHAPES.items()} | {"input_channels": 8, "hidden_size": 32}
FLUX |= {"depth": 1, "depth_single_blocks": 1, "axes_dim": [4, 6, 6], "guidance_embed": True}
add("flux", "Black Forest Labs, 2024: FLUX.1, a transformer for rectified flow", "FluxBackbone", **FLUX)
BLOCKS = {f"{side}_num_{name}": size for side in ("encoder", "decoder") for name, size in VAE_BLOCKS.items()}
CLIP = partial(part, "clip.clip_text_encoder.CLIPTextEncoder", max_sequence_length=8, intermediate_output_index=-2)
SD3 = {"clip_l": CLIP(name="clip_l"), "clip_g": CLIP(name="clip_g"), "mmdit_hidden_dim": 32, "mmdit_patch_size": 2}
SD3 |= {"vae": part("vae.vae_backbone.VAEBackbone", sampler_method="mode", **BLOCKS), "image_shape": (32, 32, 3)}
SD3 |= {"mmdit_qk_norm": "rms_norm", "mmdit_dual_attention_indices": (0,), "mmdit_position_size": 8, "nightly": True}
SD3 |= {"samples": lambda: {"num_steps": np.full(3, 4, "int32")}}
add("stable_diffusion", "Esser et al., 2024: Stable Diffusion 3, one step", "StableDiffusion3Backbone", **SD3)
PATCHES = {"image_shape": (28, 28, 3), "patch_size": 14}
FPN = {"fpn_hidden_dim": 16, "fpn_scale_factors": [4.0, 2.0, 1.0, 0.5], "window_size": 2, "global_attn_indexes": [1]}
PARTS: dict[str, Any] = {
    "vision_encoder": {**FPN, **PATCHES}, "text_encoder": {"max_sequence_length": 8}, "detr_encoder": {},
    "geometry_encoder": {"roi_size": 7}, "detr_decoder": {"num_queries": 8, **PATCHES},
    "mask_decoder": {"num_upsampling_stages": 3},
}  # fmt: skip
SAM3_OPTIONS = {
    **{name: part(f"sam3.sam3_{name}.SAM3{name.title().replace('_', '')}", **sizes) for name, sizes in PARTS.items()},
    # keras_hub's mask of boxes has no query axis and so broadcasts only for a batch of one image.
    "fixed": {"pixel_values": (1, 28, 28, 3), "boxes": (1, 2, 5), "box_labels": (1, 2)}
    | dict.fromkeys(["token_ids", "padding_mask"], (1, 8)),
    "samples": lambda: {"boxes": np.array([[[0, 0.5, 0.5, 0.4, 0.6], [0, 0.3, 0.4, 0.2, 0.5]]], "float32")},
}
SAM3 = "Carion et al., 2025: SAM 3, Segment Anything with Concepts, an image and two boxes"
add("segment_concepts", SAM3, "SAM3PromptableConceptBackbone", nightly=True, **SAM3_OPTIONS)
