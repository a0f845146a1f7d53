"""Fold per-channel `Mul` and `Add`, such as batch normalization, into convolutions.

A batch normalization after a convolution is a product and a sum in the traced graph. onnxruntime folds both when it
loads a float file; in an int8 file they would stand between a convolution and the step of what it gives.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
from onnx import numpy_helper

from .._onnx.graph_edits import keep
from .._onnx.traversal import names_used


def fold_into_convolutions(graph: onnx.GraphProto) -> None:
    """Let convolutions, in place, do what a `Mul` or an `Add` of one number a channel does after them."""
    constants = {each.name: each for each in graph.initializer}
    uses = Counter(names_used(graph))
    makers = {name: node for node in graph.node for name in node.output}
    gone = set()
    for node in graph.node:
        for computed, constant in (node.input, [*node.input][::-1]) if node.op_type in ("Mul", "Add") else ():
            made = makers.get(computed)
            if made is None or made.op_type != "Conv" or uses[computed] > 1 or constant not in constants:
                continue
            channels = _by_channel(numpy_helper.to_array(constants[constant]), constants.get(made.input[1]))
            if channels is None or any(name not in constants for name in made.input[1:]):
                continue
            weights, *bias = (numpy_helper.to_array(constants[name]) for name in made.input[1:])
            summand = bias[0] if bias else np.zeros_like(channels)
            if node.op_type == "Mul":
                weights, summand = weights * channels.reshape(-1, *[1] * (weights.ndim - 1)), summand * channels
            else:
                summand = summand + channels
            output = node.output[0]
            folded = {f"{output}/kernel": weights, f"{output}/bias": summand}
            constants |= {name: numpy_helper.from_array(array, name) for name, array in folded.items()}
            graph.initializer.extend(constants[name] for name in folded)
            made.input[1:] = folded
            made.output[0], makers[output] = output, made
            gone.add(node.name)
            break
    keep(graph.node, lambda node: node.name not in gone)
    used = {*names_used(graph)}
    keep(graph.initializer, lambda tensor: tensor.name in used)


def _by_channel(constant: np.ndarray, weights: onnx.TensorProto | None) -> np.ndarray | None:
    """Return a constant that has one number for each channel of a convolution, as a vector."""
    if weights is None:
        return None
    own = (weights.dims[0], *[1] * (len(weights.dims) - 2))
    return constant.reshape(-1) if constant.shape in (own, (1, *own)) else None
