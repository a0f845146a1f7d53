"""Models that are trained on data of packages and examples, with training rows and held-out rows."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _models  # noqa: F401 - silences TensorFlow before it is imported
import keras
import numpy as np
from keras import layers, ops

Arrays = dict[str, np.ndarray]
CALIBRATION_ROWS = 512  # training rows that calibrate int8


@dataclass(frozen=True)
class TrainedModel:
    """Trained model with its data.

    Attributes:
        name: Name in the tables.
        model: The model.
        training_rows: Rows of the training data, for calibration.
        held_out: Rows that were not used for training.
        is_correct: Function from outputs to a boolean for each held-out row: True if the row is correct.
        samples: Sample inputs of the export, or None.
    """

    name: str
    model: keras.Model
    training_rows: Arrays
    held_out: Arrays
    is_correct: Callable[[Arrays], np.ndarray]
    samples: Arrays | None = None


def train_digits_convolutions(quick: bool) -> TrainedModel:
    """Train five convolutions on scikit-learn's digits, enlarged to 32 by 32 pixels."""
    image = keras.Input((32, 32, 1), name="image")
    hidden = image
    for filters, strides in ((32, 1), (64, 2), (64, 1), (128, 2), (128, 1)):
        hidden = _add_convolution(hidden, filters, strides)
    model = keras.Model(image, _add_classes(layers.GlobalAveragePooling2D()(hidden), 10))
    return _train_classifier("digits, five convolutions", model, *_load_digits(), quick, epochs=8)


def train_digits_transformer(quick: bool) -> TrainedModel:
    """Train a vision Transformer of width 256 on the same digits, with patches of 4 by 4 pixels."""
    width = 256
    image = keras.Input((32, 32, 1), name="image")
    hidden = layers.Reshape((64, width))(layers.Conv2D(width, 4, strides=4)(image))
    hidden = hidden + layers.Embedding(64, width)(ops.arange(64))
    for _ in range(3):
        normalized = layers.LayerNormalization()(hidden)
        hidden = hidden + layers.MultiHeadAttention(4, width // 4)(normalized, normalized)
        normalized = layers.LayerNormalization()(hidden)
        hidden = hidden + layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(normalized))
    pooled = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(hidden))
    model = keras.Model(image, _add_classes(pooled, 10))
    return _train_classifier("digits, vision Transformer", model, *_load_digits(), quick, epochs=12, rate=3e-4)


def train_photographs_residual(quick: bool) -> TrainedModel:
    """Train a residual network on patches of ten photographs of scikit-image, from the left halves."""
    image = keras.Input((48, 48, 3), name="image")
    hidden = _add_convolution(image, 32, 2)
    for filters, strides in ((32, 1), (64, 2), (128, 2)):
        residual = _add_convolution(hidden, filters, strides)
        residual = layers.Conv2D(filters, 3, padding="same", use_bias=False)(residual)
        residual = layers.BatchNormalization(momentum=0.9)(residual)
        if strides > 1:
            hidden = layers.Conv2D(filters, 1, strides=strides)(hidden)
        hidden = layers.ReLU()(layers.Add()([hidden, residual]))
    model = keras.Model(image, _add_classes(layers.GlobalAveragePooling2D()(hidden), 10))
    return _train_classifier("photographs, residual", model, *_load_patches(), quick, epochs=6)


def train_photographs_depthwise(quick: bool) -> TrainedModel:
    """Train depthwise convolutions and ReLU6, as in MobileNet, on the same patches."""
    image = keras.Input((48, 48, 3), name="image")
    hidden = _add_convolution(image, 32, 2)
    for filters, strides in ((64, 1), (128, 2), (128, 1), (256, 2)):
        hidden = layers.DepthwiseConv2D(3, strides=strides, padding="same", use_bias=False)(hidden)
        hidden = layers.ReLU(6.0)(layers.BatchNormalization(momentum=0.9)(hidden))
        hidden = _add_convolution(hidden, filters, 1, size=1)
    model = keras.Model(image, _add_classes(layers.GlobalAveragePooling2D()(hidden), 10))
    return _train_classifier("photographs, depthwise", model, *_load_patches(), quick, epochs=8)


