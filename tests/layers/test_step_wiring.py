"""What does not fit together gets a sentence when the model is made."""

import backends
import keras
import numpy as np
import pytest
from decoding_models import LENGTH, OPTIONS, TOKENS, WIDTH, build_cache_models, build_recurrent_models, fix_batch_size
from keras import layers, ops

from keras_attn.decoding import beam, greedy


def replaced(model, **outputs):
    """A model with other outputs beside its own."""
    return keras.Model(model.input, {**model.output, **outputs})


def fails(match, encoder, step, state, **options):
    make = beam if "width" in options else greedy
    with pytest.raises((ValueError, TypeError), match=match):
        make(encoder, step, state, **{**OPTIONS, **options})


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
def test_bad_options_are_refused(options, match):
    encoder, step, state = build_recurrent_models()
    fails(match, encoder, step, **{"state": state, **options})


def test_models_that_are_not_functional_are_refused():
    encoder, step, state = build_recurrent_models()
    fails("`step` must be a functional model, .* Received: step of type Dense", encoder, layers.Dense(2), state)
    built = keras.Sequential([keras.Input((), dtype="int32", name="token"), layers.Embedding(6, 6)])
    fails("`encoder` must be a functional model, .* Received: encoder of type Sequential", built, step, state)
    built(keras.Input((), dtype="int32"))  # whose `input` is then this one
    fails("`step` must be a functional model, .* Received: step of type Sequential", encoder, built, {})


@pytest.mark.parametrize(
    ("of_encoder", "of_step", "options", "match"),
    [
        (2, 3, {}, "1 times .* Received: encoder batch 2, step batch 3. Use a dynamic batch"),
        (2, 6, {"width": 2}, "2 times .* Received: encoder batch 2, step batch 6"),
        (None, 3, {"width": 2}, "2 times .* Received: encoder batch dynamic, step batch 3"),
    ],
)
def test_different_batches_of_encoder_and_step_are_refused(of_encoder, of_step, options, match):
    encoder, step, state = build_recurrent_models()
    match = f"The fixed batch size of the step must be {match}"
    fails(match, fix_batch_size(encoder, of_encoder), fix_batch_size(step, of_step), state, **options)


def test_models_without_names_for_their_outputs_are_refused():
    encoder, step, state = build_recurrent_models()
    single = keras.Model(encoder.input, encoder.output["values"], name="plain")
    fails("`encoder` must return a dict of tensors.* `plain`, which returns a KerasTensor", single, step, state)
    fails("`step` must return a dict of tensors", encoder, keras.Model(step.input, list(step.output.values())), state)


def test_mismatched_encoder_and_step_are_refused():
    encoder, step, state = build_recurrent_models()
    fewer = keras.Model(encoder.input, {"state": encoder.output["state"]})
    fails("Received: `values`, without a source. Rename", fewer, step, state)
    fails("Received: `state`, without", keras.Model(encoder.input, {"values": encoder.output["values"]}), step, {})
    logits, new = step.output["logits"], step.output["next_state"]
    for wrong in (ops.expand_dims(logits, 1), ops.cast(logits, "int32"), step.output["weights"]):
        fails(r"`logits` must be floats \(B, V\), with V known", encoder, replaced(step, logits=wrong), state)
    wider = replaced(step, next_state=ops.concatenate([new, new], axis=-1))
    fails(r"must fit the step input .* \(None, 8\), its input `state` \(None, 4\)", encoder, wider, state)
    half = replaced(step, next_state=ops.cast(new, "float16"))
    fails("must keep its dtype .* `next_state` is float16, its input `state` float32", encoder, half, state)
    named = replaced(step, lengths=new)
    fails("`outputs` must not contain a name of decoding's own outputs", encoder, named, state, outputs=["lengths"])
    values = encoder.output["values"]
    deeper = replaced(encoder, values=ops.expand_dims(values, 1))
    fails(r"must fit the step's input of the same name.* `values` with shape \(None, 1, None, 4\)", deeper, step, state)
    narrow = replaced(encoder, state=ops.concatenate([encoder.output["state"]] * 2, axis=-1))
    fails(r"`state` with shape \(None, 8\) of the encoder, \(None, 4\) in the step", narrow, step, state)


def test_float_token_is_refused():
    encoder, _, _ = build_recurrent_models()
    token = keras.Input((1,), name="token")
    match = r"`token` must be integers of shape \(B,\). Received: the step's input `token` .* float32"
    fails(match, encoder, keras.Model(token, {"logits": layers.Dense(3)(token)}), {})


def test_output_that_grows_with_a_cache_is_refused():
    encoder, step, state = build_cache_models()
    longer = replaced(step, seen=ops.sum(step.output["next_cache"], axis=-1))
    match = r"`outputs` must keep their shape .* `seen` with shape \(None, 6\), and \(None, 7\) a step later"
    fails(match, encoder, longer, state, outputs=["seen"])


def test_state_of_the_encoder_may_have_an_unknown_size():
    """The encoder gives it, such as the weights so far: no cache that grows, though its size is not known."""
    encoder, step, state = build_recurrent_models()
    seen = keras.Input((None,), name="seen")
    outputs = {**encoder.output, "seen": ops.zeros_like(encoder.output["values"][..., 0])}
    step = keras.Model([*step.inputs, seen], {**step.output, "next_seen": seen + step.output["weights"]})
    model = greedy(
        keras.Model(encoder.input, outputs), step, {**state, "next_seen": "seen"}, **OPTIONS, outputs=["next_seen"]
    )
    assert model.output["next_seen"].shape == (None, LENGTH, None)


@backends.run_only_on("tensorflow", "torch", reason="on JAX shapes are static, and the cache of this step grows")
def test_position_of_the_encoder_is_not_counted():
    """It is what the encoder says, and not counted."""
    encoder, step, state = build_cache_models()
    model = greedy(encoder, step, state, **OPTIONS)
    own = replaced(encoder, position=ops.cast(encoder.output["query"][:, 0] * 0 + 9, "int32"))
    other = greedy(own, step, state, **OPTIONS)
    inputs = {"first": np.ones((1, WIDTH), "float32")}
    assert not np.array_equal(*(ops.convert_to_numpy(each(inputs)["scores"]) for each in (model, other)))
