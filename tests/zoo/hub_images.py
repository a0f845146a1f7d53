"""Backbones and tasks of keras_hub for images, in small configurations."""

from functools import partial

from .hub import add_backbone, hub, part
from .registry import architecture

add = partial(add_backbone, "hub_images")
STAGES = {"stackwise_num_filters": [64, 64], "stackwise_num_blocks": [1, 1], "stackwise_num_strides": [1, 2]}
VAE_BLOCKS = {"filters": [32, 32], "blocks": [1, 1]}
VIT = "Dosovitskiy et al., 2021: An Image is Worth 16x16 Words"
add("hub_vision_transformer", VIT, "ViTBackbone")


@architecture()
def hub_residual_net():
    """He et al., 2016: Deep Residual Learning; keras_hub's classifier, images of any size."""
    stem = {"input_conv_filters": [64], "input_conv_kernel_sizes": [3]}
    backbone = hub().ResNetBackbone(**stem, **STAGES, block_type="basic_block")
    return hub().ResNetImageClassifier(backbone, num_classes=4, preprocessor=None)


@architecture()
def cross_stage_partial_net():
    """Wang et al., 2020: CSPNet; keras_hub."""
    return hub().CSPNetBackbone(
        stem_filters=8, stem_kernel_size=3, stem_strides=1, stackwise_depth=[1, 1], stackwise_strides=[1, 2],
        stackwise_num_filters=[8, 16], block_type="dark_block", stage_type="csp", image_shape=(32, 32, 3),
        bottle_ratio=[0.5, 1.0], block_ratio=[1.0, 0.5], expand_ratio=[2.0, 1.0], cross_linear=True, down_growth=True,
    )  # fmt: skip


@architecture()
def seg_former():
    """Xie et al., 2021: SegFormer, Simple and Efficient Design for Semantic Segmentation; keras_hub."""
    backbone = hub().MiTBackbone(
        layerwise_depths=[1, 1, 1, 1], num_layers=4, layerwise_num_heads=[1, 2, 2, 4],
        layerwise_sr_ratios=[4, 2, 2, 1], max_drop_path_rate=0.1, layerwise_patch_sizes=[7, 3, 3, 3],
        layerwise_strides=[4, 2, 2, 2], hidden_dims=[4, 8, 12, 16], image_shape=(64, 64, 3),
    )  # fmt: skip
    return hub().SegFormerImageSegmenter(
        hub().SegFormerBackbone(image_encoder=backbone, projection_filters=8), num_classes=3, preprocessor=None
    )


@architecture()
def variational_autoencoder():
    """Kingma and Welling, 2013: Auto-Encoding Variational Bayes; keras_hub's for Stable Diffusion 3, any size."""
    from keras_hub.src.models.vae.vae_backbone import VAEBackbone  # not in `keras_hub.models`

    blocks = {f"{side}_num_{name}": sizes for side in ("encoder", "decoder") for name, sizes in VAE_BLOCKS.items()}
    return VAEBackbone(**blocks, sampler_method="mode")


