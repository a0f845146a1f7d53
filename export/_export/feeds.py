"""Which output feeds which input of a step, under the names that files have for them."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from keras_attn._decoding_names import POSITION as POSITION_INPUT
from keras_attn._decoding_names import inputs_of, outputs_of

from .._bundle.steps_manifest import ENCODER_INPUT, ENCODER_OUTPUT, POSITION, START, STEP_OUTPUT, TOKEN, ZEROS
from .._model.input_sources import of_unknown_source
from .._model.signature import model_signature
from .._model.trial_runs import outputs_of as run_by
from .._standalone.verify import Arrays

STEPS = 3  # after which a state is no longer what it was at first

Source = dict[str, Any]


def written_names(model: keras.Model) -> dict[str, str]:
    """Return what the outputs of a functional model are called in its files, by the keys that Keras has for them."""
    keys = [path[-1] for path, _ in keras.tree.flatten_with_path(model.output)]
    return dict(zip(keys, model_signature(model, None).outputs, strict=True))


def feeds_of(layer: Any) -> list[dict[str, Any]]:
    """Return for each input of a decoder's step what feeds it at the first step, and at each after that."""
    names, outputs = layer._names, written_names(layer.step)
    after = {target: {"from": STEP_OUTPUT, "name": outputs[source]} for source, target in names.state.items()}
    feeds = []
    for name, tensor in inputs_of(layer.step).items():
        given = _of_encoder(layer, name)
        if name == names.token:
            first: Source = {"from": START}
            then: Source = {"from": TOKEN}
        elif name in after:
            first = given or {"from": ZEROS, "shape": [size or 0 for size in tensor.shape[1:]]}
            then = after[name]
        else:
            first = then = given or {"from": POSITION}
        feeds.append({"input": name, "first": first, "then": then})
    return feeds


def start_of(layer: Any) -> int | Source:
    """Return the token before the first, or what gives one for each row."""
    if not isinstance(layer.start, str):
        return int(layer.start)
    source = _of_encoder(layer, layer.start)
    assert source is not None  # the layer has checked it
    return source


def _of_encoder(layer: Any, name: str) -> Source | None:
    """Return where an encoder has something of that name: what it gives goes before what it takes."""
    if name in outputs_of(layer.encoder):
        return {"from": ENCODER_OUTPUT, "name": written_names(layer.encoder)[name]}
    return {"from": ENCODER_INPUT, "name": name} if name in inputs_of(layer.encoder) else None


def step_samples(layer: Any, inputs: Arrays) -> Arrays | None:
    """Return samples for those inputs of a decoder's step that could not be drawn: integers of a state, a position.

    They are what the step is fed after some steps on inputs of the encoder.
    """
    signature = model_signature(layer.step, None)
    unknown = of_unknown_source(layer.step, signature)
    if not unknown:
        return None
    fed = fed_after_steps(layer, inputs)
    count = np.arange(len(fed[layer._names.token]))  # a position is the same for all rows, which would show little
    return {name: count % layer.max_length if name == POSITION_INPUT else fed[name] for name in unknown}


def fed_after_steps(layer: Any, inputs: Arrays) -> Arrays:
    """Return what Keras's step is fed after some steps on inputs of the encoder."""
    feeds, start = feeds_of(layer), start_of(layer)
    dtypes = {name: tensor.dtype for name, tensor in inputs_of(layer.step).items()}
    encode, step = (run_by(model_signature(model, None)) for model in (layer.encoder, layer.step))
    there = {(ENCODER_INPUT, name): array for name, array in inputs.items()}
    there |= {(ENCODER_OUTPUT, name): array for name, array in encode(inputs).items()}
    rows = len(next(iter(inputs.values())))
    token = np.full(rows, start) if isinstance(start, int) else there[start["from"], start["name"]]
    logits = written_names(layer.step)[layer._names.logits]

    def value(source: Source, number: int) -> np.ndarray:
        if source["from"] in (START, TOKEN):
            return token
        if source["from"] == POSITION:
            return np.full(rows, number)
        return np.zeros((rows, *source["shape"])) if source["from"] == ZEROS else there[source["from"], source["name"]]

    for number in range(min(STEPS, layer.max_length)):
        which = "then" if number else "first"
        fed = {feed["input"]: value(feed[which], number).astype(dtypes[feed["input"]]) for feed in feeds}
        out = step(fed)
        there |= {(STEP_OUTPUT, name): array for name, array in out.items()}
        token = out[logits].argmax(-1)
    return fed
