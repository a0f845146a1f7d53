"""Rewrite boolean `EyeLike`, which onnxruntime lacks, as float `EyeLike` and `Cast`."""

import onnx
from onnx import TensorProto, helper

from .._onnx.graph_index import GraphIndex, get_int_attribute
from .patterns import ANY, Match, Op, Rule

PATTERN = Op("EyeLike", ANY)


def _check(match: Match, nodes: GraphIndex) -> str:
    node = nodes.get_producer(match[PATTERN], "EyeLike")
    return (
        ""
        if node is not None and get_int_attribute(node, "dtype", 0) == TensorProto.BOOL
        else "the dtype is not boolean"
    )


def _rewrite(node: onnx.NodeProto, match: Match, nodes: GraphIndex) -> list[onnx.NodeProto]:
    eye = onnx.NodeProto()
    eye.CopyFrom(node)
    eye.output[:] = [f"{node.output[0]}_float"]
    next(entry for entry in eye.attribute if entry.name == "dtype").i = TensorProto.FLOAT
    return [eye, helper.make_node("Cast", eye.output, node.output, f"{node.name}_cast", to=TensorProto.BOOL)]


RULE = Rule("boolean identity matrix", PATTERN, _check, _rewrite)
