"""Greedy decoding and beam search as one model: its graph and its exported file contain encoder, step and loop.

The encoder runs once per batch, and the step once per decoded token. Both are functional models of the trained layers.
The decoding model contains both models and copies no weights.

Tensors are connected by name. `token` and `state` are arguments of the functions. The step gets these inputs:

    `token`             integers (B,): the token of the previous step, but `start` at the first step
    a value of `state`  the output of the previous step that `state` maps to this input. At the first step it is the
                        encoder's output or input of this name. If the encoder has neither, it is zeros: dynamic axes
                        then have size 0, as in an empty cache
    any other name      the encoder's output or input of this name, which is the same at every step
    `position`          integers (B,): the step's index, from 0, unless the encoder has an output or input `position`

Dropout is always off. The step gets no implicit Keras masks, but the encoder can return valid lengths as an output.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from ._beam import BeamDecoding
from ._greedy import GreedyDecoding
from ._step_wiring import inputs_by_name

__all__ = ["beam", "greedy"]


def greedy(
    encoder: Any,
    step: Any,
    state: Mapping[str, str],
    *,
    start: int | str,
    end: int | None = None,
    max_length: int,
    token: str = "token",
    logits: str = "logits",
    outputs: Sequence[str] = (),
    name: str | None = None,
) -> Any:
    """Create a model that selects the most likely token at each step, until each row has ended.

    If several tokens are the most likely, the first is selected. Once more than half of the rows have ended, the ended
    rows are no longer computed. But shapes must not change on JAX, with `jit_compile=True`, or if the inputs of the
    step have a fixed batch size. All rows are then computed until the last row has ended.

    Args:
        encoder: A functional model with a dict of outputs. Its inputs are the inputs of the decoding model.
        step: A functional model with a dict of outputs, among them the logits of the next token.
        state: Maps names of the step's outputs to names of its inputs at the next step.
        start: The start token, or the name of the encoder's output or input that has the start tokens, integers (B,).
        end: The token that ends a row. If it is None, all L steps run.
        max_length: L, the largest number of steps.
        token: The name of the step's input that gets the token of the previous step.
        logits: The name of the step's output that has the logits, floats (B, V).
        outputs: Names of outputs of the step, (B, ...) each, such as weights. The model returns them for every step.
        name: Name of the model.

    Returns:
        A model with a dict of outputs: `"tokens"`, int32 (B, L), filled with `end` after the first `end` of a row;
        `"lengths"`, int32 (B,), numbers of tokens up to and including the first `end`; `"scores"`, float32 (B,), sums
        of the log-probabilities of these tokens; and (B, L, ...) for each of `outputs`, with zeros after the end.

    Numerics:
        Scores are computed in float32 at least. A row with NaN among its logits has the score NaN, and its tokens
        from this step on are arbitrary: the maximum of numbers and NaN differs between backends and onnxruntime.

    Raises:
        TypeError: If a model is not functional, or has no dict of outputs.
        ValueError: If names, shapes or dtypes do not match.

    Example:
        >>> model = greedy(encoder, step, {"next_state": "state"}, start=0, end=1, max_length=20)
        >>> model.predict(texts)["tokens"]
    """
    layer = GreedyDecoding(
        encoder, step, state, start=start, end=end, max_length=max_length, token=token, logits=logits, outputs=outputs
    )
    return _wrap_layer(layer, encoder, name)


def beam(
    encoder: Any,
    step: Any,
    state: Mapping[str, str],
    *,
    start: int | str,
    end: int | None = None,
    max_length: int,
    width: int = 4,
    best: int | None = None,
    length_penalty: float = 0.0,
    token: str = "token",
    logits: str = "logits",
    outputs: Sequence[str] = (),
    name: str | None = None,
) -> Any:
    """Create a model that finds sequences of high probability by beam search.

    The score of a sequence is the sum of its log-probabilities, divided by `((5 + length) / 6) ** length_penalty`. At
    each step every sequence of the beam is continued with every token, and the continuations are sorted by their sums:

    - Of the first W continuations, those with the token `end` are finished. Of all finished sequences, the K with the
      best scores are kept.
    - Of all continuations, the first W without the token `end` are the beam of the next step.

    After L steps, the sequences in the beam count as finished too. A row stops earlier if it has K finished sequences
    and no continuation of the beam can get a higher score than the worst of the K. If scores are equal, the first is
    taken. With width 1 and no penalty the result is that of `greedy`; with width V^L it is the best of all sequences.

    The step is called with `B W` rows: its inputs are repeated for each sequence of the beam. If the step has a fixed
    batch size, this size must be W times that of the encoder.

    Args:
        encoder: As in `greedy`.
        step: As in `greedy`. The size V of its logits (B, V), the number of tokens, must be static.
        state: As in `greedy`.
        start: As in `greedy`.
        end: As in `greedy`.
        max_length: As in `greedy`.
        width: W, the number of sequences in the beam.
        best: K, the number of sequences to return, at most W. None means W.
        length_penalty: 0 for the sum alone. The larger it is, the more it favours long sequences.
        token: As in `greedy`.
        logits: As in `greedy`.
        outputs: As in `greedy`.
        name: As in `greedy`.

    Returns:
        A model with a dict of outputs, the best sequence first: `"tokens"`, int32 (B, K, L); `"lengths"`, int32 (B, K);
        `"scores"`, float32 (B, K), after the penalty; and (B, K, L, ...) for each of `outputs`. If there are fewer than
        K sequences, the missing ones have score -inf and length 0.

    Raises:
        TypeError: If a model is not functional, or has no dict of outputs.
        ValueError: If names, shapes or dtypes do not match.

    Source: Wu et al. 2016, section 7, without the coverage penalty.
    """
    layer = BeamDecoding(
        encoder,
        step,
        state,
        start=start,
        end=end,
        max_length=max_length,
        width=width,
        best=best,
        length_penalty=length_penalty,
        token=token,
        logits=logits,
        outputs=outputs,
    )
    return _wrap_layer(layer, encoder, name)


def _wrap_layer(layer: Any, encoder: Any, name: str | None) -> Any:
    """Create a functional model of one layer, whose inputs are like those of the encoder."""
    batch = layer.batch
    inputs = {
        key: keras.Input(batch_shape=(batch, *x.shape[1:]), dtype=x.dtype, name=key)
        for key, x in inputs_by_name(encoder, "encoder").items()
    }
    return keras.Model(inputs, layer(inputs), name=layer.name if name is None else name)
