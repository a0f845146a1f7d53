"""Decoding as one model: the loop around an encoder and a step is in the graph, and in the file it is exported to.

An encoder computes once for an input what a step reads again for every token of the answer. Both are functional models
of the layers that were trained; what is made here holds them, and copies no weight.

Which input of the step gets what:

    `token`             integers (B,): the last token, first `start`
    a value of `state`  first what the encoder gives or is given under this name, else zeros, with 0 for a size that is
                        not known: a cache that is empty. After a step, its output of the key's name
    `position`          integers (B,): the number of the step, from 0; if nothing else has that name
    any other           what the encoder gives under this name, else what it is given: the same at every step

Dropout is off, whatever `training` is. Masks that tensors carry end at the encoder: pass lengths as an output.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from ._beam import BeamDecoding
from ._greedy import GreedyDecoding
from ._names import inputs_of

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
    """A model that writes the likeliest token at each step, until each row has ended.

    Of equal logits the first is taken. Rows that have ended are no longer computed, once they are more than half of
    those that are. On JAX and with `jit_compile=True`, where shapes are static, and where the inputs of the step have a
    batch of one size, the loop ends with the last row.

    Args:
        encoder: A functional model with a dict of outputs. Its inputs are those of the model.
        step: A functional model with a dict of outputs, among them the logits of the next token.
        state: From names of the step's outputs to names of its inputs, at the next step.
        start: The token before the first, or the name of what the encoder gives or is given, integers (B,).
        end: The token that ends a row; None to take all steps.
        max_length: L, the largest number of steps.
        token: The step's input for the last token.
        logits: The step's output, floats (B, V).
        outputs: Outputs of the step, (B, ...) each, that are given for every step as well, such as weights.
        name: Of the model.

    Returns:
        A model with a dict of outputs: `"tokens"`, int32 (B, L), with `end` after the end of a row, or 0 without one;
        `"lengths"`, int32 (B,), the end counted; `"scores"`, float32 (B,), the sum of the log-probabilities of a row's
        tokens; and (B, L, ...) for each of `outputs`, zeros after the end.

    Numerics:
        Scores are computed in float32 at least. A row that meets NaN among its logits has the score NaN, and its tokens
        from there on may be any: backends, onnxruntime and NumPy do not agree on the largest of numbers and NaN.

    Raises:
        TypeError: If a model is not functional, or has no dict of outputs.
        ValueError: If names, shapes or dtypes do not fit together.

    Example:
        >>> model = greedy(encoder, step, {"next_state": "state"}, start=0, end=1, max_length=20)
        >>> model.predict(texts)["tokens"]
    """
    layer = GreedyDecoding(
        encoder, step, state, start=start, end=end, max_length=max_length, token=token, logits=logits, outputs=outputs
    )
    return _model(layer, encoder, name)


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
    """A model that finds sequences of high probability by a beam search.

    The score of a sequence is the sum of its log-probabilities, divided by `((5 + length) / 6) ** length_penalty`. At
    each step every sequence of the beam is continued with every token. Of all these, in the order of the sums:

    - those among the first W that end are found; the K best by their score are kept;
    - the first W that do not end are the beam of the next step.

    After L steps what is in the beam is found too. A row is done before that as soon as it has K sequences, the last
    of which no sequence can pass any more, whatever its length: so it never ends too early. Of equal ones the first is
    taken. Of width 1, without a penalty, it is `greedy`; of width V^L it finds the best of all sequences.

    The step is called with `B W` rows: what it reads is repeated for each sequence of the beam. Where its inputs have a
    batch of one size, that must be W times the encoder's.

    Args:
        encoder: That of `greedy`.
        step: That of `greedy`, with V known.
        state: That of `greedy`.
        start: That of `greedy`.
        end: That of `greedy`.
        max_length: That of `greedy`.
        width: W, how many sequences go on at each step.
        best: K, how many are given, at most W; None for W.
        length_penalty: 0 for the sum alone; more is kinder to long sequences, less to short ones.
        token: That of `greedy`.
        logits: That of `greedy`.
        outputs: That of `greedy`.
        name: That of `greedy`.

    Returns:
        A model with a dict of outputs, the best first: `"tokens"`, int32 (B, K, L); `"lengths"`, int32 (B, K);
        `"scores"`, float32 (B, K), after the penalty; and (B, K, L, ...) for each of `outputs`. Where there are fewer
        than K sequences the others have score -inf and length 0.

    Raises:
        TypeError: If a model is not functional, or has no dict of outputs.
        ValueError: If names, shapes or dtypes do not fit together.

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
    return _model(layer, encoder, name)


def _model(layer: Any, encoder: Any, name: str | None) -> Any:
    """A functional model of one layer, with inputs like those of the encoder."""
    batch = layer.batch
    inputs = {
        key: keras.Input(batch_shape=(batch, *x.shape[1:]), dtype=x.dtype, name=key)
        for key, x in inputs_of(encoder, "encoder").items()
    }
    return keras.Model(inputs, layer(inputs), name=name)
