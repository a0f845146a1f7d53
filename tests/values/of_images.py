"""Images, convolutions, pooling and normalisation of `keras.ops`."""

from functools import partial

import numpy as np
import tensorflow as tf
from keras import ops

from .grids import FINITE, FLOATS, INFINITE, NAN, NUMBERS, SIGNED, fixed, images, ordinary
from .table import add, rows_of

of_images = partial(rows_of, ops.image)
DRAWN = np.random.default_rng(0).random((2, 5, 6, 3))
PICTURE, SIZES = (2, 5, 6, 3), [(3, 7), (7, 3), (6, 10), (1, 1)]
RESIZED = "nearest bilinear bicubic area lanczos3 lanczos5"

# Sizes that TensorFlow is told as float32: the order of adding decides what is left of an integer.
for way in RESIZED.split():
    for known in (True, False):
        sizes = SIZES if known else [(7, 3)]
        for size in sizes:
            how = f"{way}, to {size}, from a size that is {'known' if known else 'unknown'}"
            of_images("resize", images(*PICTURE), how=how, known=known, size=size, interpolation=way, limit=1e-4)
    # what a sine rounds to decides between two integers: of Lanczos's weights TensorFlow's are not those of others
    whole, deviates = (("uint8",), (FINITE,)) if way.startswith("lanczos") else (("uint8", *SIGNED), ())
    options = {"size": (7, 3), "interpolation": way, "deviates": deviates}
    of_images("resize", ordinary(PICTURE), whole, how=f"{way}, integers", **options)
    first = images(2, 3, 5, 6)
    how = f"{way}, channels first"
    of_images("resize", first, how=how, size=(7, 3), interpolation=way, data_format="channels_first", limit=2e-5)
for way in ("bilinear", "bicubic"):
    of_images(
        "resize", images(*PICTURE), how=f"{way}, antialias", size=(3, 4), interpolation=way, antialias=True, limit=2e-5
    )
for way in ("gaussian", "mitchellcubic"):
    resize = partial(tf.image.resize, size=(4, 9), method=way)
    add("tf.image.resize", resize, images(*PICTURE), ("float32",), way, limit=1e-4)
for factor in (0.0, 0.3, 1.7):
    saturate = partial(tf.image.adjust_saturation, saturation_factor=factor)
    add("tf.image.adjust_saturation", saturate, fixed(DRAWN), ("float32",), f"{factor=}", limit=1e-4)
for options in ({"sizes": [1, 2, 3, 1], "strides": [1, 1, 2, 1]}, {"sizes": [1, 3, 3, 1], "strides": [1, 2, 2, 1]}):
    cut = partial(tf.image.extract_patches, rates=[1, 1, 1, 1], padding="SAME", **options)
    add("tf.image.extract_patches", cut, images(*PICTURE), how=str(options["sizes"]))
for shape in ("crop", "pad"):
    kept = {f"{shape}_to_aspect_ratio": True}
    for picture in (PICTURE, (2, 6, 5, 3)):
        how = f"{shape}, from {picture}"
        of_images("resize", images(*picture), how=how, known=True, size=(7, 3), limit=1e-5, **kept)
        of_images("resize", images(*picture), how=f"{how}, unknown", size=(7, 3), limit=1e-5, **kept)

COLOURS = np.random.default_rng(0).integers(0, 9, (40, 3, 3)) / 8.0  # with ties, zeros and ones
BELOW = fixed(COLOURS - 0.5)
of_images("rgb_to_hsv hsv_to_rgb rgb_to_grayscale", fixed(COLOURS), known=True)
of_images("rgb_to_hsv hsv_to_rgb", BELOW, known=True, how="below 0", limit=1e-5)
of_images("rgb_to_hsv hsv_to_rgb rgb_to_grayscale", images(2, 4, 5, 3), ("float32",), known=True, how="any numbers")
of_images("rgb_to_grayscale", ordinary((4, 5, 3)), ("uint8",), how="integers", known=True)

