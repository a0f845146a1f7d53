"""Data of a live page: golden cases with limits for the comparison, and the fields of the input form."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from .._format.compare import scale_of
from .._format.manifest import Manifest, Spec
from .._format.names import STRING, Case, dtype_name
from .._format.parity_report import encode_nonfinite
from .encoding import encode_gzip_base64, format_number
from .examples import has_batch
from .labels import Labels

MAX_FORM_ELEMENTS = 5000  # a larger array cannot be edited in the form

Record = dict[str, Any]


def encode_tensor(array: np.ndarray) -> Record:
    """Return dtype, shape and data of an array: little-endian bytes in row order, or a list of strings."""
    dtype = dtype_name(array)
    ordered = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    data = array.ravel().tolist() if dtype == STRING else encode_gzip_base64(ordered.tobytes())
    return {"dtype": dtype, "shape": list(array.shape), "data": data}


def encode_cases(cases: Iterable[Case], tolerance: Mapping[str, float]) -> list[Record]:
    """Return the golden cases: inputs, outputs, and limits of the elements of each output."""
    return [
        {
            "name": case.name,
            "inputs": [{"name": name, **encode_tensor(array)} for name, array in case.inputs.items()],
            "outputs": [
                {"name": name, **encode_tensor(array), "limits": encode_tensor(_compute_limits(name, case, tolerance))}
                for name, array in case.outputs.items()
            ],
        }
        for case in cases
    ]


def _compute_limits(name: str, case: Case, tolerance: Mapping[str, float]) -> np.ndarray:
    """Return the limits of `compare.compare`: allowed differences of floats, or True for possible ties."""
    expected = case.outputs[name]
    if expected.dtype.kind != "f":
        return case.rounding_limits.get(name, np.zeros(expected.shape, bool))
    scale = scale_of(expected.astype(np.float64))
    limits = np.maximum(tolerance["absolute"], tolerance["relative"] * scale)
    widened = np.maximum(limits, case.rounding_limits.get(name, 0.0))
    return np.asarray(widened, np.result_type(expected.dtype, np.float32))


def build_form_fields(manifest: Manifest, labels: Labels, case: Case, texts: Mapping[str, str]) -> list[Record]:
    """Build the fields of the form, filled with the first example of a case; `texts` holds labelled sequences by input.

    A field has the entries of `describe_port`; `counts`, the axis of a valid length; and one of `text`, a labelled
    sequence; `first`, nested lists, or None for the length of a text; `fixed`, a tensor that is too large to edit.
    """
    text_axes = {spec.shape[1] for spec in manifest.inputs if _is_text(spec, labels, manifest)}
    records = []
    for spec in manifest.inputs:
        counts = manifest.counts.get(spec.name)
        array = np.asarray(case.inputs[spec.name])
        example = array[:1] if array.ndim and isinstance(spec.shape[0], str) else array
        record = {**describe_port(spec, labels, manifest), "counts": counts}
        if _is_text(spec, labels, manifest):
            record["text"] = texts[spec.name]
        elif example.size > MAX_FORM_ELEMENTS:
            record["fixed"] = encode_tensor(example)
        else:
            values = _shorten_floats(example).tolist()
            record["first"] = None if counts in text_axes else encode_nonfinite(values, format_number)
        records.append(record)
    return records


def _is_text(spec: Spec, labels: Labels, manifest: Manifest) -> bool:
    """Return True if an input is typed as text: a labelled sequence of ids, with a batch of one example."""
    is_single = len(spec.shape) == 2 and (isinstance(spec.shape[0], str) or spec.shape[0] == 1)
    return spec.name in labels and "int" in spec.dtype and is_single and has_batch(spec, manifest)


def _shorten_floats(array: np.ndarray) -> np.ndarray:
    """Convert floats to the float64 with the fewest digits, so that a form shows 0.1, not 0.10000000149011612."""
    return array.astype(str).astype(np.float64) if array.dtype.kind == "f" else array


def describe_outputs(manifest: Manifest, labels: Labels, probabilities: Collection[str]) -> list[Record]:
    """Return the entries of `describe_port`, the attention layer, and `has_probabilities` of each output."""
    return [
        describe_port(spec, labels, manifest)
        | {"layer": manifest.weights_of.get(spec.name), "has_probabilities": spec.name in probabilities}
        for spec in manifest.outputs
    ]


def describe_port(spec: Spec, labels: Labels, manifest: Manifest) -> Record:
    """Return name, dtype, shape, labels and `has_batch` of an input or output."""
    record = {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape), "labels": labels.get(spec.name)}
    return {**record, "has_batch": has_batch(spec, manifest)}
