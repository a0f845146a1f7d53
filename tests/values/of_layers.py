"""Layers of `keras.layers` in inference."""

from functools import cache, partial

import keras
import numpy as np
from keras import layers

from .grids import FLOAT32, FLOATS, INT32, NAN, NUMBERS, feed, fill, mix
from .table import add

SHAPES = {1: (2, 7, 4), 2: (2, 7, 6, 4), 3: (1, 5, 6, 4, 4)}


def initialize(layer: keras.Layer, *shapes: tuple[int, ...]) -> keras.Layer:
    """Build a layer and return it with small constant weights: of both signs, but variances and scales positive."""
    if shapes and not layer.built:
        input_shapes = [(None, *shape[1:]) for shape in shapes]
        layer.build(input_shapes[0] if len(input_shapes) == 1 else input_shapes)
    for weight in layer.weights:
        if keras.backend.standardize_dtype(weight.dtype).startswith("float"):
            values = np.arange(weight.value.numpy().size) % 7 - 3
            is_positive = any(word in weight.path for word in ("variance", "scale", "gamma"))
            weight.assign((np.abs(values) + 1 if is_positive else values).reshape(weight.shape) / 4)
    return layer


def add_layer(layer: keras.Layer, shape: tuple[int, ...], variant="", make_inputs=None, **options: object) -> None:
    """Add a case for a layer of one tensor, whose batch size alone is unknown, as in a model."""
    initialize_once = cache(lambda: initialize(layer, shape))  # in the first run, not while tests are collected

    def call_layer(x):
        return initialize_once()(keras.ops.reshape(x, (-1, *shape[1:])))

    options = {"dtypes": FLOAT32, "limit": 1e-5, "is_static": False} | options
    dtypes = options.pop("dtypes")
    add(f"keras.layers.{type(layer).__name__}", call_layer, make_inputs or mix(*shape), dtypes, variant, **options)


for rank, shape in SHAPES.items():
    channels_first = (shape[0], shape[-1], *shape[1:-1])
    convolution, transposed_convolution = (getattr(layers, f"Conv{rank}D{suffix}") for suffix in ("", "Transpose"))
    for options in ({}, {"padding": "same", "strides": 2}, {"groups": 2}, {"dilation_rate": 2, "padding": "same"}):
        add_layer(convolution(6, 3, activation="relu", **options), shape, str(options or ""))
    add_layer(convolution(6, 1, strides=2, padding="same"), shape, "1 by 1, strides=2")
    add_layer(convolution(6, 2, data_format="channels_first"), channels_first, "channels first")
    strided_options = {"strides": 2, "padding": "same"}
    for options in ({}, {"strides": 2}, strided_options, {"strides": 2, "output_padding": 1, "padding": "same"}):
        add_layer(transposed_convolution(5, 3, **options), shape, str(options or ""))
    add_layer(transposed_convolution(5, 1, strides=2), shape, "a kernel below its stride")
    layer = transposed_convolution(5, 3, **strided_options, data_format="channels_first")
    add_layer(layer, channels_first, "channels first")
    if rank < 3:
        dilated_options = {"padding": "same", "strides": 2, "dilation_rate": 2}
        for options in ({}, dilated_options, {"depth_multiplier": 3, "padding": "same"}):
            add_layer(getattr(layers, f"DepthwiseConv{rank}D")(3, **options), shape, str(options or ""))
            add_layer(getattr(layers, f"SeparableConv{rank}D")(5, 3, **options), shape, str(options or ""))
    for kind in ("Max", "Average"):
        pooling = getattr(layers, f"{kind}Pooling{rank}D")
        global_pooling, adaptive_pooling = (getattr(layers, f"{p}{kind}Pooling{rank}D") for p in ("Global", "Adaptive"))
        # Without NaN: the maximum of NaN is a documented deviation.
        make_inputs, make_first = (mix(*sizes, skip_kinds=(NAN,)) for sizes in (shape, channels_first))
        for options in ({}, {"padding": "same"}, {"strides": 3, "padding": "same"}):
            add_layer(pooling(2, **options), shape, str(options or ""), make_inputs)
        add_layer(pooling(2, data_format="channels_first"), channels_first, "channels first", make_first)
        add_layer(global_pooling(), shape, "", make_inputs)
        pooling = global_pooling(keepdims=True, data_format="channels_first")
        add_layer(pooling, channels_first, "channels first", make_first)
        add_layer(adaptive_pooling(3), shape, "", make_inputs)
    add_layer(getattr(layers, f"Cropping{rank}D")(1), shape, dtypes=NUMBERS)
    add_layer(getattr(layers, f"ZeroPadding{rank}D")(1), shape, dtypes=NUMBERS)
    add_layer(getattr(layers, f"UpSampling{rank}D")(2), shape, dtypes=FLOATS)
    add_layer(getattr(layers, f"SpatialDropout{rank}D")(0.2), shape)
