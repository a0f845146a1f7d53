"""Handlers for string hashing: `Hashing` and `HashedCrossing` layers.

The hashes themselves are functions in the file (`_operators/text/hash_functions.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from ..graph_builder import Value
from .string_builder import CHARACTER, INT64, STRING, Strings, Text

MOST = 2**63 - 1  # what TensorFlow takes a hash modulo where it is told no count


class _Hashes(Strings):
    def fingerprints(self, text: str) -> str:
        return self._called("Fingerprint", [self.tokens(text, CHARACTER)], [(INT64, 1)])[0]

    def with_key(self, text: str, key: Value) -> str:
        return self._called("KeyedHash", [self.tokens(text, CHARACTER), key], [(INT64, 1)])[0]

    def crossed(self, one: Value, other: str) -> str:
        return self._called("Crossed", [one, other], [(INT64, 3)])[0]

    def bucket(self, hashes: str, count: int, rank: int) -> str:
        return self._called("Bucket", [hashes, np.int64(count)], [(INT64, rank)])[0]


class _HashedText(_Hashes, Text):
    def last_buckets(self, hashes: str, count: int) -> None:
        self.last("Reshape", self.bucket(hashes, count, 1), self("Shape", self.inputs[0]), allowzero=1)


def fast(graph: Any, node: Any) -> None:
    """`StringToHashBucketFast`."""
    count = node.get_attr_value("num_buckets")
    write = _HashedText(graph, node)
    write.last_buckets(write.fingerprints(write.inputs[0]), count)


def strong(graph: Any, node: Any) -> None:
    """`StringToHashBucketStrong`, which has a key."""
    count, key = node.get_attr_value("num_buckets"), node.get_attr_value("key")
    write = _HashedText(graph, node)
    write.last_buckets(write.with_key(write.inputs[0], np.array(key, np.int64)), count)


def cross(graph: Any, node: Any) -> None:
    """`SparseCross` of arrays that are not sparse, hashed: of each row all pairs, triples and so on."""
    if node.get_attr_value("N", 0) or not node.get_attr_value("hashed_output"):
        return
    count, key = node.get_attr_value("num_buckets", 0), node.get_attr_value("hash_key")
    columns, outputs, shapes = node.input, node.output, node.output_shapes
    graph.remove_node(node.name)
    write = _Hashes(graph)
    hashes: Value = np.full((1, 1), key, np.int64)
    for column in columns:
        found = column
        if graph.get_dtype(column) == STRING:
            found = write("Reshape", write.fingerprints(column), write("Shape", column))
        pairs = write.crossed(write("Unsqueeze", hashes, [2]), write("Unsqueeze", found, [1]))
        sizes = write("Shape", pairs)
        width = write("Mul", *(write("Slice", sizes, [axis], [axis + 1], [0]) for axis in (1, 2)))
        hashes = write("Reshape", pairs, write("Concat", write.sizes(column, 0, 1), width, axis=0))
    buckets = write.bucket(str(hashes), count or MOST, 2)
    shape = write("Shape", buckets)
    every = write("ConstantOfShape", shape, value=helper.make_tensor("value", TensorProto.INT64, [1], [1]))
    write.named(outputs[0], "Identity", write.places(every), shape=shapes[0], gives=INT64)
    write.named(outputs[1], "Reshape", buckets, [-1], shape=shapes[1], gives=INT64)
    write.named(outputs[2], "Identity", shape, shape=shapes[2], gives=INT64)
