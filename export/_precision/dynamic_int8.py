"""Dynamic int8 quantization of matrix products, with one scale for each activation row."""

from __future__ import annotations

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
from .._onnx.graph_edits import refill
from .._onnx.model_files import read, write
from .._onnx.traced_model import Traced
from .._onnx.traversal import all_graphs, graphs_in
from .._passes.canonical_order import sort_nodes, sort_weights
from .._passes.loop_passthrough_state import remove_passthrough_state
from .embedding_tables import quantize_tables

FEWEST_COLUMNS = 8
OPTIONS = {
    "MatMulConstBOnly": True,
    "EnableSubgraph": True,
    "DefaultTensorType": TensorProto.FLOAT,  # of tensors behind operators of onnxruntime, where onnx infers nothing
}


def to_int8(traced: Traced, folder: Path) -> Traced:
    """Return a copy of a model whose products with weights and embedding tables are of integers: dynamic quantization.

    Weights become uint8 with a scale and a zero point a column, unless they have fewer than 8 columns or more than two
    axes. Activations become uint8 as they come, with a scale for each row. Neither is signed: on x86-64 without VNNI
    onnxruntime sums pairs of products of uint8 and int8 in 16 bits, which overflow, and one file gives two results:
    https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html, "When and why do I need to try U8U8?"

    Args:
        traced: A float32 model.
        folder: Where the quantizer, which works on files, makes a folder with these. It is to be kept for as long as
            weights in a second file are read.

    Raises:
        UnsupportedModelError: The quantizer fails on the model.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    (place := folder / "quantizing").mkdir()
    source, target = place / "float32.onnx", place / "int8.onnx"
    prepared = deepcopy(traced.model)
    remove_passthrough_state(Traced(prepared))
    shapes = {name: array.shape for name, array in traced.weights.items()}
    try:
        write(replace(traced, model=prepared), source, check=False)
        with silent_logging():
            quantize_dynamic(
                source,
                target,
                op_types_to_quantize=["MatMul", "Gemm"],
                per_channel=True,
                weight_type=QuantType.QUInt8,
                nodes_to_exclude=list(_left_out(prepared.graph, shapes)),
                use_external_data_format=bool(traced.weights),
                extra_options=OPTIONS,
            )
        quantized = quantize_tables(read(target))
    except OSError:
        raise  # the disk, not the model
    except Exception as error:
        # the quantizer raises whatever its handlers meet
        message = f"onnxruntime cannot quantize the model: {type(error).__name__}: {error}"
        raise UnsupportedModelError(message) from error
    model = quantized.model
    del model.graph.value_info[:]  # what the quantizer inferred
    sort_nodes(quantized)  # the quantizer does not look into bodies and branches
    by_row = False
    for graph in reversed([*all_graphs(model.graph)]):
        _keep_biases_apart(graph)
        by_row |= _quantize_by_row(graph)
    if by_row:
        _add_constants(model.graph)
    sort_weights(quantized)
    return quantized


def _left_out(graph: onnx.GraphProto, outer: Mapping[str, tuple[int, ...]]) -> Iterator[str]:
    """Yield the names of products that stay float32.

    These have so few columns that quantizing their input costs more than is won, as the last step of additive
    attention, which has one column, and heads of a few classes. Or they have a matrix for each part of a batch, as
    mixtures of experts: for those onnxruntime takes no scale a column.
    """
    shapes = {**outer, **{each.name: tuple(each.dims) for each in graph.initializer}}
    for node in graph.node:
        if node.op_type in ("MatMul", "Gemm") and len(shape := shapes.get(node.input[1], ())) >= 2:
            transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
            if len(shape) > 2 or shape[0 if transposed else 1] < FEWEST_COLUMNS:
                yield from (node.name, f"{node.name}_MatMul")  # the quantizer's name for what it makes of a Gemm
        for inner in graphs_in(node):
            yield from _left_out(inner, shapes)


@contextlib.contextmanager
def silent_logging() -> Iterator[None]:
    """Silence the root logger in this thread: the quantizer writes advice there for whoever calls it by hand.

    Other threads log on, as they would not with `logging.disable`; nor could two of these leave it disabled.
    """
    here, root = threading.get_ident(), logging.getLogger()

    def from_elsewhere(_: logging.LogRecord) -> bool:
        return threading.get_ident() != here

    handler = logging.NullHandler()  # where there is none, `logging.warning` adds one, which would stay
    root.addFilter(from_elsewhere)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.removeFilter(from_elsewhere)


def _quantize_by_row(graph: onnx.GraphProto) -> bool:
    """Replace every `DynamicQuantizeLinear`, which has one scale for a whole tensor, and tell whether there was one.

    With one scale, the largest number anywhere sets the resolution of every row: a sequence's result would depend on
    the others of its batch, and a NaN or 1e30 in the padding of one would ruin all.
    """
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        nodes += _row_quantization(node) if node.op_type == "DynamicQuantizeLinear" else [node]
    found = len(nodes) > len(graph.node)
    refill(graph.node, nodes)
    return found


def _row_quantization(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return nodes for: scale = max |x| / 127 over the last axis, quantized = round(x / scale) + 128."""
    (x,), (quantized, scale, zero_point) = node.input, node.output

    def op(op_type: str, inputs: list[str], output: str, **attributes: int) -> onnx.NodeProto:
        return helper.make_node(op_type, inputs, [output], name=f"{output}/{op_type}", **attributes)

    size, is_zero, divisor = (f"{quantized}/{part}" for part in ("size", "is_zero", "divisor"))
    return [
        op("Abs", [x], f"{size}_all"),
        op("ReduceMax", [f"{size}_all", "int8/last_axis"], f"{size}_max", keepdims=1),
        op("ReduceSum", [f"{size}_all", "int8/last_axis"], f"{size}_sum", keepdims=1),
        op("Mul", [f"{size}_sum", "int8/zero"], f"{size}_nan"),  # 0, or NaN in a row with NaN, which ReduceMax skips
        op("Add", [f"{size}_max", f"{size}_nan"], size),
        op("Equal", [size, "int8/zero"], is_zero),
        op("Where", [is_zero, "int8/largest", size], divisor),  # a row of zeros has any scale
        op("Div", [divisor, "int8/largest"], scale),
        op("Div", [x, scale], f"{quantized}/scaled"),
        op("Round", [f"{quantized}/scaled"], f"{quantized}/rounded"),
        op("Add", [f"{quantized}/rounded", "int8/shift"], f"{quantized}/shifted"),
        op("Cast", [f"{quantized}/shifted"], quantized, to=TensorProto.UINT8),
        op("Identity", ["int8/zero_point"], zero_point),
    ]


