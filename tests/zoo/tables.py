"""Tabular data: numeric and categorical columns, and bags of rows."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers as L  # noqa: N812 - used in every line of the models
from keras import ops

from .registry import ID, LOW_PRECISIONS, add_architecture, architecture, draw_ids


@architecture()
def wide_and_deep(numbers=(5,), work=ID, education=ID, country=ID):
    """Cheng et al., 2016: Wide and Deep Learning for Recommender Systems."""
    categories = [(9, work), (16, education), (40, country)]
    vectors = [L.Embedding(count, 8)(category) for count, category in categories]
    one_hots = [L.CategoryEncoding(count, "one_hot")(category) for count, category in categories]
    wide = L.BatchNormalization()(L.Concatenate()([numbers, *one_hots]))
    deep = L.Concatenate()([numbers, *vectors])
    for units in (32, 16):
        deep = L.Dropout(0.1)(L.ReLU()(L.BatchNormalization()(L.Dense(units)(deep))))
    return {"classes": L.Dense(7, activation="softmax")(L.Concatenate()([wide, deep]))}


def feature_space():
    """Build a classifier of raw table rows: words, numbers and integers."""
    rng, space = np.random.default_rng(0), keras.utils.FeatureSpace
    rows = {
        "age": rng.integers(18, 90, (60, 1)).astype("float32"),
        "pressure": rng.normal(130, 15, (60, 1)).astype("float32"),
        "thal": rng.choice(["fixed", "normal", "reversible"], (60, 1)).astype(object),
        "sex": rng.choice(["f", "m"], (60, 1)).astype(object),
        "ward": rng.integers(3, 9, (60, 1)),
    }
    kinds = {
        "age": space.float_discretized(num_bins=6),
        "pressure": space.float_normalized(),
        "thal": space.string_categorical(num_oov_indices=1, output_mode="one_hot"),
        "sex": space.string_categorical(num_oov_indices=0, output_mode="one_hot"),
        "ward": space.integer_categorical(output_mode="one_hot"),
    }
    features = space(kinds, output_mode="concat")
    features.adapt(tf.data.Dataset.from_tensor_slices(rows).batch(20))
    x = L.Dropout(0.5)(L.Dense(32, activation="relu")(features.get_encoded_features()))
    return keras.Model(features.get_inputs(), {"ill": L.Dense(1, activation="sigmoid")(x)})


SOURCE = "Keras examples, Structured data classification with FeatureSpace, from raw words and numbers"
add_architecture("tables", "feature_space", SOURCE, feature_space)


def wide_and_deep_of_words():
    """Build a wide and deep model of raw words: hashed, looked up and crossed."""
    names = ("work", "education", "country")
    words = {name: keras.Input((1,), dtype="string", name=name) for name in names}
    numbers = keras.Input((5,), name="numbers")
    vectors = [L.Flatten()(L.Embedding(50, 8)(L.Hashing(50)(word))) for word in words.values()]
    crossed = L.HashedCrossing(100, output_mode="one_hot")([words["work"], words["education"]])
    one_hot = L.StringLookup(vocabulary=["fr", "de", "jp"], num_oov_indices=4, output_mode="one_hot")(words["country"])
    deep = L.Dense(16, activation="relu")(L.Concatenate()([numbers, *vectors]))
    classes = L.Dense(7, activation="softmax")(L.Concatenate()([crossed, one_hot, deep]))
    return keras.Model([*words.values(), numbers], {"classes": classes})


SOURCE = "Cheng et al., 2016: Wide and Deep Learning for Recommender Systems, from raw words, hashed and crossed"
add_architecture("tables", "wide_and_deep_of_words", SOURCE, wide_and_deep_of_words)


@architecture()
def self_normalizing(rows=(12,)):
    """Klambauer et al., 2017: Self-Normalizing Neural Networks, on scaled columns."""
    x = L.Normalization(mean=list(range(12)), variance=[0.5 + 0.2 * index for index in range(12)])(rows)
    for _ in range(4):
        x = L.AlphaDropout(0.05)(L.Dense(24, activation="selu", kernel_initializer="lecun_normal")(x))
    return {"value": L.Dense(1)(x)}


@architecture()
def quantile_regression(rows=(6,)):
    """Koenker and Bassett, 1978: Regression Quantiles, with a monotone head, so that quantiles cannot cross."""
    x = L.Dense(24, activation="mish")(rows)
    steps = L.Dense(4, activation="softplus")(x)
    return {"quantiles": L.Dense(1)(x) + ops.cumsum(steps, -1)}


@architecture(precisions=LOW_PRECISIONS)
def continuous_exponential(rows=(12,)):
    """Barron, 2017: Continuously Differentiable Exponential Linear Units, a deep network of CELU on scaled columns."""
    x = L.Normalization(mean=list(range(12)), variance=[0.5 + 0.2 * index for index in range(12)])(rows)
    for alpha in (1.0, 0.5, 2.0):
        x = ops.celu(L.Dense(24)(x), alpha)
    return {"value": L.Dense(1)(L.Dense(24, activation="celu")(x))}


def draw_people():
    """Return ages in all bins, and ids of categories."""
    ages = np.linspace(-2, 2, 16, dtype="float32")[:, None]
    return {"age": ages, "category": draw_ids(4, 16, 1)}


@architecture(samples=draw_people)
def binned_columns(age=(1,), numbers=(5,), category=(1, "int32")):
    """Keras examples, Structured data classification with FeatureSpace: ages in bins, crossed with a category."""
    bins = [-1.5, -0.8, -0.3, 0.0, 0.3, 0.8, 1.5]
    crossed = 4 * L.Discretization(bins)(age) + ops.cast(category, "int64")  # the example hashes the pairs
    parts = [
        L.Discretization(bins, output_mode="one_hot")(age),
        L.CategoryEncoding(4, "one_hot")(category),
        L.CategoryEncoding(32, "one_hot")(crossed),
        L.Normalization(mean=[0.1] * 5, variance=[0.8] * 5)(numbers),
    ]
    x = L.Dropout(0.5)(L.Dense(32, activation="relu")(L.Concatenate()(parts)))
    return {"ill": L.Dense(1, activation="sigmoid")(x)}


@architecture()
def multiple_instances(bag=(None, 12)):
    """Ilse et al., 2018: Attention-based Deep Multiple Instance Learning, gated, eq. 9."""
    x = L.Dense(16, activation="relu")(bag)
    gated = L.Dense(8, activation="tanh", use_bias=False)(x) * L.Dense(8, activation="sigmoid", use_bias=False)(x)
    weights = ops.softmax(L.Dense(1, use_bias=False)(gated), axis=1)
    pooled = ops.sum(weights * x, axis=1)
    return {"classes": L.Dense(2, activation="softmax")(pooled), "weights": ops.squeeze(weights, -1)}


@architecture(precisions=LOW_PRECISIONS)
def mixture_of_experts(x=(8,)):
    """Jacobs et al., 1991: Adaptive Mixtures of Local Experts, a weighted sum of all experts."""
    gates = L.Dense(4, activation="softmax")(x)
    hidden = L.EinsumDense("bd,edh->beh", output_shape=(4, 12), bias_axes="eh", activation="relu")(x)
    experts = L.EinsumDense("beh,eho->beo", output_shape=(4, 3), bias_axes="eo")(hidden)
    return {"y": ops.einsum("be,beo->bo", gates, experts), "gates": gates}
