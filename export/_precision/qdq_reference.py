"""Float reference of a QDQ graph: expected outputs for onnxruntime's int8 kernels.

Each `QuantizeLinear` and `DequantizeLinear` becomes its definition in float32:

    q = clip(round(x / scale) + zero, 0, 255)        y = (q - zero) * scale

and int8 weights become float weights. The result is a float graph of operators that were checked against Keras.
"""

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .._format.interruptible_session import run_cases
from .._format.names import Arrays, Case
from .._onnx.graph_edits import filter_in_place, replace_items
from .._onnx.graph_index import get_int_attribute
from .._onnx.traversal import iter_nodes, iter_used_names
from .._rounding.rounding_error import measure_run_limits
from .embedding_tables import INTEGER_SUFFIX

# An element half-way between two quantization steps may be rounded to either, depending on the order of a sum. So the
# graph runs some more times with each weight multiplied by 1 +- WEIGHT_PERTURBATION, large enough that some elements
# cross a half-way point in every run. The largest change of an output element, times SAFETY_FACTOR, is its rounding
# limit: a few runs do not find the roundings with the largest effect. On seven trained models, onnxruntime used at most
# 0.42 of the limits (docs/export.md).
WEIGHT_PERTURBATION = 2.0**-16
PERTURBED_RUNS = 4
SAFETY_FACTOR = 8


def compute_float_reference(model: onnx.ModelProto, cases: Sequence[Case], provider: str, folder: Path) -> list[Case]:
    """Return cases with the outputs of a QDQ model computed in floats, and their rounding limits."""
    rng = np.random.default_rng(0)
    file = folder / "floats.onnx"

    def run_perturbed(perturbation: float) -> list[Arrays]:
        onnx.save(dequantize_graph(model, perturbation, rng), file)
        return run_cases(file, cases, provider)

    expected = [case._replace(outputs=outputs) for case, outputs in zip(cases, run_perturbed(0.0), strict=True)]
    return measure_run_limits(
        expected, (run_perturbed(WEIGHT_PERTURBATION) for _ in range(PERTURBED_RUNS)), SAFETY_FACTOR
    )


def dequantize_graph(model: onnx.ModelProto, perturbation: float, rng: np.random.Generator) -> onnx.ModelProto:
    """Return a copy of a QDQ model that computes in floats, with weights perturbed up or down at random."""
    floats = deepcopy(model)
    graph = floats.graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}

    def draw_factors(weight: np.ndarray) -> np.ndarray:
        return 1 + perturbation * rng.choice([-1.0, 1.0], weight.shape)

    nodes: list[onnx.NodeProto] = []
    for node in iter_nodes(graph):
        if node.input and node.input[0].endswith(f"/{INTEGER_SUFFIX}"):
            integers = constants[node.input[0]]
            rows = integers * draw_factors(integers)
            node.input[0] = f"{node.output[0]}/floats"
            graph.initializer.append(numpy_helper.from_array(rows.astype(np.float32), node.input[0]))
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in constants:
            weight = _dequantize_weight(node, *(constants[name] for name in node.input))
            weight *= draw_factors(weight).astype(weight.dtype)
            graph.initializer.append(numpy_helper.from_array(weight, node.output[0]))
        elif node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            name, (source, scale, zero) = node.output[0], node.input
            graph.initializer.append(numpy_helper.from_array(constants[zero].astype(np.float32), f"{name}/zero"))
            nodes += (
                _make_quantize_nodes(source, scale, name)
                if node.op_type == "QuantizeLinear"
                else _make_dequantize_nodes(source, scale, name)
            )
        else:
            nodes.append(node)
    for name, value in (("oracle/least", 0.0), ("oracle/most", 255.0)):
        graph.initializer.append(numpy_helper.from_array(np.array(value, np.float32), name))
    replace_items(graph.node, nodes)
    names_in_use = {*iter_used_names(graph)}
    filter_in_place(graph.initializer, lambda tensor: tensor.name in names_in_use)
    return floats


def _dequantize_weight(node: onnx.NodeProto, integers: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """Return (integers - zero) * scale; `zero` and `scale` are scalars, or of shape (size of the attribute `axis`,)."""
    shape = [1] * integers.ndim
    if scale.size > 1:
        shape[get_int_attribute(node, "axis", 1)] = -1
    floats: np.ndarray = (integers.astype(np.float64) - zero.reshape(shape)) * scale.reshape(shape)
    return floats.astype(np.float32)


def _make_quantize_nodes(source: str, scale: str, name: str) -> list[onnx.NodeProto]:
    """Return nodes for clip(round(source / scale) + zero, 0, 255); `Round` rounds halves to even."""
    steps = [f"{name}/{part}" for part in ("scaled", "rounded", "shifted")]
    return [
        helper.make_node("Div", [source, scale], steps[:1]),
        helper.make_node("Round", steps[:1], steps[1:2]),
        helper.make_node("Add", [steps[1], f"{name}/zero"], steps[2:]),
        helper.make_node("Clip", [steps[2], "oracle/least", "oracle/most"], [name]),
    ]


def _make_dequantize_nodes(source: str, scale: str, name: str) -> list[onnx.NodeProto]:
    """Return nodes for (source - zero) * scale."""
    return [
        helper.make_node("Sub", [source, f"{name}/zero"], [f"{name}/shifted"]),
        helper.make_node("Mul", [f"{name}/shifted", scale], [name]),
    ]
