"""An encoder and a step in one config, with the layers that both call.

Keras saves a layer of two functional models as one, but loads each model as if the layer's calls in it were the first.
So the config says by name which layers of the step are those of the encoder, and they are put into the loaded step.
"""

from typing import Any

import keras


def models_config(encoder: Any, step: Any) -> dict[str, Any]:
    """The config of both models."""
    of_encoder = {id(layer): layer.name for layer in encoder.layers}
    shared = {layer.name: of_encoder[id(layer)] for layer in step.layers if id(layer) in of_encoder}
    return {
        "encoder": keras.saving.serialize_keras_object(encoder),
        "step": keras.saving.serialize_keras_object(step),
        "shared": shared,
    }


def with_models(config: dict[str, Any]) -> dict[str, Any]:
    """A config with both models in the place of theirs."""
    others = {name: value for name, value in config.items() if name not in ("encoder", "step", "shared")}
    shared = config["shared"]
    encoder = keras.saving.deserialize_keras_object(config["encoder"])
    step = keras.saving.deserialize_keras_object(config["step"])
    if shared:
        step = keras.models.clone_model(
            step,
            clone_function=lambda layer: encoder.get_layer(shared[layer.name]) if layer.name in shared else layer,
        )
    return {**others, "encoder": encoder, "step": step}
