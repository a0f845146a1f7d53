"""Models trained on what packages and examples hold: each with rows that it was trained on, and held-out ones."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _models  # noqa: F401 - sees to what TensorFlow says before it is imported
import keras
import numpy as np
from keras import layers, ops

Arrays = dict[str, np.ndarray]
SEEN = 512  # rows that int8 is calibrated on, of those that the model was trained on


@dataclass(frozen=True)
class Trained:
    """A trained model.

    Attributes:
        name: What the tables call it.
        model: The model.
        seen: Rows that it was trained on.
        held_out: Rows that it was not.
        right: Returns for each held-out row, or token, whether an answer is right.
        convolves: Whether most of its work is convolutions.
        samples: What the export needs as samples, if anything.
    """

    name: str
    model: keras.Model
    seen: Arrays
    held_out: Arrays
    right: Callable[[Arrays], np.ndarray]
    convolves: bool = False
    samples: Arrays | None = None


def digits_by_convolutions(quick: bool) -> Trained:
    """Five convolutions on scikit-learn's digits, drawn larger: 32 by 32."""
    image = keras.Input((32, 32, 1), name="image")
    x = image
    for filters, strides in ((32, 1), (64, 2), (64, 1), (128, 2), (128, 1)):
        x = _normalized(x, filters, strides)
    model = keras.Model(image, _classes(layers.GlobalAveragePooling2D()(x), 10))
    return _classified("digits, five convolutions", model, *_digits(), quick, epochs=8, convolves=True)


def digits_by_a_transformer(quick: bool) -> Trained:
    """A vision Transformer of width 256 on the same digits, in patches of 4 by 4."""
    width = 256
    image = keras.Input((32, 32, 1), name="image")
    x = layers.Reshape((64, width))(layers.Conv2D(width, 4, strides=4)(image))
    x = x + layers.Embedding(64, width)(ops.arange(64))
    for _ in range(3):
        hidden = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(4, width // 4)(hidden, hidden)
        hidden = layers.LayerNormalization()(x)
        x = x + layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(hidden))
    pooled = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    model = keras.Model(image, _classes(pooled, 10))
    return _classified("digits, vision Transformer", model, *_digits(), quick, epochs=12, rate=3e-4)


def textures(quick: bool) -> Trained:
    """A residual network on patches of ten photographs of scikit-image: trained on the left half of each."""
    image = keras.Input((48, 48, 3), name="image")
    x = _normalized(image, 32, 2)
    for filters, strides in ((32, 1), (64, 2), (128, 2)):
        y = _normalized(x, filters, strides)
        y = layers.BatchNormalization(momentum=0.9)(layers.Conv2D(filters, 3, padding="same", use_bias=False)(y))
        if strides > 1:
            x = layers.Conv2D(filters, 1, strides=strides)(x)
        x = layers.ReLU()(layers.Add()([x, y]))
    model = keras.Model(image, _classes(layers.GlobalAveragePooling2D()(x), 10))
    return _classified("photographs, residual", model, *_patches(), quick, epochs=6, convolves=True)


def separable(quick: bool) -> Trained:
    """Depthwise convolutions and ReLU6, as in MobileNet, on the same patches."""
    image = keras.Input((48, 48, 3), name="image")
    x = _normalized(image, 32, 2)
    for filters, strides in ((64, 1), (128, 2), (128, 1), (256, 2)):
        x = layers.DepthwiseConv2D(3, strides=strides, padding="same", use_bias=False)(x)
        x = layers.ReLU(6.0)(layers.BatchNormalization(momentum=0.9)(x))
        x = _normalized(x, filters, 1, size=1)
    model = keras.Model(image, _classes(layers.GlobalAveragePooling2D()(x), 10))
    return _classified("photographs, depthwise", model, *_patches(), quick, epochs=8, convolves=True)


def table(quick: bool) -> Trained:
    """A perceptron on a table of scikit-learn, with columns of very different sizes: tumours."""
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(found.target))
    columns, kinds = found.data[order].astype("float32"), found.target[order]
    given = keras.Input((columns.shape[1],), name="columns")
    normalize = layers.Normalization()
    normalize.adapt(columns[:350])
    x = normalize(given)
    for _ in range(2):
        x = layers.Dense(256, activation="relu")(x)
    model = keras.Model(given, _classes(x, 2))
    return _classified("a table, dense layers", model, columns, kinds, 350, quick, epochs=15, name="columns")


