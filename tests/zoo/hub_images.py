"""Backbones and tasks of keras_hub that take images, from small configurations of their own."""

from functools import partial

from .hub import hub, with_sizes
from .registry import architecture

listed = partial(with_sizes, "hub_images")
IMAGE = {"image_shape": (32, 32, 3)}
PATCHES = {**IMAGE, "patch_size": 8, "num_layers": 2, "num_heads": 2, "hidden_dim": 16}
STAGES = {"stackwise_num_filters": [64, 64], "stackwise_num_blocks": [1, 1], "stackwise_num_strides": [1, 2]}
VAE_BLOCKS = {"filters": [32, 32], "blocks": [1, 1]}
WORDS = "Dosovitskiy et al., 2021: An Image is Worth 16x16 Words"
listed("hub_vision_transformer", WORDS, "ViTBackbone", {**PATCHES, "mlp_dim": 32})


@architecture()
def hub_residual_net():
    """He et al., 2016: Deep Residual Learning; keras_hub's classifier, images of any size."""
    first = {"input_conv_filters": [64], "input_conv_kernel_sizes": [3]}
    backbone = hub().ResNetBackbone(**first, **STAGES, block_type="basic_block")
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
    from keras_hub.src.models.vae.vae_backbone import VAEBackbone  # which is not in `keras_hub.models`

    blocks = {f"{part}_num_{what}": sizes for part in ("encoder", "decoder") for what, sizes in VAE_BLOCKS.items()}
    return VAEBackbone(**blocks, sampler_method="mode")


WINDOWS = {"embed_dim": 8, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4}
listed("hub_swin", "Liu et al., 2021: Swin Transformer", "SwinTransformerBackbone", IMAGE | WINDOWS)
DISTILLED = "Touvron et al., 2021: DeiT, Training Data-efficient Image Transformers"
listed("hub_distilled_vision", DISTILLED, "DeiTBackbone", {**PATCHES, "intermediate_dim": 32})


@architecture()
def hub_deep_lab(image=(64, 64, 3)):
    """Chen et al., 2018: DeepLabV3+, Encoder-Decoder with Atrous Separable Convolution; keras_hub."""
    first = {"input_conv_filters": [64], "input_conv_kernel_sizes": [3]}
    encoder = hub().ResNetBackbone(**first, **STAGES, block_type="basic_block", image_shape=(64, 64, 3))
    backbone = hub().DeepLabV3Backbone(
        image_encoder=encoder, spatial_pyramid_pooling_key="P3", low_level_feature_key="P2", upsampling_size=2,
        dilation_rates=[6, 12, 18],
    )  # fmt: skip
    return hub().DeepLabV3ImageSegmenter(backbone, num_classes=3, preprocessor=None)(image)


@architecture()
def segment_anything():
    """Kirillov et al., 2023: Segment Anything, prompts of any number of points, boxes and masks; keras_hub."""
    from keras_hub.src.models.sam.sam_mask_decoder import SAMMaskDecoder  # without a public name
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
