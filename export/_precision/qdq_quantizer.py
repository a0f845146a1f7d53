"""Quantize a calibrated model to QDQ form with onnxruntime's quantizer.

onnxruntime's quantizer converts all weights except embedding tables. What is decided here is which nodes are quantized.
Activations are unsigned, and take their largest and smallest number: percentiles and entropy gave the same accuracy on
trained models. Weights are signed with 7 bits: of unsigned with signed numbers x86-64 without VNNI adds two products in
16 bits, which 255 * 64 * 2 fits and 255 * 127 * 2 does not, so that one file would give two results
(https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html, "When to use reduce-range").
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx
from onnx import helper

from .._errors import UnsupportedModelError
from .._format.names import Arrays
from .._onnx.graph_edits import refill
from .._onnx.graph_index import inferred
from .._onnx.layer_scopes import node_layers
from .._onnx.model_files import write
from .._onnx.traced_model import Traced
from .._onnx.traversal import all_nodes, names_read_by_value
from .._passes.canonical_order import sort_nodes
from .dynamic_int8 import FEWEST_COLUMNS, silent_logging
from .embedding_tables import constants_of, is_lookup, quantize_tables
from .fold_batch_norm import fold_into_convolutions

# What a convolution's integers pass unchanged, or are joined in; each only where all that it takes are integers.
PASS_ON = frozenset(
    {"Add", "Clip", "Concat", "Flatten", "MaxPool", "Relu", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
)
PRODUCTS = ("Gemm", "MatMul")
CALIBRATED = {"Conv", *PRODUCTS, *PASS_ON}
OPTIONS = {
    "MatMulConstBOnly": True,
    "OpTypesToExcludeOutputQuantization": [*PRODUCTS],  # a step for what they give would cost time and digits
    "DefaultTensorType": onnx.TensorProto.FLOAT,  # of what attention gives, where onnx infers nothing
}


@dataclass(frozen=True)
class Calibrated:
    """A float32 model with what is known of its numbers.

    Attributes:
        traced: The model, batch normalizations folded into convolutions.
        ranges: From its tensors to the smallest and largest number they had, as onnxruntime holds them.
        layers: The nodes that can be quantized, by the path of the layer that they are in.
    """

    traced: Traced
    ranges: Any
    layers: Mapping[str, tuple[str, ...]]

    def quantized(self, layers: Collection[str]) -> Traced:
        """Return the model with these layers in int8, and what carries their integers to each other.

        Raises:
            UnsupportedModelError: The quantizer fails on the model.
        """
        from onnxruntime.quantization import QuantType
        from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

        names = {name for layer in layers for name in self.layers[layer]}
        # before products are quantized: lookups in a table that they share would read it as floats made in each run
        model = quantize_tables(replace(self.traced, model=deepcopy(self.traced.model)), names).model
        if products := names & {node.name for node in model.graph.node if node.op_type in CALIBRATED}:
            _keep_biases_apart(model.graph, products)
            nodes = [*products, *_carriers(model.graph, products)]
            kinds = sorted({node.op_type for node in model.graph.node if node.name in {*nodes}})
            with silent_logging(), _told("quantize"):
                quantizer = QDQQuantizer(
                    model,
                    per_channel=True,
                    reduce_range=True,
                    weight_qType=QuantType.QInt8,
                    activation_qType=QuantType.QUInt8,
                    tensors_range=self.ranges,
                    nodes_to_quantize=nodes,
                    nodes_to_exclude=[],
                    op_types_to_quantize=kinds,
                    extra_options=OPTIONS,
                )
                quantizer.quantize_model()
                model = quantizer.model.model
            del model.graph.value_info[:]  # what the quantizer inferred
            sort_nodes(Traced(model))
        return replace(self.traced, model=model)


def calibrated(traced: Traced, batches: Sequence[Arrays], folder: Path) -> Calibrated:
    """Run a float32 model on arrays, and note which numbers its tensors have.

    Args:
        traced: The model; it is not changed.
        batches: Inputs.
        folder: Where onnxruntime's calibration, which works on files, writes.

    Raises:
        UnsupportedModelError: The weights are beyond what one file holds, nothing can be quantized, or onnxruntime
            cannot run the model with its tensors shown.
    """
    from onnxruntime.quantization import CalibrationDataReader, create_calibrator

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self._left = iter(batches)

        def get_next(self) -> Arrays | None:
            return next(self._left, None)

    if traced.weights:
        raise UnsupportedModelError(
            "`calibration` is for models of up to 2 GiB of weights. Leave it out: int8 is then dynamic."
        )
    prepared = replace(traced, model=deepcopy(traced.model))
    graph = prepared.model.graph
    _name_all(graph)
    fold_into_convolutions(graph)
    layers = _layers(prepared)
    nodes = {name for names in layers.values() for name in names}
    nodes |= _carriers(graph, nodes)
    kinds = sorted({node.op_type for node in graph.node if node.name in nodes} & CALIBRATED)
    if not kinds:  # but lookups, which need no ranges
        return Calibrated(prepared, None, layers)
    _name_types(prepared.model)
    (place := folder / "calibrating").mkdir()
    write(prepared, place / "float32.onnx", check=False)
    with silent_logging(), _told("calibrate"):
        calibrator = create_calibrator(place / "float32.onnx", kinds, str(place / "shown.onnx"))
        calibrator.collect_data(Reader())
        ranges = calibrator.compute_data()
    return Calibrated(prepared, ranges, layers)


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """Say in one sentence what onnxruntime's quantizer raises, which is whatever its handlers meet."""
    try:
        yield
    except OSError:
        raise  # the disk, not the model
    except Exception as error:
        raise UnsupportedModelError(
            f"onnxruntime cannot {what} the model: {type(error).__name__}: {error} Leave `calibration` out: int8 is "
            "then dynamic."
        ) from error


