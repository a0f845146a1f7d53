"""English dates as people type them, and the training of the model that reads them."""

import datetime
import random

import keras
import numpy as np
from date_data import STYLES, Row, characters_before, encode_iso, encode_rows, make_vocabulary, write_date
from date_noise import add_noise

LOCALE, BATCH_SIZE = "en_US", 128


def draw_rows(days: list[datetime.date], count: int, seed: int) -> list[Row]:
    """Dates as people type them in English, in each style equally often."""
    rng = random.Random(seed)
    rows = []
    for n in range(count):
        day, style = rng.choice(days), STYLES[n % len(STYLES)]
        rows.append(Row(add_noise(write_date(day, LOCALE, style), LOCALE, rng), LOCALE, style, day.isoformat()))
    return rows


def encode_texts(rows: list[Row]) -> dict[str, np.ndarray]:
    return {name: x for name, x in encode_rows(rows, make_vocabulary()).items() if name != "locale"}


def train(model: keras.Model, rows: list[Row]) -> None:
    """One pass over the rows; the decoder is given the right character before each that it has to write."""
    answers = encode_iso(rows)
    rate = keras.optimizers.schedules.CosineDecay(4e-3, len(rows) // BATCH_SIZE)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(rate, clipnorm=1.0), loss)
    inputs = encode_texts(rows) | {"before": characters_before(answers)}
    model.fit(inputs, answers, batch_size=BATCH_SIZE, verbose=0)