def dates(quick: bool) -> Trained:
    """The example that reads dates: convolutions, and a decoder in a loop, which stays float32."""
    _examples()
    from date_data import decode_iso, encode_iso, encode_rows, make_rows, make_vocabulary, split_days
    from date_model import build_decoder
    from date_training import make_batches, train

    keras.utils.set_random_seed(0)
    days, later = split_days(0)
    vocabulary = make_vocabulary()
    rows = make_rows(days, 2 if quick else 400, seed=0, noise=0.9, typo_share=0.3)
    encoded = encode_rows(rows, vocabulary)
    decoder = build_decoder(len(vocabulary) + 2)
    train(decoder.training, make_batches(encoded, encode_iso(rows), 256, 0), verbose=0)
    held_out = make_rows(later, 1 if quick else 10, seed=1000, noise=0)
    chosen = np.random.default_rng(0).permutation(len(rows))[:SEEN]

    def right(outputs: Arrays) -> np.ndarray:
        return np.array(
            [answer == row.iso for answer, row in zip(decode_iso(outputs["tokens"]), held_out, strict=True)]
        )

    seen = {name: array[chosen] for name, array in encoded.items()}
    samples = {name: array[:8] for name, array in seen.items()}
    return Trained("dates", decoder.model, seen, encode_rows(held_out, vocabulary), right, samples=samples)


TRAINED = (digits_by_convolutions, textures, separable, digits_by_a_transformer, dates, table)


def _examples() -> None:
    """Let the examples be imported."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))


def _normalized(x: Any, filters: int, strides: int, size: int = 3) -> Any:
    x = layers.Conv2D(filters, size, strides=strides, padding="same", use_bias=False)(x)
    return layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x))


def _classes(x: Any, count: int) -> Any:
    return layers.Dense(count, activation="softmax", name="kind")(x)


def _classified(
    label: str,
    model: keras.Model,
    arrays: np.ndarray,
    kinds: np.ndarray,
    trained: int,
    quick: bool,
    *,
    epochs: int,
    rate: float = 1e-3,
    convolves: bool = False,
    name: str = "image",
) -> Trained:
    """Train a classifier on the first rows, and hold the others out."""
    keras.utils.set_random_seed(0)
    model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy")
    taken = 32 if quick else trained
    model.fit(arrays[:taken], kinds[:taken], epochs=1 if quick else epochs, batch_size=32, verbose=0)
    held_out = kinds[trained:]

    def right(outputs: Arrays) -> np.ndarray:
        return outputs["kind"].argmax(-1) == held_out

    return Trained(label, model, {name: arrays[: min(trained, SEEN)]}, {name: arrays[trained:]}, right, convolves)


def _digits() -> tuple[np.ndarray, np.ndarray, int]:
    from scipy.ndimage import zoom
    from sklearn.datasets import load_digits

    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    images = np.stack([zoom(each / 16, 4, order=1) for each in found.images[order]])[..., None]
    return images.astype("float32"), found.target[order], 1200


def _patches() -> tuple[np.ndarray, np.ndarray, int]:
    """Patches of 48 by 48, all that train from the left halves of the photographs, and all others from the right."""
    from skimage import data

    named = (
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
    photographs = [getattr(data, each)() / np.float32(255) for each in named]
    photographs = [each if each.ndim == 3 else np.stack([each] * 3, axis=-1) for each in photographs]
    rng, size, each = np.random.default_rng(0), 48, 200
    patches, kinds = [], []
    for side, count in ((0, each), (1, each // 2)):
        for kind, photograph in enumerate(photographs):
            height, width = photograph.shape[0] - size, photograph.shape[1] // 2 - size
            for _ in range(count):
                top, left = rng.integers(height), rng.integers(width) + side * (photograph.shape[1] // 2)
                patches.append(photograph[top : top + size, left : left + size])
                kinds.append(kind)
    trained = each * len(photographs)
    order = np.concatenate([rng.permutation(trained), trained + rng.permutation(len(kinds) - trained)])
    return np.stack(patches)[order].astype("float32"), np.array(kinds)[order], trained
