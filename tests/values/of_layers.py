"""Layers of `keras.layers` that infer."""

from functools import cache, partial

import keras
import numpy as np
from keras import layers

from .grids import FLOATS, NAN, NUMBERS, fixed, images, ordinary
from .table import add

SEEN = {1: (2, 7, 4), 2: (2, 7, 6, 4), 3: (1, 5, 6, 4, 4)}


def called(layer: keras.Layer, *shapes: tuple[int, ...]) -> keras.Layer:
    """A layer with weights that are small, of both signs where it takes them, and the same each time."""
    if shapes and not layer.built:
        free = [(None, *shape[1:]) for shape in shapes]
        layer.build(free[0] if len(free) == 1 else free)
    for weight in layer.weights:
        if keras.backend.standardize_dtype(weight.dtype).startswith("float"):
            drawn = np.arange(weight.value.numpy().size) % 7 - 3
            positive = any(word in weight.path for word in ("variance", "scale", "gamma"))
            weight.assign((np.abs(drawn) + 1 if positive else drawn).reshape(weight.shape) / 4)
    return layer


def row(layer: keras.Layer, shape: tuple[int, ...], how: str = "", given=None, **options: object) -> None:
    """A row for a layer of one tensor, whose sizes but the first are as they are in a model."""
    ready = cache(lambda: called(layer, shape))  # built when it is first run

    def run(x):
        return ready()(keras.ops.reshape(x, (-1, *shape[1:])))

    options = {"dtypes": ("float32",), "limit": 1e-5, "known": False} | options
    dtypes = options.pop("dtypes")
    add(f"keras.layers.{type(layer).__name__}", run, given or images(*shape), dtypes, how, **options)


for rank, shape in SEEN.items():
    first = (shape[0], shape[-1], *shape[1:-1])
    convolution, transposed = (getattr(layers, f"Conv{rank}D{word}") for word in ("", "Transpose"))
    for options in ({}, {"padding": "same", "strides": 2}, {"groups": 2}, {"dilation_rate": 2, "padding": "same"}):
        row(convolution(6, 3, activation="relu", **options), shape, str(options or ""))
    row(convolution(6, 1, strides=2, padding="same"), shape, "1 by 1, strides=2")
    row(convolution(6, 2, data_format="channels_first"), first, "channels first")
    for options in (
        {},
        {"strides": 2},
        {"strides": 2, "padding": "same"},
        {"strides": 2, "output_padding": 1, "padding": "same"},
    ):
        row(transposed(5, 3, **options), shape, str(options or ""))
    row(transposed(5, 1, strides=2), shape, "a kernel below its stride")
    row(transposed(5, 3, strides=2, padding="same", data_format="channels_first"), first, "channels first")
    if rank < 3:
        for options in (
            {},
            {"padding": "same", "strides": 2, "dilation_rate": 2},
            {"depth_multiplier": 3, "padding": "same"},
        ):
            row(getattr(layers, f"DepthwiseConv{rank}D")(3, **options), shape, str(options or ""))
            row(getattr(layers, f"SeparableConv{rank}D")(5, 3, **options), shape, str(options or ""))
    for kind in ("Max", "Average"):
        pooling = getattr(layers, f"{kind}Pooling{rank}D")
        whole, adaptive = (getattr(layers, f"{word}{kind}Pooling{rank}D") for word in ("Global", "Adaptive"))
        seen, turned = (images(*each, without=(NAN,)) for each in (shape, first))  # NaN of a maximum is written down
        for options in ({}, {"padding": "same"}, {"strides": 3, "padding": "same"}):
            row(pooling(2, **options), shape, str(options or ""), seen)
        row(pooling(2, data_format="channels_first"), first, "channels first", turned)
        row(whole(), shape, given=seen)
        row(whole(keepdims=True, data_format="channels_first"), first, "channels first", turned)
        row(adaptive(3), shape, given=seen)
    row(getattr(layers, f"Cropping{rank}D")(1), shape, dtypes=NUMBERS)
    row(getattr(layers, f"ZeroPadding{rank}D")(1), shape, dtypes=NUMBERS)
    row(getattr(layers, f"UpSampling{rank}D")(2), shape, dtypes=FLOATS)
    row(getattr(layers, f"SpatialDropout{rank}D")(0.2), shape)
for way in ("bilinear", "bicubic", "lanczos3"):
    row(layers.UpSampling2D((2, 3), interpolation=way), SEEN[2], way, limit=1e-3)
for words, size in {"by 1": (2, 1, 1, 8), "by 5": (2, 1, 5, 8)}.items():
    for norm in (
        layers.LayerNormalization(),
        layers.RMSNormalization(),
        layers.UnitNormalization(),
        layers.GroupNormalization(2),
    ):
        stack = called(keras.Sequential([layers.Conv2D(8, 3, padding="same"), norm, layers.Dense(3)]), size)
        how = f"after a convolution whose output is 1 {words}"
        add(f"keras.layers.{type(norm).__name__}", stack, images(*size), ("float32",), how, known=True, limit=1e-4)
