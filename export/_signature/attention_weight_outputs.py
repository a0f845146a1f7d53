"""Find the model outputs that are attention weights."""

import functools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_attn import MaskedSoftmax
from keras_attn.decoding._greedy import GreedyDecoding
from keras_attn.decoding._step_wiring import inputs_of

from .._array_comparison import alike
from .._format.names import Arrays
from .._private_api.keras_internals import numbers_of, through_calls
from .signature import Signature, model_signature

STEPS = 3  # of a decoder, after which a state is no longer what it was at first


class _Weights(NamedTuple):
    layer: str
    array: np.ndarray


def attention_outputs(signature: Signature, inputs: Arrays) -> dict[str, str]:
    """Return the outputs that are the weights of an attention layer, each with the path of that layer.

    An output is one if it holds what a layer returned as weights, number for number, heads and batch as they are; the
    axis of a single query may be missing, as in a step of a decoder. A function of weights, such as a mean over heads,
    is not.

    Args:
        signature: The model.
        inputs: A case in which axes have different sizes and the numbers vary.
    """
    if not signature.attention:
        return {}
    returned: list[_Weights] = []
    with through_calls(signature.attention, partial(_recorded_call, returned)):
        outputs = signature.run(inputs)
    return {
        name: weights.layer
        for name, array in outputs.items()
        for weights in returned[::-1]
        if array.dtype.kind == "f" and any(alike(layout, array) for layout in _layouts(weights.array))
    }


def _layouts(weights: np.ndarray) -> list[np.ndarray]:
    """Return weights as they are, and without the axis of a single query."""
    return [weights, *([weights[..., 0, :]] if weights.ndim > 2 and weights.shape[-2] == 1 else [])]


def _recorded_call(returned: list[_Weights], layer: Any, call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        result = call(*args, **kwargs)
        weights = result if isinstance(layer, MaskedSoftmax) else None
        if isinstance(result, tuple | list) and len(result) == 2:
            weights = result[1]
        array = None if weights is None else numbers_of(weights)
        if array is not None and array.ndim >= 2 and array.dtype.kind == "f":
            returned.append(_Weights(layer.path, array))
        return result

    return recorded


def collected_weights(signature: Signature, inputs: Arrays) -> dict[str, str]:
    """Return the outputs (B, L, Tk) of a greedy decoder that are weights, each with the path of their layer.

    In the loop weights have no numbers to compare with, so the step is run by itself. Of several heads, (B, L, H, Tk),
    they are not laid out as weights are anywhere else, and are left out.

    Args:
        signature: The model; one that `keras_attn.decoding.greedy` did not make has no such outputs.
        inputs: A case.
    """
    layers = [layer for layer in signature.model.layers if not isinstance(layer, keras.layers.InputLayer)]
    if len(layers) != 1 or not isinstance(layers[0], GreedyDecoding):
        return {}
    (layer,) = layers
    step, encoder = model_signature(layer.step), model_signature(layer.encoder)
    written_names = {name: written for name, written in _written_names(step).items() if name in layer._names.outputs}
    names = {name: w for name, w in written_names.items() if len(layer.step.output[name].shape) == 2}
    paths = attention_outputs(step, _fed_after_steps(layer, step, encoder, inputs)) if names else {}
    return {name: paths[written] for name, written in names.items() if written in paths}


def _written_names(signature: Signature) -> dict[str, str]:
    """Return the names in files of the outputs of a functional model, by the keys that Keras has for them."""
    keys = [path[-1] for path, _ in keras.tree.flatten_with_path(signature.model.output)]
    return dict(zip(keys, signature.outputs, strict=True))


def _fed_after_steps(layer: Any, step: Signature, encoder: Signature, inputs: Arrays) -> Arrays:
    """Return the inputs of Keras's step after some steps on inputs of the encoder."""
    names, encoded = layer._names, encoder.run(inputs)
    known = inputs | {name: encoded[written] for name, written in _written_names(encoder).items()}
    rows, written = len(next(iter(inputs.values()))), _written_names(step)
    token = known[layer.start] if isinstance(layer.start, str) else np.full(rows, layer.start)
    for number in range(min(STEPS, layer.max_length)):
        fed = {}
        for name, tensor in inputs_of(layer.step).items():
            if name == names.token:
                value = token
            elif name in known:
                value = known[name]
            elif name in names.state.values():
                value = np.zeros((rows, *(size or 0 for size in tensor.shape[1:])))
            else:
                value = np.full(rows, number)  # the position
            fed[name] = value.astype(tensor.dtype)
        outputs = step.run(fed)
        known |= {target: outputs[written[source]] for source, target in names.state.items()}
        token = outputs[written[names.logits]].argmax(-1)
    return fed
