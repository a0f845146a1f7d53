"""Search for model outputs that are attention weights."""

import functools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_attn import MaskedSoftmax
from keras_attn.decoding._greedy import GreedyDecoding
from keras_attn.decoding._step_wiring import inputs_by_name

from .._array_comparison import arrays_match
from .._format.names import Arrays
from .._private_api.keras_internals import to_numpy_or_none, wrap_layer_calls
from .signature import Signature, build_signature

PROBE_STEPS = 3  # of a decoder; its states are zeros in the first


class _ReturnedWeights(NamedTuple):
    layer: str
    array: np.ndarray


def find_attention_outputs(signature: Signature, inputs: Arrays) -> dict[str, str]:
    """Return the outputs that are attention weights, with the path of their layer.

    An output qualifies if it equals the weights (B, ..., Tq, Tk) that a layer returned, element by element, or
    (B, ..., Tk) for a single query, as in a step of a decoder. A function of weights, as a mean over heads, does not.
    `inputs` must have axes of different sizes and varying elements.
    """
    if not signature.attention_layers:
        return {}
    recorded_weights: list[_ReturnedWeights] = []
    with wrap_layer_calls(signature.attention_layers, partial(_record_call, recorded_weights)):
        outputs = signature.run(inputs)
    return {
        name: weights.layer
        for name, array in outputs.items()
        for weights in recorded_weights[::-1]
        if array.dtype.kind == "f" and any(arrays_match(layout, array) for layout in _list_layouts(weights.array))
    }


def _list_layouts(weights: np.ndarray) -> list[np.ndarray]:
    """Return weights (..., Tq, Tk), and without the axis Tq if there is a single query."""
    return [weights, *([weights[..., 0, :]] if weights.ndim > 2 and weights.shape[-2] == 1 else [])]


def _record_call(recorded_weights: list[_ReturnedWeights], layer: Any, call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def record(*args: Any, **kwargs: Any) -> Any:
        result = call(*args, **kwargs)
        weights = result if isinstance(layer, MaskedSoftmax) else None
        if isinstance(result, tuple | list) and len(result) == 2:
            weights = result[1]
        array = None if weights is None else to_numpy_or_none(weights)
        if array is not None and array.ndim >= 2 and array.dtype.kind == "f":
            recorded_weights.append(_ReturnedWeights(layer.path, array))
        return result

    return record


def find_collected_weights(signature: Signature, inputs: Arrays) -> dict[str, str]:
    """Return the outputs (B, L, Tk) of a greedy decoder that are attention weights, with the path of their layer.

    Weights of several heads, (B, L, H, Tk), are left out: no other layer returns this layout.
    """
    # Tensors inside the loop are symbolic and cannot be compared, so the step model runs outside the loop.
    layers = [layer for layer in signature.model.layers if not isinstance(layer, keras.layers.InputLayer)]
    if len(layers) != 1 or not isinstance(layers[0], GreedyDecoding):
        return {}
    (layer,) = layers
    step, encoder = build_signature(layer.step), build_signature(layer.encoder)
    collected_names = {key: name for key, name in _map_output_names(step).items() if key in layer._names.outputs}
    names = {key: name for key, name in collected_names.items() if len(layer.step.output[key].shape) == 2}
    paths = find_attention_outputs(step, _run_steps(layer, step, encoder, inputs)) if names else {}
    return {key: paths[name] for key, name in names.items() if name in paths}


def _map_output_names(signature: Signature) -> dict[str, str]:
    keys = [path[-1] for path, _ in keras.tree.flatten_with_path(signature.model.output)]
    return dict(zip(keys, signature.outputs, strict=True))


def _run_steps(layer: Any, step: Signature, encoder: Signature, inputs: Arrays) -> Arrays:
    """Run the encoder and `PROBE_STEPS` steps, and return the inputs of the last step."""
    names, encoder_outputs = layer._names, encoder.run(inputs)
    values = inputs | {key: encoder_outputs[name] for key, name in _map_output_names(encoder).items()}
    rows, output_names = len(next(iter(inputs.values()))), _map_output_names(step)
    token = values[layer.start] if isinstance(layer.start, str) else np.full(rows, layer.start)
    for position in range(min(PROBE_STEPS, layer.max_length)):
        step_inputs = {}
        for name, tensor in inputs_by_name(layer.step).items():
            if name == names.token:
                value = token
            elif name in values:
                value = values[name]
            elif name in names.state.values():
                value = np.zeros((rows, *(size or 0 for size in tensor.shape[1:])))
            else:
                value = np.full(rows, position)
            step_inputs[name] = value.astype(tensor.dtype)
        outputs = step.run(step_inputs)
        values |= {target: outputs[output_names[source]] for source, target in names.state.items()}
        token = outputs[output_names[names.logits]].argmax(-1)
    return step_inputs