def train_table(quick: bool) -> TrainedModel:
    """Train a perceptron on scikit-learn's table of tumours, whose columns have very different magnitudes."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(data.target))
    columns, classes = data.data[order].astype("float32"), data.target[order]
    columns_input = keras.Input((columns.shape[1],), name="columns")
    normalize = layers.Normalization()
    normalize.adapt(columns[:350])
    hidden = normalize(columns_input)
    for _ in range(2):
        hidden = layers.Dense(256, activation="relu")(hidden)
    model = keras.Model(columns_input, _add_classes(hidden, 2))
    return _train_classifier("a table, dense layers", model, columns, classes, 350, quick, epochs=15, name="columns")


def train_dates(quick: bool) -> TrainedModel:
    """Train the date normaliser of the examples: convolutions, and a decoding loop, which stays float32."""
    _add_examples_to_path()
    from date_data import decode_iso, encode_iso, encode_rows, make_rows, make_vocabulary, split_days
    from date_model import build_decoder
    from date_training import make_batches, train

    keras.utils.set_random_seed(0)
    days, test_days = split_days(0)
    vocabulary = make_vocabulary()
    rows = make_rows(days, 2 if quick else 400, seed=0, noise=0.9, typo_share=0.3)
    encoded = encode_rows(rows, vocabulary)
    decoder = build_decoder(len(vocabulary) + 2)
    train(decoder.training, make_batches(encoded, encode_iso(rows), 256, 0), verbose=0)
    held_out = make_rows(test_days, 1 if quick else 10, seed=1000, noise=0)
    sampled_rows = np.random.default_rng(0).permutation(len(rows))[:CALIBRATION_ROWS]

    def is_correct(outputs: Arrays) -> np.ndarray:
        return np.array(
            [answer == row.iso for answer, row in zip(decode_iso(outputs["tokens"]), held_out, strict=True)]
        )

    training_rows = {name: array[sampled_rows] for name, array in encoded.items()}
    samples = {name: array[:8] for name, array in training_rows.items()}
    held_out_rows = encode_rows(held_out, vocabulary)
    return TrainedModel("dates", decoder.model, training_rows, held_out_rows, is_correct, samples)


TRAININGS = (
    train_digits_convolutions,
    train_photographs_residual,
    train_photographs_depthwise,
    train_digits_transformer,
    train_dates,
    train_table,
)


def _add_examples_to_path() -> None:
    """Add the folder of the examples to the import path."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))


def _add_convolution(hidden: Any, filters: int, strides: int, size: int = 3) -> Any:
    hidden = layers.Conv2D(filters, size, strides=strides, padding="same", use_bias=False)(hidden)
    return layers.ReLU()(layers.BatchNormalization(momentum=0.9)(hidden))


def _add_classes(x: Any, count: int) -> Any:
    return layers.Dense(count, activation="softmax", name="kind")(x)


def _train_classifier(
    label: str,
    model: keras.Model,
    arrays: np.ndarray,
    classes: np.ndarray,
    training_count: int,
    quick: bool,
    *,
    epochs: int,
    rate: float = 1e-3,
    name: str = "image",
) -> TrainedModel:
    """Train a classifier on the first `training_count` rows and return it with the other rows as held-out rows."""
    keras.utils.set_random_seed(0)
    model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy")
    row_count = 32 if quick else training_count
    model.fit(arrays[:row_count], classes[:row_count], epochs=1 if quick else epochs, batch_size=32, verbose=0)
    held_out = classes[training_count:]

    def is_correct(outputs: Arrays) -> np.ndarray:
        return outputs["kind"].argmax(-1) == held_out

    training_rows = {name: arrays[: min(training_count, CALIBRATION_ROWS)]}
    return TrainedModel(label, model, training_rows, {name: arrays[training_count:]}, is_correct)


def _load_digits() -> tuple[np.ndarray, np.ndarray, int]:
    from scipy.ndimage import zoom
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    images = np.stack([zoom(image / 16, 4, order=1) for image in data.images[order]])[..., None]
    return images.astype("float32"), data.target[order], 1200


def _load_patches() -> tuple[np.ndarray, np.ndarray, int]:
    """Return patches of 48 by 48 pixels, classes and the number of training patches, which are from left halves."""
    from skimage import data

    names = (
        "astronaut",
        "brick",
        "camera",
        "chelsea",
        "coffee",
        "grass",
        "gravel",
        "hubble_deep_field",
        "rocket",
        "retina",
    )
    photographs = [getattr(data, name)() / np.float32(255) for name in names]
    photographs = [array if array.ndim == 3 else np.stack([array] * 3, axis=-1) for array in photographs]
    rng, size, patch_count = np.random.default_rng(0), 48, 200
    patches, classes = [], []
    for side, count in ((0, patch_count), (1, patch_count // 2)):
        for kind, photograph in enumerate(photographs):
            height, width = photograph.shape[0] - size, photograph.shape[1] // 2 - size
            for _ in range(count):
                top, left = rng.integers(height), rng.integers(width) + side * (photograph.shape[1] // 2)
                patches.append(photograph[top : top + size, left : left + size])
                classes.append(kind)
    training_count = patch_count * len(photographs)
    training_order = rng.permutation(training_count)
    held_out_order = training_count + rng.permutation(len(classes) - training_count)
    order = np.concatenate([training_order, held_out_order])
    return np.stack(patches)[order].astype("float32"), np.array(classes)[order], training_count
