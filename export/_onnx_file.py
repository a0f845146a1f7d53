"""Finish a traced ONNX model: opset, ir version, named dynamic axes, full check."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
from onnx import version_converter

from ._errors import ExportError, UnsupportedModelError
from ._options import TRACED_OPSET

Axes = Mapping[str, tuple[str | int, ...]]


def finish(model: onnx.ModelProto, opset: int, inputs: Axes, outputs: Axes) -> onnx.ModelProto:
    """Return `model` at `opset`, its inputs and outputs in order, with every dynamic axis named."""
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


def write(model: onnx.ModelProto, path: Path) -> None:
    """Write the file and check it in full.

    Raises:
        ExportError: onnx's checker finds the file invalid.
    """
    onnx.save(model, str(path))
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError(f"The ONNX file does not pass onnx's full check: {error}") from error
