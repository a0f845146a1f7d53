"""Finish a traced ONNX model: opset, ir version, named dynamic axes, full check."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
from onnx import inliner, version_converter

from .._errors import ExportError, UnsupportedModelError
from .._options import TRACED_OPSET
from .._standalone import verify
from .._standalone.verify import Manifest
from .edits import keep, refill
from .external_data import DATA, take_out, with_weights, write_data
from .loop_invariants import hoist
from .names import rename
from .order import put_in_order
from .traced import DOMAIN, Traced
from .walk import all_nodes

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


def describe(model: onnx.ModelProto, name: str, precision: str, version: str) -> None:
    """Let a finished file say, in place, what it holds and what wrote it.

    Args:
        model: The file.
        name: That of the Keras model.
        precision: That of the file.
        version: That of this package.
    """
    model.producer_name, model.producer_version, model.domain = "keras-attn", version, DOMAIN
    model.graph.name, model.doc_string = name, ""
    used = {"", *(node.domain for holder in (model.graph, *model.functions) for node in all_nodes(holder))}
    keep(model.opset_import, lambda opset: opset.domain in used)  # a runtime may refuse one that it does not know
    about = {"model": name, "precision": precision, "bundle_schema": str(verify.SCHEMA_VERSION)}
    onnx.helper.set_model_props(model, about)


def tell(folder: Path, manifest: Manifest) -> None:
    """Let the file of a bundle say what its inputs and outputs mean, and which cases and weights belong to it.

    Programs that show or serve it have it from there, with no manifest beside it. The hash of the file itself cannot be
    in it, and the manifest has that.

    Args:
        folder: The bundle; its file is written anew.
        manifest: What it says of them.
    """
    path = folder / verify.MODEL
    model = onnx.load(str(path), load_external_data=False)
    for value in (*model.graph.input, *model.graph.output):
        value.doc_string = _meaning(value.name, manifest)
    about = {each.key: each.value for each in model.metadata_props}
    meanings = {value.name: value.doc_string for value in (*model.graph.input, *model.graph.output) if value.doc_string}
    told = {"meanings": meanings, "axis_multiples": dict(manifest.multiples)}
    about |= {key: json.dumps(entry, sort_keys=True) for key, entry in told.items() if entry}
    hashed = [file for file in (verify.CASES, DATA) if (folder / file).exists()]
    about |= {f"sha256:{file}": verify.sha256(folder / file) for file in hashed}
    onnx.helper.set_model_props(model, about)
    path.write_bytes(model.SerializeToString())


def _meaning(name: str, manifest: Manifest) -> str:
    """Return in words what an input or output is, where more is known than its shape says."""
    if name in manifest.counts:
        return f"How many positions of the axis `{manifest.counts[name]}` take part."
    if name in manifest.weights_of:
        return f"The weights of the attention layer `{manifest.weights_of[name]}`, queries by keys."
    return ""


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


def read(path: Path) -> Traced:
    """Return what was written, with the weights of the second file as arrays that are read when they are used."""
    model = onnx.load(str(path), load_external_data=False)
    weights = take_out(model.graph, path.parent)
    return Traced(model, weights=weights)


def write(traced: Traced, path: Path, *, check: bool = True) -> None:
    """Write the file with its weights, a second file beside it if they pass 2 GiB, and check both in full.

    Args:
        traced: What to write.
        path: The file.
        check: Whether to check.

    Raises:
        ExportError: onnx's checker finds the file invalid.
    """
    path.write_bytes(with_weights(traced.model, traced.weights).SerializeToString())
    write_data(path.parent, traced.weights)
    if not check:
        return
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError(f"The ONNX file does not pass onnx's full check: {error}") from error
