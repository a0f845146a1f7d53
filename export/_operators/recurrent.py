"""Recurrent layers as operators of ONNX, which tf2onnx finds in loops; where it cannot make one, the loop stays."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .._internals.tf2onnx_internals import function_of, tfonnx


@contextlib.contextmanager
def recurrent_where_weights_are_known() -> Iterator[None]:
    """Let tf2onnx make an `LSTM` only of a loop whose weights are constants beside it.

    Within the body of another loop, or a branch, they are what that is given, and tf2onnx 1.17 fails
    (`lstm_tf2_rewriter`). For as long as the context lasts, in this process, no thread but one may convert.
    """
    rewrite = tfonnx.rewriter_lstm_tf2

    def rewrite_known(graph: Any, nodes: list[Any]) -> Any:
        return rewrite(graph, [node for node in nodes if not node.is_while() or _weights_are_known(graph, node)])

    tfonnx.rewriter_lstm_tf2 = rewrite_known
    try:
        yield
    finally:
        tfonnx.rewriter_lstm_tf2 = rewrite


def _weights_are_known(graph: Any, loop: Any) -> bool:
    found = function_of(loop, "body").lstm_rewriter_context or {}
    numbers = [found.get(name) for name in (("w_idx", "r_idx") if found.get("from_keras") else ("weight_idx",))]
    return all(graph.is_const(loop.input[number]) for number in [*numbers, found.get("bias_idx")] if number is not None)
