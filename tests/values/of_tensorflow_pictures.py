"""Images of TensorFlow at its own level: windows, sizes, colours, norms and boxes, with what Keras does not pass on."""

from functools import partial

import numpy as np
import tensorflow as tf

from .grids import FLOATS, INFINITE, NAN, fixed, images, ordinary
from .of_images import DRAWN, kernel
from .of_tensorflow import BOXES, ONLY, SCORES, public, raw
from .table import add

SEEN, DEEP = (2, 5, 6, 4), (1, 5, 6, 5, 4)
PICTURES, NUMBERS, CUBES = images(*SEEN), images(*SEEN, without=(NAN,)), images(*DEEP)

# Windows
for padding in ("SAME", "VALID"):
    for size, step in ((2, 2), (3, 2)):
        windows = {"ksize": [1, size, size, 1], "strides": [1, step, step, 1], "padding": padding}
        how = f"{padding}, {size} by {step}"
        raw("MaxPool MaxPoolV2", "input", NUMBERS, ONLY, how, **windows)
        raw("MaxPoolWithArgmax", "input", NUMBERS, how=how, **windows)
        raw("AvgPool", "value", PICTURES, how=how, **windows)
    windows = {"ksize": [1, 2, 3, 2, 1], "strides": [1, 1, 2, 1, 1], "padding": padding}
    raw("MaxPool3D", "input", images(*DEEP, without=(NAN,)), ONLY, padding, **windows)
    raw("AvgPool3D", "input", CUBES, ONLY, padding, **windows)
    cut = {"ksizes": [1, 2, 2, 2, 1], "strides": [1, 1, 2, 1, 1], "padding": padding}
    raw("ExtractVolumePatches", "input", images(1, 4, 5, 4, 3), ONLY, padding, known=True, **cut)
halves = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
raw("MaxPoolWithArgmax", "input", NUMBERS, ONLY, "indices within the batch", include_batch_in_index=True, **halves)
raw("MaxPoolWithArgmax", "input", NUMBERS, ONLY, "places of int32", Targmax=tf.int32, **halves)
gaps = {"ksize": [1, 1, 1, 1], "strides": [1, 3, 3, 1], "padding": "SAME"}
raw("MaxPoolWithArgmax", "input", NUMBERS, ONLY, "gaps", refused="Op `MaxPoolWithArgmax`", **gaps)
for known in (True, False):
    sizes = f"{'known' if known else 'unknown'} sizes"
    for padding in ("SAME", "VALID", [[0, 0], [1, 2], [0, 1], [0, 0]]):
        for step, rate in ((1, 1), (2, 1), (1, 2)):
            how = f"{padding}, strides={step}, dilations={rate}, {sizes}"
            windows = {"filters": kernel(2, 3, 4, 6), "strides": step, "padding": padding, "dilations": rate}
            public("nn.conv2d", partial(tf.nn.conv2d, **windows), PICTURES, ONLY, how, known=known)
    windows = {"filter": kernel(2, 3, 4, 2), "strides": [1, 2, 2, 1], "padding": "SAME"}
    public("nn.depthwise_conv2d", partial(tf.nn.depthwise_conv2d, **windows), PICTURES, ONLY, sizes, known=known)
    windows = {"filters": kernel(3, 2, 4, 6), "strides": [1, 2, 2, 2, 1], "padding": "SAME"}
    public("nn.conv3d", partial(tf.nn.conv3d, **windows), CUBES, ONLY, sizes, known=known)
    for step, padding, shape in ((2, "SAME", (2, 9, 12, 3)), (3, "VALID", (2, 15, 18, 3))):
        windows = {"filters": kernel(2, 3, 3, 4), "output_shape": shape, "strides": step, "padding": padding}
        transposed = partial(tf.nn.conv2d_transpose, **windows)
        public("nn.conv2d_transpose", transposed, PICTURES, ONLY, f"{padding}, {shape}, {sizes}", known=known)
    windows = {"filters": kernel(3, 2, 3, 4), "output_shape": (1, 9, 12, 10, 3), "strides": 2}
    public("nn.conv3d_transpose", partial(tf.nn.conv3d_transpose, **windows), CUBES, ONLY, sizes, known=known)
    given = ordinary(SEEN, (3, 3, 4, 6))
    refused = "" if known else "Op `Conv2D`"
    raw("Conv2D", "input filter", given, ONLY, sizes, known, refused=refused, strides=[1, 1, 1, 1], padding="SAME")

