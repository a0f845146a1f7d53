"""Gaussian-kernel attention: scores from squared distances, in query blocks."""

from ..._onnx.lazy_values import Outputs, Value, op
from ..block_split import cut
from ..body_inputs import Given
from ..example_blocks import over_blocks
from ..key_ranges import Scores
from ..per_example import Example, over_examples
from .dot_product_blocks import ROWS, SCORES, keys_of_block


def body(given: Given) -> Outputs:
    """Return the outputs of a call, in blocks of queries."""
    blocks = cut(given, keys_of_block(given) * op.Shape(given.queries, start=-1), SCORES, ROWS)
    return over_examples(given, blocks, _example, blocks.of(given, given.queries))


def _example(example: Example, queries: Value) -> Outputs:
    keys = op.Transpose(example.given.keys, perm=[1, 0])

    def scores_of(some_queries: Value) -> Scores:
        coordinates = op.Transpose(some_queries, perm=[1, 0])
        return lambda start, end: scores(example.given, coordinates, op.Slice(keys, start, end, [1]))

    return over_blocks(example, scores_of, queries)


def scores(given: Given, queries: Value, keys: Value) -> Value:
    """Return scores (..., rows, keys) of coordinates (..., D, rows) and (..., D, keys)."""
    gaps = (op.Unsqueeze(queries, [-1]) - op.Unsqueeze(keys, [-2])) / given.bandwidth
    return op.ReduceSum(gaps * gaps, [-3], keepdims=0) * -0.5