of_images(
    "affine_transform",
    ordinary((2, 6, 6, 3)),
    known=True,
    transform=np.float32([[1.1, 0.2, -1.3, 0.1, 0.9, 0.7, 0.01, -0.02]] * 2),
    refused="Op `ImageProjectiveTransformV3`",
)
CORNERS = {"start_points": [[0, 0], [5, 0], [0, 5], [5, 5]], "end_points": [[1, 1], [5, 1], [0, 4], [4, 4]]}
of_images(
    "perspective_transform",
    ordinary((2, 6, 6, 3)),
    known=True,
    refused="Op `ImageProjectiveTransformV3`",
    **{name: np.float32(each) for name, each in CORNERS.items()},
)
PLACES = np.random.default_rng(3).integers(-12, 36, (3, 2, 7)) / 4
for order in (0, 1):
    for mode in ("constant", "nearest", "wrap", "mirror", "reflect"):
        places = np.abs(PLACES) % 3 if mode == "mirror" else PLACES  # Keras fails at others
        at = {"coordinates": places.astype("float32"), "order": order, "fill_mode": mode}
        of_images("map_coordinates", images(5, 6, 4), ("float32",), how=f"order {order}, {mode}", known=True, **at)
        of_images("map_coordinates", ordinary((5, 6, 4)), ("int32",), how=f"order {order}, {mode}", known=True, **at)

for how, options in {
    "2 by 2": {"size": 2},
    "2 by 3, overlapping": {"size": (2, 3), "strides": 1},
    "dilated": {"size": 2, "strides": 1, "dilation_rate": 2},
    "same": {"size": 3, "strides": 2, "padding": "same"},
}.items():
    of_images("extract_patches", images(2, 6, 7, 3), how=how, known=True, **options)
of_images("extract_patches", ordinary((2, 6, 7, 3)), ("int32",), how="integers", known=True, size=2)
of_images("extract_patches_3d", images(2, 4, 4, 4, 3), known=True, size=(2, 2, 2))
room = {"target_height": 3, "target_width": 2}
of_images("crop_images", images(2, 6, 7, 3), NUMBERS, known=True, top_cropping=1, left_cropping=2, **room)
room = {"target_height": 9, "target_width": 10}
of_images("pad_images", images(2, 6, 7, 3), NUMBERS, known=True, top_padding=1, left_padding=2, **room)
of_images(
    "gaussian_blur", images(2, 6, 7, 3), ("float32",), known=True, kernel_size=(5, 3), sigma=(2.0, 0.5), limit=2e-5
)
of_images("sobel_edges", images(2, 5, 6, 3), known=True)
of_images("elastic_transform", ordinary(PICTURE), ("float32",), known=True, seed=1, limit=1e-3)
moved = {"output_shape": (2, 7, 4, 3), "scale": np.float32([1.4, 0.7]), "translation": np.float32([0.3, -1])}
for way in ("linear", "cubic", "lanczos3", "lanczos5"):
    for sharp in (True, False):
        kernel = {"method": way, "antialias": sharp, "spatial_dims": (1, 2)}
        how = f"{way}, {'antialias' if sharp else 'no antialias'}"
        of_images(
            "scale_and_translate", images(2, 5, 6, 3), ("float32",), how=how, known=True, limit=2e-5, **moved, **kernel
        )
of_images("ssim", ordinary((2, 12, 12, 3), (2, 12, 12, 3)), ("float32",), known=True, max_val=5.0, limit=1e-4)

of_windows = partial(rows_of, ops.nn)
LINES = {1: (2, 7, 4), 2: (2, 7, 6, 4), 3: (1, 5, 6, 5, 4)}
STEPS = [{}, {"strides": 2}, {"dilation_rate": 2}]
GAPS = [{"size": 1, "strides": 2}, {"size": 2, "strides": 3}, {"size": 3, "strides": 4}]


def kernel(rank: int, size: int, *channels: int) -> np.ndarray:
    (found,) = ordinary((*[size] * rank, *channels))("finite", "float32")
    return found


def at_both(names: str, given, how: str, dtypes: tuple[str, ...] = ("float32",), **options: object):
    """Rows at sizes that are known, and that are not."""
    for known in (True, False):
        words = f"{how}, {'known' if known else 'unknown'} sizes"
        of_windows(names, given, dtypes, how=words, known=known, **options)


