"""Finalize a traced ONNX model: opset, functions, names, axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
from onnx import inliner, version_converter

from .._errors import ExportError, UnsupportedModelError
from .._onnx.canonical_order import put_in_order
from .._onnx.graph_edits import keep, refill
from .._onnx.node_names import rename
from .._onnx.traced_model import DOMAIN, Traced
from .._onnx.traversal import all_nodes
from .._options import TRACED_OPSET
from .loop_invariants import hoist

ONNX = ("", "ai.onnx", "ai.onnx.ml")  # domains of what the ONNX project specifies
Axes = Mapping[str, tuple[str | int, ...]]


def finish(
    traced: Traced,
    inputs: Axes,
    outputs: Axes,
    opset: int,
    functions: Sequence[onnx.FunctionProto] = (),
    inlined: Sequence[str] = (),
) -> Traced:
    """Return what was traced at `opset`, its inputs and outputs in order, with every dynamic axis named.

    Args:
        traced: As it was traced.
        inputs: Shape of every input, dynamic axes by name.
        outputs: Shape of every output, likewise.
        opset: 18 or higher.
        functions: Bodies of the calls in the graph, at `opset`.
        inlined: Those of them that go in the place of their calls.

    Raises:
        UnsupportedModelError: onnx has no conversion to `opset` for an op of the model.
    """
    model = deepcopy(traced.model)  # which may be finished in another form too
    if opset > TRACED_OPSET:
        try:
            model = version_converter.convert_version(model, opset)
        except RuntimeError as error:
            raise UnsupportedModelError(
                f"onnx cannot convert this model from opset {TRACED_OPSET} to {opset}: {error}"
            ) from error
    model = with_functions(model, functions)  # after the converter, which deletes them
    if inlined:
        model = inliner.inline_selected_functions(model, [(DOMAIN, op) for op in inlined])
    put_in_order(model.graph)
    rename(model.graph)
    hoist(model)
    # the converter leaves the ir version of the source, which newer opsets do not allow
    model.ir_version = onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", opset)])
    del model.graph.value_info[:]  # tf2onnx's unrelated `unk__N` axes would contradict the names given here
    keep(model.graph.input, lambda value: value.name not in traced.weights)
    _name_axes(model.graph.input, inputs)
    _name_axes(model.graph.output, outputs)
    return replace(traced, model=model)


def with_functions(model: onnx.ModelProto, functions: Sequence[onnx.FunctionProto]) -> onnx.ModelProto:
    """Return a model with the bodies of the calls in its graph."""
    known = {opset.domain for opset in model.opset_import}
    for function in functions:
        for opset in (onnx.helper.make_opsetid(function.domain, 1), *function.opset_import):
            if opset.domain not in known:
                model.opset_import.append(opset)
                known.add(opset.domain)
    model.functions.extend(functions)
    return model


def check_standard(path: Path) -> None:
    """Check that a file holds standard operators alone, and no functions.

    Raises:
        ExportError: It does not, and so is no file for `target="standard"`.
    """
    model = onnx.load(str(path), load_external_data=False)
    own = sorted({f"{node.domain}.{node.op_type}" for node in all_nodes(model.graph) if node.domain not in ONNX})
    if own or model.functions:
        found = [*own, *(f"the function {each.name}" for each in model.functions)]
        raise ExportError(
            f"`target='standard'` allows ONNX operators alone. The file would have {', '.join(found)}. Leave out the "
            "target."
        )


def _name_axes(values: Any, axes: Axes) -> None:
    by_name = {value.name: value for value in values}
    if set(by_name) != set(axes):
        raise ExportError(f"The traced graph has {sorted(by_name)} where {sorted(axes)} were expected.")
    ordered = [by_name[name] for name in axes]
    for value, sizes in zip(ordered, axes.values(), strict=True):
        shape = onnx.TensorShapeProto()
        for size in sizes:
            shape.dim.add(**({"dim_value": size} if isinstance(size, int) else {"dim_param": size}))
        value.type.tensor_type.shape.CopyFrom(shape)
    refill(values, ordered)
