"""Models of a few nodes, which stand as text."""

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

from keras_attn_export._onnx.traversal import iter_nodes


def build_small_graph(nodes, input_text="float[n, 4] x", output_text="float[n, 4] y", **constants):
    """Return a model of some inputs and outputs; every node has a name."""
    header = '<ir_version: 8, opset_import: ["": 18]>'
    model = onnx.parser.parse_model(f"{header} test ({input_text}) => ({output_text}) {{ {nodes} }}")
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(each), name) for name, each in constants.items())
    for number, node in enumerate(iter_nodes(model.graph)):
        node.name = f"{node.op_type}_{number}"
    return model
