"""Data of a live page: the golden cases with the limits of their comparison, and the fields of the form."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from .._format.compare import scale_of
from .._format.manifest import Manifest, Spec
from .._format.names import STRING, Case, dtype_name
from .._format.parity_report import finite
from .encoding import gzip_base64, number_text
from .examples import has_batch
from .labels import Labels

MAX_TYPED = 5000  # elements of an array that can be edited in the form

Record = dict[str, Any]


def tensor_data(array: np.ndarray) -> Record:
    """Return an array as dtype, shape and data: bytes in little-endian row order, or a list of strings."""
    dtype = dtype_name(array)
    ordered = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    data = array.ravel().tolist() if dtype == STRING else gzip_base64(ordered.tobytes())
    return {"dtype": dtype, "shape": list(array.shape), "data": data}


def replay_data(cases: Iterable[Case], tolerance: Mapping[str, float]) -> list[Record]:
    """Return the golden cases: inputs, outputs, and for each output the limits of its elements."""
    return [
        {
            "name": case.name,
            "inputs": [{"name": name, **tensor_data(array)} for name, array in case.inputs.items()],
            "outputs": [
                {"name": name, **tensor_data(array), "limits": tensor_data(_limits(name, case, tolerance))}
                for name, array in case.outputs.items()
            ],
        }
        for case in cases
    ]


def _limits(name: str, case: Case, tolerance: Mapping[str, float]) -> np.ndarray:
    """Return the limits of `compare`: the largest difference of each float; else whether rounding decides."""
    expected = case.outputs[name]
    if expected.dtype.kind != "f":
        return case.rounding.get(name, np.zeros(expected.shape, bool))
    scale = scale_of(expected.astype(np.float64))
    limits = np.maximum(tolerance["absolute"], tolerance["relative"] * scale)
    wide = np.maximum(limits, case.rounding.get(name, 0.0))
    return np.asarray(wide, np.result_type(expected.dtype, np.float32))


def form_data(manifest: Manifest, labels: Labels, case: Case, texts: Mapping[str, str]) -> list[Record]:
    """Return the fields of the form, filled with the first example of a case, whose texts are given by input.

    A field has the entries of `port_data`; `counts`, the axis whose positions the input counts; and one of `text`, the
    labels of a sequence; `first`, nested lists, or `None` for the length of a text; `fixed`, a tensor that is too large
    to be edited.
    """
    text_axes = {spec.shape[1] for spec in manifest.inputs if _is_text(spec, labels, manifest)}
    records = []
    for spec in manifest.inputs:
        counts = manifest.counts.get(spec.name)
        array = np.asarray(case.inputs[spec.name])
        first = array[:1] if array.ndim and isinstance(spec.shape[0], str) else array
        record = {**port_data(spec, labels, manifest), "counts": counts}
        if _is_text(spec, labels, manifest):
            record["text"] = texts[spec.name]
        elif first.size > MAX_TYPED:
            record["fixed"] = tensor_data(first)
        else:
            record["first"] = None if counts in text_axes else finite(_shortest(first).tolist(), number_text)
        records.append(record)
    return records


def _is_text(spec: Spec, labels: Labels, manifest: Manifest) -> bool:
    """Return whether an input is typed as a text: a labelled sequence of ids, of a single example."""
    is_single = len(spec.shape) == 2 and (isinstance(spec.shape[0], str) or spec.shape[0] == 1)
    return spec.name in labels and "int" in spec.dtype and is_single and has_batch(spec, manifest)


def _shortest(array: np.ndarray) -> np.ndarray:
    """Return float32 and float16 as the float64 with the fewest digits: 0.1, not 0.10000000149011612."""
    return array.astype(str).astype(np.float64) if array.dtype.kind == "f" else array


def outputs_data(manifest: Manifest, labels: Labels, probabilities: Collection[str]) -> list[Record]:
    """Return the entries of `port_data`, the attention layer, and whether the output holds probabilities."""
    return [
        port_data(spec, labels, manifest)
        | {"layer": manifest.weights_of.get(spec.name), "has_probabilities": spec.name in probabilities}
        for spec in manifest.outputs
    ]


def port_data(spec: Spec, labels: Labels, manifest: Manifest) -> Record:
    """Return name, dtype, shape and labels of an input or output, and whether its first axis is the batch."""
    record = {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape), "labels": labels.get(spec.name)}
    return {**record, "has_batch": has_batch(spec, manifest)}
