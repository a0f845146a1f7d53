"""Compute a QDQ graph in float32, as the reference for onnxruntime's int8 kernels.

A `QuantizeLinear` becomes the steps of its definition in float32, a weight of integers the floats that it stands for,
by NumPy. What is left is a float graph, of operators that were checked against Keras. Where a number stands at a half
between two steps, both are right, and the order of a sum decides: so the weights are moved in their last digits, which
draws that anew, and what it does to the outputs is what the file is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .._format.interruptible_session import run_cases
from .._format.names import Arrays, Case
from .._onnx.graph_edits import keep, refill
from .._onnx.traversal import all_nodes, names_used
from .._rounding.rounding_error import with_limits
from .embedding_tables import INTEGERS

MOVED = 2.0**-16  # of a weight: so much that some numbers pass a half in every run, as one may anywhere
RUNS = 4
MULTIPLE = 8  # of what was seen: a few runs do not draw the half that takes an output furthest


def with_oracle(model: onnx.ModelProto, cases: Sequence[Case], provider: str, folder: Path) -> list[Case]:
    """Return golden cases with what a graph of quantizers says of their inputs, and what rounding may do to that.

    Args:
        model: A model with quantizers of 8 bits without a sign, and weights of integers, in its own graph.
        cases: Golden cases, of which only the inputs are read.
        provider: Where the float graph runs.
        folder: Where it is written.
    """
    rng, file = np.random.default_rng(0), folder / "floats.onnx"

    def answers(move: float) -> list[Arrays]:
        onnx.save(in_floats(model, move, rng), file)
        return run_cases(file, cases, provider)

    expected = [case._replace(outputs=outputs) for case, outputs in zip(cases, answers(0.0), strict=True)]
    return with_limits(expected, (answers(MOVED) for _ in range(RUNS)), MULTIPLE)


def in_floats(model: onnx.ModelProto, move: float, rng: np.random.Generator) -> onnx.ModelProto:
    """Return a graph of quantizers in floats: each quantizer by its definition, each weight as what it stands for.

    Args:
        model: As for `with_oracle`; it is not changed.
        move: By which share of themselves, up or down, weights are moved.
        rng: Draws the direction of each.
    """
    floats = deepcopy(model)
    graph = floats.graph
    constants = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    nodes: list[onnx.NodeProto] = []
    for node in all_nodes(graph):
        if node.input and node.input[0].endswith(f"/{INTEGERS}"):
            rows = constants[node.input[0]] * (1 + move * rng.choice([-1.0, 1.0], constants[node.input[0]].shape))
            node.input[0] = f"{node.output[0]}/floats"
            graph.initializer.append(numpy_helper.from_array(rows.astype(np.float32), node.input[0]))
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in constants:
            weight = _dequantized(node, *(constants[name] for name in node.input))
            weight *= (1 + move * rng.choice([-1.0, 1.0], weight.shape)).astype(weight.dtype)
            graph.initializer.append(numpy_helper.from_array(weight, node.output[0]))
        elif node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            name, (x, scale, zero) = node.output[0], node.input
            graph.initializer.append(numpy_helper.from_array(constants[zero].astype(np.float32), f"{name}/zero"))
            nodes += _quantized(x, scale, name) if node.op_type == "QuantizeLinear" else _scaled(x, scale, name)
        else:
            nodes.append(node)
    for name, value in (("oracle/least", 0.0), ("oracle/most", 255.0)):
        graph.initializer.append(numpy_helper.from_array(np.array(value, np.float32), name))
    refill(graph.node, nodes)
    used = {*names_used(graph)}
    keep(graph.initializer, lambda tensor: tensor.name in used)
    return floats


def _dequantized(node: onnx.NodeProto, integers: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """Return the floats that integers stand for: (integer - zero point) * scale, along an axis if there are several."""
    axis = next((each.i for each in node.attribute if each.name == "axis"), 1)
    along = (
        [-1 if number == axis % max(integers.ndim, 1) else 1 for number in range(integers.ndim)]
        if scale.size > 1
        else ()
    )
    floats: np.ndarray = (integers.astype(np.float64) - zero.reshape(along)) * scale.reshape(along)
    return floats.astype(np.float32)


def _quantized(x: str, scale: str, name: str) -> list[onnx.NodeProto]:
    """Return nodes for: round(x / scale) + zero point, halves to even, no less than 0 and no more than 255."""
    steps = [f"{name}/{part}" for part in ("scaled", "rounded", "shifted")]
    return [
        helper.make_node("Div", [x, scale], steps[:1]),
        helper.make_node("Round", steps[:1], steps[1:2]),
        helper.make_node("Add", [steps[1], f"{name}/zero"], steps[2:]),
        helper.make_node("Clip", [steps[2], "oracle/least", "oracle/most"], [name]),
    ]


def _scaled(x: str, scale: str, name: str) -> list[onnx.NodeProto]:
    """Return nodes for: (x - zero point) * scale."""
    return [
        helper.make_node("Sub", [x, f"{name}/zero"], [f"{name}/shifted"]),
        helper.make_node("Mul", [f"{name}/shifted", scale], [name]),
    ]
