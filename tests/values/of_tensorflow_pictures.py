"""Image operators of TensorFlow with arguments that Keras does not have: windows, norms, colours, sizes and boxes."""

from functools import partial

import numpy as np
import tensorflow as tf

from .grids import FLOAT32, FLOATS, INFINITIES, NAN, feed, fill, mix
from .of_images import COLOUR_IMAGES, make_kernel
from .of_tensorflow import BOXES, SCORES, add_raw, add_tf
from .table import add

PICTURE_SHAPE, CUBE_SHAPE = (2, 5, 6, 4), (1, 5, 6, 5, 4)
PICTURES, PICTURES_WITHOUT_NAN, CUBES = mix(*PICTURE_SHAPE), mix(*PICTURE_SHAPE, skip_kinds=(NAN,)), mix(*CUBE_SHAPE)

# Windows
for padding in ("SAME", "VALID"):
    for size, step in ((2, 2), (3, 2)):
        windows = {"ksize": [1, size, size, 1], "strides": [1, step, step, 1], "padding": padding}
        variant = f"{padding}, {size} by {step}"
        add_raw("MaxPool MaxPoolV2", "input", PICTURES_WITHOUT_NAN, FLOAT32, variant, **windows)
        add_raw("MaxPoolWithArgmax", "input", PICTURES_WITHOUT_NAN, variant=variant, **windows)
        add_raw("AvgPool", "value", PICTURES, variant=variant, **windows)
    windows = {"ksize": [1, 2, 3, 2, 1], "strides": [1, 1, 2, 1, 1], "padding": padding}
    add_raw("MaxPool3D", "input", mix(*CUBE_SHAPE, skip_kinds=(NAN,)), FLOAT32, padding, **windows)
    add_raw("AvgPool3D", "input", CUBES, FLOAT32, padding, **windows)
    windows = {"ksizes": [1, 2, 2, 2, 1], "strides": [1, 1, 2, 1, 1], "padding": padding}
    add_raw("ExtractVolumePatches", "input", mix(1, 4, 5, 4, 3), FLOAT32, padding, is_static=True, **windows)
windows = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
add_argmax = partial(add_raw, "MaxPoolWithArgmax", "input", PICTURES_WITHOUT_NAN, FLOAT32)
add_argmax("indices within the batch", include_batch_in_index=True, **windows)
add_argmax("places of int32", Targmax=tf.int32, **windows)
windows = {"ksize": [1, 1, 1, 1], "strides": [1, 3, 3, 1], "padding": "SAME"}
add_argmax("gaps", refusal="Op `MaxPoolWithArgmax`", **windows)
for is_static in (True, False):
    sizes = f"{'known' if is_static else 'unknown'} sizes"
    add_convolution = partial(add_tf, dtypes=FLOAT32, is_static=is_static)
    for padding in ("SAME", "VALID", [[0, 0], [1, 2], [0, 1], [0, 0]]):
        for step, rate in ((1, 1), (2, 1), (1, 2)):
            variant = f"{padding}, strides={step}, dilations={rate}, {sizes}"
            windows = {"filters": make_kernel(2, 3, 4, 6), "strides": step, "padding": padding, "dilations": rate}
            add_convolution("nn.conv2d", partial(tf.nn.conv2d, **windows), PICTURES, variant=variant)
    windows = {"filter": make_kernel(2, 3, 4, 2), "strides": [1, 2, 2, 1], "padding": "SAME"}
    add_convolution("nn.depthwise_conv2d", partial(tf.nn.depthwise_conv2d, **windows), PICTURES, variant=sizes)
    windows = {"filters": make_kernel(3, 2, 4, 6), "strides": [1, 2, 2, 2, 1], "padding": "SAME"}
    add_convolution("nn.conv3d", partial(tf.nn.conv3d, **windows), CUBES, variant=sizes)
    for step, padding, shape in ((2, "SAME", (2, 9, 12, 3)), (3, "VALID", (2, 15, 18, 3))):
        windows = {"filters": make_kernel(2, 3, 3, 4), "output_shape": shape, "strides": step, "padding": padding}
        function, variant = partial(tf.nn.conv2d_transpose, **windows), f"{padding}, {shape}, {sizes}"
        add_convolution("nn.conv2d_transpose", function, PICTURES, variant=variant)
    windows = {"filters": make_kernel(3, 2, 3, 4), "output_shape": (1, 9, 12, 10, 3), "strides": 2}
    add_convolution("nn.conv3d_transpose", partial(tf.nn.conv3d_transpose, **windows), CUBES, variant=sizes)
    options = {"strides": [1, 1, 1, 1], "padding": "SAME", "refusal": "" if is_static else "Op `Conv2D`"}
    add_raw("Conv2D", "input filter", fill(PICTURE_SHAPE, (3, 3, 4, 6)), FLOAT32, sizes, is_static, **options)