for rank, shape in LINES.items():
    pictures = images(*shape)
    for padding in ("valid", "same"):
        for step in [*STEPS, *GAPS]:
            size = step.get("size", 3)
            kept = {"padding": padding, **{name: each for name, each in step.items() if name != "size"}}
            how = f"{rank}D of {size}, " + ", ".join(f"{name}={each}" for name, each in kept.items())
            at_both("conv", pictures, how, kernel=kernel(rank, size, 4, 6), **kept)
            if rank < 3:
                at_both("depthwise_conv", pictures, how, kernel=kernel(rank, size, 4, 2), **kept)
            if "dilation_rate" not in kept or padding == "valid":
                at_both("conv_transpose", pictures, how, kernel=kernel(rank, size, 5, 4), **kept)
        for pool in (
            {"pool_size": 2},
            {"pool_size": 3, "strides": 1},
            {"pool_size": 2, "strides": 3},
            {"pool_size": 3, "strides": 4},
        ):
            how = f"{rank}D, {padding}, " + ", ".join(f"{name}={each}" for name, each in pool.items())
            at_both("average_pool", pictures, how, padding=padding, **pool)
            at_both(
                "max_pool",
                images(*shape, without=(NAN,)),
                how,
                FLOATS if rank < 3 else ("float32",),
                padding=padding,
                **pool,
            )
    options = {"kernel": kernel(rank, 3, 2, 6), "padding": "same"}
    of_windows("conv", pictures, ("float32",), how=f"{rank}D, groups", known=True, **options)
    for padding in (0, 1):
        options = {"kernel": kernel(rank, 3, 5, 4), "strides": 2, "padding": "same", "output_padding": padding}
        at_both("conv_transpose", pictures, f"{rank}D, output_padding={padding}", **options)
    if rank < 3:
        integers = (*SIGNED, "uint8")
        of_windows("max_pool", pictures, integers, how=f"{rank}D, integers", pool_size=2, padding="same")
        many = {"depthwise_kernel": kernel(rank, 3, 4, 2), "pointwise_kernel": kernel(rank, 1, 8, 3)}
        at_both("separable_conv", pictures, f"{rank}D", padding="same", **many)
    options = {"output_size": (3,) * rank, "data_format": "channels_last"}
    of_windows(
        "adaptive_max_pool adaptive_average_pool", ordinary(shape), ("float32",), how=f"{rank}D", known=True, **options
    )
of_windows("max_pool", images(*LINES[1]), how="NaN", pool_size=3, strides=1, deviates=(NAN,))
low = fixed(np.ones(LINES[1]), infinite=(np.full(LINES[1], -np.inf),))
# where TensorFlow has a kernel of float16 for the processor, the largest of -infinity alone is no other number
KEEPS = bool(np.isneginf(ops.convert_to_numpy(ops.max_pool(np.full(LINES[1], -np.inf, "float16"), 2))).all())
for half, deviates in (("float32", (INFINITE,)), ("float16", () if KEEPS else (INFINITE,))):
    of_windows("max_pool", low, (half,), how="-infinity alone", pool_size=2, deviates=deviates)
double = {"kernel": kernel(2, 3, 4, 2).astype("float64"), "known": True}
of_windows("conv depthwise_conv", ordinary(LINES[2]), ("float64",), how="float64", **double)
of_windows("unfold", images(2, 4, 4, 6), known=True, kernel_size=2)
of_windows("fold", images(2, 16, 6), ("float32",), known=True, output_size=(3, 4), kernel_size=2)
of_windows("depth_to_space", images(2, 3, 2, 8), NUMBERS, block_size=2)
of_windows("space_to_depth", images(2, 4, 6, 3), NUMBERS, block_size=2)
of_windows("psnr", fixed(COLOURS, COLOURS * 0.5 + 0.1), ("float32",), max_val=1.0)

ROWS = [(3, 6), (3, 5, 6), (2, 3, 5, 6), (2, 3, 2, 4, 6)]
for shape in ROWS:
    how = f"{len(shape)} axes"
    of_windows("moments", images(*shape), how=how, axes=[0, -1], limit=1e-5)
    of_windows("normalize", images(*shape), how=how, limit=1e-5)
    of_windows("rms_normalization", images(*shape), how=how, limit=1e-5)
    of_windows("layer_normalization", images(*shape), how=how, known=True, limit=1e-5)
    scaled = {"mean": np.arange(6.0), "variance": np.arange(1, 7.0), "scale": np.arange(6.0)}
    scaled = {name: each.astype("float32") for name, each in scaled.items()}
    of_windows("batch_normalization", images(*shape), ("float32",), how=how, known=True, axis=-1, limit=1e-5, **scaled)
for order in (1, 3):
    of_windows("normalize", images(3, 6), ("float32",), how=f"order {order}", order=order, limit=1e-5)