WINDOWS = {"embed_dim": 8, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4}
add("hub_swin", "Liu et al., 2021: Swin Transformer", "SwinTransformerBackbone", **WINDOWS)
DISTILLED = "Touvron et al., 2021: DeiT, Training Data-efficient Image Transformers"
add("hub_distilled_vision", DISTILLED, "DeiTBackbone")
REPEATS = {"stackwise_num_repeats": [2, 1], "image_shape": (32, 32, 3)}
add("hub_dense_net", "Huang et al., 2017: DenseNet", "DenseNetBackbone", growth_rate=4, **REPEATS)
add("hub_vgg", "Simonyan and Zisserman, 2015: VGG", "VGGBackbone", stackwise_num_filters=[8, 16], **REPEATS)
FILTERS = {"stackwise_conv_filters": [[8, 8], [16, 16], [16, 24]], "stackwise_pooling": [False, True, False]}
add("hub_xception", "Chollet, 2017: Xception; images of any size", "XceptionBackbone", **FILTERS)
EFFICIENT_NET = {
    "stackwise_kernel_sizes": [3, 3, 5, 3], "stackwise_num_repeats": [1, 2, 1, 1], "stackwise_strides": [1, 2, 2, 1],
    "stackwise_input_filters": [8, 8, 8, 16], "stackwise_output_filters": [8, 8, 16, 16], "width_coefficient": 1.0,
    "stackwise_expansion_ratios": [1, 4, 4, 1], "stackwise_squeeze_and_excite_ratios": [0, 0, 0.25, 0.25],
    "stackwise_block_types": ["v1", "fused", "unfused", "cba"], "depth_coefficient": 1.0, "num_features": 32,
}  # fmt: skip
add("hub_efficient_net", "Tan and Le, 2021: EfficientNetV2; any size", "EfficientNetBackbone", **EFFICIENT_NET)
MOBILE_NET = {
    "stackwise_expansion": [[16], [24, 24]], "stackwise_num_blocks": [1, 2], "stackwise_num_filters": [[8], [16, 16]],
    "stackwise_kernel_size": [[3], [5, 5]], "stackwise_num_strides": [[2], [2, 1]], "output_num_filters": 32,
    "stackwise_se_ratio": [[None], [0.25, 0.25]], "stackwise_activation": [["relu"], ["hard_swish"] * 2],
    "stackwise_padding": [[1], [2, 2]], "depthwise_filters": 16, "depthwise_stride": 1, "depthwise_residual": True,
    "squeeze_and_excite": 0.5, "last_layer_filter": 32,
}  # fmt: skip
add("hub_mobile_net", "Howard et al., 2019: MobileNetV3; images of any size", "MobileNetBackbone", **MOBILE_NET)
HG_NET = {
    "embedding_size": 8, "stem_channels": [3, 8, 8], "hidden_act": "relu", "depths": [1, 2], "hidden_sizes": [16, 32],
    "stackwise_stage_filters": [[8, 8, 16, 1, 2, 3], [16, 8, 32, 2, 2, 5]], "use_lightweight_conv_block": [False, True],
    "apply_downsample": [False, True], "use_learnable_affine_block": True, "out_features": ["stage1", "stage2"],
}  # fmt: skip
add("hg_net_v2", "PaddlePaddle, 2023: PP-HGNetV2; any size", "HGNetV2Backbone", nightly=True, **HG_NET)
DINO = {"image_shape": (64, 64, 3), "num_register_tokens": 2}
DINO_V2 = {**DINO, "position_embedding_shape": (64, 64, 3), "apply_layernorm": True}
add("dino_v2", "Oquab et al., 2024: DINOv2, with SwiGLU", "DINOV2Backbone", use_swiglu_ffn=True, **DINO_V2)
add("dino_v3", "Simeoni et al., 2025: DINOv3, rotary positions", "DINOV3Backbone", use_gated_mlp=True, **DINO)
VIT_DET = {"global_attention_layer_indices": [1], "num_output_channels": 8, "window_size": 3, "patch_size": 8}
add("vit_det", "Li et al., 2022: ViTDet, for detection", "ViTDetBackbone", image_shape=(64, 64, 3), **VIT_DET)
DEPTH = {"reassemble_factors": [4, 2, 1, 0.5], "neck_hidden_dims": [8] * 4, "fusion_hidden_dim": 8, "head_in_index": -1}
DEPTH |= {"head_hidden_dim": 8, "feature_keys": [f"stage{number}" for number in range(1, 5)]}
DEPTH |= {"image_encoder": part("DINOV2Backbone", **DINO_V2 | {"num_layers": 4, "num_register_tokens": 0})}
add("depth_anything", "Yang et al., 2024: Depth Anything V2", "DepthAnythingBackbone", **DEPTH)
RESNET = {"stackwise_num_filters": [64, 8, 8, 8], "stackwise_num_blocks": [1] * 4, "block_type": "bottleneck_block"}
RESNET |= {"stackwise_num_strides": [1, 2, 2, 2], "input_conv_filters": [8], "input_conv_kernel_sizes": [3]}
ENCODER = {"image_encoder": part("ResNetBackbone", **RESNET), "nightly": True}
LEVELS = {"min_level": 3, "max_level": 7, "use_p5": True}
add("hub_retina_net", "Lin et al., 2017: RetinaNet; images of any size", "RetinaNetBackbone", **ENCODER, **LEVELS)
BAS_NET = {"num_classes": 1, "projection_filters": 8, "image_shape": (64, 64, 3)}
add("boundary_aware_net", "Qin et al., 2019: BASNet, salient objects", "BASNetBackbone", **ENCODER, **BAS_NET)
D_FINE = {
    "backbone": part("HGNetV2Backbone", **HG_NET), "encoder_in_channels": [16, 32], "decoder_in_channels": [16, 16],
    "num_encoder_layers": 1, "num_decoder_layers": 2, "decoder_attention_heads": 2, "encode_proj_layers": [1],
    "num_labels": 4, "num_denoising": 0, "learn_initial_query": False, "num_queries": 6, "anchor_image_size": (32, 32),
    "feat_strides": [4, 8], "num_feature_levels": 2, "hidden_expansion": 0.5, "depth_multiplier": 0.5, "eval_idx": -1,
    "decoder_n_points": [2, 2], "lqe_hidden_dim": 16, "num_lqe_layers": 2, "out_features": ["stage1", "stage2"],
    "image_shape": (32, 32, 3), "seed": 0, "nightly": True,
}  # fmt: skip
add("detection_transformer", "Peng et al., 2024: D-FINE, distributions of edges", "DFineBackbone", **D_FINE)
PARSEQ = {"image_encoder": part("ViTBackbone", use_class_token=False), "max_label_length": 8, "num_decoder_heads": 2}
SOURCE = "Bautista and Atienza, 2022: PARSeq, Scene Text Recognition with Permuted Autoregressive Sequences"
add("permuted_sequences", SOURCE, "PARSeqBackbone", num_decoder_layers=1, **PARSEQ)