causal = layers.Conv1D(6, 3, padding="causal", dilation_rate=2)
row(causal, SEEN[1], "causal")

for shape in ((3, 6), (3, 5, 6), (2, 3, 5, 6), (2, 3, 2, 4, 6)):
    axes = f"{len(shape)} axes"
    for norm in (
        layers.BatchNormalization(),
        layers.LayerNormalization(),
        layers.RMSNormalization(),
        layers.GroupNormalization(2),
    ):
        row(norm, shape, axes, limit=1e-4)
    row(layers.LayerNormalization(axis=1), shape, f"{axes}, over the first", limit=1e-4)
    row(layers.LayerNormalization(axis=[*range(1, len(shape))], scale=False), shape, f"{axes}, over all", limit=1e-4)
    row(layers.BatchNormalization(axis=1, center=False), shape, f"{axes}, over the first", limit=1e-4)
    row(layers.UnitNormalization(axis=1), shape, axes)
    row(layers.Normalization(mean=np.arange(6.0), variance=np.arange(6.0)), shape, axes)
row(layers.SpectralNormalization(layers.Dense(5)), (3, 6))
row(layers.Normalization(mean=1.0, variance=3.0, axis=None, invert=True), (3, 6), "invert")

DEEP = (3, 4, 6)
for how, layer in {
    "": layers.ReLU(),
    "max_value=6": layers.ReLU(6.0),
    "max_value, negative_slope and threshold": layers.ReLU(4.0, negative_slope=0.1, threshold=0.5),
}.items():
    row(layer, DEEP, how, dtypes=FLOATS)
for layer in (
    layers.ELU(0.7),
    layers.LeakyReLU(0.2),
    layers.PReLU(),
    layers.Activation("gelu"),
    layers.Identity(),
):
    row(layer, DEEP)
row(layers.PReLU(shared_axes=[1]), DEEP, "shared")
row(layers.Softmax(), DEEP, given=ordinary(DEEP))
row(layers.Softmax(axis=(1, 2)), DEEP, "two axes", ordinary(DEEP))
for layer in (
    layers.Dropout(0.3),
    layers.AlphaDropout(0.1),
    layers.GaussianDropout(0.1),
    layers.GaussianNoise(0.1),
    layers.ActivityRegularization(0.1),
):
    row(layer, DEEP)
row(layers.Masking(0.0), (2, 2, 2), given=fixed(np.float32([[[0, 0], [0, 1]], [[-0.0, 0.0], [2, 3]]])))
row(layers.Dense(5, activation="relu"), DEEP, dtypes=("float32",))
row(layers.Permute((2, 1)), DEEP, dtypes=NUMBERS)
row(layers.Reshape((-1, 2)), DEEP, dtypes=NUMBERS)
row(layers.Flatten(), DEEP, dtypes=NUMBERS)
row(layers.Flatten(data_format="channels_first"), DEEP, "channels first")
row(layers.RepeatVector(3), (3, 6), dtypes=NUMBERS)
row(layers.EinsumDense("abc,cd->abd", (None, 5), bias_axes="d"), DEEP)
row(layers.EinsumDense("...x,xy->...y", 5), DEEP, "any axes")
row(layers.TimeDistributed(layers.Dense(3)), DEEP)
for name, states in {"SimpleRNNCell": 1, "GRUCell": 1, "LSTMCell": 2}.items():
    cell = called(getattr(layers, name)(3), (2, 4))
    given = ordinary((2, 4), *[(2, 3)] * states)
    add(f"keras.layers.{name}", lambda x, *h, cell=cell: cell(x, [*h]), given, ("float32",), limit=1e-5)
row(layers.Lambda(lambda x: x * 2), DEEP)
row(layers.Rescaling(1 / 255, offset=-1), SEEN[2], dtypes=("float32", "uint8"))
row(layers.CenterCrop(3, 4), SEEN[2])
row(layers.CenterCrop(9, 4), SEEN[2], "larger than the image")
row(layers.Resizing(7, 3), (2, 5, 6, 3))
for options in (
    {"crop_to_aspect_ratio": True},
    {"pad_to_aspect_ratio": True},
    {"interpolation": "nearest"},
    {"antialias": True},
):
    row(layers.Resizing(7, 3, **options), (2, 5, 6, 3), str(options), limit=1e-4)

PAIR = ordinary((3, 4, 6), (3, 4, 1))


def joined(layer: keras.Layer, how: str = "", given=PAIR, **options: object) -> None:
    """A row for a layer of several tensors."""
    add(f"keras.layers.{type(layer).__name__}", lambda *x: layer([*x]), given, how=how, **options)


for name in ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum"):
    joined(getattr(layers, name)(), dtypes=("float32",))