# Norms
SCALE, OFFSET = np.float32([1, 2, 3, 4]), np.float32([-1, 0, 1, 2])
MOMENTS = {"mean": np.float32([-1, 0, 2, 1]), "variance": np.float32([1, 2, 1, 3]), "is_training": False}
for variant, options, refusal in (
    ("", MOMENTS, ""),
    ("training", {"mean": [], "variance": [], "is_training": True}, "Op `FusedBatchNorm"),
):
    for version in ("", "V2", "V3"):
        operator = getattr(tf.raw_ops, f"FusedBatchNorm{version}")
        operator = partial(operator, scale=SCALE, offset=OFFSET, **options)
        # Training has two more outputs, the mean and variance of the batch.
        normalize = partial(lambda operator, count, x: operator(x=x)[:count], operator, 3 if refusal else 1)
        dtypes = FLOATS if version and not variant else FLOAT32
        add(f"tf.raw_ops.FusedBatchNorm{version}", normalize, PICTURES, dtypes, variant, limit=1e-5, refusal=refusal)
for radius, bias in ((5, 1), (1, 2)):
    options = {"depth_radius": radius, "bias": bias, "alpha": 0.3, "beta": 0.75}
    deviations = (INFINITIES, NAN) if radius == 1 else ()
    variant = f"radius {radius}, bias {bias}"
    add_raw("LRN", "input", PICTURES, variant=variant, limit=1e-5, deviations=deviations, **options)

# Colours and sizes
for factor in (0.0, 2.0, -1.0):
    adjust = partial(tf.image.adjust_contrast, contrast_factor=factor)
    add_tf("image.adjust_contrast", adjust, mix(2, 5, 6, 3), FLOAT32, f"{factor}", limit=1e-5)
IMAGES_WITH_TIES = np.round(COLOUR_IMAGES * 4)
for delta, variant in ((0.0, "0.0"), (0.3, "0.3"), (-0.7, "-0.7"), (0.2, "ties")):
    make_inputs = feed(IMAGES_WITH_TIES if variant == "ties" else COLOUR_IMAGES)
    add_tf("image.adjust_hue", partial(tf.image.adjust_hue, delta=delta), make_inputs, FLOAT32, variant, limit=1e-4)
add_tf("image.rgb_to_hsv", tf.image.rgb_to_hsv, feed(COLOUR_IMAGES), limit=1e-5)
add_tf("image.hsv_to_rgb", tf.image.hsv_to_rgb, feed(COLOUR_IMAGES), limit=1e-5)
for name in ("Bilinear", "Bicubic", "NearestNeighbor", "Area"):
    for corners in (True, False):
        make_inputs = PICTURES if name == "Bilinear" else fill(PICTURE_SHAPE)
        options = {"size": (7, 3), "align_corners": corners, "limit": 1e-4}
        add_raw(f"Resize{name}", "images", make_inputs, FLOAT32, f"{corners=}", **options)
make_inputs = feed(COLOUR_IMAGES, np.int32([7, 3]))
add_raw("ResizeBilinear", "images size", make_inputs, FLOAT32, "size as an input", limit=1e-5)

# Boxes
LIMITS, SCORE_LIMIT = {"max_output_size": 4, "iou_threshold": 0.5}, {"score_threshold": 0.4}
BOXES_AND_SCORES = feed(BOXES, np.array(SCORES[""]))
add_raw("NonMaxSuppressionV2", "boxes scores", BOXES_AND_SCORES, FLOAT32, **LIMITS)
add_raw("NonMaxSuppressionV4", "boxes scores", BOXES_AND_SCORES, FLOAT32, **LIMITS, **SCORE_LIMIT)
options = {"pad_to_max_output_size": True, **LIMITS, **SCORE_LIMIT}
add_raw("NonMaxSuppressionV4", "boxes scores", BOXES_AND_SCORES, FLOAT32, "padded", **options)


def select_boxes(boxes, scores, classes=1, **options):
    """Return the best boxes of one class, or of several classes with boxes for each class."""
    boxes = tf.tile(tf.reshape(boxes, [1, -1, 1, 4]), [1, 1, classes, 1])
    scores = tf.tile(tf.reshape(scores, [1, -1, 1]), [1, 1, classes])
    return tuple(tf.image.combined_non_max_suppression(boxes, scores, 4, 4, 0.5, 0.2, **options))


BOXES_IN_IMAGE = feed(np.abs(BOXES) / 12, np.array(SCORES[""]))
for variant, options in {"": {}, "not clipped": {"clip_boxes": False}, "padded": {"pad_per_class": True}}.items():
    add_tf("image.combined_non_max_suppression", partial(select_boxes, **options), BOXES_IN_IMAGE, variant=variant)
options = {"variant": "boxes of a class", "refusal": "boxes shared across classes"}
add_tf("image.combined_non_max_suppression", partial(select_boxes, classes=2), BOXES_IN_IMAGE, **options)
