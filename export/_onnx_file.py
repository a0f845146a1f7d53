"""Finish a traced ONNX model: opset, ir version, named dynamic axes, full check."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
from onnx import version_converter

from ._errors import ExportError, UnsupportedModelError
from ._large_weights import Weights, refer_to, write_data
from ._options import TRACED_OPSET

Axes = Mapping[str, tuple[str | int, ...]]


def finish(
    model: onnx.ModelProto, opset: int, inputs: Axes, outputs: Axes, weights: Weights | None = None
) -> onnx.ModelProto:
    """Return `model` at `opset`, its inputs and outputs in order, with every dynamic axis named.

    Args:
        model: As traced.
        opset: 18 or higher.
        inputs: Shape of every input, dynamic axes by name.
        outputs: Shape of every output, likewise.
        weights: Weights that were traced as inputs, and are to be external data.

    Raises:
        UnsupportedModelError: onnx has no conversion to `opset` for an op of the model.
    """
    if opset > TRACED_OPSET:
        try:
            model = version_converter.convert_version(model, opset)
        except RuntimeError as error:
            raise UnsupportedModelError(
                f"onnx cannot convert this model from opset {TRACED_OPSET} to {opset}: {error}"
            ) from error
    # the converter leaves the ir version of the source, which newer opsets do not allow
    model.ir_version = onnx.helper.find_min_ir_version_for(list(model.opset_import))
    model.producer_name = "keras-attn"
    del model.graph.value_info[:]  # tf2onnx's unrelated `unk__N` axes would contradict the names given here
    refer_to(model, weights or {})
    _name_axes(model.graph.input, inputs)
    _name_axes(model.graph.output, outputs)
    return model


def _name_axes(values: object, axes: Axes) -> None:
    by_name = {value.name: value for value in values}  # type: ignore[attr-defined]
    if set(by_name) != set(axes):
        raise ExportError(f"The traced graph has {sorted(by_name)} where {sorted(axes)} were expected.")
    ordered = [by_name[name] for name in axes]
    for value, sizes in zip(ordered, axes.values(), strict=True):
        shape = onnx.TensorShapeProto()
        for size in sizes:
            shape.dim.add(**({"dim_value": size} if isinstance(size, int) else {"dim_param": size}))
        value.type.tensor_type.shape.CopyFrom(shape)
    copies = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in ordered]
    del values[:]  # type: ignore[attr-defined]
    values.extend(copies)  # type: ignore[attr-defined]


def write(model: onnx.ModelProto, path: Path, weights: Weights | None = None) -> None:
    """Write the file, the external data beside it where there are such weights, and check both in full.

    Raises:
        ExportError: onnx's checker finds the file invalid.
    """
    path.write_bytes(model.SerializeToString())
    write_data(path.parent, weights or {})
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError(f"The ONNX file does not pass onnx's full check: {error}") from error
