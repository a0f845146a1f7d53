"""ONNX models of a few nodes, written as text."""

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

from keras_attn_export._onnx.traversal import iter_nodes


def build_small_graph(nodes, input_text="float[n, 4] x", output_text="float[n, 4] y", **constants):
    """Return an ONNX model of `nodes` with names for all nodes; `constants` are initializers."""
    header = '<ir_version: 8, opset_import: ["": 18]>'
    model = onnx.parser.parse_model(f"{header} test ({input_text}) => ({output_text}) {{ {nodes} }}")
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(x), name) for name, x in constants.items())
    for number, node in enumerate(iter_nodes(model.graph)):
        node.name = f"{node.op_type}_{number}"
    return model
