"""Rewrite boolean `EyeLike`, which onnxruntime lacks, as float `EyeLike` and `Cast`."""

from __future__ import annotations

import onnx
from onnx import TensorProto

from .._onnx.traversal import all_graphs


def cast_boolean_eyes(graph: onnx.GraphProto) -> None:
    """Let every `EyeLike` of booleans be made of floats."""
    for each in all_graphs(graph):
        for place in reversed(range(len(each.node))):
            node = each.node[place]
            kinds = [attribute for attribute in node.attribute if attribute.name == "dtype"]
            if node.op_type == "EyeLike" and kinds and kinds[0].i == TensorProto.BOOL:
                kinds[0].i, name = TensorProto.FLOAT, node.output[0]
                node.output[0] = f"{name}_float"
                cast = onnx.helper.make_node("Cast", node.output, [name], f"{node.name}_cast", to=TensorProto.BOOL)
                each.node.insert(place + 1, cast)