for interpolation in ("bilinear", "bicubic", "lanczos3"):
    add_layer(layers.UpSampling2D((2, 3), interpolation=interpolation), SHAPES[2], interpolation, limit=1e-3)
for width in (1, 5):
    norms = (layers.LayerNormalization(), layers.RMSNormalization(), layers.UnitNormalization())
    for norm in (*norms, layers.GroupNormalization(2)):
        shape, variant = (2, 1, width, 8), f"after a convolution whose output is 1 by {width}"
        stack = initialize(keras.Sequential([layers.Conv2D(8, 3, padding="same"), norm, layers.Dense(3)]), shape)
        add(f"keras.layers.{type(norm).__name__}", stack, mix(*shape), FLOAT32, variant, is_static=True, limit=1e-4)
add_layer(layers.Conv1D(6, 3, padding="causal", dilation_rate=2), SHAPES[1], "causal")

for shape in ((3, 6), (3, 5, 6), (2, 3, 5, 6), (2, 3, 2, 4, 6)):
    axes = f"{len(shape)} axes"
    norms = (layers.BatchNormalization(), layers.LayerNormalization(), layers.RMSNormalization())
    for norm in (*norms, layers.GroupNormalization(2)):
        add_layer(norm, shape, axes, limit=1e-4)
    add_layer(layers.LayerNormalization(axis=1), shape, f"{axes}, over the first", limit=1e-4)
    norm = layers.LayerNormalization(axis=[*range(1, len(shape))], scale=False)
    add_layer(norm, shape, f"{axes}, over all", limit=1e-4)
    add_layer(layers.BatchNormalization(axis=1, center=False), shape, f"{axes}, over the first", limit=1e-4)
    add_layer(layers.UnitNormalization(axis=1), shape, axes)
    add_layer(layers.Normalization(mean=np.arange(6.0), variance=np.arange(6.0)), shape, axes)
add_layer(layers.SpectralNormalization(layers.Dense(5)), (3, 6))
add_layer(layers.Normalization(mean=1.0, variance=3.0, axis=None, invert=True), (3, 6), "invert")

SHAPE = (3, 4, 6)
for variant, layer in {
    "": layers.ReLU(),
    "max_value=6": layers.ReLU(6.0),
    "max_value, negative_slope and threshold": layers.ReLU(4.0, negative_slope=0.1, threshold=0.5),
}.items():
    add_layer(layer, SHAPE, variant, dtypes=FLOATS)
for layer in (layers.ELU(0.7), layers.LeakyReLU(0.2), layers.PReLU(), layers.Activation("gelu"), layers.Identity()):
    add_layer(layer, SHAPE)
add_layer(layers.PReLU(shared_axes=[1]), SHAPE, "shared")
add_layer(layers.Softmax(), SHAPE, "", fill(SHAPE))
add_layer(layers.Softmax(axis=(1, 2)), SHAPE, "two axes", fill(SHAPE))
dropouts = (layers.Dropout(0.3), layers.AlphaDropout(0.1), layers.GaussianDropout(0.1))
for layer in (*dropouts, layers.GaussianNoise(0.1), layers.ActivityRegularization(0.1)):
    add_layer(layer, SHAPE)
