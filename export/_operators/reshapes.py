"""One optimizer of tf2onnx is held back: that of two reshapes in a row."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .._internals.tf2onnx_internals import back_to_back_merges


@contextlib.contextmanager
def reshapes_merged_where_right() -> Iterator[None]:
    """Let tf2onnx merge two reshapes in a row only if the second does not copy sizes of its input.

    A 0 in the target of `Reshape` stands for the size of the input on that axis. One optimizer of tf2onnx 1.17 writes
    such zeros (`reshape_optimizer`), another drops the reshape before (`_optimize_reshape_reshape` in
    `back_to_back_optimizer`), and the zeros then copy sizes of something else: a `Dense` layer on a sequence of unknown
    length, split into heads, came out with a target that nothing fits. For as long as the context lasts, in this
    process, no thread but one may convert.
    """
    merges = back_to_back_merges()
    ((key, merge),) = ((key, merge) for key, merge in merges.items() if key == ("Reshape",))

    def merge_if_right(graph: Any, node: Any, consumers: Any) -> Any:
        targets = [consumer.inputs[1] for consumer in consumers if consumer.type == "Reshape"]
        right = all(target.is_const() and 0 not in target.get_tensor_value() for target in targets)
        return merge(graph, node, consumers) if right else []

    merges[key] = merge_if_right
    try:
        yield
    finally:
        merges[key] = merge
