"""Encoders, steps and options that do not fit together: error messages of `greedy` and `beam`."""

import backends
import keras
import numpy as np
import pytest
from decoding_models import LENGTH, OPTIONS, TOKENS, WIDTH, build_cache_models, build_recurrent_models, fix_batch_size
from keras import layers, ops

from keras_attn.decoding import beam, greedy


def replace_outputs(model, **outputs):
    """Return a model with added or replaced outputs."""
    return keras.Model(model.input, {**model.output, **outputs})


def assert_fails(match, encoder, step, state, **options):
    build_model = beam if "width" in options else greedy
    with pytest.raises((ValueError, TypeError), match=match):
        build_model(encoder, step, state, **{**OPTIONS, **options})


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"logits": "scores"}, r"`logits` must name an output of the step: `logits`, .* Received: `scores`"),
        ({"token": "word"}, r"`token` must name an input of the step: `token`, `state`, `values`. Received: `word`"),
        ({"outputs": ["map"]}, "`outputs` must name an output of the step: .* Received: `map`"),
        ({"outputs": "weights"}, "`outputs` must be a list of names. Received: outputs of type str"),
        ({"state": {"new": "state"}}, "`state` must name an output of the step: .* Received: `new`"),
        ({"state": ["state"]}, "`state` must be a dict from names"),
        ({"state": {"next_state": "token"}}, "must have one source. Received: `token` twice"),
        ({"start": "first"}, "`start` must name an output or input of the encoder: .* Received: `first`"),
        ({"start": "ids"}, r"`start` must be integers of shape \(B,\). Received: `ids` of the encoder"),
        ({"start": 0.5}, "`start` must be an integer, or the name of .* Received: start of type float"),
        ({"end": True}, "`end` must be an integer or None. Received: end of type bool"),
        ({"end": TOKENS}, "`end` must be None or a token of `logits`, 0 to 5. Received: end=6"),
        ({"max_length": 0}, "`max_length` must be at least 1"),
        ({"token": 3}, "`token` must be a name. Received: token of type int"),
        ({"width": 3, "logits": "scores"}, "`logits` must name an output of the step"),
    ],
)
def test_invalid_options_are_rejected(options, match):
    encoder, step, state = build_recurrent_models()
    assert_fails(match, encoder, step, **{"state": state, **options})


def test_models_that_are_not_functional_are_rejected():
    encoder, step, state = build_recurrent_models()
    assert_fails("`step` must be a functional model, .* Received: step of type Dense", encoder, layers.Dense(2), state)
    model = keras.Sequential([keras.Input((), dtype="int32", name="token"), layers.Embedding(6, 6)])
    assert_fails("`encoder` must be a functional model, .* Received: encoder of type Sequential", model, step, state)
    model(keras.Input((), dtype="int32"))  # a call with a symbolic tensor replaces `model.input`
    assert_fails("`step` must be a functional model, .* Received: step of type Sequential", encoder, model, {})


@pytest.mark.parametrize(
    ("encoder_batch", "step_batch", "options", "match"),
    [
        (2, 3, {}, "1 times .* Received: encoder batch 2, step batch 3. Use a dynamic batch"),
        (2, 6, {"width": 2}, "2 times .* Received: encoder batch 2, step batch 6"),
        (None, 3, {"width": 2}, "2 times .* Received: encoder batch dynamic, step batch 3"),
    ],
)
def test_different_batches_of_encoder_and_step_are_rejected(encoder_batch, step_batch, options, match):
    encoder, step, state = build_recurrent_models()
    match = f"The fixed batch size of the step must be {match}"
    assert_fails(match, fix_batch_size(encoder, encoder_batch), fix_batch_size(step, step_batch), state, **options)


def test_models_with_unnamed_outputs_are_rejected():
    encoder, step, state = build_recurrent_models()
    model = keras.Model(encoder.input, encoder.output["values"], name="plain")
    assert_fails("`encoder` must return a dict of tensors.* `plain`, which returns a KerasTensor", model, step, state)
    model = keras.Model(step.input, list(step.output.values()))
    assert_fails("`step` must return a dict of tensors", encoder, model, state)


