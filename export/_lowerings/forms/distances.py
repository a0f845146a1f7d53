"""Gaussian-kernel attention: scores from squared distances, in query blocks.

The score of a query and a key is -|(q - k) / bandwidth|^2 / 2. The differences of a block of n queries, (D, n, keys),
are its largest tensor, so the bound of a block is one of n D keys.
"""

from ..._onnx.lazy_values import Outputs, Value, op
from ..block_split import split_queries
from ..body_inputs import BodyInputs
from ..example_blocks import scan_blocks
from ..key_ranges import ScoreFunction
from ..per_example import SplitExample, scan_examples
from .dot_product_blocks import MAX_BLOCK_QUERIES, MAX_BLOCK_SCORES, count_keys_per_block


def build_body(inputs: BodyInputs) -> Outputs:
    """Return the output (B, Tq, Dv) of a call and, if returned, its weights (B, Tq, Tk)."""
    elements_per_query = count_keys_per_block(inputs) * op.Shape(inputs.queries, start=-1)
    split = split_queries(inputs, elements_per_query, MAX_BLOCK_SCORES, MAX_BLOCK_QUERIES)
    return scan_examples(inputs, split, _attend_example, split.split(inputs, inputs.queries))


def _attend_example(example: SplitExample, queries: Value) -> Outputs:
    """Return the output and the weights of an example, for queries (blocks, n, D)."""
    keys = op.Transpose(example.inputs.keys, perm=[1, 0])

    def build_score_function(block_queries: Value) -> ScoreFunction:
        coordinates = op.Transpose(block_queries, perm=[1, 0])
        return lambda start, end: compute_scores(example.inputs, coordinates, op.Slice(keys, start, end, [1]))

    return scan_blocks(example, build_score_function, queries)


def compute_scores(inputs: BodyInputs, queries: Value, keys: Value) -> Value:
    """Return the scores (..., Tq, Tk) of queries (..., D, Tq) and keys (..., D, Tk)."""
    differences = (op.Unsqueeze(queries, [-1]) - op.Unsqueeze(keys, [-2])) / inputs.bandwidth
    return op.ReduceSum(differences * differences, [-3], keepdims=0) * -0.5
