"""Test cases of operators, mostly of `keras.ops`: for images, convolutions, pooling and normalization."""

from functools import partial

import numpy as np
import tensorflow as tf
from keras import ops

from .grids import (
    FINITE_VALUES,
    FLOAT32,
    FLOATS,
    INFINITIES,
    INT32,
    INTEGERS,
    NAN,
    NUMBERS,
    SIGNED_INTEGERS,
    feed,
    fill,
    mix,
)
from .table import add, add_ops

add_images = partial(add_ops, ops.image)
IMAGE_SHAPE, SIZES = (2, 5, 6, 3), [(3, 7), (7, 3), (6, 10), (1, 1)]
COLOUR_IMAGES = np.random.default_rng(0).random(IMAGE_SHAPE)

# The limit is larger than the default, because the positions of pixels are computed in float32. The rounding of these
# positions depends on the order of additions.
for method in ("nearest", "bilinear", "bicubic", "area", "lanczos3", "lanczos5"):
    for is_static in (True, False):
        options = {"interpolation": method, "is_static": is_static, "limit": 1e-4}
        for size in SIZES if is_static else [(7, 3)]:
            variant = f"{method}, to {size}, from a size that is {'known' if is_static else 'unknown'}"
            add_images("resize", mix(*IMAGE_SHAPE), variant=variant, size=size, **options)
    dtypes, deviating_kinds = ("uint8", *SIGNED_INTEGERS), ()
    if method.startswith("lanczos"):
        # TensorFlow and onnxruntime round the sines in Lanczos's weights differently, so an integer result may differ.
        # `deviations.py` allows this difference for finite values.
        dtypes, deviating_kinds = ("uint8",), (FINITE_VALUES,)
    options = {"size": (7, 3), "interpolation": method}
    add_images(
        "resize", fill(IMAGE_SHAPE), dtypes, variant=f"{method}, integers", deviations=deviating_kinds, **options
    )
    options |= {"data_format": "channels_first", "limit": 2e-5}
    add_images("resize", mix(2, 3, 5, 6), variant=f"{method}, channels first", **options)
for method in ("bilinear", "bicubic"):
    options = {"size": (3, 4), "interpolation": method, "antialias": True, "limit": 2e-5}
    add_images("resize", mix(*IMAGE_SHAPE), variant=f"{method}, antialias", **options)
for method in ("gaussian", "mitchellcubic"):
    resize = partial(tf.image.resize, size=(4, 9), method=method)
    add("tf.image.resize", resize, mix(*IMAGE_SHAPE), FLOAT32, method, limit=1e-4)
for factor in (0.0, 0.3, 1.7):
    adjust = partial(tf.image.adjust_saturation, saturation_factor=factor)
    add("tf.image.adjust_saturation", adjust, feed(COLOUR_IMAGES), FLOAT32, f"{factor=}", limit=1e-4)
for options in ({"sizes": [1, 2, 3, 1], "strides": [1, 1, 2, 1]}, {"sizes": [1, 3, 3, 1], "strides": [1, 2, 2, 1]}):
    extract = partial(tf.image.extract_patches, rates=[1, 1, 1, 1], padding="SAME", **options)
    add("tf.image.extract_patches", extract, mix(*IMAGE_SHAPE), variant=str(options["sizes"]))
for verb in ("crop", "pad"):
    options = {f"{verb}_to_aspect_ratio": True, "size": (7, 3), "limit": 1e-5}
    for shape in (IMAGE_SHAPE, (2, 6, 5, 3)):
        variant = f"{verb}, from {shape}"
        add_images("resize", mix(*shape), variant=variant, is_static=True, **options)
        add_images("resize", mix(*shape), variant=f"{variant}, unknown", **options)

COLOURS = np.random.default_rng(0).integers(0, 9, (40, 3, 3)) / 8.0  # with ties, zeros and ones
add_images("rgb_to_hsv hsv_to_rgb rgb_to_grayscale", feed(COLOURS), is_static=True)
add_images("rgb_to_hsv hsv_to_rgb", feed(COLOURS - 0.5), is_static=True, variant="below 0", limit=1e-5)
add_images("rgb_to_hsv hsv_to_rgb rgb_to_grayscale", mix(2, 4, 5, 3), FLOAT32, is_static=True, variant="any numbers")
add_images("rgb_to_grayscale", fill((4, 5, 3)), ("uint8",), variant="integers", is_static=True)