def test_mismatched_encoder_and_step_are_rejected():
    encoder, step, state = build_recurrent_models()
    model = keras.Model(encoder.input, {"state": encoder.output["state"]})
    assert_fails("Received: `values`, without a source. Rename", model, step, state)
    model = keras.Model(encoder.input, {"values": encoder.output["values"]})
    assert_fails("Received: `state`, without", model, step, {})
    logits, next_state = step.output["logits"], step.output["next_state"]
    for tensor in (ops.expand_dims(logits, 1), ops.cast(logits, "int32"), step.output["weights"]):
        model = replace_outputs(step, logits=tensor)
        assert_fails(r"`logits` must be floats \(B, V\), with V known", encoder, model, state)
    model = replace_outputs(step, next_state=ops.concatenate([next_state, next_state], axis=-1))
    assert_fails(r"must fit the step input .* \(None, 8\), its input `state` \(None, 4\)", encoder, model, state)
    model = replace_outputs(step, next_state=ops.cast(next_state, "float16"))
    assert_fails("must keep its dtype .* `next_state` is float16, its input `state` float32", encoder, model, state)
    model = replace_outputs(step, lengths=next_state)
    match = "`outputs` must not contain a name of decoding's own outputs"
    assert_fails(match, encoder, model, state, outputs=["lengths"])
    model = replace_outputs(encoder, values=ops.expand_dims(encoder.output["values"], 1))
    match = r"must fit the step's input of the same name.* `values` with shape \(None, 1, None, 4\)"
    assert_fails(match, model, step, state)
    model = replace_outputs(encoder, state=ops.concatenate([encoder.output["state"]] * 2, axis=-1))
    assert_fails(r"`state` with shape \(None, 8\) of the encoder, \(None, 4\) in the step", model, step, state)


def test_float_token_is_rejected():
    encoder, _, _ = build_recurrent_models()
    token = keras.Input((1,), name="token")
    match = r"`token` must be integers of shape \(B,\). Received: the step's input `token` .* float32"
    assert_fails(match, encoder, keras.Model(token, {"logits": layers.Dense(3)(token)}), {})


def test_output_that_grows_with_a_cache_is_rejected():
    encoder, step, state = build_cache_models()
    model = replace_outputs(step, sums=ops.sum(step.output["next_cache"], axis=-1))
    match = r"`outputs` must keep their shape .* `sums` with shape \(None, 6\), and \(None, 7\) a step later"
    assert_fails(match, encoder, model, state, outputs=["sums"])


def test_state_of_the_encoder_may_have_a_dynamic_size():
    """A sum of weights has the length of the input: its size is dynamic, but it does not grow like a cache."""
    encoder, step, state = build_recurrent_models()
    total = keras.Input((None,), name="total")
    encoder = replace_outputs(encoder, total=ops.zeros_like(encoder.output["values"][..., 0]))
    step = keras.Model([*step.inputs, total], {**step.output, "next_total": total + step.output["weights"]})
    model = greedy(encoder, step, {**state, "next_total": "total"}, **OPTIONS, outputs=["next_total"])
    assert model.output["next_total"].shape == (None, LENGTH, None)


@backends.run_only_on("tensorflow", "torch", reason="on JAX shapes are static, and the cache of this step grows")
def test_position_of_the_encoder_is_constant():
    """An encoder output `position` replaces the index of the step."""
    encoder, step, state = build_cache_models()
    nines = ops.cast(encoder.output["query"][:, 0] * 0 + 9, "int32")
    models = [greedy(model, step, state, **OPTIONS) for model in (encoder, replace_outputs(encoder, position=nines))]
    inputs = {"first": np.ones((1, WIDTH), "float32")}
    assert not np.array_equal(*(ops.convert_to_numpy(model(inputs)["scores"]) for model in models))
