"""Padding before a convolution, which tf2onnx makes part of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .._internals.tf2onnx_internals import map_as_it_does, tf_op, tfonnx
from .patches import FLOATS


@contextlib.contextmanager
def paddings_merged_where_right() -> Iterator[None]:
    """Let tf2onnx make padding part of a convolution of floats, which it then converts by its own handler.

    Its rewriter (`conv2d_with_pad_rewriter`) calls what there is for `Conv2D` without what it gives a handler of ours,
    and fails: `ZeroPadding2D` before `Conv2D`, as in every residual network. Other numbers become no `Conv` that could
    have padding. For as long as the context lasts, in this process, no thread but one may convert.
    """
    rewrite, found = tfonnx.rewrite_conv2d_with_pad, tf_op.find_effective_op

    def rewrite_floats(graph: Any, nodes: list[Any]) -> Any:
        floats = [node for node in nodes if node.type != "Conv2D" or graph.get_dtype(node.input[0]) in FLOATS]
        tf_op.find_effective_op = lambda *_: (map_as_it_does, {})
        try:
            rewrite(graph, floats)
        finally:
            tf_op.find_effective_op = found
        return graph.get_nodes()

    tfonnx.rewrite_conv2d_with_pad = rewrite_floats
    try:
        yield
    finally:
        tfonnx.rewrite_conv2d_with_pad = rewrite
