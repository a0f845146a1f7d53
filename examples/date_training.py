"""Training of the date normaliser, in batches of dates of similar length."""

import keras
import numpy as np
import tensorflow as tf
from date_data import shift_characters

Inputs = dict[str, np.ndarray]
Batch = tuple[Inputs, np.ndarray]


def make_batches(inputs: Inputs, answers: np.ndarray, batch_size: int, seed: int) -> list[Batch]:
    """Return shuffled batches of dates of similar length, with little padding, and their answers (B, 10).

    The input `before` has the previous character of each character of the answer.
    """
    rng = np.random.default_rng(seed)
    inputs = inputs | {"before": shift_characters(answers)}
    pools = np.array_split(rng.permutation(len(answers)), max(1, len(answers) // (50 * batch_size)))
    order = np.concatenate([pool[np.argsort(inputs["valid_lens"][pool], kind="stable")] for pool in pools])
    batches = np.array_split(order, max(1, len(order) // batch_size))
    rng.shuffle(batches)
    return [(select_rows(inputs, rows), answers[rows]) for rows in batches]


def select_rows(inputs: Inputs, rows: np.ndarray) -> Inputs:
    """Return some rows of encoded dates, padded to the longest of these dates."""
    selected = {name: array[rows] for name, array in inputs.items()}
    return selected | {"characters": selected["characters"][:, : selected["valid_lens"].max()]}


def train(model: keras.Model, batches: list[Batch], verbose: int) -> None:
    """Train for one pass over the data: the learning rate rises to 0.003 in the first 5% and then falls to 0."""
    warmup = max(1, len(batches) // 20)
    rate = keras.optimizers.schedules.CosineDecay(0.0, len(batches), warmup_target=3e-3, warmup_steps=warmup)
    model.compile(keras.optimizers.Adam(rate), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    # Without a signature of dynamic axes Keras infers a fixed width from the first batches.
    inputs, answers = batches[0]
    signature = (
        {name: tf.TensorSpec([None] * array.ndim, array.dtype) for name, array in inputs.items()},
        tf.TensorSpec([None, *answers.shape[1:]], answers.dtype),
    )
    signature[0]["before"] = signature[1]  # (B, 10), with a fixed width
    data = tf.data.Dataset.from_generator(lambda: batches, output_signature=signature)
    model.fit(data.apply(tf.data.experimental.assert_cardinality(len(batches))), shuffle=False, verbose=verbose)
