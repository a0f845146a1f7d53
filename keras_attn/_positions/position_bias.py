"""Base class of layers that compute score biases from relative positions."""

from typing import Any

import keras
from keras import ops

from .._checks.call_arguments import check_not_none, check_offset, check_rank, make_positions
from .._checks.constructor_arguments import check_positive_integer
from .._shapes import max_size, merge_shapes, shape_of
from .._types import Shape, Tensor


class PositionBias(keras.layers.Layer):
    """Biases `(1, H, Tq, Tk)` or `B + (H, Tq, Tk)` that depend on relative positions `j - i` only."""

    def __init__(self, num_heads: int, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)  # only the shapes of queries and keys are used
        self.num_heads = check_positive_integer("num_heads", num_heads)

    def _compute_biases(self, relative_positions: Tensor) -> Tensor:
        """Return biases `G + (H,)` in the compute dtype for relative positions `G`, int32, of key minus query."""
        raise NotImplementedError

    def build(self, queries_shape: Any = None) -> None:
        """Create no weights."""

    def call(self, queries: Tensor, keys: Tensor | None = None, offset: Any = 0) -> Tensor:
        keys = queries if keys is None else keys
        offset = ops.cast(self._validate_call(queries, keys, offset)[0], "int32")
        num_queries, num_keys = ops.shape(queries)[-2], ops.shape(keys)[-2]
        # All relative positions, from last query and first key on. At least one: JAX cannot gather from an empty axis.
        relative_positions = make_positions(1 - num_queries - offset, max_size(num_queries + num_keys - 1, 1))
        biases = _gather_pairwise(self._compute_biases(relative_positions), num_queries, num_keys)
        return biases if len(offset.shape) > 0 else ops.expand_dims(biases, 0)

    def compute_output_spec(self, queries: Tensor, keys: Tensor | None = None, offset: Any = 0) -> Tensor:
        _, shape = self._validate_call(queries, queries if keys is None else keys, offset)
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

    def compute_output_shape(self, queries_shape: Any, keys_shape: Any = None, offset_shape: Any = ()) -> Shape:
        keys_shape = queries_shape if keys_shape is None else keys_shape
        return (*(tuple(offset_shape or ()) or (1,)), self.num_heads, queries_shape[-2], keys_shape[-2])

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> None:
        """Return None, since biases have no mask."""

    def _validate_call(self, queries: Tensor, keys: Tensor, offset: Any) -> tuple[Tensor, Shape]:
        """Validate a call; return the offset as a tensor and the static shape of the biases."""
        check_not_none(queries=queries)
        queries_shape, keys_shape = shape_of(queries), shape_of(keys)
        for name, shape in (("queries", queries_shape), ("keys", keys_shape)):
            check_rank(name, shape, "positions and features")
        offset = check_offset(offset, "queries", queries_shape[:-2])
        axes = shape_of(offset)
        offset_shape = merge_shapes(axes, queries_shape[:-2]) if axes else axes
        return offset, self.compute_output_shape(queries_shape, keys_shape, offset_shape)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_heads": self.num_heads}


def _gather_pairwise(biases: Tensor, num_queries: Any, num_keys: Any) -> Tensor:
    """Gather biases of relative positions, `B + (Tq + Tk - 1, H)`, into biases of pairs, `B + (H, Tq, Tk)`.

    B may have no axes. The bias of query `i` and key `j` has index `j - i + Tq - 1`.
    """
    # The head axis is last during the gather: gathering single floats takes three times as long as rows of H floats.
    keys, queries = ops.arange(num_keys, dtype="int32"), ops.arange(num_queries, dtype="int32")
    indices = keys - ops.expand_dims(queries, -1) + (num_queries - 1)
    return ops.moveaxis(ops.take(biases, indices, axis=-2), -1, -3)
