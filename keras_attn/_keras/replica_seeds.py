"""Seed generator with different seeds in each replica of a model.

Keras gives every replica the same seed state, so that all replicas drop the same weights of their examples.
"""

from typing import Any

import keras
from keras import ops

from .._types import Tensor

# 2^32 divided by the golden ratio: its multiples modulo 2^30 are far apart. On torch the seed of a draw is the sum of
# the seed and the number of draws, so nearby offsets would repeat draws of another replica.
_SEED_STRIDE = 0x9E3779B1
_MAX_SEED_OFFSET = 2**30  # leaves room for the seed in 32 bits


# The class name is that of Keras, since Keras names the state variable after it.
class SeedGenerator(keras.random.SeedGenerator):
    """Seed generator with different seeds in each replica from one shared state; replica 0 draws those of Keras."""

    def next(self, ordered: bool = True) -> Tensor:
        """Return the next seed, two integers (2,)."""
        seed, replica = super().next(ordered), replica_number()
        if isinstance(replica, int) and replica == 0:
            return seed
        replica_offset = ops.cast(replica * _SEED_STRIDE % _MAX_SEED_OFFSET, seed.dtype)
        return seed + replica_offset * ops.convert_to_tensor([1, 0], seed.dtype)


def replica_number() -> Any:
    """Return the index of the current replica: an integer, or on TensorFlow a scalar tensor inside of a function."""
    # JAX runs one program on all devices, which draws one mask for the whole batch.
    if keras.backend.backend() == "tensorflow":
        return _strategy_replica()
    return _process_rank() if keras.backend.backend() == "torch" else 0


def _strategy_replica() -> Any:
    """Return the replica index of `tf.distribute`, 0 without a strategy."""
    import tensorflow as tf

    context = tf.distribute.get_replica_context() if tf.distribute.has_strategy() else None
    if context is None:  # also in the scope of a strategy, where models are created
        return 0
    number = context.replica_id_in_sync_group
    return tf.cast(number, "int64") if tf.is_tensor(number) else number


def _process_rank() -> int:
    """Return the rank of the process in `torch.distributed`, 0 without a process group."""
    from torch import distributed

    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0
