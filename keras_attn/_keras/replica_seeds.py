"""A seed generator that draws different seeds in each replica of a model.

Keras gives every copy the same state of a seed, and so the same draws: with two copies, half of the dropout masks of a
step would be those of the other half.
"""

from typing import Any

import keras
from keras import ops

from .._types import Tensor

# From 2^32 and the golden ratio: multiples of it lie far from each other, and on torch a seed is a sum with the number
# of draws so far. Below 2^30, so that it leaves room in 32 bits for the seed.
_SEED_STRIDE, _MAX_SEED_OFFSET = 0x9E3779B1, 2**30


class SeedGenerator(keras.random.SeedGenerator):  # of one name: Keras names the variable after it
    """A seed generator that draws other seeds in each copy of a model, from one state that stays the same in all.

    The first copy, or the only one, draws what `keras.random.SeedGenerator` does.
    """

    def next(self, ordered: bool = True) -> Tensor:
        """The next seed, as two integers."""
        seed, replica = super().next(ordered), replica_number()
        if isinstance(replica, int) and replica == 0:
            return seed
        replica_offset = ops.cast(replica * _SEED_STRIDE % _MAX_SEED_OFFSET, seed.dtype)
        return seed + replica_offset * ops.convert_to_tensor([1, 0], seed.dtype)


def replica_number() -> Any:
    """Which copy of the model is computing, from 0; a scalar tensor on TensorFlow where it differs within a program.

    On JAX there is one program over all devices, which draws one mask for the whole batch.
    """
    if keras.backend.backend() == "tensorflow":
        return _strategy_replica()
    return _process_rank() if keras.backend.backend() == "torch" else 0


def _strategy_replica() -> Any:
    import tensorflow as tf

    context = tf.distribute.get_replica_context() if tf.distribute.has_strategy() else None
    if context is None:  # also where a model is made, in the scope of a strategy
        return 0
    number = context.replica_id_in_sync_group
    return tf.cast(number, "int64") if tf.is_tensor(number) else number


def _process_rank() -> int:
    from torch import distributed

    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0
