"""Dynamic int8 quantization of matrix products, with a scale for each activation row.

onnxruntime's quantizer converts the weights to uint8, with a scale and a zero point for each column, and inserts a
`DynamicQuantizeLinear` with one scale for a whole activation. This module replaces it by a quantization of each row x:

    scale = max |x| / 127        quantized = round(x / scale) + 128, an integer from 1 to 255

With one scale for all rows, the result of a sequence would depend on the other sequences of its batch, and a NaN or
1e30 in the padding of one sequence would ruin all. Neither factor of a product is signed: on x86-64 without VNNI,
onnxruntime adds pairs of products of uint8 and int8 in 16 bits, which overflow, so that results differ between machines
(https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html, "When and why do I need to try U8U8?").
"""

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .._errors import UnsupportedModelError
from .._onnx.graph_edits import replace_items
from .._onnx.model_files import load_model, save_model
from .._onnx.traced_model import TracedModel
from .._onnx.traversal import iter_graphs, iter_nodes, iter_subgraphs
from .._passes.canonical_order import sort_reachable_nodes, sort_weights
from .._passes.loop_passthrough_state import remove_passthrough_state
from .embedding_tables import quantize_tables

# Quantizing an activation row of n elements takes time for n elements, and the product saves time for n * columns, so
# few columns, as in the last step of additive attention or a head with few classes, cost more than they save.
MIN_COLUMNS = 8
SHARED_CONSTANTS = {
    "last_axis": np.array([-1], np.int64),
    "zero": np.array(0, np.float32),
    "largest": np.array(127, np.float32),
    "shift": np.array(128, np.float32),
    "zero_point": np.array(128, np.uint8),
}
QUANTIZER_OPTIONS = {
    "MatMulConstBOnly": True,
    "EnableSubgraph": True,
    "DefaultTensorType": TensorProto.FLOAT,  # for outputs of onnxruntime's operators, whose type onnx cannot infer
}


def quantize_dynamically(traced: TracedModel, folder: Path) -> TracedModel:
    """Return a copy of a model with matrix products and tables in int8; its large weights are files in `folder`."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    files = folder / "quantizing"
    files.mkdir()
    source = files / "float32.onnx"
    target = files / "int8.onnx"
    prepared = deepcopy(traced.model)
    remove_passthrough_state(TracedModel(prepared))
    shapes = {name: array.shape for name, array in traced.weights.items()}
    with translate_quantizer_errors("quantize"):
        save_model(replace(traced, model=prepared), source, check=False)
        quantize_dynamic(
            source,
            target,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            weight_type=QuantType.QUInt8,
            nodes_to_exclude=list(_find_float32_products(prepared.graph, shapes)),
            use_external_data_format=bool(traced.weights),
            extra_options=QUANTIZER_OPTIONS,
        )
        quantized = quantize_tables(load_model(target))
    model = quantized.model
    del model.graph.value_info[:]  # inferred by the quantizer
    sort_reachable_nodes(quantized)  # the order of the quantizer ignores values that subgraphs read
    has_products = any(node.op_type == "DynamicQuantizeLinear" for node in iter_nodes(model.graph))
    for graph in reversed([*iter_graphs(model.graph)]):
        _prevent_bias_fusion(graph)
        nodes = [new for node in graph.node for new in _quantize_by_row(node)]
        replace_items(graph.node, nodes)
    if has_products:
        constants = (numpy_helper.from_array(array, f"int8/{name}") for name, array in SHARED_CONSTANTS.items())
        model.graph.initializer.extend(constants)
    sort_weights(quantized)
    return quantized


def _find_float32_products(graph: onnx.GraphProto, outer_shapes: Mapping[str, tuple[int, ...]]) -> Iterator[str]:
    """Yield the names of products that stay float32: with few columns, or with weights of more than two axes."""
    # For a stack of matrices, as in mixtures of experts, onnxruntime supports no scale for each column.
    shapes = {**outer_shapes, **{tensor.name: tuple(tensor.dims) for tensor in graph.initializer}}
    for node in graph.node:
        if node.op_type in ("MatMul", "Gemm") and len(shape := shapes.get(node.input[1], ())) >= 2:
            is_transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
            if len(shape) > 2 or shape[0 if is_transposed else 1] < MIN_COLUMNS:
                yield from (node.name, f"{node.name}_MatMul")  # the quantizer splits a Gemm and renames its product
        for inner in iter_subgraphs(node):
            yield from _find_float32_products(inner, shapes)


@contextlib.contextmanager
def translate_quantizer_errors(action: str, remedy: str = "") -> Iterator[None]:
    """Silence onnxruntime's quantizer, and raise `UnsupportedModelError` for its errors, which may be of any class."""
    try:
        with silence_logging():
            yield
    except OSError:
        raise  # an error of the file system
    except Exception as error:
        reason = f"{type(error).__name__}: {error}{remedy}"
        raise UnsupportedModelError(f"onnxruntime cannot {action} the model: {reason}") from error


