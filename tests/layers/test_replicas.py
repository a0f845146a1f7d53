"""Random seeds of replicas: different seeds, and dropout masks, from equal states."""

import keras
import numpy as np
from keras import ops
from layer_contract import to_numpy
from tolerances import assert_identical

from keras_attn import DotProductAttention
from keras_attn._keras import replica_seeds

SHAPES = ((2, 3, 4), (2, 50, 4), (2, 50, 50))


def draw_seeds(monkeypatch, replica, count=3):
    """Return seeds that a replica draws, and the state of the generator after the draws."""
    monkeypatch.setattr(replica_seeds, "replica_number", lambda: replica)
    generator = replica_seeds.SeedGenerator(7)
    seeds = [to_numpy(generator.next()).tolist() for _ in range(count)]
    return seeds, to_numpy(generator.state).tolist()


def test_first_replica_draws_the_seeds_of_keras(monkeypatch):
    generator = keras.random.SeedGenerator(7)
    assert draw_seeds(monkeypatch, 0)[0] == [to_numpy(generator.next()).tolist() for _ in range(3)]
    assert draw_seeds(monkeypatch, 0)[1] == to_numpy(generator.state).tolist()


def test_replicas_draw_different_seeds_from_one_state(monkeypatch):
    seeds_by_replica, states = zip(*(draw_seeds(monkeypatch, replica) for replica in range(64)), strict=True)
    assert len({tuple(seed) for seeds in seeds_by_replica for seed in seeds}) == 64 * 3
    assert states == (states[0],) * 64
    # Torch adds the two numbers of a seed: the sums must differ by more than the number of draws in a training.
    sums = np.sort([sum(seeds[0]) for seeds in seeds_by_replica])
    assert np.diff(sums).min() > 2**20
    assert 0 <= sums[0] < sums[-1] < 2**31


def test_replicas_draw_different_dropout(monkeypatch):
    queries, keys, _ = (ops.zeros(shape) for shape in SHAPES)
    values = ops.broadcast_to(ops.eye(50), SHAPES[2])

    def draw_dropped_weights(replica):
        monkeypatch.setattr(replica_seeds, "replica_number", lambda: replica)
        return to_numpy(DotProductAttention(0.5, seed=3)(queries, keys, values, training=True)) == 0

    masks = [draw_dropped_weights(replica) for replica in (0, 1, 1)]
    assert_identical(masks[1], masks[2])
    assert 0.35 < np.mean(masks[0] != masks[1]) < 0.65  # independent masks differ in half of their elements
