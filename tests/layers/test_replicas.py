"""Seeds differ between the copies of a model; the state that they are made of does not."""

import keras
import numpy as np
from keras import ops
from layer_contract import to_numpy
from tolerances import assert_identical

from keras_attn import DotProductAttention
from keras_attn._keras import replica_seeds

SHAPES = ((2, 3, 4), (2, 50, 4), (2, 50, 50))


def drawn_seeds(monkeypatch, number, draws=3):
    """The seeds that a copy of a model draws, and the state that is left."""
    monkeypatch.setattr(replica_seeds, "replica_number", lambda: number)
    generator = replica_seeds.SeedGenerator(7)
    drawn = [to_numpy(generator.next()).tolist() for _ in range(draws)]
    return drawn, to_numpy(generator.state).tolist()


def test_first_replica_draws_like_a_single_one(monkeypatch):
    alone = keras.random.SeedGenerator(7)
    assert drawn_seeds(monkeypatch, 0)[0] == [to_numpy(alone.next()).tolist() for _ in range(3)]
    assert drawn_seeds(monkeypatch, 0)[1] == to_numpy(alone.state).tolist()


def test_replicas_draw_different_seeds_from_one_state(monkeypatch):
    drawn, states = zip(*(drawn_seeds(monkeypatch, number) for number in range(64)), strict=True)
    assert len({tuple(seed) for seeds_of_one in drawn for seed in seeds_of_one}) == 64 * 3
    assert states == (states[0],) * 64
    # On torch a seed is the sum of the two: sums must lie farther apart than a training has draws.
    sums = np.sort([sum(seeds_of_one[0]) for seeds_of_one in drawn])
    assert np.diff(sums).min() > 2**20
    assert 0 <= sums[0] < sums[-1] < 2**31


def test_replicas_draw_different_dropout(monkeypatch):
    queries, keys, _ = (ops.zeros(shape) for shape in SHAPES)
    values = ops.broadcast_to(ops.eye(50), SHAPES[2])

    def dropped(number):
        monkeypatch.setattr(replica_seeds, "replica_number", lambda: number)
        return to_numpy(DotProductAttention(0.5, seed=3)(queries, keys, values, training=True)) == 0

    first, second, again = dropped(0), dropped(1), dropped(1)
    assert_identical(second, again)
    # Masks that know nothing of each other differ in half of their places.
    assert 0.35 < np.mean(first != second) < 0.65