def _keep_biases_apart(graph: onnx.GraphProto) -> None:
    """Let `Sum` add what is added to an integer product: onnxruntime 1.31 takes the constant of an `Add` for a bias.

    It fuses product, cast, scales and bias into `MatMulIntegerToFloat`, whose kernel multiplies by the scales of the
    rows after it has added the bias (`MatMulIntegerToFloat::Compute`: `ScaleOutput` comes after `ComputeCommon`).
    Without a bias that is right, and still fused.
    """
    made_by = {name: node for node in graph.node for name in node.output}

    def is_scaled_product(name: str) -> bool:
        found = made_by.get(name)
        for op_type in ("Mul", "Cast", "MatMulInteger"):  # as the quantizer writes them, the product first
            if found is None or found.op_type != op_type:
                return False
            found = made_by.get(found.input[0])
        return True

    for node in graph.node:
        if node.op_type == "Add" and any(is_scaled_product(name) for name in node.input):
            node.op_type = "Sum"


def _add_constants(graph: onnx.GraphProto) -> None:
    constants = {
        "last_axis": np.array([-1], np.int64),
        "zero": np.array(0, np.float32),
        "largest": np.array(127, np.float32),
        "shift": np.array(128, np.float32),
        "zero_point": np.array(128, np.uint8),
    }
    graph.initializer.extend(numpy_helper.from_array(array, f"int8/{name}") for name, array in constants.items())
