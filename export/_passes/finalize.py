"""Finalize a traced ONNX model: opset, functions, names, symbolic dims of inputs and outputs."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
from onnx import inliner, version_converter

from .._errors import ExportError, UnsupportedModelError
from .._onnx.graph_edits import filter_in_place, replace_items
from .._onnx.traced_model import FUNCTION_DOMAIN, TracedModel
from .._onnx.traversal import iter_nodes
from .._options import TF2ONNX_OPSET
from .canonical_order import sort_reachable_nodes
from .loop_invariants import hoist_invariants
from .node_names import rename
from .passes import Pass, run_passes

ONNX = ("", "ai.onnx", "ai.onnx.ml")  # domains of the ONNX standard
Axes = Mapping[str, tuple[str | int, ...]]

# `rename` numbers names in node order. A node is hoisted after it got the name of its layer in the loop.
FINAL_PASSES: tuple[Pass, ...] = (sort_reachable_nodes, rename, hoist_invariants)


def finalize(
    traced: TracedModel,
    inputs: Axes,
    outputs: Axes,
    opset: int,
    functions: Sequence[onnx.FunctionProto] = (),
    inlined: Sequence[str] = (),
) -> TracedModel:
    """Return a traced model at `opset`, with inputs and outputs in order and a name for each dynamic dim.

    The graph calls `functions`, which are at `opset`; calls of functions with a name in `inlined` are inlined.

    Raises:
        UnsupportedModelError: If onnx cannot convert an operator of the model to `opset`.
    """
    model = deepcopy(traced.model)  # it may be finalized again, with other functions
    if opset > TF2ONNX_OPSET:
        try:
            model = version_converter.convert_version(model, opset)
        except RuntimeError as error:
            raise UnsupportedModelError(
                f"onnx cannot convert this model from opset {TF2ONNX_OPSET} to {opset}: {error}"
            ) from error
    model = add_functions(model, functions)  # the version converter deletes functions
    if inlined:
        model = inliner.inline_selected_functions(model, [(FUNCTION_DOMAIN, op) for op in inlined])
    run_passes(TracedModel(model), FINAL_PASSES)  # without weights, whose names are final
    # The version converter keeps the ir_version of the source, which newer opsets do not allow.
    model.ir_version = onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", opset)])
    # tf2onnx names each unknown dim `unk__N`, which would contradict the names that `_name_axes` sets.
    del model.graph.value_info[:]
    filter_in_place(model.graph.input, lambda value: value.name not in traced.weights)
    _name_axes(model.graph.input, inputs)
    _name_axes(model.graph.output, outputs)
    return replace(traced, model=model)


def add_functions(model: onnx.ModelProto, functions: Sequence[onnx.FunctionProto]) -> onnx.ModelProto:
    """Add the functions that the graph of a model calls, and return the model."""
    for function in functions:
        for opset in (onnx.helper.make_opsetid(function.domain, 1), *function.opset_import):
            if opset.domain not in {imported.domain for imported in model.opset_import}:
                model.opset_import.append(opset)
    model.functions.extend(functions)
    return model


def check_standard(path: Path) -> None:
    """Check that a file has standard operators only, and no functions, as `target="standard"` requires.

    Raises:
        ExportError: If the file has other operators or functions.
    """
    model = onnx.load(str(path), load_external_data=False)
    operators = sorted({f"{node.domain}.{node.op_type}" for node in iter_nodes(model.graph) if node.domain not in ONNX})
    if operators or model.functions:
        names = [*operators, *(f"the function {function.name}" for function in model.functions)]
        raise ExportError(
            f"`target='standard'` allows only standard ONNX operators without functions. This model needs: "
            f"{', '.join(names)}. Leave out `target`."
        )


def _name_axes(values: Any, axes: Axes) -> None:
    values_by_name = {value.name: value for value in values}
    if set(values_by_name) != set(axes):
        raise ExportError(f"The traced graph has {sorted(values_by_name)}, but the model has {sorted(axes)}.")
    ordered = [values_by_name[name] for name in axes]
    for value, sizes in zip(ordered, axes.values(), strict=True):
        shape = onnx.TensorShapeProto()
        for size in sizes:
            shape.dim.add(**({"dim_value": size} if isinstance(size, int) else {"dim_param": size}))
        value.type.tensor_type.shape.CopyFrom(shape)
    replace_items(values, ordered)