refusal_options = {"is_static": True, "refusal": "Op `ImageProjectiveTransformV3`"}
transform_matrices = np.float32([[1.1, 0.2, -1.3, 0.1, 0.9, 0.7, 0.01, -0.02]] * 2)
add_images("affine_transform", fill((2, 6, 6, 3)), transform=transform_matrices, **refusal_options)
CORNERS = {"start_points": [[0, 0], [5, 0], [0, 5], [5, 5]], "end_points": [[1, 1], [5, 1], [0, 4], [4, 4]]}
options = {name: np.float32(points) for name, points in CORNERS.items()}
add_images("perspective_transform", fill((2, 6, 6, 3)), **refusal_options, **options)
COORDINATES = np.random.default_rng(3).integers(-12, 36, (3, 2, 7)) / 4
for order in (0, 1):
    for mode in ("constant", "nearest", "wrap", "mirror", "reflect"):
        # In mode "mirror", Keras raises an error for coordinates outside of the array.
        coordinates = np.abs(COORDINATES) % 3 if mode == "mirror" else COORDINATES
        options = {"coordinates": np.float32(coordinates), "order": order, "fill_mode": mode, "is_static": True}
        variant = f"order {order}, {mode}"
        add_images("map_coordinates", mix(5, 6, 4), FLOAT32, variant=variant, **options)
        add_images("map_coordinates", fill((5, 6, 4)), INT32, variant=variant, **options)

for variant, options in {
    "2 by 2": {"size": 2},
    "2 by 3, overlapping": {"size": (2, 3), "strides": 1},
    "dilated": {"size": 2, "strides": 1, "dilation_rate": 2},
    "same": {"size": 3, "strides": 2, "padding": "same"},
}.items():
    add_images("extract_patches", mix(2, 6, 7, 3), variant=variant, is_static=True, **options)
add_images("extract_patches", fill((2, 6, 7, 3)), INT32, variant="integers", is_static=True, size=2)
add_images("extract_patches_3d", mix(2, 4, 4, 4, 3), is_static=True, size=(2, 2, 2))
options = {"target_height": 3, "target_width": 2, "is_static": True}
add_images("crop_images", mix(2, 6, 7, 3), NUMBERS, top_cropping=1, left_cropping=2, **options)
options = {"target_height": 9, "target_width": 10, "is_static": True}
add_images("pad_images", mix(2, 6, 7, 3), NUMBERS, top_padding=1, left_padding=2, **options)
options = {"kernel_size": (5, 3), "sigma": (2.0, 0.5)}
add_images("gaussian_blur", mix(2, 6, 7, 3), FLOAT32, is_static=True, limit=2e-5, **options)
add_images("sobel_edges", mix(2, 5, 6, 3), is_static=True)
add_images("elastic_transform", fill(IMAGE_SHAPE), FLOAT32, is_static=True, seed=1, limit=1e-3)
scale_and_translation = {"scale": np.float32([1.4, 0.7]), "translation": np.float32([0.3, -1])}
for method in ("linear", "cubic", "lanczos3", "lanczos5"):
    for antialias in (True, False):
        options = {"method": method, "antialias": antialias, "spatial_dims": (1, 2), "output_shape": (2, 7, 4, 3)}
        options |= {"variant": f"{method}, {'antialias' if antialias else 'no antialias'}", "limit": 2e-5}
        add_images("scale_and_translate", mix(2, 5, 6, 3), FLOAT32, is_static=True, **scale_and_translation, **options)
add_images("ssim", fill((2, 12, 12, 3), (2, 12, 12, 3)), FLOAT32, is_static=True, max_val=5.0, limit=1e-4)

add_nn = partial(add_ops, ops.nn)
SHAPES = {1: (2, 7, 4), 2: (2, 7, 6, 4), 3: (1, 5, 6, 5, 4)}
WINDOWS = [{}, {"strides": 2}, {"dilation_rate": 2}]
WINDOWS_WITH_GAPS = [{"size": 1, "strides": 2}, {"size": 2, "strides": 3}, {"size": 3, "strides": 4}]
POOLS = [(2, {}), (3, {"strides": 1}), (2, {"strides": 3}), (3, {"strides": 4})]


def make_kernel(rank: int, size: int, *channels: int) -> np.ndarray:
    """Return a kernel of small numbers. Its shape is (size, ..., size, *channels), with `rank` times `size`."""
    return fill((*[size] * rank, *channels))("finite", "float32")[0]


def add_windows(op_names: str, make_inputs, variant: str, dtypes: tuple[str, ...] = FLOAT32, **options: object):
    """Add cases of each operator with known sizes and with unknown sizes. Spaces separate the names in `op_names`."""
    for is_static in (True, False):
        sized_variant = f"{variant}, {'known' if is_static else 'unknown'} sizes"
        add_nn(op_names, make_inputs, dtypes, variant=sized_variant, is_static=is_static, **options)


