"""Validation of sample inputs against the model, as a flat dictionary."""

from typing import Any

import keras
import numpy as np

from .._errors import InputError
from .._format.input_arrays import convert_array
from .._signature.signature import InputSpec, Signature


def flatten_samples(signature: Signature) -> dict[str, np.ndarray]:
    """Return the samples by input name, in the dtypes of the model.

    Raises:
        InputError: If a name is unknown, or if a dtype or shape does not fit.
    """
    if not (samples := signature.samples):
        return {}
    specs = {spec.name: spec for spec in signature.inputs}
    tensor_names = {tensor.name: name for name, tensor in signature.input_tensors.items()}
    named_samples: dict[str, Any] = {}
    for path, value in keras.tree.flatten_with_path(dict(samples)):
        parts = [str(part) for part in path]
        # Nested inputs are named by their full path in a subclassed model, by their own name in a functional model.
        joined = "_".join(parts)
        name = joined if joined in specs else parts[-1]
        named_samples[name if name in specs else tensor_names.get(name, name)] = value
    if unknown := sorted(set(named_samples) - set(specs)):
        raise InputError(f"`sample_inputs` names {unknown}, which the model does not take. It takes {list(specs)}.")
    arrays = {name: _validate_sample(value, specs[name]) for name, value in named_samples.items()}
    batches = {array.shape[0] for name, array in arrays.items() if specs[name].shape and specs[name].shape[0] is None}
    if len(batches) > 1 and not _is_runnable(signature, arrays):  # the sizes may be nodes and edges of one graph
        raise InputError(
            f"`sample_inputs` must agree in their batch axis. Received batches of {sorted(batches)}. If the first "
            "axes are not the batch, pass samples of all inputs, on which Keras can run the model."
        )
    return arrays


def _is_runnable(signature: Signature, arrays: dict[str, np.ndarray]) -> bool:
    """Return True if there is a sample for every input, and Keras runs the model on them."""
    if len(arrays) < len(signature.inputs):
        return False
    try:
        signature.run(arrays)
    except Exception:  # noqa: BLE001 - the type of the error depends on the model
        return False
    return True


def _validate_sample(value: Any, spec: InputSpec) -> np.ndarray:
    array = convert_array(f"Sample `{spec.name}`", value, spec.dtype)
    fits = array.ndim == len(spec.shape) and all(
        expected in (None, size) for expected, size in zip(spec.shape, array.shape, strict=True)
    )
    if not fits or 0 in array.shape:
        raise InputError(
            f"Sample `{spec.name}` must have shape {spec.shape}, with at least one element along each axis. Received: "
            f"{array.shape}."
        )
    return array
