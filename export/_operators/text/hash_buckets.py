"""Handlers for string hashing: `Hashing` and `HashedCrossing` layers.

tf2onnx maps `StringToHashBucketFast` to onnxruntime-extensions, and has no mapping for the others. The hashes are ONNX
functions in the file (`hash_functions.py`).
"""

from typing import Any

import numpy as np

from ..graph_builder import Operand, RejectionReason, fill_attribute
from .string_builder import CHARACTER, INT64, STRING, StringReplacement

# TensorFlow's modulus if no number of buckets is set
MAX_BUCKETS = 2**63 - 1


class _Hashes(StringReplacement):
    """Replaces a node by calls of hash functions."""

    def compute_fingerprints(self, text: str) -> str:
        """Return FarmHash's fingerprints of texts of any shape, (texts,)."""
        return self.call("Fingerprint", [self.tokenize(text, CHARACTER)], (INT64, 1))[0]

    def assign_buckets(self, hashes: str, count: int, rank: int) -> str:
        return self.call("Bucket", [hashes, np.int64(count)], (INT64, rank))[0]

    def finish_buckets(self, hashes: str, count: int) -> None:
        self.finish("Reshape", self.assign_buckets(hashes, count, 1), self.Shape(self.inputs[0]), allowzero=1)


def string_to_hash_bucket_fast(graph: Any, node: Any) -> None:
    """Convert `StringToHashBucketFast` of texts of any shape to FarmHash modulo the number of buckets."""
    op = _Hashes(graph, node)
    op.finish_buckets(op.compute_fingerprints(op.inputs[0]), node.get_attr_value("num_buckets"))


def string_to_hash_bucket_strong(graph: Any, node: Any) -> None:
    """Convert `StringToHashBucketStrong` of texts of any shape to SipHash, with a key, modulo the number of buckets."""
    key = np.array(node.get_attr_value("key"), np.int64)
    op = _Hashes(graph, node)
    hashes = op.call("KeyedHash", [op.tokenize(op.inputs[0], CHARACTER), key], (INT64, 1))[0]
    op.finish_buckets(hashes, node.get_attr_value("num_buckets"))


def sparse_cross(graph: Any, node: Any) -> RejectionReason:
    """Convert `SparseCross` of dense columns (B, N) to hashes of all tuples with one item of each column."""
    # The outputs are those of a sparse tensor: indices (hashes, 2), hashes (hashes,), and its shape (2,)
    if node.get_attr_value("N", 0) or not node.get_attr_value("hashed_output"):
        return "only hashes of dense tensors are supported"
    op = _Hashes(graph, node)
    hashes: Operand = np.full((1, 1), node.get_attr_value("hash_key"), np.int64)
    # The hash of a tuple combines the hash of the tuple before its last item with the hash of that item
    for column in op.inputs:
        items = column
        if graph.get_dtype(column) == STRING:
            items = op.Reshape(op.compute_fingerprints(column), op.Shape(column))
        pairs = op.call("Crossed", [op.Unsqueeze(hashes, [2]), op.Unsqueeze(items, [1])], (INT64, 3))[0]
        shape = op.Shape(pairs)
        width = op.Mul(*(op.Slice(shape, [axis], [axis + 1], [0]) for axis in (1, 2)))
        hashes = op.Reshape(pairs, op.Concat(op.dims(column, 0, 1), width, axis=0))
    buckets = op.assign_buckets(str(hashes), node.get_attr_value("num_buckets", 0) or MAX_BUCKETS, 2)
    shape = op.Shape(buckets)
    ones = op.ConstantOfShape(shape, value=fill_attribute(1))
    op.finish("Identity", op.true_indices(ones))
    op.finish("Reshape", buckets, [-1], output=1)
    return op.finish("Identity", shape, output=2)