def _layers(traced: Traced) -> dict[str, tuple[str, ...]]:
    """Return the nodes that can be quantized by layer: convolutions, products with a matrix, and lookups in a table.

    All readers of a weight become int8, as one layer, or none does: integers beside the floats would enlarge the file.
    """
    graph, constants = traced.model.graph, constants_of(traced)
    shapes = {name: array.shape for name, array in constants.items()}
    nodes, read = [*all_nodes(graph)], names_read_by_value(graph)
    layers = node_layers(nodes, {name for name, shape in shapes.items() if len(shape) > 1})
    weights = {node.name: node.input[0] for node in nodes if is_lookup(node, constants)}
    weights |= {node.name: node.input[1] for node in graph.node if _is_quantizable(node, shapes)}
    int8_reads = Counter(weights[node.name] for node in nodes if node.name in weights and node.output[0] in read)
    reads = Counter(name for node in nodes for name in node.input)
    found: dict[str, tuple[str, ...]] = {}
    owners: dict[str, str] = {}
    for node, path in zip(nodes, layers, strict=True):
        weight = weights.get(node.name, "")
        if 0 < int8_reads[weight] == reads[weight]:
            layer = owners.setdefault(weight, path or node.name)
            found[layer] = (*found.get(layer, ()), node.name)
    return found


def _is_quantizable(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    if node.domain not in ("", "ai.onnx") or node.op_type not in ("Conv", *PRODUCTS):
        return False
    if node.input[0] in shapes or any(name not in shapes for name in filter(None, node.input[1:])):
        return False
    if node.op_type == "Conv":
        return True
    given = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    plain = not given.get("transA") and given.get("alpha", 1.0) == given.get("beta", 1.0) == 1.0
    shape = shapes[node.input[1]]
    return plain and len(shape) == 2 and shape[0 if given.get("transB") else 1] >= FEWEST_COLUMNS


def _carriers(graph: onnx.GraphProto, products: Collection[str]) -> set[str]:
    """Return the nodes after quantized convolutions that can take and give integers too."""
    constants = {each.name for each in graph.initializer}
    integers, found = set[str](), set[str]()
    for node in graph.node:
        read = [name for name in node.input if name and name not in constants]
        passes = node.op_type in PASS_ON and read and integers.issuperset(read)
        if passes and node.op_type in ("Add", "Concat"):
            passes = len(read) == len(node.input)
        if passes:
            found.add(node.name)
        if passes or (node.op_type == "Conv" and node.name in products):
            integers.update(node.output)
    return found


def _keep_biases_apart(graph: onnx.GraphProto, products: Collection[str]) -> None:
    """Let `Sum` add the bias to quantized products of two axes.

    Of a `MatMul` and an `Add` onnxruntime makes a `Gemm` before it looks for quantizers, finds none around the bias,
    and computes in float32, of weights that it makes floats again in each run: ten times as long.
    """
    axes = {value.name: value.type.tensor_type.shape.dim for value in graph.value_info}
    flat = {node.output[0] for node in graph.node if node.op_type == "MatMul" and node.name in products}
    flat -= {name for name in flat & axes.keys() if len(axes[name]) > 2}
    for node in graph.node:
        if node.op_type == "Add" and not flat.isdisjoint(node.input):
            node.op_type = "Sum"


def _name_all(graph: onnx.GraphProto) -> None:
    """Give every node a name of its own, by which the quantizer knows it."""
    nodes = [*all_nodes(graph)]
    counts = Counter(node.name for node in nodes)
    for node in nodes:
        if not node.name or counts[node.name] > 1:
            node.name = f"{node.output[0]}/{node.op_type}"


def _name_types(model: onnx.ModelProto) -> None:
    """Say in place of all that products take and give that they are floats: onnx does not infer it of all functions."""
    known = inferred(model)
    refill(model.graph.value_info, known.value_info)
    told = {
        value.name for value in (*known.value_info, *model.graph.input, *model.graph.output, *model.graph.initializer)
    }
    of_products = (
        name for node in model.graph.node for name in (*node.input[:1], *node.output) if node.op_type in CALIBRATED
    )
    for name in {*of_products} - told:
        model.graph.value_info.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