for rank, shape in SHAPES.items():
    make_images = mix(*shape)
    for padding in ("valid", "same"):
        for window_options in [*WINDOWS, *WINDOWS_WITH_GAPS]:
            size = window_options.get("size", 3)
            call_options = {name: value for name, value in window_options.items() if name != "size"}
            options = {"padding": padding, **call_options}
            variant = f"{rank}D of {size}, " + ", ".join(f"{name}={value}" for name, value in options.items())
            add_windows("conv", make_images, variant, kernel=make_kernel(rank, size, 4, 6), **options)
            if rank < 3:
                add_windows("depthwise_conv", make_images, variant, kernel=make_kernel(rank, size, 4, 2), **options)
            if "dilation_rate" not in options or padding == "valid":
                add_windows("conv_transpose", make_images, variant, kernel=make_kernel(rank, size, 5, 4), **options)
        for pool_size, stride_options in POOLS:
            options = {"pool_size": pool_size, **stride_options}
            variant = f"{rank}D, {padding}, " + ", ".join(f"{name}={value}" for name, value in options.items())
            add_windows("average_pool", make_images, variant, padding=padding, **options)
            make_inputs, dtypes = mix(*shape, skip_kinds=(NAN,)), FLOATS if rank < 3 else FLOAT32
            add_windows("max_pool", make_inputs, variant, dtypes, padding=padding, **options)
    options = {"kernel": make_kernel(rank, 3, 2, 6), "padding": "same"}
    add_nn("conv", make_images, FLOAT32, variant=f"{rank}D, groups", is_static=True, **options)
    for output_padding in (0, 1):
        options = {"kernel": make_kernel(rank, 3, 5, 4), "strides": 2, "padding": "same"}
        options["output_padding"] = output_padding
        add_windows("conv_transpose", make_images, f"{rank}D, {output_padding=}", **options)
    if rank < 3:
        add_nn("max_pool", make_images, INTEGERS, variant=f"{rank}D, integers", pool_size=2, padding="same")
        kernels = {"depthwise_kernel": make_kernel(rank, 3, 4, 2), "pointwise_kernel": make_kernel(rank, 1, 8, 3)}
        add_windows("separable_conv", make_images, f"{rank}D", padding="same", **kernels)
    options = {"output_size": (3,) * rank, "data_format": "channels_last", "is_static": True}
    add_nn("adaptive_max_pool adaptive_average_pool", fill(shape), FLOAT32, variant=f"{rank}D", **options)
add_nn("max_pool", mix(*SHAPES[1]), variant="NaN", pool_size=3, strides=1, deviations=(NAN,))
negative_infinity = np.full(SHAPES[1], -np.inf)
make_inputs = feed(np.ones(SHAPES[1]), infinite=(negative_infinity,))
# If all elements of a window are -infinity, TensorFlow's maximum in float32 is a finite number. In float16 it is
# -infinity if TensorFlow has a float16 kernel for the processor; otherwise it is a finite number too.
KEEPS_INFINITY = bool(np.isneginf(ops.convert_to_numpy(ops.max_pool(negative_infinity.astype("float16"), 2))).all())
for dtype, deviating_kinds in (("float32", (INFINITIES,)), ("float16", () if KEEPS_INFINITY else (INFINITIES,))):
    add_nn("max_pool", make_inputs, (dtype,), variant="-infinity alone", pool_size=2, deviations=deviating_kinds)
kernel = make_kernel(2, 3, 4, 2).astype("float64")
add_nn("conv depthwise_conv", fill(SHAPES[2]), ("float64",), variant="float64", kernel=kernel, is_static=True)
add_nn("unfold", mix(2, 4, 4, 6), is_static=True, kernel_size=2)
add_nn("fold", mix(2, 16, 6), FLOAT32, is_static=True, output_size=(3, 4), kernel_size=2)
add_nn("depth_to_space", mix(2, 3, 2, 8), NUMBERS, block_size=2)
add_nn("space_to_depth", mix(2, 4, 6, 3), NUMBERS, block_size=2)
add_nn("psnr", feed(COLOURS, COLOURS * 0.5 + 0.1), FLOAT32, max_val=1.0)

for shape in ((3, 6), (3, 5, 6), (2, 3, 5, 6), (2, 3, 2, 4, 6)):
    variant = f"{len(shape)} axes"
    add_nn("moments", mix(*shape), variant=variant, axes=[0, -1], limit=1e-5)
    add_nn("normalize", mix(*shape), variant=variant, limit=1e-5)
    add_nn("rms_normalization", mix(*shape), variant=variant, limit=1e-5)
    add_nn("layer_normalization", mix(*shape), variant=variant, is_static=True, limit=1e-5)
    vector = np.arange(6, dtype="float32")
    options = {"mean": vector, "variance": vector + 1, "scale": vector, "axis": -1, "is_static": True}
    add_nn("batch_normalization", mix(*shape), FLOAT32, variant=variant, limit=1e-5, **options)
for order in (1, 3):
    add_nn("normalize", mix(3, 6), FLOAT32, variant=f"order {order}", order=order, limit=1e-5)