@architecture()
def mobile_net_v5():
    """Gemma Team, 2025: MobileNet-V5, with multi-query attention; keras_hub."""
    from keras_hub.src.models.mobilenetv5.mobilenetv5_builder import convert_arch_def_to_stackwise

    blocks = [["er_r1_k3_s2_e4_c8"], ["uir_r1_a3_k5_s2_e4_c16", "mqa_r1_k3_h2_s1_v2_d8_c16"]]
    sizes = convert_arch_def_to_stackwise(blocks)
    return hub().MobileNetV5Backbone(**sizes, num_features=16, stem_size=8, image_shape=(32, 32, 3))


@architecture()
def hub_deep_lab(image=(64, 64, 3)):
    """Chen et al., 2018: DeepLabV3+, Encoder-Decoder with Atrous Separable Convolution; keras_hub."""
    stem = {"input_conv_filters": [64], "input_conv_kernel_sizes": [3]}
    encoder = hub().ResNetBackbone(**stem, **STAGES, block_type="basic_block", image_shape=(64, 64, 3))
    backbone = hub().DeepLabV3Backbone(
        image_encoder=encoder, spatial_pyramid_pooling_key="P3", low_level_feature_key="P2", upsampling_size=2,
        dilation_rates=[6, 12, 18],
    )  # fmt: skip
    return hub().DeepLabV3ImageSegmenter(backbone, num_classes=3, preprocessor=None)(image)


@architecture()
def segment_anything():
    """Kirillov et al., 2023: Segment Anything, prompts of any number of points, boxes and masks; keras_hub."""
    from keras_hub.src.models.sam.sam_mask_decoder import SAMMaskDecoder  # no public name
    from keras_hub.src.models.sam.sam_prompt_encoder import SAMPromptEncoder

    encoder = hub().ViTDetBackbone(
        hidden_size=16, num_layers=2, intermediate_dim=32, num_heads=2, global_attention_layer_indices=[1],
        patch_size=16, num_output_channels=8, window_size=2, image_shape=(64, 64, 3),
    )  # fmt: skip
    sizes = {"hidden_size": 8, "num_heads": 2, "num_layers": 1, "intermediate_dim": 32, "embedding_dim": 8}
    decoder = SAMMaskDecoder(**sizes, num_multimask_outputs=3, iou_head_depth=2, iou_head_hidden_dim=8)
    prompts = SAMPromptEncoder(
        hidden_size=8, image_embedding_size=(4, 4), input_image_size=(64, 64), mask_in_channels=16
    )
    return hub().SAMBackbone(image_encoder=encoder, prompt_encoder=prompts, mask_decoder=decoder)