@contextlib.contextmanager
def silence_logging() -> Iterator[None]:
    """Silence the root logger in this thread, where the quantizer logs advice for its direct users."""
    # `logging.disable` would silence other threads, and two overlapping blocks could leave logging disabled.
    thread, root = threading.get_ident(), logging.getLogger()

    def is_from_other_thread(record: logging.LogRecord) -> bool:
        return record.thread != thread

    handler = logging.NullHandler()  # without a handler, `logging.warning` would add one to the root logger
    root.addFilter(is_from_other_thread)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.removeFilter(is_from_other_thread)


def _quantize_by_row(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return nodes that quantize each row (last axis) in place of a `DynamicQuantizeLinear`; another node unchanged."""
    if node.op_type != "DynamicQuantizeLinear":
        return [node]
    (source,), (quantized, scale, zero_point) = node.input, node.output

    def make_node(op_type: str, inputs: list[str], output: str, **attributes: int) -> onnx.NodeProto:
        return helper.make_node(op_type, inputs, [output], name=f"{output}/{op_type}", **attributes)

    magnitude, is_zero, divisor = (f"{quantized}/{part}" for part in ("size", "is_zero", "divisor"))
    return [
        make_node("Abs", [source], f"{magnitude}_all"),
        make_node("ReduceMax", [f"{magnitude}_all", "int8/last_axis"], f"{magnitude}_max", keepdims=1),
        make_node("ReduceSum", [f"{magnitude}_all", "int8/last_axis"], f"{magnitude}_sum", keepdims=1),
        # The product is 0, or NaN in a row with NaN, which ReduceMax ignores.
        make_node("Mul", [f"{magnitude}_sum", "int8/zero"], f"{magnitude}_nan"),
        make_node("Add", [f"{magnitude}_max", f"{magnitude}_nan"], magnitude),
        make_node("Equal", [magnitude, "int8/zero"], is_zero),
        make_node("Where", [is_zero, "int8/largest", magnitude], divisor),  # a row of zeros has scale 1
        make_node("Div", [divisor, "int8/largest"], scale),
        make_node("Div", [source, scale], f"{quantized}/scaled"),
        make_node("Round", [f"{quantized}/scaled"], f"{quantized}/rounded"),
        make_node("Add", [f"{quantized}/rounded", "int8/shift"], f"{quantized}/shifted"),
        make_node("Cast", [f"{quantized}/shifted"], quantized, to=TensorProto.UINT8),
        make_node("Identity", ["int8/zero_point"], zero_point),
    ]


def _prevent_bias_fusion(graph: onnx.GraphProto) -> None:
    """Replace `Add` after an integer product by `Sum`, which onnxruntime does not fuse."""
    # onnxruntime 1.31 fuses product, cast, scales and bias to `MatMulIntegerToFloat`, whose kernel multiplies by the
    # scales of the rows after the addition of the bias (`MatMulIntegerToFloat::Compute`: `ScaleOutput` comes after
    # `ComputeCommon`). Without a bias the fused kernel is correct.
    producers = {name: node for node in graph.node for name in node.output}

    def is_scaled_product(name: str) -> bool:
        node = producers.get(name)
        for op_type in ("Mul", "Cast", "MatMulInteger"):  # from the output upwards
            if node is None or node.op_type != op_type:
                return False
            node = producers.get(node.input[0])
        return True

    for node in graph.node:
        if node.op_type == "Add" and any(is_scaled_product(name) for name in node.input):
            node.op_type = "Sum"