add_layer(layers.Masking(0.0), (2, 2, 2), make_inputs=feed(np.float32([[[0, 0], [0, 1]], [[-0.0, 0.0], [2, 3]]])))
add_layer(layers.Dense(5, activation="relu"), SHAPE, dtypes=FLOAT32)
add_layer(layers.Permute((2, 1)), SHAPE, dtypes=NUMBERS)
add_layer(layers.Reshape((-1, 2)), SHAPE, dtypes=NUMBERS)
add_layer(layers.Flatten(), SHAPE, dtypes=NUMBERS)
add_layer(layers.Flatten(data_format="channels_first"), SHAPE, "channels first")
add_layer(layers.RepeatVector(3), (3, 6), dtypes=NUMBERS)
add_layer(layers.EinsumDense("abc,cd->abd", (None, 5), bias_axes="d"), SHAPE)
add_layer(layers.EinsumDense("...x,xy->...y", 5), SHAPE, "any axes")
add_layer(layers.TimeDistributed(layers.Dense(3)), SHAPE)
for name, states in {"SimpleRNNCell": 1, "GRUCell": 1, "LSTMCell": 2}.items():
    cell = initialize(getattr(layers, name)(3), (2, 4))
    make_inputs = fill((2, 4), *[(2, 3)] * states)
    add(f"keras.layers.{name}", lambda x, *states, cell=cell: cell(x, [*states]), make_inputs, FLOAT32, limit=1e-5)
add_layer(layers.Lambda(lambda x: x * 2), SHAPE)
add_layer(layers.Rescaling(1 / 255, offset=-1), SHAPES[2], dtypes=("float32", "uint8"))
add_layer(layers.CenterCrop(3, 4), SHAPES[2])
add_layer(layers.CenterCrop(9, 4), SHAPES[2], "larger than the image")
add_layer(layers.Resizing(7, 3), (2, 5, 6, 3))
for name in ("crop_to_aspect_ratio", "pad_to_aspect_ratio", "interpolation", "antialias"):
    options = {name: "nearest" if name == "interpolation" else True}
    add_layer(layers.Resizing(7, 3, **options), (2, 5, 6, 3), str(options), limit=1e-4)

PAIR = fill((3, 4, 6), (3, 4, 1))


def add_list_layer(layer: keras.Layer, variant: str = "", make_inputs=PAIR, **options: object) -> None:
    """Add a case for a layer of a list of tensors."""
    add(f"keras.layers.{type(layer).__name__}", lambda *x: layer([*x]), make_inputs, variant=variant, **options)


for name in ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum"):
    add_list_layer(getattr(layers, name)(), dtypes=FLOAT32)
for axis in (0, -1):
    add_list_layer(layers.Concatenate(axis), f"{axis=}", fill((3, 4, 6), (3, 4, 6)), dtypes=FLOAT32)
SQUARES = fill((3, 4, 4), (3, 4, 4))
static_options = {"dtypes": FLOAT32, "is_static": True, "limit": 1e-4}
for axes in ((2, 2), (2, 1), (1, 2)):
    for normalize in (False, True):
        dot = layers.Dot(axes, normalize=normalize)
        add_list_layer(dot, f"{axes=}, {normalize=}", SQUARES, **static_options)

QUERY, KEYS = (3, 4, 6), (3, 5, 6)
for variant, options in {"": {}, "scaled": {"use_scale": True}, "concat": {"score_mode": "concat"}}.items():
    attention = initialize(layers.Attention(**options), QUERY, KEYS)
    add_list_layer(attention, variant, fill(QUERY, KEYS), **static_options)
    attend_causally = partial(lambda layer, x: layer([x, x], use_causal_mask=True), attention)
    add("keras.layers.Attention", attend_causally, fill(KEYS), variant=f"{variant}, causal", **static_options)
