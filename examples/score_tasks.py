"""Toy tasks in which one key is the right one for a query, and the scores that are trained to find it.

Each contestant has as many weights as the others on a task, but for the Gaussian, which has one. The trained output is
the weights themselves: how much of a query's attention is on the right key.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from keras_attn import AdditiveAttention, DotProductAttention, GaussianAttention

NUM_QUERIES, NUM_KEYS, BATCH_SIZE = 8, 12, 128
HELD_OUT = 1000  # examples, of NUM_QUERIES queries each
RATE = 0.03  # of 0.003, 0.01 and 0.03 the best for each contestant on each task, or within 0.2% of it


@dataclass(frozen=True)
class Task:
    """What is asked for, the size of queries and keys, and a function that draws both and the right keys."""

    name: str
    size: int
    draw: Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray, np.ndarray]]


def nearest_number(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers from -1 to 1; the nearest key is right."""
    queries, keys = (rng.uniform(-1, 1, (count, length, 1)) for length in (NUM_QUERIES, NUM_KEYS))
    return queries, keys, np.abs(queries - keys.swapaxes(1, 2)).argmin(-1)


def nearest_number_with_one(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same numbers, each with a second coordinate that is always 1."""
    queries, keys, right = nearest_number(rng, count)
    return *(np.concatenate([x, np.ones_like(x)], -1) for x in (queries, keys)), right


def same_direction(size: int) -> Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Vectors of length 1; the key with the smallest angle is right."""

    def draw(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        queries, keys = (rng.normal(size=(count, length, size)) for length in (NUM_QUERIES, NUM_KEYS))
        queries, keys = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (queries, keys))
        return queries, keys, (queries @ keys.swapaxes(1, 2)).argmax(-1)

    return draw


TASKS = (
    Task("same direction, size 2", 2, same_direction(2)),
    Task("same direction, size 8", 8, same_direction(8)),
    Task("same direction, size 32", 32, same_direction(32)),
    Task("nearest number, (x)", 1, nearest_number),
    Task("nearest number, (x, 1)", 2, nearest_number_with_one),
)


def additive(queries: Any, keys: Any, hiddens: int) -> Any:
    return AdditiveAttention(hiddens)(queries, keys, keys, return_attention_scores=True)[1]


def additive_with_bias(queries: Any, keys: Any, hiddens: int) -> Any:
    return AdditiveAttention(hiddens, normalize=True)(queries, keys, keys, return_attention_scores=True)[1]


def dot_product(queries: Any, keys: Any, hiddens: int) -> Any:
    """Dot products of projected queries and keys, which get the weights that `w_v` is for additive scores."""
    size = queries.shape[-1]
    units = hiddens + hiddens // (2 * size)
    projected = (keras.layers.Dense(units, use_bias=False)(x) for x in (queries, keys))
    return DotProductAttention()(*projected, keys, return_attention_scores=True)[1]


def gaussian(queries: Any, keys: Any, hiddens: int) -> Any:
    return GaussianAttention()(queries, keys, keys, return_attention_scores=True)[1]


CONTESTANTS = {
    "additive": additive,
    "additive, bias": additive_with_bias,
    "dot product": dot_product,
    "one Gaussian": gaussian,
}


def build(contestant: str, task: Task) -> keras.Model:
    """From queries (B, Tq, D) and keys (B, Tk, D) to weights (B, Tq, Tk)."""
    queries, keys = keras.Input((None, task.size), name="queries"), keras.Input((None, task.size), name="keys")
    return keras.Model([queries, keys], CONTESTANTS[contestant](queries, keys, max(16, 4 * task.size)))


def train(model: keras.Model, task: Task, steps: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    queries, keys, right = task.draw(rng, BATCH_SIZE * steps)
    schedule = keras.optimizers.schedules.CosineDecay(RATE, steps)
    model.compile(keras.optimizers.Adam(schedule), "sparse_categorical_crossentropy")
    model.fit([queries, keys], right, batch_size=BATCH_SIZE, verbose=0)


def accuracy(model: keras.Model, task: Task, seed: int) -> float:
    """The share of held-out queries whose largest weight is on the right key."""
    queries, keys, right = task.draw(np.random.default_rng(1000 + seed), HELD_OUT)
    return float(np.mean(np.asarray(model([queries, keys])).argmax(-1) == right))


def trained(contestant: str, task: Task, steps: int, seed: int) -> keras.Model:
    keras.utils.set_random_seed(seed)
    model = build(contestant, task)
    train(model, task, steps, seed)
    return model


def seconds_a_call(contestant: str, size: int = 32, length: int = 256, repeats: int = 40) -> float:
    """The time of the fastest of several calls with 4 examples of `length` queries and keys."""
    model = build(contestant, Task("time", size, same_direction(size)))
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(4, length, size)).astype("float32") for _ in range(2)]
    model.predict_on_batch(x)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        model.predict_on_batch(x)
        times.append(time.perf_counter() - start)
    return min(times)
