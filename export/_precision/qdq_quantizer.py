"""Static quantization: calibrate a model, and write it in QDQ form with onnxruntime's quantizer.

Calibration runs the float32 model on typical rows and records the minimum and maximum [l, h] of each activation. The
quantizer inserts `QuantizeLinear` and `DequantizeLinear` with these parameters:

    activations: uint8, scale = (h - l) / 255, zero point = round(-l / scale), with l <= 0 <= h
    weights:     int8 with 7 bits, scale = max |w| / 64 for each output channel, zero point 0

Ranges by percentiles or entropy gave the same accuracy on trained models (docs/performance.md). 7 bits, because x86-64
without VNNI adds two products of uint8 and int8 in 16 bits: 2 * 255 * 64 fits, and 2 * 255 * 127 overflows, so that one
file would give two results (https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html, "When to use
reduce-range"). This module chooses the nodes; embedding tables are quantized by `embedding_tables.py`.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx
from onnx import helper

from .._errors import UnsupportedModelError
from .._format.names import Arrays
from .._onnx.graph_edits import replace_items
from .._onnx.graph_index import infer_shapes
from .._onnx.layer_scopes import read_node_layers
from .._onnx.model_files import save_model
from .._onnx.traced_model import TracedModel
from .._onnx.traversal import find_names_read_by_value, iter_nodes
from .._passes.canonical_order import sort_reachable_nodes
from .dynamic_int8 import MIN_COLUMNS, translate_quantizer_errors
from .embedding_tables import collect_constants, is_lookup, quantize_tables
from .fold_batch_norm import fold_batch_norm

# Operators that run on int8 outputs of convolutions if all their computed inputs are int8.
INT8_CARRIERS = frozenset(
    {"Add", "Clip", "Concat", "Flatten", "MaxPool", "Relu", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
)
PRODUCT_OPS = ("Gemm", "MatMul")
CALIBRATED_OPS = {"Conv", *PRODUCT_OPS, *INT8_CARRIERS}
REMEDY = " Leave `calibration` out: int8 is then dynamic."
QUANTIZER_OPTIONS = {
    "MatMulConstBOnly": True,
    "OpTypesToExcludeOutputQuantization": [*PRODUCT_OPS],  # quantized outputs would cost time and accuracy
    "DefaultTensorType": onnx.TensorProto.FLOAT,  # for the output of attention, whose type onnx cannot infer
}


@dataclass(frozen=True)
class CalibratedModel:
    """A float32 model with folded batch normalizations, and the ranges of its tensors."""

    traced: TracedModel
    ranges: Any  # onnxruntime's `TensorsData`; `None` if only tables can be quantized
    layers: Mapping[str, tuple[str, ...]]  # names of the nodes that can be quantized, by layer path

    def quantize(self, layers: Collection[str]) -> TracedModel:
        """Return the model with some layers in int8, or raise `UnsupportedModelError` if the quantizer fails."""
        from onnxruntime.quantization import QuantType
        from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

        names = {name for layer in layers for name in self.layers[layer]}
        # Tables come first: lookups in a table that a quantized product shares would read the table dequantized.
        model = quantize_tables(replace(self.traced, model=deepcopy(self.traced.model)), names).model
        if products := names & {node.name for node in model.graph.node if node.op_type in CALIBRATED_OPS}:
            _prevent_bias_fusion(model.graph, products)
            nodes = [*products, *_find_int8_carriers(model.graph, products)]
            op_types = sorted({node.op_type for node in model.graph.node if node.name in {*nodes}})
            with translate_quantizer_errors("quantize", REMEDY):
                quantizer = QDQQuantizer(
                    model,
                    per_channel=True,
                    reduce_range=True,
                    weight_qType=QuantType.QInt8,
                    activation_qType=QuantType.QUInt8,
                    tensors_range=self.ranges,
                    nodes_to_quantize=nodes,
                    nodes_to_exclude=[],
                    op_types_to_quantize=op_types,
                    extra_options=QUANTIZER_OPTIONS,
                )
                quantizer.quantize_model()
                model = quantizer.model.model
            del model.graph.value_info[:]  # inferred by the quantizer
            sort_reachable_nodes(TracedModel(model))
        return replace(self.traced, model=model)


def calibrate(traced: TracedModel, batches: Sequence[Arrays], folder: Path) -> CalibratedModel:
    """Run a copy of a float32 model on batches of inputs, and record the ranges of its tensors."""
    from onnxruntime.quantization import CalibrationDataReader, create_calibrator

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self._remaining = iter(batches)

        def get_next(self) -> Arrays | None:
            return next(self._remaining, None)

    if traced.weights:
        raise UnsupportedModelError(
            "`calibration` needs a model with at most 2 GiB of weights. Leave it out: int8 is then dynamic."
        )
    prepared = replace(traced, model=deepcopy(traced.model))
    graph = prepared.model.graph
    _give_nodes_unique_names(graph)
    fold_batch_norm(graph)
    layers = _find_layers(prepared)
    nodes = {name for names in layers.values() for name in names}
    nodes |= _find_int8_carriers(graph, nodes)
    op_types = sorted({node.op_type for node in graph.node if node.name in nodes} & CALIBRATED_OPS)
    if not op_types:  # tables need no ranges
        return CalibratedModel(prepared, None, layers)
    _declare_float_types(prepared.model)
    files = folder / "calibrating"
    files.mkdir()
    save_model(prepared, files / "float32.onnx", check=False)
    with translate_quantizer_errors("calibrate", REMEDY):
        calibrator = create_calibrator(files / "float32.onnx", op_types, str(files / "shown.onnx"))
        calibrator.collect_data(Reader())
        ranges = calibrator.compute_data()
    return CalibratedModel(prepared, ranges, layers)


def _find_layers(traced: TracedModel) -> dict[str, tuple[str, ...]]:
    """Return the nodes that can be quantized, by layer: convolutions, products with a matrix, and table lookups."""
    # Nodes that read the same weight form one layer, and no layer if one of them cannot be quantized: the file would
    # store the weight twice, in int8 and in float32.
    graph, constants = traced.model.graph, collect_constants(traced)
    shapes = {name: array.shape for name, array in constants.items()}
    nodes, read_names = [*iter_nodes(graph)], find_names_read_by_value(graph)
    layers = read_node_layers(nodes, {name for name, shape in shapes.items() if len(shape) > 1})
    weights = {node.name: node.input[0] for node in nodes if is_lookup(node, constants)}
    weights |= {node.name: node.input[1] for node in graph.node if _is_quantizable(node, shapes)}
    int8_reads = Counter(weights[node.name] for node in nodes if node.name in weights and node.output[0] in read_names)
    reads = Counter(name for node in nodes for name in node.input)
    quantizable: dict[str, tuple[str, ...]] = {}
    owners: dict[str, str] = {}
    for node, path in zip(nodes, layers, strict=True):
        weight = weights.get(node.name, "")
        if 0 < int8_reads[weight] == reads[weight]:
            layer = owners.setdefault(weight, path or node.name)
            quantizable[layer] = (*quantizable.get(layer, ()), node.name)
    return quantizable


def _is_quantizable(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    if node.domain not in ("", "ai.onnx") or node.op_type not in ("Conv", *PRODUCT_OPS):
        return False
    if node.input[0] in shapes or any(name not in shapes for name in filter(None, node.input[1:])):
        return False
    if node.op_type == "Conv":
        return True
    attributes = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
    is_plain = not attributes.get("transA") and attributes.get("alpha", 1.0) == attributes.get("beta", 1.0) == 1.0
    shape = shapes[node.input[1]]
    return is_plain and len(shape) == 2 and shape[0 if attributes.get("transB") else 1] >= MIN_COLUMNS


def _find_int8_carriers(graph: onnx.GraphProto, products: Collection[str]) -> set[str]:
    """Return the nodes after quantized convolutions that can compute on their int8 outputs."""
    constants = {tensor.name for tensor in graph.initializer}
    integers = {name for node in graph.node if node.op_type == "Conv" and node.name in products for name in node.output}
    carriers = set()
    for node in graph.node:
        computed = [name for name in node.input if name and name not in constants]
        has_constants = node.op_type in ("Add", "Concat") and len(computed) < len(node.input)
        if node.op_type in INT8_CARRIERS and computed and integers.issuperset(computed) and not has_constants:
            carriers.add(node.name)
            integers.update(node.output)
    return carriers


def _prevent_bias_fusion(graph: onnx.GraphProto, products: Collection[str]) -> None:
    """Replace `Add` after a quantized product of rank 2 by `Sum`, which onnxruntime does not fuse."""
    # onnxruntime fuses `MatMul` and `Add` to `Gemm` before it replaces QDQ nodes. As the bias has none, the `Gemm`
    # computes in float32 with weights that are dequantized in each run, which takes ten times as long.
    axes = {value.name: value.type.tensor_type.shape.dim for value in graph.value_info}
    outputs = {node.output[0] for node in graph.node if node.op_type == "MatMul" and node.name in products}
    matrices = {name for name in outputs if len(axes.get(name, ())) <= 2}
    for node in graph.node:
        if node.op_type == "Add" and not matrices.isdisjoint(node.input):
            node.op_type = "Sum"


def _give_nodes_unique_names(graph: onnx.GraphProto) -> None:
    """Give every node a unique name, because the quantizer identifies nodes by name."""
    nodes = [*iter_nodes(graph)]
    counts = Counter(node.name for node in nodes)
    for node in nodes:
        if not node.name or counts[node.name] > 1:
            node.name = f"{node.output[0]}/{node.op_type}"


def _declare_float_types(model: onnx.ModelProto) -> None:
    """Declare inputs and outputs of quantizable nodes as floats if onnx cannot infer their types."""
    types = infer_shapes(model)
    replace_items(model.graph.value_info, types.value_info)
    values = (*types.value_info, *model.graph.input, *model.graph.output, *model.graph.initializer)
    products = [node for node in model.graph.node if node.op_type in CALIBRATED_OPS]
    names = {name for node in products for name in (*node.input[:1], *node.output)}
    for name in names - {value.name for value in values}:
        model.graph.value_info.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