for axis in (0, -1):
    joined(layers.Concatenate(axis), f"{axis=}", ordinary((3, 4, 6), (3, 4, 6)), dtypes=("float32",))
SQUARES = ordinary((3, 4, 4), (3, 4, 4))
for axes in ((2, 2), (2, 1), (1, 2)):
    for normalize in (False, True):
        how = f"{axes=}, {normalize=}"
        joined(layers.Dot(axes, normalize=normalize), how, SQUARES, dtypes=("float32",), known=True, limit=1e-4)

QUERY, KEYS = (3, 4, 6), (3, 5, 6)
attended = {"dtypes": ("float32",), "known": True, "limit": 1e-4}
for how, options in {"": {}, "scaled": {"use_scale": True}, "concat": {"score_mode": "concat"}}.items():
    attention = called(layers.Attention(**options), QUERY, KEYS)
    joined(attention, how, ordinary(QUERY, KEYS), **attended)
    causal = partial(attention, use_causal_mask=True)
    add(
        "keras.layers.Attention",
        lambda v, layer=causal: layer([v, v]),
        ordinary(KEYS),
        how=f"{how}, causal",
        **attended,
    )
joined(called(layers.AdditiveAttention(), QUERY, KEYS), given=ordinary(QUERY, KEYS), **attended)
for name, sizes in {"MultiHeadAttention": (2, 3), "GroupQueryAttention": (3, 4, 2)}.items():
    heads = getattr(layers, name)(*sizes)
    heads.build(QUERY, KEYS)
    add(f"keras.layers.{name}", called(heads), ordinary(QUERY, KEYS), **attended)

HEADS = ordinary((2, 4, 2, 3), (2, 5, 2, 3), (2, 5, 2, 3))
for causal in (False, True):
    attention = partial(keras.ops.nn.dot_product_attention, is_causal=causal)
    add("keras.ops.nn.dot_product_attention", attention, HEADS, how=f"{causal=}", **attended)
IDS = fixed(np.int32([[0, 3, 6, 6], [1, 2, 5, 0]]))
add("keras.layers.Embedding", called(layers.Embedding(7, 3), (2, 4)), IDS, ("int32",))
if hasattr(layers, "ReversibleEmbedding"):
    add("keras.layers.ReversibleEmbedding", called(layers.ReversibleEmbedding(7, 3), (2, 4)), IDS, ("int32",))
for mode in ("one_hot", "multi_hot", "count"):
    add(
        "keras.layers.CategoryEncoding", layers.CategoryEncoding(7, output_mode=mode), IDS, ("int32",), mode, known=True
    )
for mode in ("int", "one_hot", "multi_hot", "count"):
    bins = layers.Discretization(bin_boundaries=[-1.0, 0.0, 1.0], output_mode=mode)
    add("keras.layers.Discretization", bins, images(3, 4), ("float32",), mode, known=True)

SOUND = fixed(np.sin(np.arange(80) ** 1.3).reshape(2, 40, 1))
for mode in ("log", "magnitude", "psd", "real", "imag"):
    row(
        layers.STFTSpectrogram(mode=mode, frame_length=16, frame_step=8, window=None),
        (2, 40, 1),
        mode,
        SOUND,
        known=True,
        limit=2e-3,
    )
LOUD = fixed(np.sin(np.arange(800) ** 1.3).reshape(2, 400))
mel = layers.MelSpectrogram(fft_length=64, sequence_stride=32, sampling_rate=800, num_mel_bins=10)
row(mel, (2, 400), given=LOUD, known=True, limit=1e-3)

DRAWN = """
RandomBrightness(0.2) RandomContrast(0.2) RandomCrop(3,4) RandomFlip() RandomRotation(0.2) RandomTranslation(0.1,0.1)
RandomZoom(0.2) RandomShear(0.1) RandomHue(0.1) RandomSaturation(0.1) RandomGrayscale() RandomInvert() MixUp() AugMix()
RandomPosterization(4) RandomSharpness(0.1) RandomColorJitter() RandomColorDegeneration(0.1) RandomErasing() CutMix()
RandomGaussianBlur() RandomPerspective() RandomElasticTransform() Solarization() Equalization() AutoContrast()
RandAugment()"""
for call in DRAWN.split():  # most do nothing when a model infers
    name, _, arguments = call.rstrip(")").partition("(")
    made = getattr(layers, name)(*(float(each) if "." in each else int(each) for each in arguments.split(",") if each))
    inferring = partial(made, training=False)
    add(f"keras.layers.{name}", inferring, ordinary((2, 6, 7, 3)), ("float32",), known=True, limit=1e-5)
tiles = layers.ContrastLimitedAdaptiveHistogramEqualization(tile_grid_size=(2, 2))
row(tiles, (2, 8, 8, 3), given=ordinary((2, 8, 8, 3)), known=True)
