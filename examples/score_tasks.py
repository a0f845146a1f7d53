"""Toy tasks with one correct key per query, and scores that are trained to find the key.

On each task all contestants have the same number of weights, except the Gaussian, which has one. The loss is the
cross-entropy of the attention weights with the index of the correct key as label.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from keras_attn import AdditiveAttention, DotProductAttention, GaussianAttention

NUM_QUERIES, NUM_KEYS, BATCH_SIZE = 8, 12, 128
NUM_HELD_OUT = 1000  # examples, of NUM_QUERIES queries each
LEARNING_RATE = 0.03  # of 0.003, 0.01 and 0.03 the best for each contestant and task, or within 0.2% of the best


@dataclass(frozen=True)
class Task:
    """Name, size D of queries and keys, and a function that draws queries, keys and the indices of the correct keys."""

    name: str
    size: int
    draw: Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray, np.ndarray]]


def draw_numbers(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw numbers from -1 to 1; the nearest key is correct."""
    queries, keys = (rng.uniform(-1, 1, (count, length, 1)) for length in (NUM_QUERIES, NUM_KEYS))
    return queries, keys, np.abs(queries - keys.swapaxes(1, 2)).argmin(-1)


def draw_numbers_with_one(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw the same numbers, each with a second coordinate 1."""
    queries, keys, labels = draw_numbers(rng, count)
    return *(np.concatenate([x, np.ones_like(x)], -1) for x in (queries, keys)), labels


def make_direction_draw(size: int) -> Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return a function that draws unit vectors; the key with the smallest angle is correct."""

    def draw(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        queries, keys = (rng.normal(size=(count, length, size)) for length in (NUM_QUERIES, NUM_KEYS))
        queries, keys = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (queries, keys))
        return queries, keys, (queries @ keys.swapaxes(1, 2)).argmax(-1)

    return draw


TASKS = (
    Task("same direction, size 2", 2, make_direction_draw(2)),
    Task("same direction, size 8", 8, make_direction_draw(8)),
    Task("same direction, size 32", 32, make_direction_draw(32)),
    Task("nearest number, (x)", 1, draw_numbers),
    Task("nearest number, (x, 1)", 2, draw_numbers_with_one),
)


def compute_additive_weights(queries: Any, keys: Any, num_hiddens: int) -> Any:
    return AdditiveAttention(num_hiddens)(queries, keys, keys, return_attention_scores=True)[1]


def compute_biased_additive_weights(queries: Any, keys: Any, num_hiddens: int) -> Any:
    return AdditiveAttention(num_hiddens, normalize=True)(queries, keys, keys, return_attention_scores=True)[1]


def compute_dot_product_weights(queries: Any, keys: Any, num_hiddens: int) -> Any:
    """Return the attention weights of projected dot products, with as many parameters as additive scores."""
    size = queries.shape[-1]
    units = num_hiddens + num_hiddens // (2 * size)
    projections = (keras.layers.Dense(units, use_bias=False)(x) for x in (queries, keys))
    return DotProductAttention()(*projections, keys, return_attention_scores=True)[1]


def compute_gaussian_weights(queries: Any, keys: Any, num_hiddens: int) -> Any:
    return GaussianAttention()(queries, keys, keys, return_attention_scores=True)[1]


CONTESTANTS = {
    "additive": compute_additive_weights,
    "additive, bias": compute_biased_additive_weights,
    "dot product": compute_dot_product_weights,
    "one Gaussian": compute_gaussian_weights,
}


def build_model(contestant: str, task: Task) -> keras.Model:
    """Build a model from queries (B, Tq, D) and keys (B, Tk, D) to weights (B, Tq, Tk)."""
    queries, keys = keras.Input((None, task.size), name="queries"), keras.Input((None, task.size), name="keys")
    return keras.Model([queries, keys], CONTESTANTS[contestant](queries, keys, max(16, 4 * task.size)))


def train(model: keras.Model, task: Task, steps: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    queries, keys, labels = task.draw(rng, BATCH_SIZE * steps)
    schedule = keras.optimizers.schedules.CosineDecay(LEARNING_RATE, steps)
    model.compile(keras.optimizers.Adam(schedule), "sparse_categorical_crossentropy")
    model.fit([queries, keys], labels, batch_size=BATCH_SIZE, verbose=0)


def measure_accuracy(model: keras.Model, task: Task, seed: int) -> float:
    """Return the share of held-out queries whose largest weight is on the correct key."""
    queries, keys, labels = task.draw(np.random.default_rng(1000 + seed), NUM_HELD_OUT)
    return float(np.mean(np.asarray(model([queries, keys])).argmax(-1) == labels))


def build_trained_model(contestant: str, task: Task, steps: int, seed: int) -> keras.Model:
    keras.utils.set_random_seed(seed)
    model = build_model(contestant, task)
    train(model, task, steps, seed)
    return model


def measure_call_seconds(contestant: str, size: int = 32, length: int = 256, repeats: int = 40) -> float:
    """Return the time of the fastest of `repeats` calls with 4 examples of `length` queries and keys."""
    model = build_model(contestant, Task("time", size, make_direction_draw(size)))
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=(4, length, size)).astype("float32") for _ in range(2)]
    model.predict_on_batch(inputs)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        model.predict_on_batch(inputs)
        times.append(time.perf_counter() - start)
    return min(times)
