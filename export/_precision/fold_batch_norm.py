"""Fold a batch normalization into the convolution before it.

In the traced graph, a batch normalization is a product and a sum with constants m and a for each channel. For a
convolution with kernel W and bias b:

    m * (W * x + b) = (m * W) * x + m * b        (W * x + b) + a = W * x + (b + a)

onnxruntime folds both when it loads a float file; in an int8 file they would separate a convolution from the quantizer
of its output, so that the convolution could not run on integers.
"""

from collections import Counter
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from .._onnx.graph_edits import filter_in_place
from .._onnx.traced_model import Weights
from .._onnx.traversal import iter_used_names


def fold_batch_norm(graph: onnx.GraphProto) -> None:
    """Fold each `Mul` and `Add` with a constant for each channel, in place, into the convolution before it."""
    names = {name for node in graph.node if node.op_type in ("Conv", "Mul", "Add") for name in node.input}
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer if tensor.name in names}
    uses = Counter(iter_used_names(graph))
    nodes = (node for node in graph.node if node.op_type == "Conv" and constants.keys() >= {*node.input[1:]})
    convolutions = {node.output[0]: node for node in nodes if uses[node.output[0]] == 1}
    folded = set()
    for node in graph.node:
        if (foldable := _find_foldable(node, convolutions, constants)) is None:
            continue
        convolution, channels = foldable
        kernel, *biases = (constants[name] for name in convolution.input[1:])
        bias = biases[0] if biases else np.zeros_like(channels)
        output = node.output[0]
        if node.op_type == "Mul":
            factors = channels.reshape(-1, *[1] * (kernel.ndim - 1))
            arrays = {f"{output}/kernel": kernel * factors, f"{output}/bias": bias * channels}
        else:
            arrays = {f"{output}/kernel": kernel, f"{output}/bias": bias + channels}
        constants |= arrays
        graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
        convolution.input[1:] = arrays
        convolution.output[0] = output
        if uses[output] == 1:
            convolutions[output] = convolution
        folded.add(node.name)
    filter_in_place(graph.node, lambda node: node.name not in folded)
    names_in_use = {*iter_used_names(graph)}
    filter_in_place(graph.initializer, lambda tensor: tensor.name in names_in_use)


def _find_foldable(
    node: onnx.NodeProto, convolutions: Mapping[str, onnx.NodeProto], constants: Weights
) -> tuple[onnx.NodeProto, np.ndarray] | None:
    """Return a convolution and constants of shape (channels,) if the node is their product or sum, else `None`."""
    if node.op_type not in ("Mul", "Add"):
        return None
    for computed, constant in (node.input, reversed(node.input)):
        if computed in convolutions and constant in constants:
            kernel, array = constants[convolutions[computed].input[1]], constants[constant]
            shape = (len(kernel), *[1] * (kernel.ndim - 2))
            if array.shape in (shape, (1, *shape)):
                return convolutions[computed], array.reshape(-1)
    return None