add_list_layer(initialize(layers.AdditiveAttention(), QUERY, KEYS), "", fill(QUERY, KEYS), **static_options)
for name, sizes in {"MultiHeadAttention": (2, 3), "GroupQueryAttention": (3, 4, 2)}.items():
    heads = getattr(layers, name)(*sizes)
    heads.build(QUERY, KEYS)
    add(f"keras.layers.{name}", initialize(heads), fill(QUERY, KEYS), **static_options)

HEADS = fill((2, 4, 2, 3), (2, 5, 2, 3), (2, 5, 2, 3))
for causal in (False, True):
    attention = partial(keras.ops.nn.dot_product_attention, is_causal=causal)
    add("keras.ops.nn.dot_product_attention", attention, HEADS, variant=f"{causal=}", **static_options)
IDS = feed(np.int32([[0, 3, 6, 6], [1, 2, 5, 0]]))
add("keras.layers.Embedding", initialize(layers.Embedding(7, 3), (2, 4)), IDS, INT32)
if hasattr(layers, "ReversibleEmbedding"):
    add("keras.layers.ReversibleEmbedding", initialize(layers.ReversibleEmbedding(7, 3), (2, 4)), IDS, INT32)
for mode in ("one_hot", "multi_hot", "count"):
    add("keras.layers.CategoryEncoding", layers.CategoryEncoding(7, mode), IDS, INT32, mode, is_static=True)
for mode in ("int", "one_hot", "multi_hot", "count"):
    bins = layers.Discretization(bin_boundaries=[-1.0, 0.0, 1.0], output_mode=mode)
    add("keras.layers.Discretization", bins, mix(3, 4), FLOAT32, mode, is_static=True)

SOUND = feed(np.sin(np.arange(80) ** 1.3).reshape(2, 40, 1))
for mode in ("log", "magnitude", "psd", "real", "imag"):
    spectrogram = layers.STFTSpectrogram(mode=mode, frame_length=16, frame_step=8, window=None)
    add_layer(spectrogram, (2, 40, 1), mode, SOUND, is_static=True, limit=2e-3)
LONG_SOUND = feed(np.sin(np.arange(800) ** 1.3).reshape(2, 400))
spectrogram = layers.MelSpectrogram(fft_length=64, sequence_stride=32, sampling_rate=800, num_mel_bins=10)
add_layer(spectrogram, (2, 400), "", LONG_SOUND, is_static=True, limit=1e-3)

RANDOM_LAYERS = """
RandomBrightness(0.2) RandomContrast(0.2) RandomCrop(3,4) RandomFlip() RandomRotation(0.2) RandomTranslation(0.1,0.1)
RandomZoom(0.2) RandomShear(0.1) RandomHue(0.1) RandomSaturation(0.1) RandomGrayscale() RandomInvert() MixUp() AugMix()
RandomPosterization(4) RandomSharpness(0.1) RandomColorJitter() RandomColorDegeneration(0.1) RandomErasing() CutMix()
RandomGaussianBlur() RandomPerspective() RandomElasticTransform() Solarization() Equalization() AutoContrast()
RandAugment()"""
for call in RANDOM_LAYERS.split():  # in inference most of them return their inputs
    name, _, arguments = call.rstrip(")").partition("(")
    layer = getattr(layers, name)(*(float(text) if "." in text else int(text) for text in arguments.split(",") if text))
    infer = partial(layer, training=False)
    add(f"keras.layers.{name}", infer, fill((2, 6, 7, 3)), FLOAT32, is_static=True, limit=1e-5)
equalization = layers.ContrastLimitedAdaptiveHistogramEqualization(tile_grid_size=(2, 2))
add_layer(equalization, (2, 8, 8, 3), "", fill((2, 8, 8, 3)), is_static=True)
