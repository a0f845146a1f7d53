"""Capture attention weights of layers inside a model by wrapping their `call`."""

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np
from keras import ops

from .._keras.private_api import direct_sublayers

SCORES_ARGUMENT = "return_attention_scores"


def choose_layers(model: Any, choices: Iterable[Any] | None) -> dict[str, Any]:
    """Return attention layers by path. A choice is a layer, its name, a path or the end of a path; None for all."""
    layers: dict[str, Any] = {}
    _add_attention_layers(model, "", layers)
    matches = [
        {path for path, layer in layers.items() if choice in (layer, layer.name) or f"/{path}".endswith(f"/{choice}")}
        for choice in choices or ()
    ]
    chosen = {path: layers[path] for path in layers if choices is None or any(path in paths for paths in matches)}
    if not chosen or not all(matches):
        raise ValueError(
            "`layers` must match layers whose `call` takes `return_attention_scores`, outside of a `keras.layers.RNN` "
            f"without `unroll=True`. Received: layers={choices}. Model {model.name!r} has {list(layers) or 'none'}."
        )
    return chosen


def capture_weights(model: Any, inputs: Any, layers: dict[str, Any]) -> dict[str, Any]:
    """Return the attention weights of each call of the layers, in float32, by path.

    The model runs in inference mode, and changes of its variables are discarded. Further calls of a layer have paths
    `path/1`, `path/2`. Calls with a single query become the rows of one array.
    """
    calls: dict[str, list[Any]] = {path: [] for path in layers}
    # A user or another tool may have set `call` on the instance. `setattr` would make Keras track the function.
    instance_calls = {path: vars(layer).get("call") for path, layer in layers.items()}
    try:
        for path, layer in layers.items():
            vars(layer)["call"] = _recording_call(layer.call, calls[path])
        # The scope discards updates of variables, such as seeds, so that the training does not change.
        with keras.StatelessScope():
            model(inputs, training=False)
    except Exception as error:
        raise ValueError(
            "`inputs` must be what the model takes, and attention layers must run eagerly, outside of a "
            f"`tf.function` for example. Model {model.name!r} failed with: {str(error).strip() or repr(error)}"
        ) from error
    finally:
        for path, layer in layers.items():
            vars(layer).pop("call", None)
            if instance_calls[path] is not None:
                vars(layer)["call"] = instance_calls[path]
    if not any(calls.values()):
        raise ValueError(f"Model {model.name!r} must call one of the attention layers {', '.join(layers)}.")
    weights: dict[str, Any] = {}
    for path, arrays in calls.items():
        if len({array.shape for array in arrays}) == 1 and arrays[0].shape[-2] == 1:
            arrays = [np.concatenate(arrays, axis=-2)]
        weights |= {f"{path}/{number}" if number else path: array for number, array in enumerate(arrays)}
    return weights


def _add_attention_layers(parent: Any, prefix: str, layers: dict[str, Any]) -> None:
    """Add the attention layers inside a layer, at any depth, by unique paths that are valid file names."""
    for layer in direct_sublayers(parent):
        if layer in layers.values():
            continue
        path = prefix + re.sub(r"[^\w-]", "_", layer.name)
        if SCORES_ARGUMENT in inspect.signature(layer.call).parameters:
            while layers.setdefault(path, layer) is not layer:
                path += "_1"
        elif not isinstance(layer, keras.layers.RNN) or layer.unroll:  # weights in a compiled loop are symbolic
            _add_attention_layers(layer, f"{path}/", layers)


def _recording_call(call: Callable[..., Any], recorded: list[Any]) -> Callable[..., Any]:
    """Return the `call` of a layer with the same results, which also appends the weights to a list."""
    signature = inspect.signature(call)

    def recording_call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        caller_wants_weights = bound.arguments.get(SCORES_ARGUMENT)
        bound.arguments[SCORES_ARGUMENT] = True
        result = call(*bound.args, **bound.kwargs)
        # A call by `precompute` returns a key/value cache, without weights.
        if not isinstance(result, tuple):
            return result
        weights = np.asarray(ops.convert_to_numpy(ops.cast(result[1], "float32")))
        recorded.append(weights[:, None] if weights.ndim == 2 else weights)  # AttentionCell: (B, Tk), for one query
        return result if caller_wants_weights else result[0]

    return recording_call