# Norms
SCALE, OFFSET, MEAN, VARIANCE = (
    np.float32(each) for each in ([1, 2, 3, 4], [-1, 0, 1, 2], [-1, 0, 2, 1], [1, 2, 1, 3])
)
MOMENTS = {"mean": MEAN, "variance": VARIANCE, "is_training": False}
for how, options, refused in (
    ("", MOMENTS, ""),
    ("training", {"mean": [], "variance": [], "is_training": True}, "Op `FusedBatchNorm"),
):
    for version in ("", "V2", "V3"):
        operator = getattr(tf.raw_ops, f"FusedBatchNorm{version}")
        normed = partial(operator, scale=SCALE, offset=OFFSET, **options)
        first = (lambda x, of=normed: of(x=x)[0]) if not refused else (lambda x, of=normed: of(x=x)[:3])
        dtypes = FLOATS if version and not how else ONLY
        add(f"tf.raw_ops.FusedBatchNorm{version}", first, PICTURES, dtypes, how, limit=1e-5, refused=refused)
for radius, bias in ((5, 1), (1, 2)):
    deviates = (INFINITE, NAN) if radius == 1 else ()
    how = f"radius {radius}, bias {bias}"
    raw(
        "LRN",
        "input",
        PICTURES,
        how=how,
        limit=1e-5,
        depth_radius=radius,
        bias=bias,
        alpha=0.3,
        beta=0.75,
        deviates=deviates,
    )

# Colours and sizes
for factor in (0.0, 2.0, -1.0):
    contrast = partial(tf.image.adjust_contrast, contrast_factor=factor)
    public("image.adjust_contrast", contrast, images(2, 5, 6, 3), ONLY, f"{factor}", limit=1e-5)
for delta in (0.0, 0.3, -0.7):
    public("image.adjust_hue", partial(tf.image.adjust_hue, delta=delta), fixed(DRAWN), ONLY, f"{delta}", limit=1e-4)
public(
    "image.adjust_hue", partial(tf.image.adjust_hue, delta=0.2), fixed(np.round(DRAWN * 4)), ONLY, "ties", limit=1e-4
)
public("image.rgb_to_hsv", tf.image.rgb_to_hsv, fixed(DRAWN), limit=1e-5)
public("image.hsv_to_rgb", tf.image.hsv_to_rgb, fixed(DRAWN), limit=1e-5)
for name in ("Bilinear", "Bicubic", "NearestNeighbor", "Area"):
    for corners in (True, False):
        given = PICTURES if name == "Bilinear" else ordinary(SEEN)
        raw(f"Resize{name}", "images", given, ONLY, f"{corners=}", limit=1e-4, size=(7, 3), align_corners=corners)
raw("ResizeBilinear", "images size", fixed(DRAWN, np.int32([7, 3])), ONLY, "size as an input", limit=1e-5)

# Boxes
TAKEN, ABOVE = {"max_output_size": 4, "iou_threshold": 0.5}, {"score_threshold": 0.4}
BOXED = fixed(BOXES, np.array(SCORES[""]))
raw("NonMaxSuppressionV2", "boxes scores", BOXED, ONLY, **TAKEN)
raw("NonMaxSuppressionV4", "boxes scores", BOXED, ONLY, **TAKEN, **ABOVE)
raw("NonMaxSuppressionV4", "boxes scores", BOXED, ONLY, "padded", pad_to_max_output_size=True, **TAKEN, **ABOVE)


def best(boxes, scores, own=1, **options):
    """The best of a class, or of two of which each has its own boxes."""
    boxes = tf.tile(tf.reshape(boxes, [1, -1, 1, 4]), [1, 1, own, 1])
    scores = tf.tile(tf.reshape(scores, [1, -1, 1]), [1, 1, own])
    return tuple(tf.image.combined_non_max_suppression(boxes, scores, 4, 4, 0.5, 0.2, **options))


INSIDE = fixed(np.abs(BOXES) / 12, np.array(SCORES[""]))
for how, options in {"": {}, "not clipped": {"clip_boxes": False}, "padded": {"pad_per_class": True}}.items():
    public("image.combined_non_max_suppression", partial(best, **options), INSIDE, how=how)
own = partial(best, own=2)
public("image.combined_non_max_suppression", own, INSIDE, how="boxes of a class", refused="boxes shared across classes")
