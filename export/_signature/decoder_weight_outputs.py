"""Find the outputs of a greedy decoder that are attention weights."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from keras_attn.decoding._greedy import GreedyDecoding
from keras_attn.decoding._step_wiring import inputs_of

from .._format.names import Arrays
from .attention_weight_outputs import attention_outputs
from .signature import Signature, model_signature

STEPS = 3  # after which a state is no longer what it was at first


def collected_weights(signature: Signature, inputs: Arrays) -> dict[str, str]:
    """Return the outputs (B, L, Tk) of a greedy decoder that are weights, each with the path of their layer.

    In the loop weights have no numbers to compare with, so the step is run by itself. Of several heads, (B, L, H, Tk),
    they are not laid out as weights are anywhere else, and are left out.

    Args:
        signature: The model; of one that `keras_attn.decoding.greedy` did not make there are none.
        inputs: A case.
    """
    layers = [layer for layer in signature.model.layers if not isinstance(layer, keras.layers.InputLayer)]
    if len(layers) != 1 or not isinstance(layers[0], GreedyDecoding):
        return {}
    (layer,) = layers
    step = model_signature(layer.step)
    names = {name: written for name, written in _written_names(step).items() if name in layer._names.outputs}
    if not names:
        return {}
    found = attention_outputs(step, _fed_after_steps(layer, step, inputs))
    return {name: found[w] for name, w in names.items() if w in found and len(layer.step.output[name].shape) == 2}


def _written_names(signature: Signature) -> dict[str, str]:
    """Return what the outputs of a functional model are called in its files, by the keys that Keras has for them."""
    keys = [path[-1] for path, _ in keras.tree.flatten_with_path(signature.model.output)]
    return dict(zip(keys, signature.outputs, strict=True))


def _fed_after_steps(layer: Any, step: Signature, inputs: Arrays) -> Arrays:
    """Return what Keras's step is fed after some steps on inputs of the encoder."""
    names, encoder = layer._names, model_signature(layer.encoder)
    encoded = encoder.run(inputs)
    there = inputs | {name: encoded[written] for name, written in _written_names(encoder).items()}
    rows, written = len(next(iter(inputs.values()))), _written_names(step)
    token = there[layer.start] if isinstance(layer.start, str) else np.full(rows, layer.start)
    for number in range(min(STEPS, layer.max_length)):
        fed = {}
        for name, tensor in inputs_of(layer.step).items():
            if name == names.token:
                value = token
            elif name in there:
                value = there[name]
            elif name in names.state.values():
                value = np.zeros((rows, *(size or 0 for size in tensor.shape[1:])))
            else:
                value = np.full(rows, number)  # the position
            fed[name] = value.astype(tensor.dtype)
        out = step.run(fed)
        there |= {target: out[written[source]] for source, target in names.state.items()}
        token = out[written[names.logits]].argmax(-1)
    return fed
