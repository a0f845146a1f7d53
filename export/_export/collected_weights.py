"""Which outputs of a decoder are attention weights, those of one step after another."""

from __future__ import annotations

import keras

from keras_attn._decoding_greedy import GreedyDecoding

from .._model.attention_outputs import attention_outputs
from .._model.signature import model_signature
from .._model.trial_runs import outputs_of
from .._standalone.verify import Arrays
from .feeds import fed_after_steps, written_names


def collected_weights(model: keras.Model, inputs: Arrays) -> dict[str, str]:
    """Return the outputs (B, L, Tk) of a greedy decoder that are weights, each with the path of their layer.

    In the loop weights have no numbers to compare with, so the step is run by itself. Of several heads, (B, L, H, Tk),
    they are not laid out as weights are anywhere else, and are left out.

    Args:
        model: The model; of one that `keras_attn.decoding.greedy` did not make there are none.
        inputs: A case.
    """
    layers = [layer for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]
    if len(layers) != 1 or not isinstance(layers[0], GreedyDecoding):
        return {}
    (layer,) = layers
    names = {name: written for name, written in written_names(layer.step).items() if name in layer._names.outputs}
    if not names:
        return {}
    run = outputs_of(model_signature(layer.step, None))
    fed = fed_after_steps(layer, inputs)
    found = attention_outputs(layer.step, run, fed)
    return {name: found[w] for name, w in names.items() if w in found and len(layer.step.output[name].shape) == 2}
