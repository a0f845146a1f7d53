"""The training of the model that spells numbers, in batches of rows of about one length."""

from collections.abc import Iterator, Sequence

import keras
import numpy as np
import tensorflow as tf
from number_data import Row, encode_answers

BATCH_SIZE, HIGHEST_RATE = 64, 1e-2
WIDTHS = 8  # batches are as wide as a multiple of it, so that few shapes are traced
Batch = tuple[np.ndarray, np.ndarray, np.ndarray]


def count_batches(rows: Sequence[Row], passes: int) -> int:
    """How many batches there are."""
    return passes * -(-len(rows) // BATCH_SIZE)


def make_batches(rows: Sequence[Row], passes: int, seed: int) -> Iterator[Batch]:
    """Batches of the tokens, what comes after each, and 1 where that is of the answer, (B, T) each.

    A pass takes every row once. Those of a batch have about one length, so that little of it is padding.
    """
    rng = np.random.default_rng(seed)
    arrays = encode_answers(rows)
    lengths = np.array([len(row.question) + len(row.answer) + 2 for row in rows])
    widths = -(-lengths // WIDTHS) * WIDTHS
    for _ in range(passes):
        order = rng.permutation(len(rows))
        order = order[np.argsort(widths[order], kind="stable")]
        batches = [order[start : start + BATCH_SIZE] for start in range(0, len(order), BATCH_SIZE)]
        rng.shuffle(batches)
        for chosen in batches:
            tokens, wanted, counted = (array[chosen, : widths[chosen].max()] for array in arrays)
            yield tokens, wanted, counted


def train(model: keras.Model, rows: Sequence[Row], passes: int, seed: int, verbose: int = 0) -> None:
    """The rate rises over the first 20th of the batches, and falls to 0. The loss is that of the answers alone.

    Muon gets to a tenth of the errors that Adam is left with after as many batches.
    """
    count = count_batches(rows, passes)
    warmup = max(1, count // 20)
    rate = keras.optimizers.schedules.CosineDecay(0.0, count, warmup_target=HIGHEST_RATE, warmup_steps=warmup)
    # Tokens, in and out, are no directions of one space, as Muon takes its matrices to be.
    optimizer = keras.optimizers.Muon(
        rate, adam_lr_ratio=0.5, exclude_layers=["embed", "answer"], weight_decay=0.0, adam_weight_decay=0.0
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight")
    model.compile(optimizer, loss)
    # Keras would take the width of the first batches for that of all; a signature says that it varies.
    signature = tuple(tf.TensorSpec([None, None], dtype) for dtype in ("int32", "int32", "float32"))
    data = tf.data.Dataset.from_generator(lambda: make_batches(rows, passes, seed), output_signature=signature)
    model.fit(data.apply(tf.data.experimental.assert_cardinality(count)), shuffle=False, verbose=verbose)
